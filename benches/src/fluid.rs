//! A recorded run over a link that is a pipe: bytes come at its rate, requests take a round trip, nothing is lost and there is no slow
//! start. Much simpler than [`pagein_simnet::replay`], and meant only to compare images of one program with each other: with the hot
//! stream, what overtakes it, and clusters of groups on demand, but without the background fill, which would hide what
//! they cost.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Context as _;
use pagein_image::{GroupIndex, Manifest, PageNo, object};
use pagein_model::{Cluster, Link, cluster, cluster_pages};
use pagein_simnet::replay::Job;

/// What travels together.
#[derive(Debug)]
struct Unit {
    bytes: f64,
    pages: u32,
}

/// An image, as far as it matters here.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of the manifest.
    head: f64,
    index: f64,
    frames: Vec<Unit>,
    /// Where each frame ends in the object `hot`.
    ends: Vec<f64>,
    exec_frames: usize,
    groups: Vec<Unit>,
    place: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Hot(usize),
    Cold(usize),
}

/// Which groups come along with one that is demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// Those behind it.
    Behind,
    /// Those on both sides, in two requests.
    Both,
}

/// What a run took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replayed {
    /// Seconds to the end.
    pub time: f64,
    /// Requests because of a fault.
    pub requests: f64,
    /// Bytes of them.
    pub demanded: f64,
    /// Bytes of `hot` up to the last page that the job needs of it.
    pub prefix: f64,
    /// Stored bytes of the pages that the job touches, as shares of their frames and groups.
    pub own: f64,
}

impl Layout {
    /// Of the image in a directory.
    pub fn read(image: &Path) -> anyhow::Result<Self> {
        let hot = std::fs::read(image.join(object::HOT)).with_context(|| image.display().to_string())?;
        let head = Manifest::stored_len(&hot)?;
        let manifest = Manifest::decode(&hot[..head])?;
        let index = std::fs::read(image.join(object::GROUPS_INDEX))?;
        let groups = GroupIndex::decode(&index, &manifest.groups, manifest.file_size)?;
        let mut place = vec![Place::Cold(usize::MAX); manifest.page_count() as usize];
        let hot: HashSet<PageNo> = manifest.hot_pages.iter().copied().collect();
        let is_hot = |page| hot.contains(&page);
        let mut hot_pages = manifest.hot_pages.iter();
        let (mut ends, mut end) = (Vec::new(), head as f64);
        for (number, frame) in manifest.hot_frames.iter().enumerate() {
            let pages = hot_pages.by_ref().take(frame.pages as usize);
            pages.for_each(|page| place[page.index()] = Place::Hot(number));
            end += f64::from(frame.stored_len);
            ends.push(end);
        }
        for (number, group) in groups.groups().iter().enumerate() {
            let cold = group.pages.iter().filter(|page| !is_hot(**page));
            cold.for_each(|page| place[page.index()] = Place::Cold(number));
        }
        let unit = |frame: &pagein_image::Frame| Unit { bytes: frame.stored_len.into(), pages: frame.pages };
        Ok(Self {
            head: head as f64,
            index: index.len() as f64,
            frames: manifest.hot_frames.iter().map(unit).collect(),
            ends,
            exec_frames: manifest.exec_frames as usize,
            groups: groups.groups().iter().map(|group| unit(&group.frame)).collect(),
            place,
        })
    }

    /// Bytes of the index of the groups.
    pub fn index_bytes(&self) -> f64 {
        self.index
    }

    fn share(&self, page: PageNo) -> f64 {
        let unit = match self.place[page.index()] {
            Place::Hot(frame) => &self.frames[frame],
            Place::Cold(group) => &self.groups[group],
        };
        unit.bytes / f64::from(unit.pages)
    }

    /// Pages of a cluster on this link, as the loader asks for.
    fn budget(&self, link: &Link) -> u32 {
        let bytes: f64 = self.groups.iter().map(|group| group.bytes).sum();
        let pages: u32 = self.groups.iter().map(|group| group.pages).sum();
        cluster_pages(bytes / f64::from(pages.max(1)), link)
    }
}

/// The state of a run.
struct Run<'a> {
    layout: &'a Layout,
    link: Link,
    /// When the first byte of `hot` comes.
    begin: f64,
    /// Bytes that came between those of `hot`: from when, how many.
    between: Vec<(f64, f64)>,
    /// When the link has delivered all that was demanded.
    free: f64,
    frames: Vec<Option<f64>>,
    groups: Vec<Option<f64>>,
    done: Replayed,
}

/// A run of `job` from `layout`.
pub fn replay(layout: &Layout, job: &Job, link: &Link, sides: Sides) -> Replayed {
    let begin = 2.0 * link.round_trip.as_secs_f64();
    let mut run = Run {
        layout,
        link: *link,
        begin,
        // The index of the groups comes beside the stream.
        between: vec![(begin, layout.index)],
        free: begin,
        frames: vec![None; layout.frames.len()],
        groups: vec![None; layout.groups.len()],
        done: Replayed::default(),
    };
    let exec = layout.exec_frames.checked_sub(1).map_or(layout.head, |last| layout.ends[last]);
    let mut now = run.stream(exec);
    for touch in &job.touches {
        now += touch.think.as_secs_f64();
        run.done.own += layout.share(touch.page);
        now = match layout.place[touch.page.index()] {
            Place::Hot(frame) => run.hot(frame, now),
            Place::Cold(group) => run.cold(group, now, sides),
        };
    }
    Replayed { time: now + job.rest.as_secs_f64(), ..run.done }
}

