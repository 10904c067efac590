//! The check of what was written. The new file is read again from its bytes, and compared with the old one instruction by instruction
//! and table by table; nothing that was computed on the way is trusted but the list of clones.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, EhFrame, EhFrameHdr,
    EndianSlice, LittleEndian, Pointer, UnwindSection,
};
use thiserror::Error;

use crate::arch::{self, Kind, Reference};
use crate::bytes::{read_i32, read_u64, slice};
use crate::elf::Program;
use crate::functions::{Function, PT_GNU_EH_FRAME, eh_frame};
use crate::layout::{Clone, Layout};
use crate::lsda::Lsda;
use crate::patch::Patches;
use crate::pointers::Pointers;
use crate::rows;
use crate::tables::Entry;
use crate::text::Text;

/// Where the new file is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} at {at:#x}")]
pub struct Mismatch {
    /// The rule that is broken.
    pub what: &'static str,
    /// Link-time address, or file offset where the rule is about the file.
    pub at: u64,
}

pub(crate) struct Expected<'a> {
    pub(crate) text: &'a Text,
    pub(crate) layout: &'a Layout,
    pub(crate) pointers: &'a Pointers,
    pub(crate) patches: &'a Patches,
    pub(crate) entries: &'a [Entry],
    pub(crate) kept: u64,
}

fn ensure(condition: bool, what: &'static str, at: u64) -> Result<(), Mismatch> {
    if condition { Ok(()) } else { Err(Mismatch { what, at }) }
}

pub(crate) fn verify(old: &Program<'_>, new: &[u8], expected: &Expected<'_>) -> Result<(), Mismatch> {
    let program = Program::parse(new).map_err(|_| Mismatch { what: "the new file cannot be read", at: 0 })?;
    headers(old, &program)?;
    unchanged(old, &program, expected)?;
    clones_apart(expected.layout)?;
    let check = Check { old, new: &program, expected };
    for clone in &expected.layout.clones {
        let f = expected.text.function(clone.function);
        check.copy(f, clone.from, clone.start, clone.copied)?;
        let tail = program.at(clone.start + clone.copied, clone.len - clone.copied).unwrap_or_default();
        if !tail.is_empty() {
            let to = read_i32(tail, 1).map(|d| (clone.start + clone.len).wrapping_add_signed(i64::from(d)));
            ensure(
                tail[0] == 0xe9 && to.is_some_and(|to| check.same(f.start + clone.from + clone.copied, to)),
                "a clone's end leads astray",
                clone.start,
            )?;
        }
    }
    for (_, f, _) in expected.text.clean() {
        check.copy(f, 0, f.start, f.len)?;
    }
    for entry in expected.entries {
        let value = program.offset(entry.addr).and_then(|at| match entry.size {
            8 => read_u64(new, at),
            _ => read_i32(new, at).map(|d| entry.table.wrapping_add_signed(i64::from(d))),
        });
        ensure(value.is_some_and(|v| check.same(entry.target, v)), "a jump table leads astray", entry.addr)?;
    }
    check.pointers()?;
    check.unwind()
}

/// Loadable segments: the old ones as they were, then one more, which shares no page with them.
fn headers(old: &Program<'_>, new: &Program<'_>) -> Result<(), Mismatch> {
    let (before, after): (Vec<_>, Vec<_>) = (old.loads().collect(), new.loads().collect());
    let kept = after.len() == before.len() + 1 && before[..] == after[..before.len()];
    ensure(kept, "a loadable segment changed", 0)?;
    let (last, added) = (before[before.len() - 1], after[before.len()]);
    let page = crate::PAGE;
    let apart = added.addr >= crate::bytes::align_up(last.addr + last.mem_size, page);
    ensure(apart && added.addr % page == added.offset % page, "the new segment is misplaced", added.addr)?;
    ensure(new.is_code(new.entry), "the entry point is not code", new.entry)?;
    for s in new.segments.iter().filter(|s| s.kind != goblin::elf::program_header::PT_LOAD && s.file_size > 0)
    {
        let mapped = new.offset(s.addr) == Some(s.offset) || old.segments.contains(s);
        ensure(mapped, "a program header and its segment disagree", s.addr)?;
    }
    for s in new.sections.iter().filter(|s| s.allocated() && s.size > 0 && s.kind == 1) {
        let mapped = new.offset(s.addr) == Some(s.offset) || old.sections.contains(s);
        ensure(mapped, "a section header and its segment disagree", s.addr)?;
    }
    Ok(())
}

