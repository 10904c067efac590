//! What the program does: the pages that it touches first, in order, and what it computes in between.

use std::time::Duration;

use pagein_image::{Manifest, PageNo};
use pagein_model::{Access, FirstTouch, Trace};

/// A page's first touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The page.
    pub page: PageNo,
    /// The program's own time since the touch before it (the first: since the first instruction).
    pub think: Duration,
}

/// One run of a program, as if it had one thread: one line of touches with times between them.
///
/// Processes and threads of a trace are taken as that line, in the order of the trace. A program whose threads really run at the
/// same time while one of them waits for a page is quicker than that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The touches, without those of the kernel at exec.
    pub touches: Vec<Touch>,
    /// The program's own time after the last touch.
    pub rest: Duration,
}

impl Job {
    /// A recorded run. What the recorder's own service of each fault took is not the program's time: the quickest tenth of all
    /// gaps between touches has nearly nothing else in it, so its upper end is taken off every gap. A trace that does not say when
    /// the program ended is taken to end with its last touch.
    pub fn from_trace(trace: &Trace) -> Self {
        let touches: Vec<_> = trace.touches.iter().filter(|touch| touch.access != Access::Exec).collect();
        let mut before = 0;
        let mut gap =
            |touch: &&FirstTouch| touch.time_us.saturating_sub(std::mem::replace(&mut before, touch.time_us));
        let gaps: Vec<u64> = touches.iter().map(&mut gap).collect();
        let service = quantile(&gaps, 0.1);
        let think = |gap: u64| Duration::from_micros(gap.saturating_sub(service));
        let last = touches.last().map_or(0, |touch| touch.time_us);
        let rest = trace.ended_us.unwrap_or(last).saturating_sub(last);
        let touch = |(touch, &gap): (&&FirstTouch, _)| Touch { page: touch.page, think: think(gap) };
        Self { touches: touches.iter().zip(&gaps).map(touch).collect(), rest: Duration::from_micros(rest) }
    }

    /// No run is known: every hot page in its order, and no time of the program's own.
    pub fn in_order(manifest: &Manifest) -> Self {
        let touch = |&page| Touch { page, think: Duration::ZERO };
        Self { touches: manifest.hot_pages.iter().map(touch).collect(), rest: Duration::ZERO }
    }

    /// The program's own time.
    pub fn cpu(&self) -> Duration {
        self.touches.iter().map(|touch| touch.think).sum::<Duration>() + self.rest
    }
}

fn quantile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0)
}
