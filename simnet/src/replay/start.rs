//! The loader up to exec: the first requests, and what it waits for.

use pagein_model::{HEAD, Policy};

use super::{client::FetchId, run::Run};
use crate::time::Time;

/// An object that is read from its beginning, in one request or two.
struct Object {
    /// The requests so far, and where in the object each began.
    parts: Vec<(FetchId, u64)>,
    len: u64,
}

impl Run<'_> {
    /// Everything before the first instruction: when that is, and the stream that goes on.
    pub(super) fn start(&mut self, is_auto: bool) -> (Time, Option<FetchId>) {
        let mut now = Time::ZERO + self.host.start;
        let (manifest, header) = (self.pages.image.manifest, self.pages.image.manifest_len);
        if self.policy == Policy::Original {
            if is_auto {
                // The decision is in the manifest, and that is in `hot`.
                let mut hot = self.open(self.pages.frame_offsets[self.streamed], None, now);
                now = self.wait(&mut hot, header, now);
                self.close(&hot, now);
            }
            return (self.complete(now), None);
        }
        let limit = matches!(self.policy, Policy::Paged | Policy::ReorderedPaged).then_some(HEAD);
        let mut hot = self.open(self.pages.frame_offsets[self.streamed], limit, now);
        now = self.wait(&mut hot, header, now);
        self.stream.started = now;
        let frames = if self.policy == Policy::Reordered {
            manifest.hot_frames.len()
        } else {
            manifest.exec_frames as usize
        };
        for number in 0..frames {
            now = self.wait(&mut hot, self.pages.frame_offsets[number + 1], now);
            self.stream.received = hot.received_at(self, now);
            self.stream.last = now;
            now += self.host.page * manifest.hot_frames[number].pages;
            self.install_frame(number);
        }
        let flows = self.policy == Policy::Streamed && frames < self.streamed;
        if !flows {
            self.close(&hot, now);
        }
        (now + self.host.launch, flows.then(|| hot.parts[0].0))
    }

    /// Fetches the complete file; when its program runs.
    fn complete(&mut self, mut now: Time) -> Time {
        let (manifest, header) = (self.pages.image.manifest, self.pages.image.manifest_len);
        let frames = manifest.whole_frames().map(|frame| u64::from(frame.stored_len));
        let mut end = header;
        let mut whole = self.open(header + frames.sum::<u64>(), None, now);
        now = self.wait(&mut whole, header, now);
        for frame in manifest.whole_frames() {
            end += u64::from(frame.stored_len);
            now = self.wait(&mut whole, end, now);
            now += self.host.page * frame.pages;
        }
        self.close(&whole, now);
        now += self.host.file_page * manifest.page_count();
        self.state.fill(super::run::PageState::Present);
        now + self.host.exec
    }

    /// Begins to read an object of `len` bytes, its first `limit` bytes first.
    fn open(&mut self, len: u64, limit: Option<u64>, now: Time) -> Object {
        self.pass(now);
        let id = self.client.get(limit.map_or(len, |limit| limit.min(len)), limit.is_some());
        self.initial.push(id);
        Object { parts: vec![(id, 0)], len }
    }

    /// Waits until `bytes` bytes of an object are here, from `now` on.
    fn wait(&mut self, object: &mut Object, bytes: u64, now: Time) -> Time {
        loop {
            let &(id, begin) = object.parts.last().expect("opened with one");
            if begin + self.client.asked(id) >= bytes {
                return now.max(self.arrival(id, bytes - begin) + self.host.request * u32::from(begin == 0));
            }
            // All of the first part is here and more is wanted.
            let end = self.arrival(id, self.client.asked(id)).max(now);
            self.pass(end);
            let begin = begin + self.client.asked(id);
            let rest = self.client.get(object.len - begin, true);
            self.initial.push(rest);
            object.parts.push((rest, begin));
        }
    }

    fn arrival(&mut self, id: FetchId, bytes: u64) -> Time {
        loop {
            if let Some(at) = self.client.arrival(id, bytes) {
                return at;
            }
            assert!(self.client.next(Time::MAX).is_some(), "a response never came to its end");
        }
    }

    /// Drops what is left of an object.
    fn close(&mut self, object: &Object, now: Time) {
        self.pass(now);
        object.parts.iter().for_each(|&(id, _)| self.client.drop_rest(id));
    }

    /// Lets time pass while nobody looks at what comes.
    fn pass(&mut self, until: Time) {
        while self.client.next(until).is_some() {}
    }
}

impl Object {
    fn received_at(&self, run: &Run<'_>, now: Time) -> u64 {
        self.parts.iter().map(|&(id, _)| run.client.received_at(id, now)).sum()
    }
}
