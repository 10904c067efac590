//! `pagein record`: a local program under the pager, every first touch noted.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use memmap2::Mmap;
use pagein_elf::{LinkPlan, Program};
use pagein_image::{Digest, PAGE_SIZE, PageNo};
use pagein_model::{Access, FirstTouch, Trace};
use pagein_uffd::{MemoryFile, Userfault, process};

use crate::faults::{Fault, FaultLoop, Pager};
use crate::guard::{Guard, Ward};
use crate::launch::{check_interpreter, launch, memory_file, pidfd};
use crate::linked::LinkedStore;
use crate::processes::lock;
use crate::self_reads::SelfReads;
use crate::start::{Front, become_program};
use crate::tell::{MemoryId, say};
use crate::trouble::Trouble;
use crate::watch::Watch;
use crate::{Failure, waiter};

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordConfig {
    /// The program: a path, or a name to be found in PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where the trace goes.
    pub output: PathBuf,
    /// Apply relative relocations as pages come in, as `run` does by default: what only the dynamic linker would touch is not
    /// in the trace.
    pub page_in_linking: bool,
}

/// Runs the program and writes its trace. Returns how the program ended.
pub fn record(config: &RecordConfig) -> Result<ExitCode, Failure> {
    let path = find_program(&config.program)?;
    let file = File::open(&path).map_err(Trouble::file(&path))?;
    let map = pagein_uffd::map_file(&file).map_err(Trouble::file(&path))?;
    let program = Program::parse_file(&map).map_err(|error| elf_trouble(&path, error))?;
    check_interpreter(&path.display().to_string(), &program)?;
    Userfault::probe().map_err(Trouble::from)?;
    let argv = std::iter::once(&config.program).chain(&config.args).map(crate::run::c_string);
    let argv: Vec<CString> = argv.collect::<Result<_, _>>()?;
    // Written when the program has ended; a path that cannot be written must not cost a run.
    let directory =
        config.output.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut out = tempfile::NamedTempFile::new_in(directory).map_err(Trouble::file(&config.output))?;

    let ended = waiter::wait_for(|pipe| {
        let failure =
            become_program(Some(&argv[0]), &argv[1..], &[pipe.as_raw_fd(), file.as_raw_fd()], |front| {
                process::set_title("pagein", &format!("pagein: recorder of process {}", front.pid()));
                let links = config.page_in_linking.then(|| LinkPlan::new(&map, &program).ok()).flatten();
                let recording = Recording {
                    front: &front,
                    path: &path,
                    map: &map,
                    program: &program,
                    links: links.as_ref(),
                };
                let outcome = recording.run(pipe, &argv);
                front.report(outcome)
            });
        eprintln!("pagein: {failure}");
        i32::from(failure.code)
    })?;
    if ended.report.is_empty() {
        return Ok(ended.end_alike());
    }
    out.write_all(&ended.report).map_err(Trouble::file(&config.output))?;
    let keep = out.persist(&config.output).map_err(|error| Trouble::file(&config.output)(error.error))?;
    // A temporary file is private; a trace need not be.
    let _ = keep.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    Ok(ended.end_alike())
}

fn elf_trouble(path: &Path, error: pagein_elf::ElfError) -> Trouble {
    Trouble::Elf { program: path.display().to_string(), error }
}

/// Looks a program up as a shell does; its file, whatever links lead there.
pub fn find_program(name: &OsString) -> Result<PathBuf, Failure> {
    let found = find_named(name)?;
    std::fs::canonicalize(&found).map_err(|error| Trouble::file(&found)(error).into())
}

/// The same, but the path has the name that was given, which may be that of a link: some programs do what their name says.
pub fn find_named(name: &OsString) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(name)).collect()
    };
    let found = candidates.iter().find(|path| path.is_file());
    let missing = || Failure {
        code: Failure::NOT_FOUND,
        text: format!("{}: there is no such program; give its path", name.display()),
    };
    found.cloned().ok_or_else(missing)
}

struct Recording<'a> {
    front: &'a Front,
    path: &'a Path,
    map: &'a Mmap,
    program: &'a Program,
    links: Option<&'a LinkPlan>,
}

