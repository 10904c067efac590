//! Several profiles in one.

use std::collections::{BTreeMap, HashMap};

use crate::{Call, Entry, Profile};

/// What makes two entries the same function: the name and the hash, where there are any; else the place. (In one program
/// a name may stand for several static functions, and one hash for several equal ones, so that both are needed, and the place breaks the tie.)
type Key = (Option<String>, Option<u64>, Option<u64>);

fn keys(profile: &Profile, same_file: bool) -> Vec<Key> {
    let mut seen: HashMap<(Option<String>, Option<u64>), usize> = HashMap::new();
    for f in &profile.functions {
        *seen.entry((f.name.clone(), f.hash)).or_default() += 1;
    }
    profile
        .functions
        .iter()
        .map(|f| {
            let unique = seen[&(f.name.clone(), f.hash)] == 1 && (f.name.is_some() || f.hash.is_some());
            (f.name.clone(), f.hash, (same_file || !unique).then_some(f.address))
        })
        .collect()
}

impl Profile {
    /// The share, in percent, of a next run's functions that none of the runs touched; `None` of a single run. Functions that one run
    /// alone touched would have been new in it: their part of all that the runs touched estimates it (I. J. Good, The population
    /// frequencies of species and the estimation of population parameters, Biometrika 40, 1953, equation 9).
    pub fn unseen(&self) -> Option<u32> {
        let once = self.functions.iter().filter(|f| f.runs == 1).count() as u64;
        let all: u64 = self.functions.iter().map(|f| u64::from(f.runs)).sum();
        (self.runs > 1 && all > 0).then(|| u32::try_from(once * 100 / all).unwrap_or(100))
    }

    /// Adds another profile of the same program. Functions that only the other one touched are put behind the function that came
    /// before them there, so that what runs together in either stays together; runs and weights are added up. Where the
    /// profiles are of different builds, the other one's functions are recognised by name and hash.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let same_file = self.build_id.is_some() && self.build_id == other.build_id;
        let (ours, theirs) = (keys(self, same_file), keys(other, same_file));
        let known: HashMap<&Key, usize> = ours.iter().enumerate().map(|(n, key)| (key, n)).collect();
        // Functions that only the other one has, by the one of ours that they follow.
        let mut following: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        let mut after = None;
        let mut shared = vec![None; self.functions.len()];
        for (n, key) in theirs.iter().enumerate() {
            if let Some(ours) = known.get(key) {
                after = Some(*ours);
                shared[*ours] = Some(n);
            } else {
                following.entry(after).or_default().push(n);
            }
        }
        let mut functions: Vec<Entry> = Vec::with_capacity(self.functions.len() + other.functions.len());
        let (mut our_number, mut their_number) = (vec![0; ours.len()], vec![0; theirs.len()]);
        let mut add_theirs = |after, functions: &mut Vec<Entry>, numbers: &mut Vec<usize>| {
            for n in following.remove(&after).unwrap_or_default() {
                numbers[n] = functions.len();
                functions.push(other.functions[n].clone());
            }
        };
        add_theirs(None, &mut functions, &mut their_number);
        for (n, f) in self.functions.iter().enumerate() {
            our_number[n] = functions.len();
            let mut entry = f.clone();
            if let Some(theirs) = shared[n] {
                their_number[theirs] = functions.len();
                if entry.size == other.functions[theirs].size {
                    entry.blocks.extend(&other.functions[theirs].blocks);
                    entry.blocks.sort_unstable();
                    entry.blocks.dedup();
                }
                entry.runs = entry.runs.saturating_add(other.functions[theirs].runs);
            }
            functions.push(entry);
            add_theirs(Some(n), &mut functions, &mut their_number);
        }
        let mut calls: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (list, number) in [(&self.calls, &our_number), (&other.calls, &their_number)] {
            for c in list {
                let weight = calls.entry((number[c.caller], number[c.callee])).or_default();
                *weight = weight.saturating_add(c.weight);
            }
        }
        Self {
            program: self.program.clone(),
            build_id: self.build_id.clone().filter(|_| same_file),
            runs: self.runs.saturating_add(other.runs),
            functions,
            calls: calls
                .into_iter()
                .map(|((caller, callee), weight)| Call { caller, callee, weight })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(names: &[&str], calls: &[(usize, usize)]) -> Profile {
        let entry = |(n, name): (usize, &&str)| Entry {
            address: n as u64 * 16,
            size: 16,
            hash: None,
            runs: 1,
            name: Some((*name).to_owned()),
            blocks: vec![0, n as u32 + 1],
        };
        let calls = calls.iter().map(|&(caller, callee)| Call { caller, callee, weight: 1 }).collect();
        Profile {
            runs: 1,
            functions: names.iter().enumerate().map(entry).collect(),
            calls,
            ..Profile::default()
        }
    }

    fn names(profile: &Profile) -> Vec<&str> {
        profile.functions.iter().filter_map(|f| f.name.as_deref()).collect()
    }

    #[test]
    fn new_functions_follow_the_one_they_followed() {
        let merged = profile(&["main", "a", "b"], &[(0, 1)])
            .merge(&profile(&["start", "main", "x", "b", "y"], &[(1, 2)]));
        assert_eq!(names(&merged), ["start", "main", "x", "a", "b", "y"]);
        let runs: Vec<u32> = merged.functions.iter().map(|f| f.runs).collect();
        assert_eq!(runs, [1, 2, 1, 1, 2, 1]);
        assert_eq!(merged.functions[1].blocks, [0, 1, 2], "main's blocks in either");
        let calls: Vec<_> = merged.calls.iter().map(|c| (c.caller, c.callee)).collect();
        assert_eq!(calls, [(1, 2), (1, 3)], "main calls x and a, under their new numbers");
    }

    #[test]
    fn merging_a_profile_with_itself_only_counts_runs() {
        let one = profile(&["main", "a"], &[(0, 1)]);
        let merged = one.merge(&one);
        assert_eq!(names(&merged), ["main", "a"]);
        assert_eq!((merged.runs, merged.functions[0].runs, merged.calls[0].weight), (2, 2, 2));
    }

    #[test]
    fn what_one_run_alone_touched_is_what_a_next_one_may_add() {
        let one = profile(&["main", "a"], &[]);
        assert_eq!(one.unseen(), None);
        assert_eq!(one.merge(&one).unseen(), Some(0));
        // main twice; a and b once: half of what the two touched.
        assert_eq!(one.merge(&profile(&["main", "b"], &[])).unseen(), Some(50));
    }

    #[test]
    fn two_static_functions_of_one_name_stay_two() {
        let one = profile(&["init", "init"], &[]);
        assert_eq!(one.merge(&one).functions.len(), 2);
    }
}
