//! An image seen from its pages: which frame and which group hold a page, where, and how many bytes that is.

use std::ops::Range;

use pagein_image::{Group, GroupId, GroupIndex, GroupSet, PageNo};
use pagein_model::Policy;

use super::Image;

/// Tables of an image.
pub(super) struct Pages<'a> {
    pub(super) image: Image<'a>,
    /// For each page its hot frame.
    frame_of_page: Vec<Option<u32>>,
    /// Where the pages of each hot frame begin in the list of hot pages; one more for the end.
    first_page: Vec<usize>,
    /// Where each hot frame begins in the object `hot`; one more for the end.
    pub(super) frame_offsets: Vec<u64>,
    /// For each page its share of the frame that holds it.
    share: Vec<f64>,
    groups: Vec<Option<GroupId>>,
    paged: Vec<Option<GroupId>>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(image: &Image<'a>) -> Self {
        let manifest = image.manifest;
        let mut frame_of_page = vec![None; manifest.page_count() as usize];
        let (mut first_page, mut frame_offsets) = (vec![0], vec![image.manifest_len]);
        for (number, frame) in manifest.hot_frames.iter().enumerate() {
            let pages = first_page[number]..first_page[number] + frame.pages as usize;
            for page in &manifest.hot_pages[pages.clone()] {
                frame_of_page[page.index()] = Some(number as u32);
            }
            first_page.push(pages.end);
            frame_offsets.push(frame_offsets[number] + u64::from(frame.stored_len));
        }
        let mut share_of = vec![0.0; manifest.page_count() as usize];
        let mut rest = &manifest.whole_pages()[..];
        for frame in manifest.whole_frames() {
            let (here, after) = rest.split_at(frame.pages as usize);
            let share = f64::from(frame.stored_len) / f64::from(frame.pages);
            for page in here {
                share_of[page.index()] = share;
            }
            rest = after;
        }
        let by_page = |index: &GroupIndex| index.by_page(manifest.file_size);
        Self {
            image: *image,
            frame_of_page,
            first_page,
            frame_offsets,
            share: share_of,
            groups: by_page(image.groups),
            paged: image.paged.map(by_page).unwrap_or_default(),
        }
    }

    /// The hot frame that holds `page`.
    pub(super) fn frame_of(&self, page: PageNo) -> Option<usize> {
        self.frame_of_page[page.index()].map(|frame| frame as usize)
    }

    /// The pages of a hot frame.
    pub(super) fn frame_pages(&self, number: usize) -> &'a [PageNo] {
        &self.image.manifest.hot_pages[self.first_page[number]..self.first_page[number + 1]]
    }

    /// The pages that are there before exec.
    pub(super) fn exec_pages(&self) -> &'a [PageNo] {
        &self.image.manifest.hot_pages[..self.first_page[self.image.manifest.exec_frames as usize]]
    }

    /// Whether pages of `policy` come in groups of neighbours.
    fn is_paged(&self, policy: Policy) -> bool {
        policy == Policy::Paged && self.image.paged.is_some()
    }

    fn index(&self, policy: Policy) -> &'a GroupIndex {
        self.image.paged.filter(|_| self.is_paged(policy)).unwrap_or(self.image.groups)
    }

    /// The group that brings `page` on demand.
    pub(super) fn group_of(&self, page: PageNo, policy: Policy) -> GroupId {
        let groups = if self.is_paged(policy) { &self.paged } else { &self.groups };
        groups[page.index()].expect("every page is in a group")
    }

    /// A group of the policy's index.
    pub(super) fn group(&self, id: GroupId, policy: Policy) -> &'a Group {
        self.index(policy).group(id)
    }

    /// Where the index of the policy's groups is described.
    pub(super) fn group_set(&self, policy: Policy) -> GroupSet {
        self.image.manifest.paged.filter(|_| self.is_paged(policy)).unwrap_or(self.image.manifest.groups)
    }

    /// The bytes of hot frame `number` in the object `hot`.
    pub(super) fn frame_range(&self, number: usize) -> Range<u64> {
        self.frame_offsets[number]..self.frame_offsets[number + 1]
    }

    /// A page's compressed size when it is one of many in one stream: its share of its frame.
    pub(super) fn ideal_bytes(&self, page: PageNo) -> f64 {
        self.share[page.index()]
    }
}
