//! What only several values together can get wrong, and ranges.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use pagein_simnet::queue::{Jitter, LossModel, QueueLimit};
use pagein_simnet::units::Bandwidth;
use toml::Spanned;

use super::error::Mistake;
use super::raw;
use super::raw::Written;
use super::value::Time;
use super::{Conditions, LinkPoint, Location, Override, Program, Scenario, Scheme, net_args};

/// More cells than anybody has the time for are a mistake; they would also make the report unreadable.
const MAX_CELLS: usize = 100_000;

pub(super) fn check(file: raw::File) -> Result<Scenario, Mistake> {
    let name_span = file.name.span();
    let name = file.name.into_inner();
    if name.trim().is_empty() {
        return Err(Mistake::new(name_span, "the name is empty; write a word or two for people"));
    }
    let programs_span = file.programs.span();
    let programs: Vec<Program> =
        file.programs.into_inner().into_iter().map(program).collect::<Result<_, _>>()?;
    if programs.is_empty() {
        return Err(Mistake::new(programs_span, "there is no program; write at least one [[program]]"));
    }
    for (index, program) in programs.iter().enumerate() {
        if programs[..index].iter().any(|other| other.name == program.name) {
            let why = format!("two programs are called {:?}; names must differ", program.name);
            return Err(Mistake::new(programs_span, why));
        }
    }
    let policies = match file.policies {
        Some(list) => distinct(list, "policy", |scheme: Scheme| scheme)?,
        None => Scheme::all().filter(|scheme| scheme.0.is_some()).collect(),
    };
    let bandwidths_span = file.links.bandwidths.span();
    let mut bandwidths = distinct(file.links.bandwidths, "bandwidth", Bandwidth::bits_per_second)?;
    let mut rtts = distinct(file.links.rtts, "round trip", |time: Time| time.0)?;
    bandwidths.sort_unstable();
    rtts.sort_unstable();
    if bandwidths.len() * rtts.len() * policies.len() * programs.len() > MAX_CELLS {
        let why = format!("the grid has more than {MAX_CELLS} cells; name fewer values");
        return Err(Mistake::new(bandwidths_span, why));
    }
    let conditions = Conditions {
        loss: text::<LossModel>(file.links.loss)?,
        queue: text::<QueueLimit>(file.links.queue)?,
        jitter: text::<Jitter>(file.links.jitter)?,
        uplink: text::<Bandwidth>(file.links.uplink)?,
        congestion: congestion(file.links.congestion)?,
    };
    let scenario = Scenario {
        name,
        description: file.description,
        mode: file.mode,
        repeats: within(file.repeats, 3, 1..=1000, "repeats")?,
        parallel: within(file.parallel, 1, 1..=256, "parallel")?,
        seed: file.seed,
        time_limit: time_limit(file.time_limit)?,
        level: within(file.level, 19, 1..=22, "level")?,
        policies,
        bandwidths,
        rtts,
        conditions,
        programs,
        overrides: Vec::new(),
    };
    // Loss, queue and jitter each are well-formed; together with the links they may still be impossible.
    for bandwidth in &scenario.bandwidths {
        for &rtt in &scenario.rtts {
            let point = LinkPoint { bandwidth: rate(*bandwidth), rtt };
            let made = net_args(&scenario.conditions, point, scenario.seed);
            made.and_then(|args| args.into_config().map_err(|error| error.to_string()))
                .map_err(|why| Mistake::new(bandwidths_span.clone(), format!("link {point}: {why}")))?;
        }
    }
    let overrides =
        file.overrides.into_iter().map(|raw| one_override(raw, &scenario)).collect::<Result<_, _>>()?;
    Ok(Scenario { overrides, ..scenario })
}

pub(super) fn rate(bits: u64) -> pagein_simnet::units::Bandwidth {
    pagein_simnet::units::Bandwidth::from_bits_per_second(bits).expect("bandwidths are not zero")
}

fn program(raw: raw::Program) -> Result<Program, Mistake> {
    let name_span = raw.name.span();
    let name = file_name(raw.name, "a program's name")?;
    let location = match (raw.path, raw.fetch) {
        (Some(path), None) => Location::Path(path.into_inner()),
        (None, Some(fetch)) => Location::Fetched(file_name(fetch, "fetch")?),
        (Some(path), Some(_)) => {
            return Err(Mistake::new(
                path.span(),
                format!("program {name:?} has path and fetch; write one of them"),
            ));
        }
        (None, None) => {
            let why = format!(
                "program {name:?} has no place; write path = \"/usr/bin/{name}\", path = \"{name}\" (looked for in PATH), or \
                 fetch = \"{name}\" (a file in --programs)"
            );
            return Err(Mistake::new(name_span, why));
        }
    };
    let recorded_span = raw.recorded.span();
    let recorded = raw.recorded.into_inner();
    let measured = raw.measured;
    if recorded.is_empty() && !raw.same_job {
        let why = "no recorded job; write the arguments of each, such as recorded = [[\"status\"], [\"log\", \"-1\"]]";
        return Err(Mistake::new(recorded_span, why));
    }
    if !raw.same_job && recorded.contains(measured.get_ref()) {
        let why = format!(
            "the measured job of {name:?} is one of the recorded ones: measure another, or write same_job = true to say that it is meant"
        );
        return Err(Mistake::new(measured.span(), why));
    }
    let measured = measured.into_inner();
    let recorded = if recorded.is_empty() { vec![measured.clone()] } else { recorded };
    Ok(Program { name, location, recorded, measured, setup: raw.setup, env: raw.env, compare: raw.compare })
}

