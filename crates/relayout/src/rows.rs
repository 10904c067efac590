//! Call frame information as rows (address range, rules), for a part of a function: read with gimli, written as the few instructions
//! that set each row up.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, LittleEndian, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection,
};

use crate::arch::RETURN_ADDRESS;
use crate::encoding::{push_sleb, push_uleb};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cfa {
    Register(u16, u64),
    Expression(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    SameValue,
    Offset(i64),
    ValOffset(i64),
    Register(u16),
    Expression(Vec<u8>),
    ValExpression(Vec<u8>),
}

/// What holds from `start` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) cfa: Cfa,
    /// By register, ascending.
    pub(crate) rules: Vec<(u16, Rule)>,
    /// Bytes of pushed arguments, which the unwinder takes off when it enters a landing pad.
    pub(crate) arguments: u64,
}

/// All rows of the FDE at an offset of the table; `None` if they hold something that cannot be written for a part.
pub(crate) fn read(table: &[u8], addr: u64, offset: u64) -> Option<Vec<Row>> {
    let section = EhFrame::new(table, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(addr);
    let offset = EhFrameOffset::from(usize::try_from(offset).ok()?);
    let fde = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    let bytes = |e: &UnwindExpression<usize>| e.get(&section).ok().map(|e| e.0.to_vec());
    let mut context = UnwindContext::new();
    let mut rows = fde.rows(&section, &bases, &mut context).ok()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next_row().ok()? {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Cfa::Register(register.0, u64::try_from(*offset).ok()?)
            }
            CfaRule::Expression(e) => Cfa::Expression(bytes(e)?),
        };
        let mut rules = Vec::new();
        for (register, rule) in row.registers() {
            let rule = match rule {
                RegisterRule::SameValue => Rule::SameValue,
                RegisterRule::Offset(n) => Rule::Offset(*n),
                RegisterRule::ValOffset(n) => Rule::ValOffset(*n),
                RegisterRule::Register(r) => Rule::Register(r.0),
                RegisterRule::Expression(e) => Rule::Expression(bytes(e)?),
                RegisterRule::ValExpression(e) => Rule::ValExpression(bytes(e)?),
                _ => return None,
            };
            rules.push((register.0, rule));
        }
        rules.sort_by_key(|(register, _)| *register);
        // The CIE has a rule for the return address; a row without one could not be told from it.
        rules.binary_search_by_key(&RETURN_ADDRESS, |(register, _)| *register).ok()?;
        let (start, end) = (row.start_address(), row.end_address());
        out.push(Row { start, end, cfa, rules, arguments: row.saved_args_size() });
    }
    Some(out)
}

/// The rows for the part that starts at `from` and has `len` bytes, as if it started at address 0.
pub(crate) fn part(rows: &[Row], from: u64, len: u64) -> Vec<Row> {
    let inside = rows.iter().filter(|r| r.start < from + len && r.end > from);
    let shift = |addr: u64| addr.clamp(from, from + len) - from;
    inside.map(|r| Row { start: shift(r.start), end: shift(r.end), ..r.clone() }).collect()
}

/// Call frame instructions that make these rows, from the first one's start on. `unit` is the CIE's data alignment factor.
pub(crate) fn encode(rows: &[Row], unit: i64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut at = rows.first()?.start;
    let mut known: Vec<u16> = Vec::new();
    let mut arguments = 0;
    for row in rows {
        if row.start > at {
            out.push(0x04); // DW_CFA_advance_loc4
            out.extend(u32::try_from(row.start - at).ok()?.to_le_bytes());
            at = row.start;
        }
        match &row.cfa {
            Cfa::Register(register, offset) => {
                out.push(0x0c); // DW_CFA_def_cfa
                push_uleb(&mut out, u64::from(*register));
                push_uleb(&mut out, *offset);
            }
            Cfa::Expression(bytes) => block(&mut out, 0x0f, None, bytes), // DW_CFA_def_cfa_expression
        }
        for register in &known {
            if row.rules.binary_search_by_key(register, |(r, _)| *r).is_err() {
                out.push(0x06); // DW_CFA_restore_extended: to the CIE's rule, which is none
                push_uleb(&mut out, u64::from(*register));
            }
        }
        for (register, rule) in &row.rules {
            rule_of(&mut out, *register, rule, unit)?;
        }
        if row.arguments != arguments {
            arguments = row.arguments;
            out.push(0x2e); // DW_CFA_GNU_args_size
            push_uleb(&mut out, arguments);
        }
        known = row.rules.iter().map(|(register, _)| *register).collect();
    }
    Some(out)
}

fn rule_of(out: &mut Vec<u8>, register: u16, rule: &Rule, unit: i64) -> Option<()> {
    let factored = |n: i64| (unit != 0 && n % unit == 0).then(|| n / unit);
    let mut plain = |code: u8, operand: Option<i64>| {
        out.push(code);
        push_uleb(out, u64::from(register));
        if let Some(operand) = operand {
            push_sleb(out, operand);
        }
    };
    match rule {
        Rule::SameValue => plain(0x08, None),                // DW_CFA_same_value
        Rule::Offset(n) => plain(0x11, Some(factored(*n)?)), // DW_CFA_offset_extended_sf
        Rule::ValOffset(n) => plain(0x15, Some(factored(*n)?)), // DW_CFA_val_offset_sf
        Rule::Register(other) => {
            plain(0x09, None); // DW_CFA_register
            push_uleb(out, u64::from(*other));
        }
        Rule::Expression(bytes) => block(out, 0x10, Some(register), bytes), // DW_CFA_expression
        Rule::ValExpression(bytes) => block(out, 0x16, Some(register), bytes), // DW_CFA_val_expression
    }
    Some(())
}

fn block(out: &mut Vec<u8>, code: u8, register: Option<u16>, bytes: &[u8]) {
    out.push(code);
    if let Some(register) = register {
        push_uleb(out, u64::from(register));
    }
    push_uleb(out, bytes.len() as u64);
    out.extend(bytes);
}
