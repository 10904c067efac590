//! Where a process has the program's file mapped.

use std::ops::Range;

use pagein_image::{FileOffset, PageNo};

/// The registered ranges of one address space, with the file offset at each one's start.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressMap {
    ranges: Vec<(Range<u64>, FileOffset)>,
}

impl AddressMap {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (Range<u64>, FileOffset)>) -> Self {
        Self { ranges: ranges.into_iter().collect() }
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

    /// Follows `mremap(2)`: `len` bytes at `from` are now at `to`.
    pub(crate) fn remap(&mut self, from: u64, to: u64, len: u64) {
        let moved = from..from.saturating_add(len);
        let mut ranges = Vec::new();
        for (range, offset) in self.ranges.drain(..) {
            let start = range.start.max(moved.start);
            let end = range.end.min(moved.end);
            let at = |address: u64| FileOffset(offset.0 + (address - range.start));
            if start >= end {
                ranges.push((range, offset));
                continue;
            }
            if range.start < start {
                ranges.push((range.start..start, offset));
            }
            let shifted = to + (start - from);
            ranges.push((shifted..shifted + (end - start), at(start)));
            if end < range.end {
                ranges.push((end..range.end, at(end)));
            }
        }
        self.ranges = ranges;
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
}
