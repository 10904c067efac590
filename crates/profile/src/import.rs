//! Profiles from elsewhere: `perf script` output and ordered lists of symbols.

use std::collections::{BTreeMap, HashMap};

use cpp_demangle::DemangleOptions;
use thiserror::Error;

use crate::{Call, Entry, Profile, Program};

/// Why an import gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImportError {
    /// No sample names a function of the program.
    #[error(
        "none of {0} samples is in {1}; record with `perf record -e cycles:u [-j any,u]` and print with `perf script --no-demangle -F ip,sym,dso[,brstacksym]`; \
         a stripped program has no names to find"
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

/// What perf calls functions unless it is told `--no-demangle`, where only one is called so: without parameters, Rust's without hash.
fn by_demangled_name(program: &Program) -> HashMap<String, usize> {
    let mut out: HashMap<String, Option<usize>> = HashMap::new();
    for (n, f) in program.functions.as_slice().iter().enumerate() {
        let Some(name) = f.name.as_deref().and_then(short) else { continue };
        out.entry(name).and_modify(|place| *place = None).or_insert(Some(n));
    }
    out.into_iter().filter_map(|(name, n)| Some((name, n?))).collect()
}

fn short(symbol: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return Some(format!("{rust:#}"));
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    cpp_demangle::Symbol::new(symbol).ok()?.demangle_with_options(&options).ok()
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

/// What may be the symbol of a sample: all that follows an address, without the offset. Process IDs and periods may look like addresses,
/// and what follows them is no symbol.
fn after_address(text: &str) -> impl Iterator<Item = &str> {
    let words = text.match_indices(' ').map(|(at, _)| at).chain([text.len()]);
    words.scan(0, move |start, end| Some((std::mem::replace(start, end), end))).filter_map(
        move |(start, end)| {
            u64::from_str_radix(text[start..end].trim(), 16).ok()?;
            let symbol = text[end..].trim();
            Some(symbol.rsplit_once("+0x").map_or(symbol, |(symbol, _)| symbol))
        },
    )
}

/// A profile from `perf script`. A sample's line holds an address, a symbol with an offset and the file in brackets; with branch stacks
/// (`brstacksym`) `FROM+0xOFF/TO+0xOFF/...` words give calls: a branch to a function's first byte. Functions are in order of
/// their first sample, which is close to first touch only for what runs long: a profile by breakpoints is better where one can be taken.
pub fn perf_script(name: &str, program: &Program, text: &str) -> Result<Profile, ImportError> {
    let (symbols, demangled) = (by_name(program), by_demangled_name(program));
    let known = |name: &str| symbols.get(name).or_else(|| demangled.get(name)).copied();
    let places = [format!("/{name})"), format!("({name})")];
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
        if line.contains(" (") {
            samples += 1;
        }
        let file = places.iter().find_map(|place| line.find(place));
        let before = file.and_then(|at| Some(line[..=at].rsplit_once(" (")?.0));
        if let Some(index) = before.and_then(|before| after_address(before).find_map(known)) {
            add(index);
        }
        for word in line.split_whitespace().filter(|w| w.matches('/').count() >= 2 && w.contains("+0x")) {
            let mut ends = word.split('/').map(|end| end.rsplit_once("+0x"));
            let (Some(Some((from, _))), Some(Some((to, offset)))) = (ends.next(), ends.next()) else {
                continue;
            };
            if let (Some(from), Some(to), "0") = (known(from), known(to), offset) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_stands_behind_the_address() {
        let symbols = |text| after_address(text).collect::<Vec<_>>();
        assert_eq!(symbols("     55d0 leaf+0x2"), ["leaf"]);
        assert_eq!(symbols("\t    1151 ns::f<int, long>+0x18"), ["ns::f<int, long>"]);
        // What `perf script` prints if it is not told what: command, process, time, period, event, address, symbol.
        let text = "a   318 14942.741435:     250000 cpu-clock:u:      55978cf13151 one+0x18";
        assert_eq!(symbols(text).last(), Some(&"one"));
        assert!(symbols("").is_empty());
    }

    #[test]
    fn names_are_as_perf_demangles_them() {
        let short = |symbol| short(symbol).unwrap_or_default();
        assert_eq!(short("_ZN2ns1S3runElRKSt6vectorIiSaIiEE"), "ns::S::run");
        assert_eq!(short("_ZN2ns4tmplIlEET_S1_"), "ns::tmpl<long>");
        assert_eq!(short("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(short("main"), "");
    }
}
