//! `report.html`: one page that needs nothing else, with every figure and the tables that say what they mean.

mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::analysis;
use crate::figures::{Figure, Kind};
use crate::prepare::Candidate;
use crate::results::{Outcome, Row};
use crate::scenario::{Mode, Scenario};
use crate::summary::CellSummary;

/// Everything that the page shows.
pub(crate) struct Page<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) candidates: &'a [Candidate<'a>],
    pub(crate) summaries: &'a [CellSummary],
    pub(crate) rows: &'a [Row],
    pub(crate) figures: &'a [Figure],
}

impl Page<'_> {
    pub(crate) fn html(&self) -> String {
        let name = &self.scenario.name;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "pagein experiment: " (name) }
                    style { (PreEscaped(include_str!("style.css"))) }
                }
                body {
                    header {
                        h1 { "Experiment: " (name) }
                        @if !self.scenario.description.is_empty() { p { (self.scenario.description) } }
                        (self.overview())
                    }
                    main {
                        section id="programs" { h2 { "Programs" } (tables::programs(self.candidates)) }
                        section id="findings" {
                            h2 { "The paper's findings" }
                            p {
                                "Lee, Baer, Bershad and Anderson, “Reducing Startup Latency in Web and Desktop Applications” "
                                "(USENIX Windows NT Symposium 1999). Compared are the medians of the cells."
                            }
                            (tables::findings(&analysis::findings(self.summaries)))
                        }
                        section id="equation3" {
                            h2 { "Equation 3, predicted and measured" }
                            p {
                                "The lazier of two schemes wins where the bytes it saves for each request it adds are more than "
                                "bandwidth × latency. Predicted is this quotient, from the bytes and requests counted; measured is "
                                "between which links of the grid, in the order of their product, the faster scheme changes."
                            }
                            (tables::crossovers(self.scenario, self.summaries))
                        }
                        (self.group(Kind::Improvement, "improvement", "Improvement over original",
                            "As figure 3 of the paper: the time saved, as a share of what original takes on the same link."))
                        (self.group(Kind::Bytes, "bytes", "Bytes by kind",
                            "As figure 4 of the paper: hot bytes come without being asked for page by page, demanded ones because a page \
                             was touched; never fetched is the rest of what original transfers. Demands are faults on pages that had to be \
                             requested. Medians over the links."))
                        (self.group(Kind::Times, "times", "Start times",
                            "As figure 6 of the paper: from the start of the command to the end of the job. The floor is the shortest time that \
                             any scheme can take: the round trips of connection and request, then the pages that the job touches at link rate, \
                             overlapped with its own processor time."))
                        section id="predicted" {
                            h2 { "Measured against predicted" }
                            (tables::errors(self.scenario, self.summaries))
                            (self.drawn(Kind::Predicted))
                        }
                        (self.group(Kind::Floor, "floor", "Distance to the floor",
                            "Measured time divided by the floor of the same program and link."))
                        section id="cells" {
                            h2 { "All cells" }
                            details { summary { "Medians of " (self.summaries.len()) " cells (summary.csv)" } (tables::cells(self.summaries)) }
                            (self.failures())
                        }
                    }
                    footer { (self.machine()) }
                }
            }
        };
        page.into_string()
    }

    fn overview(&self) -> Markup {
        let of =
            |mode: Mode| self.summaries.iter().filter(|one| one.cell.mode == mode && one.runs > 0).count();
        let ok = self.rows.iter().filter(|row| row.outcome == Outcome::Ok).count();
        let failed = self.rows.len() - ok;
        let empty = self.summaries.iter().filter(|one| one.runs == 0).count();
        html! {
            p.overview {
                (ok) " runs in " (of(Mode::Real)) " cells measured and " (of(Mode::Simulated)) " simulated"
                @if failed > 0 { ", " (failed) " runs failed" }
                @if empty > 0 { ", " (empty) " cells without a run" }
                ". A cell is a program, a link and a policy; every run starts with an empty cache."
            }
        }
    }

    fn group(&self, kind: Kind, id: &str, title: &str, text: &str) -> Markup {
        html! {
            section id=(id) {
                h2 { (title) }
                p { (text) }
                (self.drawn(kind))
            }
        }
    }

    fn drawn(&self, kind: Kind) -> Markup {
        let figures: Vec<&Figure> = self.figures.iter().filter(|figure| figure.kind == kind).collect();
        html! {
            @if figures.is_empty() { p.none { "There are no cells from which to draw this." } }
            div.figures {
                @for figure in figures {
                    figure id=(format!("figure-{}", figure.name)) { div.scroll tabindex="0" { (PreEscaped(&figure.svg)) } }
                }
            }
        }
    }

    fn failures(&self) -> Markup {
        let failed: Vec<&Row> = self.rows.iter().filter(|row| row.outcome == Outcome::Failed).collect();
        html! {
            @if !failed.is_empty() {
                h3 { "Runs that failed" }
                ul.failed {
                    @for row in failed.iter().take(50) {
                        li { (row.program) " " (row.policy) " at " (row.bandwidth_bps) " bit/s " (row.rtt_ms) " ms: " (row.reason) }
                    }
                    @if failed.len() > 50 { li { "and " (failed.len() - 50) " more, in results.csv" } }
                }
            }
        }
    }

    fn machine(&self) -> Markup {
        let mut machines: Vec<String> = self
            .rows
            .iter()
            .map(|row| {
                format!("{}, Linux {}, {}, pagein {}", row.host, row.kernel, row.processor, row.pagein)
            })
            .collect();
        machines.sort();
        machines.dedup();
        let parallel = self.rows.iter().map(|row| row.parallel).max().unwrap_or(1);
        let load = self.rows.iter().map(|row| row.load).fold(0.0, f64::max);
        html! {
            p {
                "Measured on " (machines.join("; ")) ". At most " (parallel) " runs at a time; largest load average " (format!("{load:.1}"))
                ". Each run with its command line: results.csv."
            }
        }
    }
}
