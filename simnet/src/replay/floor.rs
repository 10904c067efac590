//! The floor: what no loader could do better on a link.

use std::time::Duration;

use super::{Host, Image, Job, pages::Pages};
use crate::{
    link::Link,
    tcp::{Event, Request, TcpNetwork},
    time::Time,
};

/// The least that a start needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// To the program's end, if the link were at its full rate from the first response on.
    pub total: Duration,
    /// The same with the slow start of one TCP connection.
    pub slow_start: Duration,
    /// Compressed bytes of the pages that the job touches.
    pub bytes: u64,
}

/// The round trips of a connection and a request, then the compressed pages that the job really touches, in touch order, at link
/// rate (what packet headers leave of it), overlapped with the program's own CPU time. Costs of pagein itself are not in
/// it; of `host` only TCP counts.
pub fn floor(image: &Image<'_>, job: &Job, link: &Link, host: &Host) -> Floor {
    let pages = Pages::new(image);
    let mut ends = Vec::with_capacity(job.touches.len());
    let exec: f64 = pages.exec_pages().iter().map(|&page| pages.ideal_bytes(page)).sum();
    let mut seen: Vec<bool> = vec![false; image.manifest.page_count() as usize];
    pages.exec_pages().iter().for_each(|page| seen[page.index()] = true);
    let mut sum = exec;
    for touch in &job.touches {
        if !std::mem::replace(&mut seen[touch.page.index()], true) {
            sum += pages.ideal_bytes(touch.page);
        }
        ends.push(sum);
    }
    let bytes = sum.ceil() as u64;
    let packets = host.tcp.segment as f64 / (host.tcp.segment + host.tcp.header) as f64;
    let rate = link.down.rate.mean_bits_per_second().map_or(f64::INFINITY, |rate| rate / 8.0 * packets);
    let set_up = link.round_trip() * 2;
    let at_rate = |end: f64| set_up + Duration::try_from_secs_f64(end / rate).unwrap_or(Duration::MAX);
    let arrivals = arrivals(link, host, bytes);
    let in_slow_start = |end: f64| {
        let index = arrivals.partition_point(|&(_, have)| (have as f64) < end.floor());
        arrivals.get(index).map_or(Duration::MAX, |&(at, _)| at.since(Time::ZERO))
    };
    Floor {
        total: play(job, exec, &ends, at_rate),
        slow_start: play(job, exec, &ends, in_slow_start).max(play(job, exec, &ends, at_rate)),
        bytes,
    }
}

fn play(job: &Job, exec: f64, ends: &[f64], arrival: impl Fn(f64) -> Duration) -> Duration {
    let mut now = arrival(exec);
    for (touch, &end) in job.touches.iter().zip(ends) {
        now = now.saturating_add(touch.think).max(arrival(end));
    }
    now.saturating_add(job.rest)
}

/// When the bytes of one response arrive on one connection: (time, bytes so far).
fn arrivals(link: &Link, host: &Host, bytes: u64) -> Vec<(Time, u64)> {
    let mut network = TcpNetwork::new(link, host.tcp);
    let connection = network.connect();
    let think = Duration::ZERO;
    network
        .request(connection, Request { request_bytes: 1, response_bytes: bytes.max(1), think, urgency: 0 });
    let mut arrivals = Vec::new();
    while let Some(event) = network.next_event(Time::MAX) {
        if let Event::Arrived { at, bytes: arrived, .. } = event {
            arrivals.push((at, arrived.end));
            if arrived.end >= bytes {
                break;
            }
        }
    }
    arrivals
}
