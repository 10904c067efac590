//! Compresses: groups on all processors, and beside them the frames, of which each continues the one before.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use pagein_elf::LinkPlan;
use pagein_image::{Frame, GroupIndex, PAGE_SIZE, PageLinks, PageNo, StreamEncoder, encode_group};
use rayon::prelude::*;

use crate::{Plan, Progress, SplitError};

/// Compressed frames, in order.
pub(crate) struct Frames {
    pub(crate) frames: Vec<Frame>,
    pub(crate) data: Vec<Vec<u8>>,
}

/// Compressed groups, in order, and their index as stored.
pub(crate) struct Groups {
    pub(crate) groups: Frames,
    pub(crate) index: Vec<u8>,
}

impl Frames {
    fn new(lists: &[Vec<PageNo>], data: Vec<Vec<u8>>) -> Self {
        let describe = |(pages, stored): (&Vec<PageNo>, &Vec<u8>)| Frame::of(stored, pages.len() as u32);
        Self { frames: lists.iter().zip(&data).map(describe).collect(), data }
    }

    /// Those from number `at` on, which are taken away.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        Self { frames: self.frames.split_off(at), data: self.data.split_off(at) }
    }

    /// Size of all of it together, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.data.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

pub(crate) struct Packer<'a> {
    file: &'a [u8],
    links: Option<&'a LinkPlan>,
    level: i32,
    progress: &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync),
    done: AtomicU64,
    total: u64,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(
        file: &'a [u8],
        level: i32,
        progress: &'a (dyn Fn(Progress) -> ControlFlow<()> + Sync),
        plan: &Plan,
        paged_groups: &[Vec<PageNo>],
        links: Option<&'a LinkPlan>,
    ) -> Self {
        let lists = [&plan.hot_frames[..], &plan.rest_frames, &plan.groups, paged_groups];
        let pages: usize = lists.iter().flat_map(|list| list.iter()).map(Vec::len).sum();
        Self { file, links, level, progress, done: AtomicU64::new(0), total: (pages * PAGE_SIZE) as u64 }
    }

    /// The frames of these lists, one behind the other.
    pub(crate) fn frames(&self, lists: &[Vec<PageNo>]) -> Result<Frames, SplitError> {
        let mut encoder = StreamEncoder::new(self.level);
        let last = lists.len().saturating_sub(1);
        let pack = |(number, pages): (usize, &Vec<PageNo>)| {
            let (raw, records) = self.linked_form(pages);
            let stored = encoder.encode(pages, &raw, &records, number == last);
            self.count(raw.len()).map(|()| stored)
        };
        Ok(Frames::new(lists, lists.iter().enumerate().map(pack).collect::<Result<_, _>>()?))
    }

    /// The groups of these lists, each by itself.
    pub(crate) fn groups(&self, lists: &[Vec<PageNo>]) -> Result<Groups, SplitError> {
        let pack = |pages: &Vec<PageNo>| {
            let (raw, records) = self.linked_form(pages);
            let stored = encode_group(pages, &raw, &records, self.level);
            self.count(raw.len()).map(|()| stored)
        };
        let groups = Frames::new(lists, lists.par_iter().map(pack).collect::<Result<_, _>>()?);
        let parts = lists.iter().cloned().zip(groups.frames.iter().copied()).collect();
        Ok(Groups { index: GroupIndex::new(parts).encode(), groups })
    }

    /// The bytes of some pages, in linked form where there is anything to relocate, and the records of those.
    fn linked_form(&self, pages: &[PageNo]) -> (Vec<u8>, Vec<&'a PageLinks>) {
        let mut raw = vec![0; pages.len() * PAGE_SIZE];
        let mut records = Vec::new();
        for (page, into) in pages.iter().zip(raw.chunks_exact_mut(PAGE_SIZE)) {
            if let Some(linked) = self.links.and_then(|links| links.page(*page)) {
                into.copy_from_slice(&linked.bytes);
                records.push(&linked.links);
                continue;
            }
            let start = page.offset().0 as usize;
            // The last page of the file may be partly filled: the rest is zeros, as in memory.
            let bytes = &self.file[start..self.file.len().min(start + PAGE_SIZE)];
            into[..bytes.len()].copy_from_slice(bytes);
        }
        (raw, records)
    }

    /// Says that so many bytes more are done.
    fn count(&self, bytes: usize) -> Result<(), SplitError> {
        let done = self.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        match (self.progress)(Progress { done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SplitError::Interrupted),
        }
    }
}
