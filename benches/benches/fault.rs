//! What one page fault costs: the kernel's own, and one that is served by a pager from memory.
//!
//! The faulting thread and the pager are two threads of this process; `pagein run` has two processes, which adds a switch
//! of address spaces. Each measurement touches fresh pages one after another, so a figure is one whole round: fault,
//! message, page, wake, return.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pagein_image::PAGE_SIZE;
use pagein_uffd::{Event, MemoryFile, PrivateMap, Userfault};

/// Pages touched before a new file is made: 16 MiB, so that a sample needs little memory.
const BATCH: u64 = 4096;
/// Distance of the pages touched, bytes. The kernel's fault-around maps neighbours within an aligned 64 KiB that are in the
/// file (`do_fault_around` in its mm/memory.c); at this distance each touch is one fault and brings one page.
const SPACING: u64 = 16 * PAGE_SIZE as u64;

/// How the pager answers.
#[derive(Clone, Copy)]
enum Answer {
    /// As the loader: the page goes into the file, then the thread is woken.
    WriteAndWake,
    /// A private page, in one system call.
    Copy,
}

/// The kernel's own fault on a page that the file has.
fn kernel(pages: u64) -> Duration {
    let memory = file(pages);
    fill(&memory, pages);
    touch_all(&map(&memory, pages), pages)
}

/// A fault on a hole, brought in by a pager thread.
fn paged(pages: u64, answer: Answer) -> Duration {
    let memory = file(pages);
    let map = map(&memory, pages);
    let userfault = Userfault::for_this_process().expect("run as root: userfaultfd is needed");
    userfault.register(&map.range()).expect("registration");
    let start = map.range().start;
    thread::scope(|scope| {
        scope.spawn(|| serve(&userfault, &memory, start, pages, answer));
        touch_all(&map, pages)
    })
}

fn serve(userfault: &Userfault, memory: &MemoryFile, start: u64, pages: u64, answer: Answer) {
    let page = [1; PAGE_SIZE];
    let mut served = 0;
    while served < pages {
        let mut fds = [PollFd::new(userfault.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).expect("poll");
        for event in userfault.events().expect("events") {
            let Event::Fault { address, .. } = event else { continue };
            if matches!(answer, Answer::Copy) {
                userfault.copy(address, &page).expect("copy");
            } else {
                memory.write(address - start, &page).expect("memory");
                userfault.wake(&(address..address + PAGE_SIZE as u64)).expect("wake");
            }
            served += 1;
        }
    }
}

/// What a page costs that comes before it is touched: written by one thread, a kernel fault of the other.
fn streamed(pages: u64) -> Duration {
    let memory = file(pages);
    let map = map(&memory, pages);
    let userfault = Userfault::for_this_process().expect("run as root: userfaultfd is needed");
    userfault.register(&map.range()).expect("registration");
    let started = Instant::now();
    fill(&memory, pages);
    started.elapsed() + touch_all(&map, pages)
}

fn file(pages: u64) -> MemoryFile {
    MemoryFile::new("bench", pages * SPACING).expect("a memory file")
}

fn fill(memory: &MemoryFile, pages: u64) {
    for page in 0..pages {
        memory.write(page * SPACING, &[1; PAGE_SIZE]).expect("memory");
    }
}

fn map(memory: &MemoryFile, pages: u64) -> PrivateMap {
    PrivateMap::new(memory, (pages * SPACING) as usize).expect("a mapping")
}

fn touch_all(map: &PrivateMap, pages: u64) -> Duration {
    let touches = (0..pages).map(|page| {
        let started = Instant::now();
        std::hint::black_box(map.touch((page * SPACING) as usize));
        started.elapsed()
    });
    let touches: Vec<Duration> = touches.collect();
    let sum = touches.iter().sum();
    TOUCHES.with_borrow_mut(|all| all.extend(touches));
    sum
}

thread_local! {
    /// Every single touch of the measurement that is under way.
    static TOUCHES: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) };
}

/// What a mean does not show: how long the slow ones take.
fn print_percentiles(name: &str) {
    let mut touches = TOUCHES.take();
    touches.sort_unstable();
    let at = |share: f64| touches[((touches.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!("{name}: median {:.1} us, 99 % {:.1} us, 99.9 % {:.1} us", at(0.5), at(0.99), at(0.999));
}

fn in_batches(iterations: u64, once: impl Fn(u64) -> Duration) -> Duration {
    // Always whole batches, so that a figure does not depend on how many iterations were asked for.
    let batches = iterations.div_ceil(BATCH);
    let total: Duration = (0..batches).map(|_| once(BATCH)).sum();
    total.mul_f64(iterations as f64 / (batches * BATCH) as f64)
}

fn faults(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fault");
    group.sampling_mode(SamplingMode::Flat).sample_size(40);
    group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(5));
    group.bench_function("kernel, page in the file", |b| b.iter_custom(|n| in_batches(n, kernel)));
    print_percentiles("kernel, page in the file");
    group.bench_function("page written before it is touched", |b| b.iter_custom(|n| in_batches(n, streamed)));
    print_percentiles("the touch alone of a page written before");
    for (name, answer) in
        [("pager, write and wake", Answer::WriteAndWake), ("pager, UFFDIO_COPY", Answer::Copy)]
    {
        group.bench_function(name, |b| b.iter_custom(|n| in_batches(n, |pages| paged(pages, answer))));
        print_percentiles(name);
    }
    group.finish();
}

criterion_group!(benches, faults);
criterion_main!(benches);
