//! From what a tracer saw to a profile.

use std::collections::{BTreeMap, HashMap};

use crate::{Call, Entry, Profile, Program};

/// An address that was touched, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// Link-time address, anywhere in a function.
    pub address: u64,
    /// Link-time return address, if the function was just entered; anything else that is not code does no harm.
    pub caller: u64,
}

impl Profile {
    /// A profile of one run. Addresses outside the program's functions are dropped; the first touch of each function counts. A
    /// caller that the profile does not know yet (its own entry was not seen) gives no call.
    pub fn from_touches(name: &str, program: &Program, touches: impl IntoIterator<Item = Touch>) -> Self {
        let mut number: HashMap<usize, usize> = HashMap::new();
        let mut functions: Vec<Entry> = Vec::new();
        let mut calls = BTreeMap::new();
        for touch in touches {
            let Some(index) = program.functions.find(touch.address) else { continue };
            let f = &program.functions.as_slice()[index];
            let entered = *number.entry(index).or_insert_with(|| {
                functions.push(Entry {
                    address: f.start,
                    size: f.len,
                    hash: program.hashes[index],
                    runs: 1,
                    name: f.name.clone(),
                    blocks: Vec::new(),
                });
                functions.len() - 1
            });
            functions[entered].blocks.push((touch.address - f.start) as u32);
            // A return address may be one past the caller's last byte, after a call that does not return.
            let from = program.functions.find(touch.caller.wrapping_sub(1));
            if let (true, Some(&from)) = (touch.address == f.start, from.and_then(|c| number.get(&c))) {
                *calls.entry((from, entered)).or_insert(0) += 1;
            }
        }
        for f in &mut functions {
            f.blocks.sort_unstable();
            f.blocks.dedup();
            // The entry alone: blocks were not watched, or nothing else is known.
            if f.blocks == [0] {
                f.blocks.clear();
            }
        }
        let calls =
            calls.into_iter().map(|((caller, callee), weight)| Call { caller, callee, weight }).collect();
        Self { program: name.to_owned(), build_id: program.build_id.clone(), runs: 1, functions, calls }
    }
}
