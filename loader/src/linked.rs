//! Page-in linking in the loader: pages with relative relocations, ready to be given to each process with its load bias added.
//!
//! Such a page never enters the memory file: a process that found it there would have it without a fault, and unrelocated. So it
//! is kept here, and every process gets a private copy (`UFFDIO_COPY`), as it would have after the dynamic linker had written
//! to it: ahead, if the process is known when the page arrives, else when it touches the page. Forks have the load bias of
//! their parent, further instances one of their own. The pages that must be in the memory file before exec are relocated in the program
//! itself, before its first instruction.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use pagein_elf::Program;
use pagein_image::{LinkedPage, PAGE_SIZE, PageNo};
use pagein_uffd::MemoryFile;

use crate::launch::Launched;
use crate::processes::{Process, Waiter, lock};
use crate::trouble::Trouble;

/// Most pages that are installed by one call: bounds the buffer (256 KiB).
const MAX_RUN: usize = 64;

type Pages = BTreeMap<PageNo, Arc<LinkedPage>>;

/// The linked pages that are here.
#[derive(Debug, Default)]
pub(crate) struct LinkedStore {
    pages: Mutex<Pages>,
    /// Those in the memory file, in file form.
    early: Mutex<Pages>,
}

impl LinkedStore {
    /// A page has arrived. Who waits for it must be woken or supplied afterwards.
    pub(crate) fn keep(&self, page: PageNo, linked: LinkedPage) {
        lock(&self.pages).insert(page, Arc::new(linked));
    }

    /// A page has arrived that goes into the memory file before exec, in file form.
    pub(crate) fn keep_early(&self, page: PageNo, linked: LinkedPage) {
        lock(&self.early).insert(page, Arc::new(linked));
    }

    /// Whether the page is given to each process from here.
    pub(crate) fn has(&self, page: PageNo) -> bool {
        lock(&self.pages).contains_key(&page)
    }

    /// Number of pages that are here.
    pub(crate) fn count(&self) -> u32 {
        (lock(&self.pages).len() + lock(&self.early).len()) as u32
    }

    /// The program stands before its first instruction: relocates what it has already, in its own copies.
    pub(crate) fn launched(&self, launched: &Launched, program: &Program) -> Result<(), Trouble> {
        let bias = launched.bias();
        for (number, linked) in lock(&self.early).iter() {
            let bytes = linked.at(bias);
            for part in parts(program, *number) {
                launched.write(part.address.wrapping_add(bias), &bytes[part.bytes])?;
            }
        }
        Ok(())
    }

    /// Gives a page to who waits for it, if it is here: `false` if it is not, and nothing was done.
    pub(crate) fn supply(&self, page: PageNo, waiter: &Waiter) -> bool {
        let Some(linked) = lock(&self.pages).get(&page).cloned() else { return false };
        // The page may be there (another thread waited too), or the process forks or remaps: that event must be read first,
        // so it faults again. If the mapping has gone there is nobody to be served.
        let _ = waiter.process.userfault.copy(waiter.address, &linked.at(waiter.process.bias));
        waiter.wake();
        true
    }

    /// Gives pages that have just arrived to all processes, so that they need not fault. What fails is supplied on a fault.
    pub(crate) fn copy_ahead(&self, pages: &[PageNo], processes: &[Arc<Process>]) {
        let all = lock(&self.pages);
        let here: Pages = pages.iter().filter_map(|page| Some((*page, Arc::clone(all.get(page)?)))).collect();
        drop(all);
        for process in processes {
            let _ = copy_into(process, &here);
        }
    }

    /// Gives every page that is here to all processes. `true` if none of them misses any of these pages any more, nor can a
    /// child that nobody knows of.
    pub(crate) fn copy_all(&self, processes: &[Arc<Process>]) -> bool {
        let here = lock(&self.pages).clone();
        // While an unread fork event is there the kernel refuses to install anything in the parent; children made after the
        // parent had all pages have them too.
        processes.iter().all(|process| copy_into(process, &here).is_ok())
    }

    /// All pages of the program are here: brings it into a state in which no pager is needed, if that can be done now.
    /// To be called on the thread that reads fork events.
    pub(crate) fn finish(&self, processes: &[Arc<Process>], memory: &MemoryFile) -> bool {
        let everywhere = self.copy_all(processes);
        // Nobody finds these pages there now but who maps the file again, as it could map the program's file.
        everywhere
            && lock(&self.pages)
                .iter()
                .all(|(page, linked)| memory.write(page.offset().0, &linked.file_form()).is_ok())
    }
}

/// Installs pages in one process, wherever it has them mapped. An error if one of them may still be missing there.
fn copy_into(process: &Process, pages: &Pages) -> io::Result<()> {
    let map = lock(&process.map).clone();
    for (range, offset) in map.iter() {
        let first = offset.page();
        let end = PageNo(first.0 + ((range.end - range.start) / PAGE_SIZE as u64) as u32);
        let address = |page: PageNo| range.start + u64::from(page.0 - first.0) * PAGE_SIZE as u64;
        let mut run: Vec<u8> = Vec::new();
        let mut start = first;
        for (page, linked) in pages.range(first..end) {
            let follows = start.0 as usize + run.len() / PAGE_SIZE == page.0 as usize;
            if !follows || run.len() == MAX_RUN * PAGE_SIZE {
                copy_run(process, address(start), &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = *page;
            }
            run.extend_from_slice(&linked.at(process.bias));
        }
        copy_run(process, address(start), &run)?;
    }
    Ok(())
}

fn copy_run(process: &Process, address: u64, run: &[u8]) -> io::Result<()> {
    let gone = |error: &io::Error| error.raw_os_error() == Some(nix::libc::ESRCH);
    let no_mapping = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match process.userfault.copy(address, run) {
        // mprotect has split the mapping, or part of it has gone: page by page.
        Err(error) if no_mapping(&error) => {
            let places = (address..).step_by(PAGE_SIZE).zip(run.chunks_exact(PAGE_SIZE));
            places.map(|(at, page)| process.userfault.copy(at, page)).try_for_each(|copied| match copied {
                Err(error) if !no_mapping(&error) && !gone(&error) => Err(error),
                _ => Ok(()),
            })
        }
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    }
}

/// A part of a page that a segment has in memory.
struct Part {
    /// Address of its first byte, without load bias.
    address: u64,
    /// Which bytes of the page.
    bytes: std::ops::Range<usize>,
}

/// Where the bytes of a page belong: not to the rest of a page that is mapped twice, nor to what the kernel has zeroed.
fn parts(program: &Program, page: PageNo) -> impl Iterator<Item = Part> {
    let in_file = page.offset().0..page.offset().0 + PAGE_SIZE as u64;
    program.segments.iter().filter_map(move |segment| {
        let start = segment.offset.0.max(in_file.start);
        let end = (segment.offset.0 + segment.file_size).min(in_file.end);
        let address = (start < end).then(|| segment.vaddr.0 + (start - segment.offset.0))?;
        // A later segment may lie over this one's page.
        (program.page_at(pagein_elf::VirtAddr(address)) == Some(page)).then(|| Part {
            address,
            bytes: (start - in_file.start) as usize..(end - in_file.start) as usize,
        })
    })
}
