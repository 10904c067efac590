//! Changes to the bytes of the original file: each is recorded, so that the check at the end knows every byte that may differ.

use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Patches {
    by_offset: BTreeMap<u64, Vec<u8>>,
}

impl Patches {
    pub(crate) fn set_u16(&mut self, at: u64, value: u16) {
        self.by_offset.insert(at, value.to_le_bytes().to_vec());
    }

    pub(crate) fn set_i32(&mut self, at: u64, value: i32) {
        self.by_offset.insert(at, value.to_le_bytes().to_vec());
    }

    pub(crate) fn set_u64(&mut self, at: u64, value: u64) {
        self.by_offset.insert(at, value.to_le_bytes().to_vec());
    }

    pub(crate) fn set(&mut self, at: u64, bytes: &[u8]) {
        self.by_offset.insert(at, bytes.to_vec());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.by_offset.iter().map(|(at, bytes)| (*at, bytes.as_slice()))
    }

    /// Applies all; `None` if one lies outside the file.
    pub(crate) fn apply(&self, file: &mut [u8]) -> Option<()> {
        for (at, bytes) in self.iter() {
            let at = usize::try_from(at).ok()?;
            file.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        }
        Some(())
    }
}
