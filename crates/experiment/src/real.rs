//! A real run: `pagein run` behind `pagein net`, with a server of its own on the far side and an empty cache.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use pagein_simnet::net::SERVER_NAME;
use pagein_simnet::units::format_duration;
use serde_json::Value;

use crate::command::{self, Output};
use crate::grid::Cell;
use crate::host::{Host, load};
use crate::prepare::{Prepared, Tools};
use crate::results::{Outcome, Row, one_line};
use crate::scenario::{Program, Scheme};

/// Each link has a far side of its own, so every server may have the same port.
const PORT: u16 = 8080;

/// Runs once; whatever goes wrong is in the row.
pub(crate) fn run(
    tools: &Tools<'_>,
    host: &Host,
    program: &Program,
    prepared: &Prepared,
    cell: &Cell,
    repeat: u32,
) -> Row {
    let mut row = blank(tools, host, cell, repeat);
    row.program_digest.clone_from(&prepared.digest);
    let outcome = tempfile::tempdir_in(tools.directory.scratch())
        .map_err(|error| format!("no scratch directory: {error}"))
        .and_then(|scratch| once(tools, program, prepared, cell, repeat, scratch.path(), &mut row));
    row.load = load();
    match outcome {
        Ok(()) => row.outcome = Outcome::Ok,
        Err(reason) => row.reason = one_line(&reason),
    }
    row
}

/// A row that says everything but how it went.
pub(crate) fn blank(tools: &Tools<'_>, host: &Host, cell: &Cell, repeat: u32) -> Row {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Row {
        mode: cell.mode,
        program: cell.program.clone(),
        policy: cell.scheme.name().to_owned(),
        bandwidth_bps: cell.point.bandwidth.bits_per_second(),
        rtt_ms: cell.point.rtt.as_secs_f64() * 1e3,
        repeat,
        started_unix: (now.as_secs_f64() * 1e3).round() / 1e3,
        parallel: tools.scenario.parallel,
        load: load(),
        host: one_line(&host.name),
        kernel: one_line(&host.kernel),
        processor: one_line(&host.processor),
        pagein: one_line(&host.pagein),
        ..Row::blank()
    }
}

fn once(
    tools: &Tools<'_>,
    program: &Program,
    prepared: &Prepared,
    cell: &Cell,
    repeat: u32,
    scratch: &Path,
    row: &mut Row,
) -> Result<(), String> {
    let stats_path = scratch.join("stats.json");
    let words = words(tools, program, prepared, cell, repeat, scratch);
    row.command =
        words.iter().map(|word| one_line(&quote(word).to_string_lossy())).collect::<Vec<_>>().join(" ");
    let mut command = tools.command(program, tools.pagein, scratch);
    command.args(&words[1..]);
    let limit = tools.scenario.time_limit;
    let output =
        command::run(&mut command, limit).map_err(|error| format!("cannot start pagein net: {error}"))?;
    if let Ok(text) = std::fs::read(&stats_path) {
        fill(row, &text);
    }
    check(&output, program, prepared, cell.scheme, row, limit)
}

fn check(
    output: &Output,
    program: &Program,
    prepared: &Prepared,
    scheme: Scheme,
    row: &Row,
    limit: std::time::Duration,
) -> Result<(), String> {
    if output.status.is_none() {
        return Err(format!("it took longer than the time limit of {}", format_duration(limit)));
    }
    prepared.compare(program.compare, output)?;
    if row.total_ms.is_none() {
        return Err(format!("it left no stats: {}", output.last_words()));
    }
    // What cannot be paged here is fetched as a whole: fine for a user, wrong for a measurement.
    if scheme.0.is_some() && row.policy_used != scheme.name() {
        return Err(format!("it ran as {:?}: {}", row.policy_used, output.last_words()));
    }
    Ok(())
}

fn words(
    tools: &Tools<'_>,
    program: &Program,
    prepared: &Prepared,
    cell: &Cell,
    repeat: u32,
    scratch: &Path,
) -> Vec<OsString> {
    let pagein = tools.pagein.as_os_str();
    let server = [
        quote(pagein).as_bytes(),
        format!(" serve --listen 0.0.0.0:{PORT} ").as_bytes(),
        quote(tools.directory.images().as_os_str()).as_bytes(),
    ]
    .concat();
    let mut words: Vec<OsString> = vec![pagein.to_owned(), "net".into()];
    words.push(format!("--bandwidth={}", cell.point.bandwidth).into());
    words.push(format!("--rtt={}", format_duration(cell.point.rtt)).into());
    words.extend(tools.scenario.conditions.options().into_iter().map(OsString::from));
    // Other losses in each repeat, the same in each cell.
    words.push(format!("--seed={}", tools.scenario.seed + u64::from(repeat)).into());
    words.push("--server".into());
    words.push(OsString::from_vec(server));
    words.extend(["--".into(), pagein.to_owned(), "run".into(), format!("--policy={}", cell.scheme).into()]);
    words.extend(["--stats".into(), scratch.join("stats.json").into()]);
    words.extend(["--cache".into(), scratch.join("cache").into()]);
    // The name that it was recorded with: some programs look themselves up in PATH if it has no slash.
    words.extend(["--argv0".into(), prepared.path.clone().into()]);
    // Behind a long queue on a slow link a page may rightly wait for minutes: only the time limit ends a run.
    words.push(format!("--timeout={}", tools.scenario.time_limit.as_secs_f64()).into());
    words.push(format!("http://{SERVER_NAME}:{PORT}/{}", program.name).into());
    words.push("--".into());
    words.extend(program.measured.iter().map(OsString::from));
    words
}

/// As one word of a shell.
fn quote(word: &std::ffi::OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return word.to_owned();
    }
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        if byte == b'\'' { quoted.extend(b"'\\''") } else { quoted.push(byte) }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

/// Takes over what `--stats` wrote.
fn fill(row: &mut Row, text: &[u8]) {
    let Ok(stats) = serde_json::from_slice::<Value>(text) else { return };
    let whole = |name: &str| stats[name].as_u64();
    let number = |name: &str| stats[name].as_f64();
    stats["policy"].as_str().unwrap_or_default().clone_into(&mut row.policy_used);
    row.total_ms = number("total_ms");
    row.exec_ms = number("exec_ms");
    row.wire_bytes = whole("wire_bytes");
    row.hot_bytes = whole("hot_bytes");
    row.requests = whole("requests");
    row.pages_total = whole("pages_total");
    row.pages_installed = whole("pages_installed");
    row.faults = whole("faults");
    row.demand_faults = whole("demand_faults");
    row.seen_bandwidth = number("bandwidth_bps");
    row.seen_rtt_ms = number("rtt_ms");
    row.exit_status = stats["exit_status"].as_i64().map(|status| status as i32);
    row.stats = stats.to_string();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["plain", "", "two words", "it's", "$HOME `x` \"q\" \\", "a\nb"] {
            let script = OsString::from_vec([b"printf %s ", quote(word.as_ref()).as_bytes()].concat());
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
    }

    #[test]
    fn stats_of_a_later_version_are_taken_over_as_far_as_they_are_known() {
        let mut row = Row::blank();
        fill(&mut row, br#"{"policy":"paged","total_ms":12.5,"wire_bytes":7,"exit_status":-1,"new":[1]}"#);
        assert_eq!((row.policy_used.as_str(), row.total_ms, row.wire_bytes), ("paged", Some(12.5), Some(7)));
        assert!(row.stats.contains("\"new\":[1]") && row.exit_status == Some(-1) && row.requests.is_none());
    }
}
