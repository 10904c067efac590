//! What is said while runs go on: a bar with the remaining time on a terminal, a line per run elsewhere.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Runs that are done and runs that are to come, by how long they are likely to take.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: usize,
    total: usize,
    /// Estimated seconds of the runs done in this session, and of those to come.
    done_weight: f64,
    left_weight: f64,
    /// Seconds that those done really took, one after the other.
    took: f64,
    /// Runs at the same time.
    parallel: f64,
}

impl Progress {
    /// `done` of `total` runs are there already; `weight` is the estimate, in seconds, for all that are to come.
    pub(crate) fn new(done: usize, total: usize, weight: f64, parallel: u32) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{bar:24} {pos}/{len} runs, {msg}";
            let style = ProgressStyle::with_template(template).expect("the template is well-formed");
            let bar = ProgressBar::new(total as u64).with_style(style).with_position(done as u64);
            bar.set_message("starting");
            bar
        });
        let state = State {
            done,
            total,
            done_weight: 0.0,
            left_weight: weight,
            took: 0.0,
            parallel: f64::from(parallel),
        };
        Self { bar, state: Mutex::new(state) }
    }

    /// Something worth a line.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// A run has ended.
    pub(crate) fn finished(&self, what: &str, outcome: &Result<f64, &str>, weight: f64, took: Duration) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.done += 1;
        state.done_weight += weight;
        state.left_weight = (state.left_weight - weight).max(0.0);
        state.took += took.as_secs_f64();
        let left = shown(state.remaining());
        let left = if state.done == state.total { "done".to_owned() } else { format!("about {left} left") };
        if let Some(bar) = &self.bar {
            bar.set_position(state.done as u64);
            bar.set_message(format!("{left}; last: {what}"));
        }
        match outcome {
            Err(why) => self.say(&format!("{what}: FAILED: {why}")),
            Ok(ms) if self.bar.is_none() => {
                let (done, total) = (state.done, state.total);
                self.say(&format!("[{done}/{total}] {what}: {:.3} s ({left})", ms / 1e3));
            }
            Ok(_) => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl State {
    /// Seconds: the estimate for what is left, corrected by how long the runs so far took against theirs.
    fn remaining(&self) -> f64 {
        let factor = if self.done_weight > 0.0 { self.took / self.done_weight } else { 1.0 };
        let at_once = self.parallel.min((self.total - self.done) as f64).max(1.0);
        self.left_weight * factor / at_once
    }
}

fn shown(seconds: f64) -> String {
    match seconds as u64 {
        0..100 => format!("{seconds:.0} s"),
        100..6000 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_done() {
        let mut state =
            State { done: 4, total: 8, done_weight: 10.0, left_weight: 90.0, took: 20.0, parallel: 3.0 };
        assert_eq!(shown(state.remaining()), "60 s", "twice as long as estimated, three at a time");
        state.done = 7;
        assert_eq!(shown(state.remaining()), "3 min", "the last one is alone");
        (state.done_weight, state.took, state.left_weight) = (0.0, 0.0, 7200.0);
        assert_eq!(shown(state.remaining()), "2.0 h", "nothing is known yet");
    }
}