impl Run<'_> {
    fn round_trip(&self) -> f64 {
        self.link.round_trip.as_secs_f64()
    }

    /// When the first `offset` bytes of `hot` are there.
    fn stream(&self, offset: f64) -> f64 {
        let mut time = self.begin + offset / self.link.bandwidth;
        for (from, bytes) in &self.between {
            if *from < time {
                time += bytes / self.link.bandwidth;
            }
        }
        time
    }

    /// When a demand made at `now` begins to be answered. In front of it stands half a round trip of the stream, if that still flows.
    fn answer(&self, now: f64) -> f64 {
        let flows = now < self.stream(self.layout.ends.last().copied().unwrap_or_default());
        (now + self.round_trip() * if flows { 1.5 } else { 1.0 }).max(self.free)
    }

    fn demanded(&mut self, now: f64, bytes: f64, end: f64) {
        self.done.requests += 1.0;
        self.done.demanded += bytes;
        self.between.push((now + self.round_trip(), bytes));
        self.free = end;
    }

    /// Touches a page of a hot frame: when it is there.
    fn hot(&mut self, frame: usize, now: f64) -> f64 {
        let (end, own) = (self.layout.ends[frame], self.layout.frames[frame].bytes);
        self.done.prefix = self.done.prefix.max(end);
        let arrival = self.stream(end);
        let arrival = self.frames[frame].map_or(arrival, |demanded| demanded.min(arrival));
        let ahead = (arrival - now).max(0.0) * self.link.bandwidth;
        if self.frames[frame].is_some() || !self.link.overtakes(ahead as u64, own as u64) {
            return now.max(arrival);
        }
        let demanded = self.answer(now) + own / self.link.bandwidth;
        self.demanded(now, own, demanded);
        self.frames[frame] = Some(demanded);
        now.max(demanded.min(arrival))
    }

    /// The same of a cold group.
    fn cold(&mut self, group: usize, now: f64, sides: Sides) -> f64 {
        if self.groups[group].is_none() {
            let known = self.begin + 2.0 * self.layout.index / self.link.bandwidth;
            let mut at = self.answer(now.max(known));
            let missing = |group: usize| {
                let unit = self.layout.groups.get(group)?;
                (self.groups[group].is_none()).then_some(unit.pages)
            };
            let Cluster { from, before } = match sides {
                Sides::Both => cluster(group, self.layout.budget(&self.link), missing),
                Sides::Behind => {
                    let behind = |next: usize| missing(next).filter(|_| next >= group);
                    cluster(group, self.layout.budget(&self.link), behind)
                }
            };
            let mut bytes = 0.0;
            for group in from.chain(before) {
                bytes += self.layout.groups[group].bytes;
                at += self.layout.groups[group].bytes / self.link.bandwidth;
                self.groups[group] = Some(at);
            }
            self.demanded(now, bytes, at);
        }
        now.max(self.groups[group].unwrap_or(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pagein_simnet::replay::Touch;

    use super::*;

    /// Hot: pages 0 and 1, a frame each of 1000 bytes behind a manifest of 1000. Cold: pages 2, 3 and 4, 500 bytes each.
    fn layout() -> Layout {
        let unit = |bytes| Unit { bytes, pages: 1 };
        Layout {
            head: 1000.0,
            index: 0.0,
            frames: vec![unit(1000.0), unit(1000.0)],
            ends: vec![2000.0, 3000.0],
            exec_frames: 1,
            groups: vec![unit(500.0), unit(500.0), unit(500.0)],
            place: vec![Place::Hot(0), Place::Hot(1), Place::Cold(0), Place::Cold(1), Place::Cold(2)],
        }
    }

    fn job(pages: &[u32]) -> Job {
        let touch = |&page| Touch { page: PageNo(page), think: Duration::ZERO };
        Job { touches: pages.iter().map(touch).collect(), rest: Duration::from_secs(1) }
    }

    /// 1000 bytes/s and 1 s: a cluster has the least size, 4 pages.
    const LINK: Link = Link { bandwidth: 1000.0, round_trip: Duration::from_secs(1) };

    #[test]
    fn a_stream_comes_at_link_rate_after_two_round_trips() {
        let done = replay(&layout(), &job(&[0, 1]), &LINK, Sides::Both);
        assert!((done.time - 6.0).abs() < 1e-9, "2 s + 3 kB + 1 s of its own: {done:?}");
        assert!((done.prefix - 3000.0).abs() < 1e-9 && done.requests < 0.5);
    }

    #[test]
    fn a_cold_page_takes_a_request_and_brings_its_neighbours() {
        let both = replay(&layout(), &job(&[0, 1, 3, 2, 4]), &LINK, Sides::Both);
        assert!((both.requests - 1.0).abs() < 1e-9 && (both.demanded - 1500.0).abs() < 1e-9, "{both:?}");
        assert!((both.time - (5.0 + 1.0 + 1.5 + 1.0)).abs() < 1e-9, "{both:?}");
        let behind = replay(&layout(), &job(&[0, 1, 3, 2, 4]), &LINK, Sides::Behind);
        assert!((behind.requests - 2.0).abs() < 1e-9, "the one in front is asked for by itself: {behind:?}");
    }
}