/// Every byte of the old file that is kept is the same, or is listed as changed.
fn unchanged(old: &Program<'_>, new: &Program<'_>, expected: &Expected<'_>) -> Result<(), Mismatch> {
    let mut at = 0;
    let same = |from: u64, to: u64| {
        let (a, b) = (slice(old.bytes, from, to - from), slice(new.bytes, from, to - from));
        ensure(a.is_some() && a == b, "a byte changed that should not", from)
    };
    for (offset, bytes) in expected.patches.iter() {
        ensure(offset >= at, "two changes overlap", offset)?;
        same(at, offset)?;
        at = offset + bytes.len() as u64;
    }
    same(at, expected.kept.max(at))
}

fn clones_apart(layout: &Layout) -> Result<(), Mismatch> {
    let mut at = layout.start;
    for clone in &layout.clones {
        ensure(clone.start >= at && clone.len >= clone.copied, "two clones overlap", clone.start)?;
        at = clone.start + clone.len;
    }
    ensure(at <= layout.end, "a clone lies outside its section", at)
}

struct Check<'a> {
    old: &'a Program<'a>,
    new: &'a Program<'a>,
    expected: &'a Expected<'a>,
}

impl Check<'_> {
    /// Whether executing at `to` is executing at `from`: the same address, or the clone's instruction there.
    fn same(&self, from: u64, to: u64) -> bool {
        from == to || self.original(to) == Some(from)
    }

    /// The address whose copy lies at `addr`.
    fn original(&self, addr: u64) -> Option<u64> {
        let clones = &self.expected.layout.clones;
        let clone = &clones[clones.partition_point(|c| c.start <= addr).checked_sub(1)?];
        let offset = addr - clone.start;
        (offset < clone.copied)
            .then(|| self.expected.text.function(clone.function).start + clone.from + offset)
    }

    /// The code at `start` of the new file does what the function did from `offset` on.
    fn copy(&self, f: &Function, offset: u64, start: u64, len: u64) -> Result<(), Mismatch> {
        let wrong = |what| Mismatch { what, at: start };
        let from = f.start + offset;
        let before = self.old.at(from, len).ok_or(wrong("a function is gone"))?;
        let after = self.new.at(start, len).ok_or(wrong("a clone is gone"))?;
        if before == after && from == start {
            return Ok(());
        }
        // What stays in its place may leave by short branches.
        let decode = if from == start { arch::decode_in_place } else { arch::decode };
        let a = decode(before, from).map_err(|_| wrong("a function cannot be decoded"))?;
        let b = decode(after, start).map_err(|_| wrong("a clone cannot be decoded"))?;
        let aligned = a.starts == b.starts && a.references.len() == b.references.len();
        ensure(aligned, "a clone has other instructions", start)?;
        let mut bytes = before.to_vec();
        for (was, is) in a.references.iter().zip(&b.references) {
            ensure(
                (was.at, was.next, was.kind) == (is.at, is.next, is.kind),
                "an operand changed its kind",
                start,
            )?;
            ensure(self.leads(was, is), "an operand leads astray", start + u64::from(is.at))?;
            let at = is.at as usize;
            bytes[at..at + 4].copy_from_slice(&after[at..at + 4]);
        }
        let function =
            self.expected.text.functions.starting_at(f.start).ok_or(wrong("a function is gone"))?;
        for immediate in self.expected.pointers.immediates_of(function) {
            let Some(at) = u64::from(immediate.at).checked_sub(offset).filter(|at| *at < len) else {
                continue;
            };
            let old = u64::from(crate::bytes::read_u32(before, at).unwrap_or(0));
            ensure(self.same(old, immediate.to), "an address in an instruction leads astray", start)?;
            let moved = self.expected.pointers.moved.get(&old).is_none_or(|to| *to == immediate.to);
            ensure(moved, "an address in an instruction is not the pointer's", start)?;
            let at = at as usize;
            bytes[at..at + 4].copy_from_slice(&(immediate.to as u32).to_le_bytes());
        }
        ensure(bytes == after, "a clone has other bytes", start)
    }

    fn leads(&self, was: &Reference, is: &Reference) -> bool {
        match was.kind {
            Kind::Memory => was.target == is.target,
            Kind::Call | Kind::Jump => self.same(was.target, is.target),
            Kind::Address => {
                let moved = self.expected.pointers.moved.get(&was.target);
                is.target == moved.copied().unwrap_or(was.target) && self.same(was.target, is.target)
            }
        }
    }

    /// No word and no `lea` (see [`Self::leads`]) still holds an address that was redirected.
    fn pointers(&self) -> Result<(), Mismatch> {
        let gone = Mismatch { what: "the relocations are gone", at: 0 };
        let (before, after) = (self.old.relative_words(), self.new.relative_words());
        let (Some(before), Some(after)) = (before, after) else { return Err(gone) };
        ensure(before.len() == after.len(), gone.what, gone.at)?;
        for (was, is) in before.iter().zip(&after) {
            let wanted = self.expected.pointers.moved.get(&was.target).copied().unwrap_or(was.target);
            ensure(is.at == was.at && is.target == wanted, "a pointer leads astray", was.target)?;
            ensure(is.in_place == was.in_place, "a pointer and its relocation disagree", was.target)?;
        }
        for (at, was) in &self.expected.pointers.words {
            let before = self.old.offset(*at).and_then(|o| read_u64(self.old.bytes, o));
            let after = self.new.offset(*at).and_then(|o| read_u64(self.new.bytes, o));
            let wanted = self.expected.pointers.moved.get(was);
            ensure(
                before == Some(*was) && wanted.is_some() && after == wanted.copied(),
                "a word leads astray",
                *at,
            )?;
        }
        for (from, to) in &self.expected.pointers.moved {
            ensure(self.original(*to) == Some(*from), "a pointer was redirected to something else", *from)?;
        }
        Ok(())
    }

    /// Looks every function and every clone up the way an unwinder does, and compares what it finds.
    fn unwind(&self) -> Result<(), Mismatch> {
        let bad = |what| Mismatch { what, at: 0 };
        let before = frames(self.old).ok_or(bad("the old unwind tables cannot be read"))?;
        let after = frames(self.new).ok_or(bad("the new unwind tables cannot be read"))?;
        let clones = &self.expected.layout.clones;
        ensure(after.len() >= before.len() + clones.len(), "an unwind entry is missing", 0)?;
        let search = search_table(self.new).ok_or(bad("the unwind search table cannot be read"))?;
        ensure(search.windows(2).all(|w| w[0].0 <= w[1].0), "the unwind search table is not sorted", 0)?;
        ensure(search.len() == after.len(), "the unwind search table is not complete", 0)?;
        for (start, fde) in &search {
            ensure(after.contains_key(&(*start, *fde)), "the unwind search table leads astray", *start)?;
        }
        let by_start: HashMap<u64, &Frame> =
            after.iter().map(|((start, _), frame)| (*start, frame)).collect();
        for ((start, _), frame) in &before {
            ensure(by_start.get(start).is_some_and(|f| f.same(frame)), "an unwind entry changed", *start)?;
        }
        let old: HashMap<u64, &Frame> = before.iter().map(|((start, _), frame)| (*start, frame)).collect();
        for clone in clones {
            let f = self.expected.text.function(clone.function);
            let fits = match (old.get(&f.start), by_start.get(&clone.start)) {
                (Some(was), Some(is)) if clone.whole => {
                    is.len == clone.len && was.len == clone.copied && is.same_rules(was)
                }
                (Some(was), Some(is)) => {
                    is.len == clone.len && is.language(was) && self.part(f, clone, was, is) == Some(true)
                }
                _ => false,
            };
            ensure(fits, "a clone's unwind entry is not its original's", clone.start)?;
        }
        Ok(())
    }
}

