//! What the tests of failures share: the command, a program that touches the pages it is told to, its images, and
//! a workbench that finds out what a command has left behind.

mod book;
mod live;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagein_testkit::{Finished, run, run_with_input};
use tempfile::TempDir;

pub use crate::binary::pagein_binary as pagein;
pub use book::{Book, PAGES};
pub use live::Live;

/// Longer than any command here takes on a loaded machine; what takes longer hangs.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Every policy but `auto`.
pub const POLICIES: [&str; 5] = ["original", "paged", "reordered-paged", "reordered", "streamed"];

/// A directory, a cache and a mark on every process of one test. When it is dropped, nothing may be left of them.
pub struct Bench {
    dir: TempDir,
    mark: String,
}

impl Bench {
    /// A fresh one.
    #[allow(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new().prefix("pagein-broken-").tempdir().expect("room in /tmp");
        // Others may look in, for the test that runs as somebody else.
        open_to_all(dir.path());
        std::fs::create_dir(dir.path().join("tmp")).expect("room in /tmp");
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { dir, mark }
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The cache that the commands use unless told otherwise.
    pub fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    /// Writes an executable file.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room in /tmp");
        open_to_all(&path);
        path
    }

    /// `program` with the marks on it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("PAGEIN_CACHE", self.cache()).env("TMPDIR", self.path("tmp"));
        command.env("PAGEIN_TEST_MARK", &self.mark).current_dir(self.dir.path());
        command
    }

    /// `pagein` with these arguments.
    pub fn pagein<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(pagein());
        command.args(args);
        command
    }

    /// Runs `pagein` with these arguments to its end.
    #[track_caller]
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        run(&mut self.pagein(args), DEADLINE)
    }

    /// Runs the book from `source` under `policy` with `input`.
    #[track_caller]
    pub fn read_book(&self, policy: &str, source: &str, input: &str) -> Finished {
        let mut command = self.pagein(["run", "--timeout=1", "--attempts=2", "--policy", policy, source]);
        run_with_input(&mut command, input.as_bytes(), DEADLINE)
    }

    /// The live processes that carry the mark, by what the kernel calls them.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let mark = format!("PAGEIN_TEST_MARK={}\0", self.mark).into_bytes();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter_map(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let marked = environment.windows(mark.len()).any(|window| window == mark);
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            marked.then(|| (Pid::from_raw(pid), name.trim_end().to_owned()))
        })
        .collect()
    }

    /// The process of this test that has the name `name`; there must be one within a second.
    #[track_caller]
    pub fn process(&self, name: &str) -> Pid {
        let start = Instant::now();
        loop {
            let all = self.processes();
            let found: Vec<Pid> = all.iter().filter(|(_, comm)| comm == name).map(|(pid, _)| *pid).collect();
            match found[..] {
                [one] => return one,
                _ if start.elapsed() < Duration::from_secs(1) => std::thread::sleep(Duration::from_millis(5)),
                _ => panic!("not one process {name}: {all:?}"),
            }
        }
    }

    /// Files below the cache, relative to it, but for the empty ones that are only locked and sockets; those that are still
    /// being written begin with a dot.
    pub fn cached(&self) -> BTreeSet<String> {
        let is_content = |path: &String| path != "lock" && !path.starts_with("pagers/");
        files_below(&self.cache()).into_iter().filter(is_content).collect()
    }

    #[track_caller]
    fn check(&self) {
        let start = Instant::now();
        // The pager sees the program's end a moment after everybody else.
        while !self.processes().is_empty() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.processes();
        for (pid, _) in &left {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        assert!(left.is_empty(), "processes are left: {left:?}");
        let temporary = files_below(&self.path("tmp"));
        assert!(temporary.is_empty(), "temporary files are left: {temporary:?}");
        let unfinished: Vec<_> =
            self.cached().into_iter().filter(|path| path.contains("/.") || path.starts_with('.')).collect();
        assert!(unfinished.is_empty(), "unfinished files are left in the cache: {unfinished:?}");
        let hidden: Vec<_> =
            files_below(self.dir.path()).into_iter().filter(|path| path.contains(".pagein-")).collect();
        assert!(hidden.is_empty(), "unfinished images are left: {hidden:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Paths of all files and empty directories below `root`, relative to it.
pub fn files_below(root: &Path) -> BTreeSet<String> {
    fn walk(root: &Path, path: &Path, found: &mut BTreeSet<String>) {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let shown = path.strip_prefix(root).expect("it is below").display().to_string();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(root, &path, found);
            }
            if !path.is_dir() || std::fs::read_dir(&path).is_ok_and(|mut rest| rest.next().is_none()) {
                found.insert(shown);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(root, root, &mut found);
    found
}

/// Copies an image.
pub fn copy_image(from: &Path, to: &Path) {
    for name in files_below(from) {
        let target = to.join(&name);
        std::fs::create_dir_all(target.parent().expect("it was joined")).expect("room in /tmp");
        std::fs::copy(from.join(&name), target).expect("room in /tmp");
    }
}

/// Makes a file or directory readable and executable for everybody.
pub fn open_to_all(path: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("it is ours");
}

/// Asserts that a command failed with `code`, that stderr has exactly one line, and that it has all `words`.
#[track_caller]
pub fn assert_failed(done: &Finished, code: i32, words: &[&str]) {
    let stderr = done.stderr();
    assert_eq!(done.code(), code, "{done:?}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("pagein: "), "one line of pagein's: {done:?}");
    assert_words(&stderr, words);
    assert_eq!(done.stdout(), "", "{done:?}");
}

/// Asserts that `text` has all `words`.
#[track_caller]
pub fn assert_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}
