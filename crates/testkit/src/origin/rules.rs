//! Which responses of an [`Origin`](crate::Origin) go wrong.

use crate::{Fault, glob};

/// A fault, the paths it applies to, and when.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: String,
    fault: Fault,
    skip: u64,
    take: u64,
    after_bytes: u64,
}

impl Rule {
    /// `fault` for every request whose path (without the slash in front) matches `pattern`; see [`glob`].
    pub fn new(pattern: &str, fault: Fault) -> Self {
        Self { pattern: pattern.to_owned(), fault, skip: 0, take: u64::MAX, after_bytes: 0 }
    }

    /// Only from when this many matching requests have been answered without it.
    #[must_use]
    pub fn after_requests(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// Only for this many matching requests, then never again.
    #[must_use]
    pub fn times(mut self, requests: u64) -> Self {
        self.take = requests;
        self
    }

    /// Only once the origin has sent this many bytes of bodies, whatever the path; earlier requests do not
    /// count for the others.
    #[must_use]
    pub fn after_bytes(mut self, bytes: u64) -> Self {
        self.after_bytes = bytes;
        self
    }
}

/// The rules, each with the number of requests that it has matched.
#[derive(Default)]
pub(super) struct Rules(Vec<(Rule, u64)>);

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) {
        self.0.push((rule, 0));
    }

    /// The faults of the response to a request for `path`, when `sent` bytes have been sent.
    pub(super) fn faults(&mut self, path: &str, sent: u64) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (rule, matched) in &mut self.0 {
            if sent < rule.after_bytes || !glob(&rule.pattern, path) {
                continue;
            }
            *matched += 1;
            if *matched > rule.skip && *matched - rule.skip <= rule.take {
                faults.push(rule.fault);
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_their_own_requests() {
        let mut rules = Rules::default();
        rules.add(Rule::new("a", Fault::Status(500)).after_requests(1).times(2));
        rules.add(Rule::new("*", Fault::Endless).after_bytes(10));
        let mut seen = Vec::new();
        for (path, sent) in [("a", 0), ("b", 0), ("a", 0), ("a", 10), ("a", 20), ("b", 30)] {
            seen.push(rules.faults(path, sent));
        }
        let (status, endless) = (Fault::Status(500), Fault::Endless);
        let expected = [vec![], vec![], vec![status], vec![status, endless], vec![endless], vec![endless]];
        assert_eq!(seen, expected);
    }
}
