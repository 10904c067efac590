//! The tables of the report.

use maud::{Markup, html};
use pagein_simnet::units::format_duration;

use crate::analysis::{self, Crossover, Finding, PAIRS, Turn};
use crate::prepare::Candidate;
use crate::scenario::{LinkPoint, Scenario};
use crate::summary::CellSummary;

/// Exceptions shown without unfolding.
const SHOWN: usize = 3;

pub(super) fn programs(candidates: &[Candidate<'_>]) -> Markup {
    let job = |words: &[String]| words.join(" ");
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                th { "program" } th.n { "file" } th { "recorded jobs" } th { "measured job" }
                th.n { "pages touched" } th.n { "not foreseen" } th.n { "locally" }
            } }
            tbody {
                @for candidate in candidates {
                    @let program = candidate.program;
                    tr {
                        td { (program.name) }
                        @match &candidate.prepared {
                            Ok(prepared) => {
                                td.n { (format!("{:.2} MB", prepared.size as f64 / 1e6)) }
                                td { @for recorded in &program.recorded { div { code { (job(recorded)) } } } }
                                td { code { (job(&program.measured)) } }
                                td.n { (prepared.measured_pages) }
                                td.n { (prepared.unforeseen_pages) }
                                td.n { (format!("{:.1} ms", prepared.local_ms)) }
                            }
                            Err(why) => { td.bad colspan="6" { "skipped: " (why) } }
                        }
                    }
                }
            }
        } }
    }
}

pub(super) fn findings(findings: &[Finding]) -> Markup {
    html! {
        @if findings.is_empty() { p.none { "No pair of policies that the paper compares has cells." } }
        @else { div.scroll tabindex="0" { table {
            thead { tr { th { "finding" } th.n { "holds in" } th.n { "share" } th { "where not" } } }
            tbody { @for finding in findings {
                @let share = finding.holds as f64 / finding.of as f64;
                tr {
                    td.wide { (finding.claim) div.note { (finding.scope) } }
                    td.n { (finding.holds) " of " (finding.of) }
                    td.n.good[share >= 0.9].bad[share < 0.5] { (format!("{:.0} %", share * 100.0)) }
                    td.wide { (exceptions(&finding.exceptions)) }
                }
            } }
        } } }
    }
}

fn exceptions(all: &[String]) -> Markup {
    html! {
        @for one in all.iter().take(SHOWN) { div { (one) } }
        @if all.len() > SHOWN {
            details { summary { (all.len() - SHOWN) " more" } @for one in &all[SHOWN..] { div { (one) } } }
        }
    }
}

pub(super) fn crossovers(scenario: &Scenario, summaries: &[CellSummary]) -> Markup {
    let programs = scenario.programs.iter().map(|program| program.name.as_str());
    let all: Vec<Crossover> = PAIRS
        .iter()
        .flat_map(|&pair| {
            programs.clone().filter_map(move |program| analysis::crossover(summaries, program, pair))
        })
        .collect();
    html! {
        @if all.is_empty() { p.none { "No pair of policies that the paper compares has cells." } }
        @else { div.scroll tabindex="0" { table {
            thead { tr {
                th { "program" } th { "eager, lazy" } th.n { "bytes saved" } th.n { "requests added" }
                th.n { "predicted turn" } th { "measured turn" } th.n { "links as predicted" }
            } }
            tbody { @for one in &all { tr {
                td { (one.program) }
                td { (one.pair.eager) ", " (one.pair.lazy) }
                td.n { (kilobytes(one.bytes_saved)) }
                td.n { (format!("{:.0}", one.requests_added)) }
                td.n { (match one.predicted {
                    Turn::At(product) => kilobytes(product),
                    Turn::LazyAlways => "lazy everywhere".to_owned(),
                    Turn::EagerAlways => "eager everywhere".to_owned(),
                }) }
                td.wide { (measured(one)) }
                td.n { (one.agreeing()) " of " (one.winners.len()) }
            } } }
        } } }
    }
}

