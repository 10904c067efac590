//! Compresses frames and groups on all processors.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use pagein_elf::LinkPlan;
use pagein_image::{Frame, GroupIndex, PAGE_SIZE, PageNo, encode_linked_frame};
use rayon::prelude::*;

use crate::{Plan, Progress, SplitError};

/// Compressed frames or groups, in order.
pub(crate) struct Packed {
    pub(crate) frames: Vec<Frame>,
    pub(crate) data: Vec<Vec<u8>>,
    /// The stored index, for groups.
    pub(crate) index: Vec<u8>,
}

impl Packed {
    /// Size of all of it together, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.data.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

/// How the pages of a frame are put into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As the file has them.
    File,
    /// Ready to be relocated, with records, where there is anything to relocate.
    Linked,
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
        let lists = [&plan.hot_frames[..], &plan.cold, paged_groups, &plan.whole_frames];
        let pages: usize = lists.iter().flat_map(|list| list.iter()).map(Vec::len).sum();
        Self { file, links, level, progress, done: AtomicU64::new(0), total: (pages * PAGE_SIZE) as u64 }
    }

    pub(crate) fn frames(&self, lists: &[Vec<PageNo>], form: Form) -> Result<Packed, SplitError> {
        let data: Vec<Vec<u8>> =
            lists.par_iter().map(|pages| self.pack(pages, form)).collect::<Result<_, _>>()?;
        let describe = |(pages, stored): (&Vec<PageNo>, &Vec<u8>)| Frame::of(stored, pages.len() as u32);
        let frames = lists.iter().zip(&data).map(describe).collect();
        Ok(Packed { frames, data, index: Vec::new() })
    }

    pub(crate) fn groups(&self, lists: &[Vec<PageNo>]) -> Result<Packed, SplitError> {
        let packed = self.frames(lists, Form::Linked)?;
        let parts = lists.iter().cloned().zip(packed.frames.iter().copied()).collect();
        Ok(Packed { index: GroupIndex::new(parts).encode(), ..packed })
    }

    fn pack(&self, pages: &[PageNo], form: Form) -> Result<Vec<u8>, SplitError> {
        let mut raw = vec![0; pages.len() * PAGE_SIZE];
        let mut records = Vec::new();
        for (page, into) in pages.iter().zip(raw.chunks_exact_mut(PAGE_SIZE)) {
            if let Some(linked) =
                self.links.filter(|_| form == Form::Linked).and_then(|links| links.page(*page))
            {
                into.copy_from_slice(&linked.bytes);
                records.push(&linked.links);
                continue;
            }
            let start = page.offset().0 as usize;
            // The last page of the file may be partly filled: the rest is zeros, as in memory.
            let bytes = &self.file[start..self.file.len().min(start + PAGE_SIZE)];
            into[..bytes.len()].copy_from_slice(bytes);
        }
        let stored = encode_linked_frame(&raw, &records, self.level);
        let done = self.done.fetch_add(raw.len() as u64, Ordering::Relaxed) + raw.len() as u64;
        match (self.progress)(Progress { done, total: self.total }) {
            ControlFlow::Continue(()) => Ok(stored),
            ControlFlow::Break(()) => Err(SplitError::Interrupted),
        }
    }
}
