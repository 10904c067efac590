//! The cells of a scenario, and the order in which their runs are made.

use std::time::Duration;

use pagein_simnet::rng::Rng;
use pagein_simnet::units::{Bandwidth, format_duration};

use crate::scenario::{LinkPoint, Mode, Scenario, Scheme};

/// One program, policy and link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The program's name.
    pub program: String,
    /// How its pages come in.
    pub scheme: Scheme,
    /// The link.
    pub point: LinkPoint,
    /// Real or simulated.
    pub mode: Mode,
    /// Runs; a simulation, which gives the same figures every time, is run once.
    pub repeats: u32,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, scheme, point, .. } = self;
        write!(f, "{program} {scheme} at {} {}", point.bandwidth, format_duration(point.rtt))
    }
}

/// One run that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    /// Index of its cell.
    pub cell: usize,
    /// Which run of the cell, from 1.
    pub repeat: u32,
}

/// The cells in the order of tables: program, link, policy.
pub(crate) fn cells(scenario: &Scenario) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in &scenario.programs {
        for point in points(scenario) {
            for &scheme in &scenario.policies {
                cells.extend(cell(scenario, &program.name, scheme, point));
            }
        }
    }
    cells
}

/// The links of a scenario: by rate, then by round trip.
pub(crate) fn points(scenario: &Scenario) -> Vec<LinkPoint> {
    let rate = |bits| Bandwidth::from_bits_per_second(bits).expect("bandwidths are not zero");
    let of = |&bits: &u64| scenario.rtts.iter().map(move |&rtt| LinkPoint { bandwidth: rate(bits), rtt });
    scenario.bandwidths.iter().flat_map(of).collect()
}

fn cell(scenario: &Scenario, program: &str, scheme: Scheme, point: LinkPoint) -> Option<Cell> {
    let (mut mode, mut repeats) = (scenario.mode, scenario.repeats);
    for rule in &scenario.overrides {
        fn names<T: PartialEq<U>, U: ?Sized>(list: &[T], value: &U) -> bool {
            list.is_empty() || list.iter().any(|item| item == value)
        }
        let applies = names(&rule.programs, program)
            && names(&rule.policies, &scheme)
            && names(&rule.bandwidths, &point.bandwidth.bits_per_second())
            && names::<Duration, _>(&rule.rtts, &point.rtt);
        if !applies {
            continue;
        }
        if rule.skip {
            return None;
        }
        mode = rule.mode.unwrap_or(mode);
        repeats = rule.repeats.unwrap_or(repeats);
    }
    if mode == Mode::Simulated {
        repeats = 1;
    }
    Some(Cell { program: program.to_owned(), scheme, point, mode, repeats })
}

/// Every run: each round has one of each cell, so that what changes on the machine in the course of time meets all cells
/// alike; within a round the order is shuffled, so that none has the same neighbour every time.
pub(crate) fn order(cells: &[Cell], seed: u64) -> Vec<Task> {
    let rounds = cells.iter().map(|cell| cell.repeats).max().unwrap_or(0);
    let mut tasks = Vec::new();
    for repeat in 1..=rounds {
        let first = tasks.len();
        let due = (0..cells.len()).filter(|&index| cells[index].repeats >= repeat);
        tasks.extend(due.map(|cell| Task { cell, repeat }));
        shuffle(&mut tasks[first..], &mut Rng::new(seed, u64::from(repeat)));
    }
    tasks
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        let other = (rng.unit() * (last + 1) as f64) as usize;
        items.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scenario(more: &str) -> Scenario {
        let text = format!(
            "name = \"t\"\nrepeats = 2\npolicies = [\"original\", \"paged\"]\n[links]\nbandwidths = [\"1mbit\", \"56kbit\"]\n\
             rtts = [\"10ms\"]\n[[program]]\nname = \"a\"\npath = \"a\"\nrecorded = [[\"x\"]]\nmeasured = [\"y\"]\n{more}"
        );
        Scenario::parse(&text, Path::new("t.toml")).unwrap()
    }

    #[test]
    fn every_cell_is_there_once_and_each_round_has_all() {
        let cells = cells(&scenario(""));
        assert_eq!(cells.len(), 4);
        let tasks = order(&cells, 1);
        for (round, half) in tasks.chunks(4).enumerate() {
            let mut seen: Vec<usize> = half.iter().map(|task| task.cell).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
            assert!(half.iter().all(|task| task.repeat == round as u32 + 1));
        }
        assert_eq!(tasks, order(&cells, 1), "the same seed gives the same order");
        assert!((2..20).any(|seed| order(&cells, seed) != tasks), "another seed another one");
    }

    #[test]
    fn overrides_change_what_they_name_and_later_ones_win() {
        let cells = cells(&scenario(
            "[[override]]\nbandwidths = [\"56kbit\"]\nrepeats = 1\n[[override]]\npolicies = [\"paged\"]\nmode = \"simulated\"\n\
             [[override]]\nbandwidths = [\"1mbit\"]\npolicies = [\"paged\"]\nskip = true\n",
        ));
        let shown: Vec<_> = cells.iter().map(|c| (c.to_string(), c.mode.name(), c.repeats)).collect();
        assert_eq!(
            shown,
            [
                ("a original at 56kbit 10ms".to_owned(), "real", 1),
                ("a paged at 56kbit 10ms".to_owned(), "simulated", 1),
                ("a original at 1mbit 10ms".to_owned(), "real", 2),
            ]
        );
    }
}