fn measured(one: &Crossover) -> String {
    let named = |point: LinkPoint| format!("{} ({point})", kilobytes(point.product()));
    match (one.lazy_up_to(), one.eager_from(), one.changes_between()) {
        (_, _, Some((lazy, eager))) => format!("between {} and {}", named(lazy), named(eager)),
        (Some(_), None, _) => "lazy everywhere".to_owned(),
        (None, Some(_), _) => "eager everywhere".to_owned(),
        (Some(lazy), Some(eager), None) => {
            format!("several: lazy up to {}, eager from {}", kilobytes(lazy), kilobytes(eager))
        }
        (None, None, None) => String::new(),
    }
}

fn kilobytes(bytes: f64) -> String {
    match bytes.abs() {
        0.0..1e4 => format!("{:.2} kB", bytes / 1e3),
        1e4..1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.0} kB", bytes / 1e3),
    }
}

pub(super) fn errors(scenario: &Scenario, summaries: &[CellSummary]) -> Markup {
    let each =
        scenario.policies.iter().map(|&scheme| (scheme.name(), analysis::errors(summaries, Some(scheme))));
    let all: Vec<_> = each
        .chain([("all", analysis::errors(summaries, None))])
        .filter_map(|(name, errors)| Some((name, errors?)))
        .collect();
    html! {
        @if all.is_empty() { p.none { "No cell was both measured and predicted." } }
        @else {
            p { "The error is the predicted time against the median of the measured ones; lines at a quarter more and less." }
            div.scroll tabindex="0" { table id="errors" {
                thead { tr { th { "policy" } th.n { "cells" } th.n { "median error" } th.n { "worst error" } th { "worst cell" } } }
                tbody { @for (name, errors) in &all { tr {
                    td { (name) }
                    td.n { (errors.cells) }
                    td.n.bad[errors.median > 0.10] { (format!("{:.1} %", errors.median * 100.0)) }
                    td.n.bad[errors.worst.abs() > 0.25] { (format!("{:+.1} %", errors.worst * 100.0)) }
                    td { (errors.worst_cell) }
                } } }
            } }
        }
    }
}

pub(super) fn cells(summaries: &[CellSummary]) -> Markup {
    let number = |value: Option<f64>, scale: f64, digits: usize| {
        value.map_or(String::new(), |value| format!("{:.digits$}", value / scale))
    };
    html! {
        div.scroll tabindex="0" { table id="summary" {
            thead { tr {
                th { "program" } th { "bandwidth" } th { "rtt" } th { "policy" } th { "mode" } th.n { "runs" } th.n { "failed" }
                th.n { "median, ms" } th.n { "quartiles, ms" } th.n { "predicted, ms" } th.n { "floor, ms" }
                th.n { "bytes" } th.n { "requests" } th.n { "demands" }
            } }
            tbody { @for one in summaries { tr {
                td { (one.cell.program) }
                td { (one.cell.point.bandwidth) }
                td { (format_duration(one.cell.point.rtt)) }
                td { (one.cell.scheme) }
                td { (one.cell.mode.name()) }
                td.n { (one.runs) }
                td.n { (one.failed) }
                td.n { (number(one.median_ms(), 1.0, 3)) }
                td.n { @if let Some(q) = one.total_ms { (format!("{:.1} – {:.1}", q.first, q.third)) } }
                td.n { (number(one.forecast.map(|forecast| forecast.total_ms), 1.0, 1)) }
                td.n { (number(one.forecast.map(|forecast| forecast.floor_ms), 1.0, 1)) }
                td.n { (number(one.wire_bytes, 1.0, 0)) }
                td.n { (number(one.requests, 1.0, 0)) }
                td.n { (number(one.demand_faults, 1.0, 0)) }
            } } }
        } }
    }
}
