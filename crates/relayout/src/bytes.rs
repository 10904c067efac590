//! Little-endian reads and writes that answer `None` instead of panicking when the file is too short.

pub(crate) fn slice(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(len)?).ok()?)
}

fn array<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    slice(bytes, at, N as u64)?.try_into().ok()
}

pub(crate) fn read_u16(bytes: &[u8], at: u64) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn read_u32(bytes: &[u8], at: u64) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn read_i32(bytes: &[u8], at: u64) -> Option<i32> {
    array(bytes, at).map(i32::from_le_bytes)
}

pub(crate) fn read_u64(bytes: &[u8], at: u64) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The smallest multiple of `align` (a power of two) that is not below `value`.
pub(crate) fn align_up(value: u64, align: u64) -> u64 {
    debug_assert!(align.is_power_of_two());
    value.saturating_add(align - 1) & !(align - 1)
}

/// `to - from` as a PC-relative 32-bit displacement, if it reaches.
pub(crate) fn displacement(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}
