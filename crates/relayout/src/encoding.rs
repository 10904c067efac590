//! Pointer encodings of `.eh_frame` and of language-specific data (`DW_EH_PE_*`; Linux Standard Base, "DWARF Extensions").

use crate::bytes::{read_i32, read_u16, read_u32, read_u64};

/// `DW_EH_PE_omit`.
pub(crate) const OMIT: u8 = 0xff;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
pub(crate) const RELATIVE: Encoding = Encoding(0x1b);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encoding(pub(crate) u8);

impl Encoding {
    pub(crate) fn size(self) -> Option<u64> {
        match self.0 & 15 {
            2 | 10 => Some(2),
            3 | 11 => Some(4),
            0 | 4 | 12 => Some(8),
            _ => None,
        }
    }

    /// Absolute and PC-relative ones of a fixed size can be moved.
    pub(crate) fn known(self) -> bool {
        self.size().is_some() && matches!(self.0 & 0x70, 0 | 0x10)
    }

    pub(crate) fn relative(self) -> bool {
        self.0 & 0x70 == 0x10
    }

    pub(crate) fn read(self, bytes: &[u8], at: u64) -> Option<i64> {
        Some(match self.0 & 15 {
            2 => i64::from(read_u16(bytes, at)?),
            10 => i64::from(read_u16(bytes, at)? as i16),
            3 => i64::from(read_u32(bytes, at)?),
            11 => i64::from(read_i32(bytes, at)?),
            _ => read_u64(bytes, at)? as i64,
        })
    }

    pub(crate) fn write(self, bytes: &mut [u8], at: u64, value: i64) -> Option<()> {
        let size = self.size()?;
        let fits = match (size, self.0 & 8 != 0) {
            (2, true) => i16::try_from(value).is_ok(),
            (2, false) => u16::try_from(value).is_ok(),
            (4, true) => i32::try_from(value).is_ok(),
            (4, false) => u32::try_from(value).is_ok(),
            _ => true,
        };
        let at = usize::try_from(at).ok()?;
        bytes.get_mut(at..at + size as usize)?.copy_from_slice(&value.to_le_bytes()[..size as usize]);
        fits.then_some(())
    }

    /// The pointer in a field that lies at address `field`; 0 stands for "none" in every encoding.
    pub(crate) fn resolve(self, raw: i64, field: u64) -> u64 {
        if self.relative() && raw != 0 { field.wrapping_add_signed(raw) } else { raw as u64 }
    }

    /// The inverse of [`Self::resolve`].
    pub(crate) fn unresolve(self, pointer: u64, field: u64) -> i64 {
        if self.relative() && pointer != 0 { pointer.wrapping_sub(field) as i64 } else { pointer as i64 }
    }
}

/// An unsigned LEB128 number; moves `at` behind it.
pub(crate) fn read_uleb(bytes: &[u8], at: &mut u64) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(usize::try_from(*at).ok()?)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A signed LEB128 number; moves `at` behind it.
pub(crate) fn read_sleb(bytes: &[u8], at: &mut u64) -> Option<i64> {
    let start = *at;
    let value = read_uleb(bytes, at)?;
    let bits = (*at - start) * 7;
    let sign = 64 - bits.min(64);
    Some((value << sign) as i64 >> sign)
}

pub(crate) fn push_uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn push_sleb(out: &mut Vec<u8>, mut value: i64) {
    while !(-64..64).contains(&value) {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

/// An unsigned LEB128 number in 4 bytes, whatever its value (below 2^28), so that what it counts can be known later.
pub(crate) fn uleb4(value: u64) -> Option<[u8; 4]> {
    let part = |shift: u32| (value >> shift) as u8 & 0x7f;
    (value < 1 << 28).then(|| [part(0) | 0x80, part(7) | 0x80, part(14) | 0x80, part(21)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb_numbers_survive_a_round_trip() {
        for value in [0, 1, 63, 64, 127, 128, 300, 1 << 20, -1, -64, -65, -8000] {
            let mut out = Vec::new();
            push_sleb(&mut out, value);
            assert_eq!((read_sleb(&out, &mut 0), out.len() <= 4), (Some(value), true), "{value}");
            if value >= 0 {
                let mut out = Vec::new();
                push_uleb(&mut out, value as u64);
                assert_eq!(read_uleb(&out, &mut 0), Some(value as u64));
                assert_eq!(read_uleb(&uleb4(value as u64).unwrap(), &mut 0), Some(value as u64));
            }
        }
    }
}
