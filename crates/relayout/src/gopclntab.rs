//! Go programs: recognised, and their function bounds read. They are not cloned: the Go runtime finds the frame of every
//! return address in its own table, and would not know the clones.
//!
//! Format: `runtime/symtab.go` (`pcHeader`, `functab`, `_func`) of Go 1.18 and later.

use crate::bytes::{read_u32, read_u64, slice};
use crate::elf::Program;
use crate::functions::Function;

/// Go 1.18 and 1.19, Go 1.20 and later.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

pub(crate) fn is_go(program: &Program<'_>) -> bool {
    [".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo"]
        .iter()
        .any(|name| program.section(name).is_some())
}

pub(crate) fn functions(program: &Program<'_>) -> Option<Vec<Function>> {
    let section = [".gopclntab", ".data.rel.ro.gopclntab"]
        .iter()
        .find_map(|n| program.section(n).map(|s| (s.offset, s.size)))?;
    let table = slice(program.bytes, section.0, section.1)?;
    let [_, _, _, pointer_size] = slice(table, 4, 4)? else { return None };
    if !MAGICS.contains(&read_u32(table, 0)?) || *pointer_size != 8 {
        return None;
    }
    let word = |i: u64| read_u64(table, 8 + i * 8);
    let (count, names, funcs) = (word(0)?, word(3)?, word(7)?);
    // The linker of newer versions leaves the text address 0 where it would need a relocation.
    let text = match word(2)? {
        0 => program.section(".text")?.addr,
        addr => addr,
    };
    if count.checked_mul(8)? > table.len() as u64 {
        return None;
    }
    let entry = |i: u64| text.checked_add(u64::from(read_u32(table, funcs.checked_add(i * 8)?)?));
    let mut out = Vec::with_capacity(count as usize);
    for i in 0..count {
        let (start, end) = (entry(i)?, entry(i + 1)?);
        let record = funcs.checked_add(u64::from(read_u32(table, funcs.checked_add(i * 8 + 4)?)?))?;
        let name = names.checked_add(u64::from(read_u32(table, record.checked_add(4)?)?))?;
        let bytes = table.get(usize::try_from(name).ok()?..)?;
        let name = bytes.split(|b| *b == 0).next().and_then(|n| std::str::from_utf8(n).ok());
        if end > start && program.at(start, end - start).is_some() {
            let name = name.filter(|n| !n.is_empty()).map(str::to_owned);
            out.push(Function { start, len: end - start, name, unwind: false });
        }
    }
    Some(out)
}
