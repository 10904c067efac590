//! `pagein layout`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use pagein_loader::Failure;
use pagein_profile::layout::{Coverage, svg};
use pagein_profile::order;
use pagein_relayout::Copied;
use serde::Serialize;

use super::relayout::Subject;
use super::{bytes, plain, print, print_json, profile, replace};
use crate::args;

#[derive(Serialize)]
struct Json {
    program: String,
    file_bytes: usize,
    /// Functions of the whole program.
    functions: usize,
    profile_runs: u32,
    profile_functions: usize,
    /// Functions of the profile that the program has.
    functions_touched: usize,
    matched_share: f64,
    touched_bytes: u64,
    as_shipped: Pages,
    orders: Vec<OrderJson>,
}

/// Pages of code that are touched.
#[derive(Serialize)]
struct Pages {
    pages: usize,
    /// Share of their bytes that is touched.
    utilisation: f64,
}

#[derive(Serialize)]
struct OrderJson {
    order: &'static str,
    #[serde(flatten)]
    after: Option<After>,
    /// Why the program stays as it is.
    untreatable: Option<String>,
}

#[derive(Serialize)]
struct After {
    functions_cloned: usize,
    functions_cut: usize,
    /// Functions that stay because of pointers to them, or because they cannot be copied.
    functions_left: usize,
    #[serde(flatten)]
    pages: Pages,
}

impl From<&Coverage> for Pages {
    fn from(coverage: &Coverage) -> Self {
        Self { pages: coverage.pages(), utilisation: coverage.utilisation() }
    }
}

pub(crate) fn layout(args: &args::Layout) -> Result<ExitCode, Failure> {
    let subject = Subject { unseen: args.unseen, ..Subject::open(&args.app, profile::read(&args.profile)?)? };
    let touched = subject.touched()?;
    let before = Coverage::of(touched.iter().copied());
    let mut orders = Vec::new();
    let mut nothing_to_draw = None;
    for (n, order) in order::all().into_iter().enumerate() {
        let outcome = subject.relayout(order);
        let entry = match &outcome {
            Err(error) => {
                OrderJson { order: order.name(), after: None, untreatable: Some(error.to_string()) }
            }
            Ok((_, report)) => {
                let coverage = Coverage::of(moved(&touched, &report.copies));
                if let (0, Some(file)) = (n, &args.svg) {
                    let picture = svg(&subject.path.display().to_string(), &before, &coverage);
                    replace(file, picture.as_bytes(), plain())?;
                }
                let after = After {
                    functions_cloned: report.cloned,
                    functions_cut: report.clipped,
                    functions_left: report.anchored + report.refused.values().sum::<usize>(),
                    pages: Pages::from(&coverage),
                };
                OrderJson { order: order.name(), after: Some(after), untreatable: None }
            }
        };
        orders.push(entry);
        if let (0, Some(_), Err(error)) = (n, &args.svg, &outcome) {
            let failure = subject.untreatable(error);
            nothing_to_draw =
                Some(Failure { text: format!("there is nothing to draw: {failure}"), ..failure });
        }
    }
    let json = Json {
        program: subject.path.display().to_string(),
        file_bytes: subject.bytes.len(),
        functions: subject.program.functions.as_slice().len(),
        profile_runs: subject.profile.runs,
        profile_functions: subject.profile.functions.len(),
        functions_touched: subject.matched.functions.len(),
        matched_share: subject.matched.share(),
        touched_bytes: before.bytes(),
        as_shipped: Pages::from(&before),
        orders,
    };
    if args.json {
        print_json(&json)?;
    } else {
        print(&text(&json))?;
    }
    nothing_to_draw.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Where the ranges lie in the new file: in the copies, where there are any.
fn moved(ranges: &[(u64, u64)], copies: &[Copied]) -> Vec<(u64, u64)> {
    let copies: BTreeMap<u64, &Copied> = copies.iter().map(|copy| (copy.from, copy)).collect();
    let place = |(start, len): &(u64, u64)| {
        let copy = copies.range(..=start).next_back().map(|(_, copy)| *copy);
        match copy.filter(|copy| start + len <= copy.from + copy.len) {
            Some(copy) => (start - copy.from + copy.to, *len),
            None => (*start, *len),
        }
    };
    ranges.iter().map(place).collect()
}

fn text(json: &Json) -> String {
    let mut lines = vec![
        format!("program           {}, {}", json.program, bytes(json.file_bytes as u64)),
        format!(
            "profile           runs: {}; {} of its {} functions are here ({:.0} %)",
            json.profile_runs,
            json.functions_touched,
            json.profile_functions,
            json.matched_share * 100.0
        ),
        format!(
            "touched           {} of {} functions, {} of code",
            json.functions_touched,
            json.functions,
            bytes(json.touched_bytes)
        ),
        format!("as shipped        {}", pages(&json.as_shipped)),
    ];
    // The reasons hardly differ (estimates by a page or two): the default order's is given.
    if let [OrderJson { untreatable: Some(why), .. }, rest @ ..] = &json.orders[..]
        && rest.iter().all(|order| order.untreatable.is_some())
    {
        lines.push(format!("in every order    stays as shipped: {why}"));
        return lines.join("\n");
    }
    for order in &json.orders {
        let gain = match (&order.after, &order.untreatable) {
            (Some(after), _) => format!(
                "{}; {} functions moved, {} of them cut to what ran, {} left in place",
                pages(&after.pages),
                after.functions_cloned,
                after.functions_cut,
                after.functions_left
            ),
            (None, why) => format!("stays as shipped: {}", why.as_deref().unwrap_or_default()),
        };
        lines.push(format!("{:<17} {gain}", order.order));
    }
    lines.join("\n")
}

fn pages(pages: &Pages) -> String {
    format!("{} pages, {:.0} % of their bytes touched", pages.pages, pages.utilisation * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_the_copy_that_holds_all_of_it() {
        let copies =
            [Copied { from: 0x100, to: 0x9000, len: 0x20 }, Copied { from: 0x200, to: 0x9020, len: 0x10 }];
        let ranges = [(0x110, 0x10), (0x118, 0x10), (0x200, 4), (0x80, 8), (0x300, 8)];
        let expected = [(0x9010, 0x10), (0x118, 0x10), (0x9020, 4), (0x80, 8), (0x300, 8)];
        assert_eq!(moved(&ranges, &copies), expected);
    }
}