impl Recording<'_> {
    fn run(&self, pipe: OwnedFd, argv: &[CString]) -> Result<(), Trouble> {
        let guard = Guard::start().map_err(Trouble::system("cannot start the guard"))?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let size = self.map.len() as u64;
        let memory = memory_file(&name, size)?;
        let id = memory.id().map_err(Trouble::system("cannot stat the memory file"))?;
        let memory_id = MemoryId { device: id.0, inode: id.1 };
        let exec_pages = self.program.exec_pages();
        let linked = LinkedStore::default();
        for (page, linked_page) in self.links.iter().flat_map(|links| links.pages()) {
            let keep = if exec_pages.contains(&page) { LinkedStore::keep_early } else { LinkedStore::keep };
            keep(&linked, page, linked_page.clone());
        }
        let pager = Recorder {
            file: self.map,
            memory,
            linked,
            state: Mutex::new(State::new(pagein_image::page_count(size))),
            ended: Mutex::new(Some(Finish {
                pipe: pipe.into(),
                trace: Trace {
                    program: self.path.display().to_string(),
                    size,
                    digest: Digest::of(self.map),
                    command: argv.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
                    reads_self: false,
                    ended_us: None,
                    touches: Vec::new(),
                },
                self_reads: SelfReads::watch(self.path, self.front.pid()),
            })),
        };
        for page in exec_pages {
            pager.touch(page, Access::Exec, 1, self.front.pid().as_raw() as u32)?;
        }
        let ward = Ward { program: name, source: self.path.display().to_string(), memory: memory_id };
        let watched = pidfd(self.front.pid())?;
        let cannot_watch = Trouble::system("cannot watch for faults");
        let watch = Watch::new(guard, ward).map(Arc::new);
        let faults =
            watch.and_then(|watch| Ok((FaultLoop::new(&pager, Arc::clone(&watch), watched)?, watch)));
        let (faults, watch) = faults.map_err(cannot_watch)?;
        let launched = launch(self.front, self.path, self.program, &pager.memory)?;
        pager.linked.launched(&launched, self.program)?;
        launched.go(|userfault, map, bias| {
            lock(&pager.state).started = Instant::now();
            let added = watch.add(userfault, map, bias);
            added.map(drop).map_err(Trouble::system("cannot watch the program's faults"))
        })?;
        faults.run();
        Ok(())
    }
}

struct Recorder<'a> {
    file: &'a Mmap,
    memory: MemoryFile,
    linked: LinkedStore,
    state: Mutex<State>,
    ended: Mutex<Option<Finish>>,
}

struct State {
    present: Vec<bool>,
    started: Instant,
    touches: Vec<FirstTouch>,
    /// Thread ids in the order of their first touches.
    threads: Vec<u32>,
}

impl State {
    fn new(page_count: u32) -> Self {
        Self {
            present: vec![false; page_count as usize],
            started: Instant::now(),
            touches: Vec::new(),
            threads: Vec::new(),
        }
    }
}

struct Finish {
    pipe: File,
    trace: Trace,
    self_reads: Option<SelfReads>,
}

impl Recorder<'_> {
    /// Brings a page in, if it is not there, and notes the touch.
    fn touch(&self, page: PageNo, access: Access, process: u32, thread: u32) -> Result<(), Trouble> {
        let mut state = lock(&self.state);
        if state.present[page.index()] {
            return Ok(());
        }
        if !self.linked.has(page) {
            let start = page.offset().0 as usize;
            let end = (start + PAGE_SIZE).min(self.file.len());
            let mut bytes = [0; PAGE_SIZE];
            bytes[..end - start].copy_from_slice(&self.file[start..end]);
            let written = self.memory.write(page.offset().0, &bytes);
            written.map_err(Trouble::system("cannot put a page into memory (is it full?)"))?;
        }
        state.present[page.index()] = true;
        let time_us = if access == Access::Exec { 0 } else { state.started.elapsed().as_micros() as u64 };
        let known = state.threads.iter().position(|&id| id == thread);
        let thread_number = known.unwrap_or_else(|| {
            state.threads.push(thread);
            state.threads.len() - 1
        });
        let thread = thread_number as u32 + 1;
        state.touches.push(FirstTouch { time_us, page, access, process, thread });
        Ok(())
    }
}

impl Pager for Recorder<'_> {
    fn fault(&self, fault: Fault) {
        let access = if fault.write { Access::Write } else { Access::Read };
        let process = &fault.waiter.process;
        match self.touch(fault.page, access, process.number, fault.thread) {
            Ok(()) if self.linked.supply(fault.page, &fault.waiter) => {}
            Ok(()) => fault.waiter.wake(),
            Err(trouble) => {
                say(&format!("page {}: {trouble}", fault.page));
                fault.waiter.refuse();
            }
        }
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn finish(&self) -> bool {
        false
    }

    fn program_ended(&self) {
        if let Some(mut finish) = lock(&self.ended).take() {
            {
                let mut state = lock(&self.state);
                finish.trace.ended_us = Some(state.started.elapsed().as_micros() as u64);
                finish.trace.touches = std::mem::take(&mut state.touches);
            }
            finish.trace.reads_self = finish.self_reads.is_some_and(|watch| watch.seen());
            // If the waiting process has gone, nobody wants the trace.
            let _ = finish.pipe.write_all(finish.trace.to_string().as_bytes());
        }
    }
}