fn file_name(text: Spanned<String>, what: &str) -> Result<String, Mistake> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    let name = text.get_ref();
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(allowed) {
        let why = format!(
            "{name:?} cannot be {what}; write up to 100 letters, digits, and . _ - +, the first of them not a dot"
        );
        return Err(Mistake::new(text.span(), why));
    }
    Ok(text.into_inner())
}

fn read<T: FromStr<Err: Display>>(written: &Written) -> Result<T, Mistake> {
    written.get_ref().parse().map_err(|error: T::Err| Mistake::new(written.span(), error.to_string()))
}

/// The values of a list that must have at least one and none twice.
fn distinct<T: FromStr<Err: Display>, U: PartialEq>(
    list: Spanned<Vec<Written>>,
    what: &str,
    value: impl Fn(T) -> U,
) -> Result<Vec<U>, Mistake> {
    let span = list.span();
    let mut values = Vec::new();
    for item in list.into_inner() {
        let one = value(read(&item)?);
        if values.contains(&one) {
            let why = format!("the {what} {:?} is there twice", item.get_ref());
            return Err(Mistake::new(item.span(), why));
        }
        values.push(one);
    }
    if values.is_empty() {
        return Err(Mistake::new(span, format!("the list is empty; name at least one {what}")));
    }
    Ok(values)
}

fn within<T: PartialOrd + std::fmt::Display>(
    given: Option<Spanned<T>>,
    default: T,
    range: RangeInclusive<T>,
    what: &str,
) -> Result<T, Mistake> {
    let Some(given) = given else { return Ok(default) };
    if range.contains(given.get_ref()) {
        return Ok(given.into_inner());
    }
    let why =
        format!("{what} = {} is out of range; write {} to {}", given.get_ref(), range.start(), range.end());
    Err(Mistake::new(given.span(), why))
}

fn time_limit(given: Option<Written>) -> Result<Duration, Mistake> {
    let Some(given) = given else { return Ok(Duration::from_secs(600)) };
    let Time(limit) = read(&given)?;
    if limit < Duration::from_millis(100) {
        return Err(Mistake::new(
            given.span(),
            "time_limit must be at least 100ms; write a time such as 600s",
        ));
    }
    Ok(limit)
}

/// A value that `pagein net` reads again; it is only checked here.
fn text<T: FromStr<Err: Display>>(given: Option<Written>) -> Result<Option<String>, Mistake> {
    let Some(given) = given else { return Ok(None) };
    read::<T>(&given)?;
    Ok(Some(given.into_inner()))
}

fn congestion(given: Option<Spanned<String>>) -> Result<Option<String>, Mistake> {
    let Some(given) = given else { return Ok(None) };
    let ok = !given.get_ref().is_empty()
        && given.get_ref().bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    if !ok {
        let why = "write a congestion control of the kernel, such as \"cubic\" or \"reno\"";
        return Err(Mistake::new(given.span(), why));
    }
    Ok(Some(given.into_inner()))
}

fn one_override(raw: Spanned<raw::Override>, scenario: &Scenario) -> Result<Override, Mistake> {
    fn known<T: FromStr<Err: Display>, U: PartialEq>(
        items: Vec<Written>,
        grid: &[U],
        what: &str,
        value: impl Fn(T) -> U,
    ) -> Result<Vec<U>, Mistake> {
        let one = |item: Written| {
            let value = value(read(&item)?);
            let why = || format!("no cell has this {what}; name one that the scenario has");
            if grid.contains(&value) { Ok(value) } else { Err(Mistake::new(item.span(), why())) }
        };
        items.into_iter().map(one).collect()
    }
    let span = raw.span();
    let raw = raw.into_inner();
    if raw.mode.is_none() && raw.repeats.is_none() && !raw.skip {
        return Err(Mistake::new(span, "this override changes nothing; write mode, repeats or skip = true"));
    }
    let names: Vec<String> = scenario.programs.iter().map(|program| program.name.clone()).collect();
    let repeats = match raw.repeats {
        Some(given) => Some(within(Some(given), 1, 1..=1000, "repeats")?),
        None => None,
    };
    Ok(Override {
        programs: known(raw.programs, &names, "program", |name: String| name)?,
        policies: known(raw.policies, &scenario.policies, "policy", |scheme: Scheme| scheme)?,
        bandwidths: known(raw.bandwidths, &scenario.bandwidths, "bandwidth", Bandwidth::bits_per_second)?,
        rtts: known(raw.rtts, &scenario.rtts, "round trip", |time: Time| time.0)?,
        mode: raw.mode,
        repeats,
        skip: raw.skip,
    })
}
