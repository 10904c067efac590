//! Profiles from elsewhere: `perf script` output and ordered lists of symbols.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use crate::{Call, Entry, Profile, Program};

/// Why an import gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImportError {
    /// No sample names a function of the program.
    #[error(
        "none of {0} samples is in {1}; record with `perf record -e cycles:u [-j any,u]` and print with `perf script -F ip,sym,dso[,brstacksym]`"
    )]
    NoSamples(usize, String),
    /// No line names a function of the program.
    #[error("none of {0} names is a function of the program; a stripped program has no names to find")]
    NoNames(usize),
}

fn by_name(program: &Program) -> HashMap<&str, usize> {
    let named = program.functions.as_slice().iter().enumerate();
    named.filter_map(|(n, f)| Some((f.name.as_deref()?, n))).collect()
}

fn entry(program: &Program, index: usize) -> Entry {
    let f = &program.functions.as_slice()[index];
    Entry {
        address: f.start,
        size: f.len,
        hash: program.hashes[index],
        runs: 1,
        name: f.name.clone(),
        blocks: Vec::new(),
    }
}

/// A profile from a list of symbols, one a line, in order: `llvm-profdata order`, lld's `--symbol-ordering-file`, the like.
pub fn symbols(name: &str, program: &Program, text: &str) -> Result<Profile, ImportError> {
    let known = by_name(program);
    let mut seen = std::collections::HashSet::new();
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let found = lines().filter_map(|l| known.get(l).copied()).filter(|n| seen.insert(*n));
    let functions: Vec<Entry> = found.map(|n| entry(program, n)).collect();
    if functions.is_empty() {
        return Err(ImportError::NoNames(lines().count()));
    }
    Ok(Profile {
        program: name.to_owned(),
        build_id: program.build_id.clone(),
        runs: 1,
        functions,
        calls: Vec::new(),
    })
}

/// A profile from `perf script`. A sample's line holds an address, a symbol with an offset and the file in brackets; with branch stacks
/// (`brstacksym`) `FROM+0xOFF/TO+0xOFF/...` words give calls: a branch to a function's first byte. Functions are in order of
/// their first sample, which is close to first touch only for what runs long: a profile by breakpoints is better where one can be taken.
pub fn perf_script(name: &str, program: &Program, text: &str) -> Result<Profile, ImportError> {
    let known = by_name(program);
    let mut number: HashMap<usize, usize> = HashMap::new();
    let mut functions: Vec<Entry> = Vec::new();
    let mut add = |index: usize| {
        *number.entry(index).or_insert_with(|| {
            functions.push(entry(program, index));
            functions.len() - 1
        })
    };
    let mut calls: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    let mut samples = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let here = line.contains(&format!("/{name})")) || line.contains(&format!("({name})"));
        if line.contains(" (") {
            samples += 1;
        }
        if here {
            // The address comes right before the symbol.
            let symbol = words
                .clone()
                .zip(words.clone().skip(1))
                .find_map(|(ip, symbol)| u64::from_str_radix(ip, 16).ok().map(|_| symbol))
                .map(|symbol| symbol.rsplit_once("+0x").map_or(symbol, |(s, _)| s));
            if let Some(index) = symbol.and_then(|s| known.get(s)) {
                add(*index);
            }
        }
        for word in words.by_ref().filter(|w| w.matches('/').count() >= 2 && w.contains("+0x")) {
            let mut ends = word.split('/').map(|end| end.rsplit_once("+0x"));
            let (Some(Some((from, _))), Some(Some((to, offset)))) = (ends.next(), ends.next()) else {
                continue;
            };
            if let (Some(&from), Some(&to), "0") = (known.get(from), known.get(to), offset) {
                let (from, to) = (add(from), add(to));
                *calls.entry((from, to)).or_default() += 1;
            }
        }
    }
    if functions.is_empty() {
        return Err(ImportError::NoSamples(samples, name.to_owned()));
    }
    let calls = calls.into_iter().map(|((caller, callee), weight)| Call { caller, callee, weight }).collect();
    Ok(Profile { program: name.to_owned(), build_id: program.build_id.clone(), runs: 1, functions, calls })
}
