//! The log of a link: one CSV row per direction and interval, ready to be plotted.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::statistics::{Sample, Statistics};
use crate::{clock::Clock, link::Link};

/// Time between two rows of one direction.
const INTERVAL: Duration = Duration::from_millis(100);

/// The columns. Times in ms since the link came up; bytes with IP headers; delivered, throughput and dropped belong to the
/// interval that ends at the row's time, the queue to that moment and its peak to the interval.
const HEADER: &str = "time_ms,direction,queue_packets,queue_bytes,queue_peak_bytes,delivered_packets,delivered_bytes,\
                      throughput_bit_per_s,dropped_packets,dropped_bytes";

/// Writes the log until it is dropped; then one last row, for the rest.
pub(super) struct Log {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Starts to write to `path`, which is replaced. Comment lines in front say what the link was.
    pub(super) fn start(
        path: &Path,
        link: &Link,
        up: Arc<Statistics>,
        down: Arc<Statistics>,
    ) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        for (name, direction) in [("up", &link.up), ("down", &link.down)] {
            writeln!(
                out,
                "# {name}: rate {}, delay {:?} + {}, queue {}, loss {}",
                direction.rate, direction.delay, direction.jitter, direction.queue, direction.loss
            )?;
        }
        writeln!(out, "{HEADER}")?;
        out.flush()?;
        let (stop, stopped) = mpsc::channel();
        let clock = Clock::new();
        let thread = thread::Builder::new().name("link log".into()).spawn(move || {
            let mut directions = [("up", up, Sample::default()), ("down", down, Sample::default())];
            let mut last = clock.now();
            let mut due = last;
            loop {
                due += INTERVAL;
                let ended = !matches!(
                    stopped.recv_timeout(due.since(clock.now())),
                    Err(mpsc::RecvTimeoutError::Timeout)
                );
                let now = clock.now();
                for (name, statistics, before) in &mut directions {
                    let sample = statistics.sample();
                    // A full disk must not stop the command; the log just ends.
                    let _ = write_row(
                        &mut out,
                        now.as_secs_f64(),
                        now.since(last).as_secs_f64(),
                        name,
                        before,
                        &sample,
                    );
                    *before = sample;
                }
                let _ = out.flush();
                last = now;
                if ended {
                    return;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_row(
    out: &mut impl Write,
    at: f64,
    interval: f64,
    name: &str,
    before: &Sample,
    now: &Sample,
) -> io::Result<()> {
    let delivered = now.delivered_bytes - before.delivered_bytes;
    writeln!(
        out,
        "{:.1},{name},{},{},{},{},{delivered},{:.0},{},{}",
        at * 1e3,
        now.queued_packets,
        now.queued_bytes,
        now.peak_bytes,
        now.delivered_packets - before.delivered_packets,
        delivered as f64 * 8.0 / interval.max(1e-9),
        now.dropped_packets - before.dropped_packets,
        now.dropped_bytes - before.dropped_bytes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_value_for_every_column_and_holds_differences() {
        let before =
            Sample { delivered_packets: 1, delivered_bytes: 1500, dropped_packets: 4, ..Sample::default() };
        let now = Sample {
            delivered_packets: 3,
            delivered_bytes: 14_000,
            dropped_packets: 5,
            dropped_bytes: 99,
            queued_packets: 7,
            queued_bytes: 700,
            peak_bytes: 900,
        };
        let mut row = Vec::new();
        write_row(&mut row, 0.2, 0.1, "up", &before, &now).unwrap();
        let row = String::from_utf8(row).unwrap();
        assert_eq!(row, "200.0,up,7,700,900,2,12500,1000000,1,99\n");
        assert_eq!(row.split(',').count(), HEADER.split(',').count());
    }
}