impl Check<'_> {
    /// A fragment's rules and language-specific data are the original's for the same instructions.
    fn part(&self, f: &Function, clone: &Clone, was: &Frame, is: &Frame) -> Option<bool> {
        let (old_addr, old) = eh_frame(self.old)?;
        let (new_addr, new) = eh_frame(self.new)?;
        let wanted = rows::part(&rows::read(old, old_addr, was.at)?, f.start + clone.from, clone.copied);
        let found = rows::part(&rows::read(new, new_addr, is.at)?, clone.start, clone.copied);
        // A row may be split in two that are the same.
        let at = |rows: &[rows::Row], addr: u64| {
            rows.iter()
                .find(|r| (r.start..r.end).contains(&addr))
                .map(|r| (r.cfa.clone(), r.rules.clone(), r.arguments))
        };
        let starts = wanted.iter().chain(&found).map(|r| r.start);
        let rules = starts.into_iter().all(|s| at(&wanted, s).is_some() && at(&wanted, s) == at(&found, s));
        let data = match (was.lsda, is.lsda) {
            (None, None) => true,
            (Some(Pointer::Direct(was)), Some(Pointer::Direct(is))) => {
                let wanted = Lsda::read(self.old, was, f.start)?.part(clone.from, clone.copied);
                Lsda::read(self.new, is, f.start)?.same(&wanted)
            }
            _ => false,
        };
        Some(rules && data)
    }
}

