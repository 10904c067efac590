//! An image seen from its pages: which frame and which group hold a page, where, and how many bytes that is.

use std::ops::Range;

use pagein_image::{Frame, Group, GroupId, GroupIndex, GroupSet, PageNo};
use pagein_model::Policy;

use super::Image;

/// Tables of an image.
pub(super) struct Pages<'a> {
    pub(super) image: Image<'a>,
    /// All pages in the order of the object `whole`, and its frames.
    order: Vec<PageNo>,
    pub(super) frames: Vec<Frame>,
    /// For each page its frame.
    frame_of_page: Vec<u32>,
    /// Where the pages of each frame begin in the order; one more for the end.
    first_page: Vec<usize>,
    /// Where each frame begins in the object; one more for the end.
    pub(super) frame_offsets: Vec<u64>,
    groups: Vec<Option<GroupId>>,
    paged: Vec<Option<GroupId>>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(image: &Image<'a>) -> Self {
        let manifest = image.manifest;
        let mut frame_of_page = vec![0; manifest.page_count() as usize];
        let (order, frames) = (manifest.whole_pages(), manifest.whole_frames().copied().collect::<Vec<_>>());
        let (mut first_page, mut frame_offsets) = (vec![0], vec![image.manifest_len]);
        for (number, frame) in frames.iter().enumerate() {
            let pages = first_page[number]..first_page[number] + frame.pages as usize;
            for page in &order[pages.clone()] {
                frame_of_page[page.index()] = number as u32;
            }
            first_page.push(pages.end);
            frame_offsets.push(frame_offsets[number] + u64::from(frame.stored_len));
        }
        let by_page = |index: &GroupIndex| index.by_page(manifest.file_size);
        Self {
            image: *image,
            order,
            frames,
            frame_of_page,
            first_page,
            frame_offsets,
            groups: by_page(image.groups),
            paged: image.paged.map(by_page).unwrap_or_default(),
        }
    }

    /// The frame that holds `page`.
    pub(super) fn frame_of(&self, page: PageNo) -> usize {
        self.frame_of_page[page.index()] as usize
    }

    /// The pages of a frame.
    pub(super) fn frame_pages(&self, number: usize) -> &[PageNo] {
        &self.order[self.first_page[number]..self.first_page[number + 1]]
    }

    /// The pages that are there before exec.
    pub(super) fn exec_pages(&self) -> &[PageNo] {
        &self.order[..self.first_page[self.image.manifest.exec_frames as usize]]
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

    /// The bytes of frame `number` in the object.
    pub(super) fn frame_range(&self, number: usize) -> Range<u64> {
        self.frame_offsets[number]..self.frame_offsets[number + 1]
    }

    /// A page's compressed size when it is one of many in one stream: its share of its frame.
    pub(super) fn ideal_bytes(&self, page: PageNo) -> f64 {
        let frame = &self.frames[self.frame_of(page)];
        f64::from(frame.stored_len) / f64::from(frame.pages)
    }
}
