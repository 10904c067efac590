//! Where a process has the program's file mapped.

use std::ops::Range;

use pagein_image::{FileOffset, PageNo};

/// The registered ranges of one address space, with the file offset at each one's start.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressMap {
    ranges: Vec<(Range<u64>, FileOffset)>,
}

impl AddressMap {
    /// Of ranges that overlap the later one counts, as when the kernel maps one over the other.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (Range<u64>, FileOffset)>) -> Self {
        let mut map = Self::default();
        for (range, offset) in ranges {
            let _ = map.cut(&range);
            map.ranges.push((range, offset));
        }
        map
    }

    /// The file page at `address`.
    pub(crate) fn page(&self, address: u64) -> Option<PageNo> {
        let (range, offset) = self.ranges.iter().find(|(range, _)| range.contains(&address))?;
        Some(FileOffset(offset.0 + (address - range.start)).page())
    }

    /// The mapped ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range<u64>> {
        self.ranges.iter().map(|(range, _)| range)
    }

    /// The mapped ranges, with the file offset at each one's start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Range<u64>, FileOffset)> {
        self.ranges.iter().map(|(range, offset)| (range, *offset))
    }

    /// Follows `mremap(2)`: `len` bytes at `from` are now at `to`, in place of what was there.
    pub(crate) fn remap(&mut self, from: u64, to: u64, len: u64) {
        let moved = self.cut(&(from..from.saturating_add(len)));
        let _ = self.cut(&(to..to.saturating_add(len)));
        let shift = |address: u64| to + (address - from);
        self.ranges
            .extend(moved.into_iter().map(|(range, offset)| (shift(range.start)..shift(range.end), offset)));
    }

    /// Takes `hole` out of all ranges; returns what was in it.
    fn cut(&mut self, hole: &Range<u64>) -> Vec<(Range<u64>, FileOffset)> {
        let mut kept = Vec::new();
        let mut taken = Vec::new();
        for (range, offset) in self.ranges.drain(..) {
            let start = range.start.max(hole.start);
            let end = range.end.min(hole.end);
            if start >= end {
                kept.push((range, offset));
                continue;
            }
            let at = |address: u64| FileOffset(offset.0 + (address - range.start));
            if range.start < start {
                kept.push((range.start..start, offset));
            }
            taken.push((start..end, at(start)));
            if end < range.end {
                kept.push((end..range.end, at(end)));
            }
        }
        self.ranges = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_part_is_found_at_its_new_place_and_not_at_the_old_one() {
        let mut map = AddressMap::new([(0x1000..0x9000, FileOffset(0x10000))]);
        map.remap(0x3000, 0x70000, 0x2000);
        let page = |address| map.page(address).map(|p| p.0);
        assert_eq!(page(0x1000), Some(0x10));
        assert_eq!(page(0x2fff), Some(0x11));
        assert_eq!(page(0x3000), None);
        assert_eq!(page(0x5000), Some(0x14));
        assert_eq!(page(0x70000), Some(0x12));
        assert_eq!(page(0x71fff), Some(0x13));
        assert_eq!(page(0x72000), None);
    }

    #[test]
    fn what_is_mapped_or_moved_over_another_range_counts() {
        let later = FileOffset(0x80000);
        let mut map = AddressMap::new([(0x1000..0x5000, FileOffset(0)), (0x4000..0x8000, later)]);
        let page = |map: &AddressMap, address| map.page(address).map(|p| p.0);
        assert_eq!((page(&map, 0x3fff), page(&map, 0x4000)), (Some(2), Some(0x80)));
        map.remap(0x1000, 0x6000, 0x1000);
        assert_eq!((page(&map, 0x1000), page(&map, 0x6000), page(&map, 0x7000)), (None, Some(0), Some(0x83)));
    }
}
