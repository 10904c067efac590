//! The loader after exec: faults, the stream, what overtakes it, and the program that waits.

use std::{cmp::Reverse, collections::BinaryHeap, collections::HashMap};

use pagein_image::{GroupId, PageNo};
use pagein_model::{Link as Measured, Policy, Shape, rest_is_worth};

use super::{
    Host, Image, Job, Prediction,
    client::{Client, FetchId},
    pages::Pages,
};
use crate::{link::Link, time::Time};

/// Where a page is; as in the loader's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    Missing,
    Streaming,
    Requested,
    Present,
}

/// How far the hot stream is, as the loader measures it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) started: Time,
    pub(super) received: u64,
    pub(super) last: Time,
    id: Option<FetchId>,
    next_frame: usize,
    /// The one task that unpacks its frames is busy until then.
    busy: Time,
}

/// Something that pagein finishes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// A frame of the stream is taken out of what has been received.
    Take(usize),
    /// It is in memory.
    Streamed(usize),
    /// What a demand asked for is in memory.
    Demanded(FetchId),
}

/// Why a request on demand was made.
#[derive(Debug, Clone, Copy)]
enum Demand {
    /// For the index, by a fault on this page.
    Index(PageNo),
    Group(GroupId),
}

/// How far the group index is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Index {
    #[default]
    Unknown,
    Requested,
    Here,
}

pub(super) struct Run<'a> {
    pub(super) pages: Pages<'a>,
    pub(super) host: Host,
    pub(super) policy: Policy,
    pub(super) client: Client,
    pub(super) state: Vec<PageState>,
    pub(super) stream: Stream,
    /// Requests that no fault caused.
    pub(super) initial: Vec<FetchId>,
    /// So many frames the stream brings: the hot ones, or all.
    pub(super) streamed: usize,
    /// Frames whose pages came by the stream.
    pub(super) unpacked: Vec<bool>,
    later: BinaryHeap<Reverse<(Time, Later)>>,
    demands: HashMap<FetchId, Demand>,
    index: Index,
    faults: u64,
    demand_faults: u64,
}

pub(super) fn predict(
    image: &Image<'_>,
    job: &Job,
    link: &Link,
    policy: Option<Policy>,
    host: &Host,
) -> Prediction {
    let chosen = policy.unwrap_or_else(|| automatic(image));
    let manifest = image.manifest;
    let pages = Pages::new(image);
    let rest_follows = policy.is_none() && chosen == Policy::Streamed && is_worth_all(image, link);
    let mut run = Run {
        streamed: if rest_follows { pages.frames.len() } else { manifest.hot_frames.len() },
        unpacked: vec![false; pages.frames.len()],
        pages,
        host: *host,
        policy: chosen,
        client: Client::new(link, host),
        state: vec![PageState::Missing; manifest.page_count() as usize],
        stream: Stream::default(),
        initial: Vec::new(),
        later: BinaryHeap::new(),
        demands: HashMap::new(),
        index: Index::default(),
        faults: 0,
        demand_faults: 0,
    };
    let (exec, stream) = run.start(policy.is_none());
    if let Some(id) = stream {
        run.begin_stream(id, exec);
    }
    let (ended, waited) = run.program(job, exec);
    run.advance(ended);
    let bytes_of = |ids: &mut dyn Iterator<Item = FetchId>| ids.map(|id| run.client.received(id)).sum();
    Prediction {
        policy: chosen,
        total: (ended + host.end).since(Time::ZERO),
        exec: exec.since(Time::ZERO),
        waited,
        wire_bytes: run.client.bytes(),
        requests: run.client.requests(),
        faults: run.faults,
        demand_faults: run.demand_faults,
        demand_requests: run.demands.len() as u64,
        connections: run.client.connections,
        hot_bytes: bytes_of(&mut run.initial.iter().copied()),
        demanded_bytes: bytes_of(&mut run.demands.keys().copied()),
        unused_bytes: run.unused(job),
    }
}

/// What `--policy auto` does with an empty cache.
fn automatic(image: &Image<'_>) -> Policy {
    let whole_first = image.manifest.reads_self || image.manifest.traces == 0;
    if whole_first { Policy::Original } else { Policy::Streamed }
}

