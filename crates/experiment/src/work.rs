//! Works through the runs, several at a time if the scenario says so, but never two of one cell.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::grid::Task;

struct Queue {
    waiting: VecDeque<Task>,
    /// Cells that have a run going on.
    busy: HashSet<usize>,
    /// Somebody failed: nothing new is started.
    stopped: bool,
}

/// Calls `work` for every task, on `workers` threads, in order as far as cells are free. The first error ends it, when the
/// tasks that are going on have ended.
pub(crate) fn work_through<E: Send>(
    tasks: Vec<Task>,
    workers: usize,
    work: impl Fn(Task) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let queue = Mutex::new(Queue { waiting: tasks.into(), busy: HashSet::new(), stopped: false });
    let changed = Condvar::new();
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                while let Some(task) = next(&queue, &changed) {
                    let outcome = work(task);
                    let mut queue = lock(&queue);
                    queue.busy.remove(&task.cell);
                    if let Err(error) = outcome {
                        queue.stopped = true;
                        lock(&failure).get_or_insert(error);
                    }
                    changed.notify_all();
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn next(queue: &Mutex<Queue>, changed: &Condvar) -> Option<Task> {
    let mut queue = lock(queue);
    loop {
        if queue.stopped || queue.waiting.is_empty() {
            return None;
        }
        let free = queue.waiting.iter().position(|task| !queue.busy.contains(&task.cell));
        if let Some(task) = free.and_then(|index| queue.waiting.remove(index)) {
            queue.busy.insert(task.cell);
            return Some(task);
        }
        queue = changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn all_are_done_and_no_cell_runs_twice_at_a_time() {
        let tasks: Vec<Task> = (0..200).map(|n| Task { cell: n % 3, repeat: n as u32 }).collect();
        let busy: [AtomicU32; 3] = Default::default();
        let done = Mutex::new(Vec::new());
        let outcome: Result<(), ()> = work_through(tasks.clone(), 8, |task| {
            assert_eq!(busy[task.cell].fetch_add(1, Ordering::SeqCst), 0);
            thread::yield_now();
            busy[task.cell].fetch_sub(1, Ordering::SeqCst);
            lock(&done).push(task.repeat);
            Ok(())
        });
        outcome.unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_it() {
        let tasks: Vec<Task> = (0..100).map(|cell| Task { cell, repeat: 1 }).collect();
        let outcome = work_through(tasks, 1, |task| if task.cell == 3 { Err(task.cell) } else { Ok(()) });
        assert_eq!(outcome, Err(3));
    }
}
