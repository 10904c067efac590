//! The dynamic section, as far as relative relocations are concerned (System V ABI, chapter 5, "Dynamic Section").

use goblin::elf::dynamic as dt;
use pagein_image::NotLinked;

use crate::Program;

/// `DT_RELRSZ` and `DT_RELR` (generic ABI); goblin has no names for them.
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
/// Bytes of an entry: a tag and a value.
const ENTRY: u64 = 16;

/// Values of the dynamic section that say where relocations are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    pub(crate) rela: Option<Entry>,
    pub(crate) rela_size: Option<Entry>,
    pub(crate) rela_count: Option<Entry>,
    pub(crate) relr: Option<Entry>,
    pub(crate) relr_size: Option<Entry>,
    pub(crate) text_relocations: bool,
}

/// A value, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) value: u64,
    /// Address of the value in the dynamic section.
    pub(crate) at: u64,
}

impl Dynamic {
    /// Reads the dynamic section of a program; `None` if it has none.
    pub(crate) fn read(file: &[u8], program: &Program) -> Result<Option<Self>, NotLinked> {
        let Some(range) = &program.dynamic else { return Ok(None) };
        let mut found = Self::default();
        let mut at = range.start.0;
        while at.checked_add(ENTRY).ok_or(NotLinked::Malformed)? <= range.end.0 {
            let tag = program.word_at(file, at).ok_or(NotLinked::Malformed)?;
            let value = program.word_at(file, at + 8).ok_or(NotLinked::Malformed)?;
            let entry = Entry { value, at: at + 8 };
            let place = match tag {
                dt::DT_NULL => break,
                dt::DT_RELA => &mut found.rela,
                dt::DT_RELASZ => &mut found.rela_size,
                dt::DT_RELACOUNT => &mut found.rela_count,
                DT_RELR => &mut found.relr,
                DT_RELRSZ => &mut found.relr_size,
                dt::DT_TEXTREL => {
                    found.text_relocations = true;
                    &mut None
                }
                dt::DT_FLAGS => {
                    found.text_relocations |= value & dt::DF_TEXTREL != 0;
                    &mut None
                }
                _ => &mut None,
            };
            // Which of two entries counts is up to the dynamic linker.
            if place.replace(entry).is_some() {
                return Err(NotLinked::Malformed);
            }
            at += ENTRY;
        }
        Ok(Some(found))
    }
}