/// What an FDE says, without where it is.
struct Frame {
    /// Offset in the table.
    at: u64,
    len: u64,
    lsda: Option<Pointer>,
    personality: Option<Pointer>,
    signal: bool,
    /// Of the call frame instructions, the CIE's and its own.
    instructions: u64,
    /// Of the CIE's alone.
    shared: u64,
}

impl Frame {
    /// Same CIE, as far as it matters.
    fn language(&self, other: &Self) -> bool {
        (self.personality, self.signal, self.shared) == (other.personality, other.signal, other.shared)
    }

    /// Same rules and language-specific data; the length may differ.
    fn same_rules(&self, other: &Self) -> bool {
        self.language(other) && (self.lsda, self.instructions) == (other.lsda, other.instructions)
    }

    fn same(&self, other: &Self) -> bool {
        self.len == other.len && self.same_rules(other)
    }
}

/// All FDEs by start and place.
fn frames(program: &Program<'_>) -> Option<HashMap<(u64, u64), Frame>> {
    let (addr, bytes) = eh_frame(program)?;
    let table = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(addr);
    let mut entries = table.entries(&bases);
    let mut out = HashMap::new();
    while let Some(entry) = entries.next().ok()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        let mut hash = Hash(DefaultHasher::new());
        hash.add(&table, fde.cie().instructions(&table, &bases))?;
        let shared = hash.0.finish();
        hash.add(&table, fde.instructions(&table, &bases))?;
        let frame = Frame {
            at: fde.offset() as u64,
            len: fde.len(),
            lsda: fde.lsda(),
            personality: fde.personality(),
            signal: fde.is_signal_trampoline(),
            instructions: hash.0.finish(),
            shared,
        };
        out.insert((fde.initial_address(), addr + fde.offset() as u64), frame);
    }
    Some(out)
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Hashes what is written to it.
struct Hash(DefaultHasher);

impl Hash {
    fn add(
        &mut self,
        table: &EhFrame<Slice<'_>>,
        mut list: CallFrameInstructionIter<'_, Slice<'_>>,
    ) -> Option<()> {
        use CallFrameInstruction::{DefCfaExpression, Expression, Nop, ValExpression};
        while let Some(instruction) = list.next().ok()? {
            match instruction {
                // Padding at the end.
                Nop => {}
                // These show their place in the section; what counts is their content.
                DefCfaExpression { expression } => self.0.write(&expression.get(table).ok()?.0),
                Expression { register, expression } | ValExpression { register, expression } => {
                    self.0.write_u16(register.0);
                    self.0.write(&expression.get(table).ok()?.0);
                }
                other => write!(self, "{other:?}").ok()?,
            }
        }
        Some(())
    }
}

impl std::fmt::Write for Hash {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.0.write(s.as_bytes());
        Ok(())
    }
}

/// The search header's table: start of a function, address of its FDE.
fn search_table(program: &Program<'_>) -> Option<Vec<(u64, u64)>> {
    let header = program.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
    let hdr = EhFrameHdr::new(program.at(header.addr, header.file_size)?, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.addr);
    let parsed = hdr.parse(&bases, 8).ok()?;
    let direct = |p: Pointer| if let Pointer::Direct(addr) = p { Some(addr) } else { None };
    parsed
        .table()?
        .iter(&bases)
        .map(|entry| entry.ok().and_then(|(start, fde)| Some((direct(start)?, direct(fde)?))))
        .collect()
}