/// Whether it then lets all of the program follow the hot part.
fn is_worth_all(image: &Image<'_>, link: &Link) -> bool {
    let bandwidth = link.down.rate.mean_bits_per_second().map_or(f64::INFINITY, |bits| bits / 8.0);
    let link = Measured { bandwidth, round_trip: link.round_trip() };
    rest_is_worth(&Shape::of(image.manifest, image.manifest_len), &link)
}

impl Run<'_> {
    /// The program from its first instruction to its end, and how long it waited in between.
    fn program(&mut self, job: &Job, exec: Time) -> (Time, std::time::Duration) {
        let (mut now, mut waited) = (exec, std::time::Duration::ZERO);
        for touch in &job.touches {
            now += touch.think;
            self.advance(now);
            if self.is_present(touch.page) {
                continue;
            }
            let touched = now;
            self.faults += 1;
            self.advance(now + self.host.fault);
            now += self.host.fault;
            if !self.is_present(touch.page) {
                self.fault(touch.page, now);
                now = self.until_present(touch.page);
            }
            now += self.host.wake;
            waited += now.since(touched);
        }
        (now + job.rest, waited)
    }

    fn is_present(&self, page: PageNo) -> bool {
        self.state[page.index()] == PageState::Present
    }

    pub(super) fn install(&mut self, pages: &[PageNo]) {
        for page in pages {
            self.state[page.index()] = PageState::Present;
        }
    }

    pub(super) fn install_frame(&mut self, number: usize) {
        for page in self.pages.frame_pages(number) {
            self.state[page.index()] = PageState::Present;
        }
        self.unpacked[number] = true;
    }

    /// The loader's table, asked about a fault on a page that is not there.
    fn fault(&mut self, page: PageNo, now: Time) {
        match self.state[page.index()] {
            PageState::Streaming if !self.overtakes(page) => {}
            PageState::Requested | PageState::Present => self.demand_faults += 1,
            PageState::Missing | PageState::Streaming => {
                self.demand_faults += 1;
                self.state[page.index()] = PageState::Requested;
                self.demand(page, now);
            }
        }
    }

    fn overtakes(&self, page: PageNo) -> bool {
        let Some(round_trip) = self.client.first_byte_min() else { return false };
        let time = self.stream.last.since(self.stream.started);
        if self.policy != Policy::Streamed || self.stream.received == 0 || time.is_zero() {
            return false;
        }
        let measured = Measured { bandwidth: self.stream.received as f64 / time.as_secs_f64(), round_trip };
        let range = self.pages.frame_range(self.pages.frame_of(page));
        measured.overtakes(range.end.saturating_sub(self.stream.received), range.end - range.start)
    }

    /// Requests what brings `page`; first the index, if that is needed and not here.
    fn demand(&mut self, page: PageNo, now: Time) {
        debug_assert_eq!(self.client.now(), now, "requests are made in the present");
        if self.index != Index::Here {
            if self.index == Index::Unknown {
                self.index = Index::Requested;
                let id = self.client.get(u64::from(self.pages.group_set(self.policy).index_len), false);
                self.demands.insert(id, Demand::Index(page));
            }
            return;
        }
        let group = self.pages.group(self.pages.group_of(page, self.policy), self.policy);
        for page in &group.pages {
            let state = &mut self.state[page.index()];
            if *state != PageState::Present {
                *state = PageState::Requested;
            }
        }
        let is_range = !self.pages.image.manifest.page_files;
        let fetch = self.client.get(u64::from(group.frame.stored_len), is_range);
        self.demands.insert(fetch, Demand::Group(self.pages.group_of(page, self.policy)));
    }

    /// From now on the rest of the hot object is unpacked as it comes.
    fn begin_stream(&mut self, id: FetchId, now: Time) {
        let manifest = self.pages.image.manifest;
        self.stream.id = Some(id);
        self.stream.next_frame = manifest.exec_frames as usize;
        self.stream.busy = now;
        for page in (0..self.streamed).flat_map(|number| self.pages.frame_pages(number)) {
            if self.state[page.index()] == PageState::Missing {
                self.state[page.index()] = PageState::Streaming;
            }
        }
        while self.client.next(now).is_some() {}
        self.unpack();
    }

    /// Sees to the frames of the stream that have arrived.
    fn unpack(&mut self) {
        let Some(id) = self.stream.id else { return };
        while self.stream.next_frame < self.streamed {
            let number = self.stream.next_frame;
            let frame = &self.pages.frames[number];
            let Some(arrival) = self.client.arrival(id, self.pages.frame_range(number).end) else { return };
            let taken = arrival.max(self.stream.busy);
            self.stream.busy = taken + self.host.page * frame.pages;
            self.stream.next_frame += 1;
            self.later.push(Reverse((taken, Later::Take(number))));
            self.later.push(Reverse((self.stream.busy, Later::Streamed(number))));
        }
    }

    /// Lets time pass until `until`, with everything that happens meanwhile.
    fn advance(&mut self, until: Time) {
        while self.step(until) {}
    }

    fn until_present(&mut self, page: PageNo) -> Time {
        while !self.is_present(page) {
            assert!(self.step(Time::MAX), "page {page} never came");
        }
        self.client.now()
    }

    /// One thing that happens before `until`, or at that time.
    fn step(&mut self, until: Time) -> bool {
        let due = self.later.peek().map(|first| first.0.0).filter(|due| *due <= until);
        if let Some(id) = self.client.next(due.unwrap_or(until)) {
            self.received(id);
            return true;
        }
        let Some(Reverse((now, later))) = due.and_then(|_| self.later.pop()) else { return false };
        match later {
            Later::Take(number) => {
                let id = self.stream.id.expect("frames are taken from a stream");
                let end = self.pages.frame_range(number).end;
                self.stream.received = self.client.received_at(id, now).max(end);
                self.stream.last = now;
            }
            Later::Streamed(number) => {
                self.install_frame(number);
            }
            Later::Demanded(id) => match self.demands[&id] {
                Demand::Index(page) => {
                    self.index = Index::Here;
                    // It may have come with the stream meanwhile.
                    if !self.is_present(page) {
                        self.demand(page, now);
                    }
                }
                Demand::Group(id) => self.install(&self.pages.group(id, self.policy).pages),
            },
        }
        true
    }

    /// Bytes of a body have come.
    fn received(&mut self, id: FetchId) {
        if self.stream.id == Some(id) {
            return self.unpack();
        }
        if self.client.received(id) < self.client.asked(id) {
            return;
        }
        let work = match self.demands.get(&id) {
            Some(Demand::Group(id)) => self.host.page * self.pages.group(*id, self.policy).frame.pages,
            Some(Demand::Index(_)) => std::time::Duration::ZERO,
            None => return,
        };
        self.later.push(Reverse((self.client.now() + self.host.request + work, Later::Demanded(id))));
    }

    /// Bytes of pages that the job never touches, and those that came in vain.
    fn unused(&self, job: &Job) -> u64 {
        let mut touched = vec![false; self.state.len()];
        self.pages.exec_pages().iter().for_each(|page| touched[page.index()] = true);
        job.touches.iter().for_each(|touch| touched[touch.page.index()] = true);
        let share = |pages: &[PageNo]| {
            pages.iter().filter(|page| touched[page.index()]).count() as f64 / pages.len() as f64
        };
        let mut used = 0.0;
        let mut initial = self.initial.iter().map(|&id| self.client.received(id)).sum::<u64>();
        let header = self.pages.image.manifest_len;
        let all = self.policy == Policy::Original;
        for (number, frame) in self.pages.frames.iter().enumerate() {
            if all || self.unpacked[number] {
                used += f64::from(frame.stored_len) * share(self.pages.frame_pages(number));
            }
        }
        initial = initial.saturating_sub(header);
        let mut demanded = 0;
        for (&id, demand) in &self.demands {
            let Demand::Group(group) = demand else { continue };
            demanded += self.client.received(id);
            let pages = &self.pages.group(*group, self.policy).pages;
            let is_twice = pages.iter().all(|page| self.unpacked[self.pages.frame_of(*page)]);
            if !is_twice && self.client.received(id) == self.client.asked(id) {
                used += self.client.received(id) as f64 * share(pages);
            }
        }
        (initial + demanded).saturating_sub(used as u64)
    }
}
