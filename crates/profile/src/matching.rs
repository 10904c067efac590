//! A profile applied to a program: the one that ran, or a rebuilt one.

use std::collections::{HashMap, HashSet};

use crate::{Call, Profile, Program};

/// Below this share of matched functions a profile counts as stale: in a program rebuilt from sources a few hundred commits on, 90 % and
/// more are found by name alone.
pub const STALE_BELOW: f64 = 0.8;

/// The profile's functions in a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matched {
    /// Index in the program's functions, in order of first touch.
    pub functions: Vec<usize>,
    /// Beside them: number in the profile.
    pub entries: Vec<usize>,
    /// Calls between them, numbered as in `functions`.
    pub calls: Vec<Call>,
    /// Functions found at their address, because it is the same file.
    pub by_address: usize,
    /// Functions found by name.
    pub by_name: usize,
    /// Functions found by the hash of their code.
    pub by_hash: usize,
    /// Functions that the program does not have, or that cannot be told apart.
    pub dropped: usize,
}

impl Matched {
    /// Finds the profile's functions: in the same file (by build ID, and bounds) by address; else by name, where only one
    /// function has it on both sides; else by hash, likewise; else they are dropped.
    pub fn new(profile: &Profile, program: &Program) -> Self {
        let list = program.functions.as_slice();
        let same_file = profile.build_id.is_some() && profile.build_id == program.build_id;
        let their_names = unique(list.iter().map(|f| f.name.as_deref()));
        let their_hashes = unique(program.hashes.iter().copied());
        let our_names = unique(profile.functions.iter().map(|f| f.name.as_deref()));
        let our_hashes = unique(profile.functions.iter().map(|f| f.hash));
        let mut out = Self::default();
        let mut taken = HashSet::new();
        let mut place = vec![None; profile.functions.len()];
        for (n, f) in profile.functions.iter().enumerate() {
            // The hash makes sure of the address: a file without build ID may still be the one that ran.
            let at = program.functions.starting_at(f.address).filter(|i| {
                list[*i].len == f.size && (same_file || (f.hash.is_some() && program.hashes[*i] == f.hash))
            });
            let name = f.name.as_deref().filter(|name| our_names.contains_key(name));
            let hash = f.hash.filter(|hash| our_hashes.contains_key(hash));
            let by_name = || name.and_then(|name| their_names.get(name).copied());
            let by_hash = || hash.and_then(|hash| their_hashes.get(&hash).copied());
            let (found, count) = match (at, by_name()) {
                (Some(index), named) if same_file || named.is_none_or(|n| n == index) => {
                    (Some(index), &mut out.by_address)
                }
                (_, Some(index)) => (Some(index), &mut out.by_name),
                _ => (by_hash(), &mut out.by_hash),
            };
            match found.filter(|index| taken.insert(*index)) {
                Some(index) => {
                    *count += 1;
                    place[n] = Some(out.functions.len());
                    out.functions.push(index);
                    out.entries.push(n);
                }
                None => out.dropped += 1,
            }
        }
        let call =
            |c: &Call| Some(Call { caller: place[c.caller]?, callee: place[c.callee]?, weight: c.weight });
        out.calls = profile.calls.iter().filter_map(call).collect();
        out
    }

    /// What `pagein_relayout::relayout` takes, for an order of the matched functions (numbers in [`Matched::functions`]): the blocks of
    /// each function that were touched, where its code is still the one that was profiled; else its entry.
    pub fn addresses(&self, profile: &Profile, program: &Program, order: &[usize]) -> Vec<u64> {
        let mut out = Vec::new();
        for n in order {
            let (index, entry) = (self.functions[*n], &profile.functions[self.entries[*n]]);
            let f = &program.functions.as_slice()[index];
            let same = f.len == entry.size && entry.hash.is_some() && entry.hash == program.hashes[index];
            if !same || entry.blocks.is_empty() {
                out.push(f.start);
            } else {
                out.extend(entry.blocks.iter().map(|offset| f.start + u64::from(*offset)));
            }
        }
        out
    }

    /// Share of the profile's functions that were found; 1 for an empty profile.
    pub fn share(&self) -> f64 {
        let all = self.functions.len() + self.dropped;
        if all == 0 { 1.0 } else { self.functions.len() as f64 / all as f64 }
    }

    /// One line for people, if the profile no longer fits the program.
    pub fn warning(&self) -> Option<String> {
        let all = self.functions.len() + self.dropped;
        (self.share() < STALE_BELOW).then(|| {
            format!(
                "the profile is stale: {} of its {all} functions are in this program ({:.0} %); record it again",
                self.functions.len(),
                self.share() * 100.0
            )
        })
    }
}

/// The keys that occur once, with their place.
fn unique<K: std::hash::Hash + Eq + Copy>(keys: impl Iterator<Item = Option<K>>) -> HashMap<K, usize> {
    let mut out: HashMap<K, Option<usize>> = HashMap::new();
    for (n, key) in keys.enumerate() {
        let Some(key) = key else { continue };
        out.entry(key).and_modify(|place| *place = None).or_insert(Some(n));
    }
    out.into_iter().filter_map(|(key, place)| Some((key, place?))).collect()
}
