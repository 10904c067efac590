//! Language-specific data of a part of a function: which landing pad a call has, and which types it catches. (GCC's `unwind-pe.h`
//! and `eh_personality.cc`; Rust's `sys/personality/dwarf/eh.rs`.) The landing pads stay in the original: exceptions are rare, and the
//! code is the same; so the table names the original's start as the base of its landing pads.

use std::collections::BTreeMap;

use crate::bytes::slice;
use crate::elf::Program;
use crate::encoding::{Encoding, OMIT, RELATIVE, push_sleb, push_uleb, read_sleb, read_uleb, uleb4};

/// More types, or bytes of exception specifications, than any function has.
const LARGEST: usize = 1 << 16;
/// More actions than any function has: a chain that does not end.
const LONGEST_CHAIN: usize = 4096;

/// A call site: offsets from the function's start, and what happens when the call throws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Offset from the original function's start; 0 is none.
    pub(crate) pad: u64,
    pub(crate) actions: Vec<Action>,
}

/// What a landing pad is entered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    /// Above 0 an index in the type table, 0 a cleanup, below 0 a place in the list of exception specifications.
    filter: i64,
    /// Types by index: the one caught, or the ones that the specification lets through (none: Rust's functions that must not unwind).
    types: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lsda {
    pub(crate) sites: Vec<Site>,
    types: Encoding,
}

impl Lsda {
    /// Reads the data at `addr`, of a function at `function` (or of a part of it: then the landing pads have that base all the same). `None`
    /// for what cannot be written again.
    pub(crate) fn read(program: &Program<'_>, addr: u64, function: u64) -> Option<Self> {
        let segment = program.loads().find(|s| s.contains(addr))?;
        let bytes = program.at(addr, (segment.addr + segment.file_size).checked_sub(addr)?)?;
        let byte = |at: u64| bytes.get(at as usize).copied();
        let mut at = 0;
        let base = Encoding(byte(at)?);
        at += 1;
        if base.0 != OMIT {
            if base != RELATIVE || base.resolve(base.read(bytes, at)?, addr + at) != function {
                return None;
            }
            at += 4;
        }
        let types = Encoding(byte(at)?);
        at += 1;
        let mut types_end = None;
        if types.0 != OMIT {
            if !types.known() {
                return None;
            }
            let offset = read_uleb(bytes, &mut at)?;
            types_end = Some(at.checked_add(offset)?);
        }
        let call_sites = byte(at)?;
        at += 1;
        let len = read_uleb(bytes, &mut at)?;
        let actions = at.checked_add(len)?;
        slice(bytes, at, len)?;
        let mut sites = Vec::new();
        while at < actions {
            let mut number = || match call_sites {
                1 => read_uleb(bytes, &mut at),
                3 => {
                    at += 4;
                    crate::bytes::read_u32(bytes, at - 4).map(u64::from)
                }
                _ => None,
            };
            let (start, len, pad) = (number()?, number()?, number()?);
            let end = start.checked_add(len)?;
            let action = read_uleb(bytes, &mut at)?;
            let mut list = Vec::new();
            let mut next = (action > 0).then(|| actions.wrapping_add(action - 1));
            while let Some(mut pos) = next {
                let filter = read_sleb(bytes, &mut pos)?;
                let from = pos;
                let step = read_sleb(bytes, &mut pos)?;
                let kind = |index: u64| {
                    let field = types_end?.checked_sub(index.checked_mul(types.size()?)?)?;
                    Some((index, types.resolve(types.read(bytes, field)?, addr + field)))
                };
                let mut caught = Vec::new();
                if filter > 0 {
                    caught.push(kind(filter as u64)?);
                } else if filter < 0 {
                    let mut at = types_end?.checked_add(filter.unsigned_abs() - 1)?;
                    loop {
                        match read_uleb(bytes, &mut at)? {
                            0 => break,
                            index => caught.push(kind(index)?),
                        }
                        if caught.len() > LONGEST_CHAIN {
                            return None;
                        }
                    }
                }
                list.push(Action { filter, types: caught });
                next = (step != 0).then(|| from.wrapping_add_signed(step));
                if list.len() > LONGEST_CHAIN {
                    return None;
                }
            }
            sites.push(Site { start, end, pad, actions: list });
        }
        Some(Self { sites, types })
    }

    /// The sites of the part from `from` on, `len` bytes; their offsets count from there.
    pub(crate) fn part(&self, from: u64, len: u64) -> Self {
        let shift = |n: u64| n.clamp(from, from + len) - from;
        let inside = self.sites.iter().filter(|s| s.start < from + len && s.end > from);
        let sites = inside.map(|s| Site { start: shift(s.start), end: shift(s.end), ..s.clone() }).collect();
        Self { sites, types: self.types }
    }

    /// The table for `addr`, with landing pads that count from `function`.
    pub(crate) fn encode(&self, addr: u64, function: u64) -> Option<Vec<u8>> {
        let mut sites = Vec::new();
        let mut actions = Vec::new();
        let mut kinds: BTreeMap<u64, u64> = BTreeMap::new();
        let mut specifications: Vec<u8> = Vec::new();
        for site in &self.sites {
            for n in [site.start, site.end - site.start, site.pad] {
                sites.extend(u32::try_from(n).ok()?.to_le_bytes());
            }
            push_uleb(&mut sites, if site.actions.is_empty() { 0 } else { actions.len() as u64 + 1 });
            for (n, action) in site.actions.iter().enumerate() {
                // The landing pad compares the filter: it has to stay the same number, and so has the place of what it stands for.
                kinds.extend(action.types.iter().copied());
                if action.filter < 0 {
                    let mut list = Vec::new();
                    action.types.iter().for_each(|(index, _)| push_uleb(&mut list, *index));
                    list.push(0);
                    let at =
                        usize::try_from(action.filter.unsigned_abs() - 1).ok().filter(|at| *at < LARGEST)?;
                    specifications.resize(specifications.len().max(at + list.len()), 0);
                    specifications[at..at + list.len()].copy_from_slice(&list);
                }
                push_sleb(&mut actions, action.filter);
                // The next action follows at once; 1 skips this very byte.
                actions.push(u8::from(n + 1 < site.actions.len()));
            }
        }
        let mut out = vec![RELATIVE.0];
        out.extend(i32::try_from(RELATIVE.unresolve(function, addr + 1)).ok()?.to_le_bytes());
        let body = |out: &mut Vec<u8>| {
            out.push(3); // DW_EH_PE_udata4
            out.extend(uleb4(sites.len() as u64)?);
            out.extend(&sites);
            out.extend(&actions);
            Some(())
        };
        let count = kinds.keys().last().copied().unwrap_or(0);
        if count == 0 && specifications.is_empty() {
            out.push(OMIT);
            body(&mut out)?;
            return Some(out);
        }
        if count > LARGEST as u64 {
            return None;
        }
        out.push(self.types.0);
        let size = self.types.size()?;
        let after = out.len() as u64 + 4;
        let start = (after + 5 + sites.len() as u64 + actions.len() as u64).next_multiple_of(size);
        let end = start + count * size;
        out.extend(uleb4(end - after)?);
        body(&mut out)?;
        out.resize(end as usize, 0);
        for (filter, kind) in &kinds {
            let field = end - filter * size;
            self.types.write(&mut out, field, self.types.unresolve(*kind, addr + field))?;
        }
        out.extend(specifications);
        Some(out)
    }

    /// Two tables say the same of every call.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.sites == other.sites
    }
}
