//! What `pagein plan` prints for people.

use std::time::Duration;

use pagein_model::{Decision, Shape};
use pagein_simnet::units::format_duration;

use super::ms;
use super::report::Json;
use crate::commands::bytes;

/// Why `auto` chooses what it does, in one sentence.
pub(super) fn why(shape: &Shape, decision: &Decision) -> String {
    if shape.reads_self {
        return "the program was seen to open its own file, so all of it must be there".to_owned();
    }
    let best = decision.estimate(decision.policy);
    let others = decision.estimates.iter().filter(|other| other.policy != decision.policy);
    let Some(second) = others.min_by_key(|other| other.time) else { return String::new() };
    if second.time < best.time {
        return format!(
            "its background fill bounds a job that was not recorded; {} is estimated no more than 2 % quicker",
            second.policy
        );
    }
    format!(
        "the model estimates {} for {} and {} requests; next is {} with {}",
        format_ms(best.time),
        bytes(best.bytes as u64),
        best.requests.round(),
        second.policy,
        format_ms(second.time)
    )
}

fn format_ms(time: Duration) -> String {
    seconds(ms(time))
}

/// A time for people.
fn seconds(ms: f64) -> String {
    match ms {
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1e3),
    }
}

pub(super) fn text(json: &Json) -> String {
    let mut lines = vec![format!(
        "{} over {} Mbit/s, round trip {}{}",
        json.program,
        json.link.bits_per_second as f64 / 1e6,
        format_duration(Duration::from_secs_f64(json.link.round_trip_ms / 1e3)),
        json.link.loss.as_ref().map_or_else(String::new, |loss| format!(", loss {loss}"))
    )];
    for job in &json.jobs {
        lines.push(String::new());
        lines.push(format!(
            "{} ({} first touches, {} of its own time)",
            job.job,
            job.touches,
            seconds(job.cpu_ms)
        ));
        lines.push(format!(
            "{:<18}{:>10}{:>12}{:>11}{:>10}{:>11}{:>11}",
            "policy", "time", "first step", "bytes", "requests", "on demand", "not used"
        ));
        for of in &job.policies {
            lines.push(format!(
                "{:<18}{:>10}{:>12}{:>11}{:>10}{:>11}{:>11}",
                of.policy,
                seconds(of.total_ms),
                seconds(of.exec_ms),
                bytes(of.wire_bytes),
                of.requests,
                of.demand_requests,
                bytes(of.unused_bytes)
            ));
        }
        lines.push(format!(
            "{:<18}{:>10}{:>12}{:>11}   with the slow start of one connection: {}",
            "floor",
            seconds(job.floor_ms),
            "",
            bytes(job.floor_bytes),
            seconds(job.floor_slow_start_ms)
        ));
        for of in &job.crossovers {
            lines.push(match of.product_bytes {
                Some(at) => format!(
                    "equation 3         {} beats {} below {} of bandwidth x latency; here {}: {}, predicted {}",
                    of.fewer_bytes,
                    of.fewer_requests,
                    bytes(at as u64),
                    bytes(json.link.product_bytes as u64),
                    of.quicker_by_equation.unwrap_or_default(),
                    of.quicker_predicted
                ),
                None => format!(
                    "equation 3         no link makes {} and {} change places; predicted {}",
                    of.fewer_bytes, of.fewer_requests, of.quicker_predicted
                ),
            });
        }
    }
    let decision = &json.decision;
    lines.push(String::new());
    lines.push(format!("auto               {}: {}", decision.policy, decision.why));
    lines.push(format!(
        "                   from {} traces, hot {}, whole {}, {} Mbit/s, {}",
        decision.traces,
        bytes(decision.hot_bytes),
        bytes(decision.whole_bytes),
        json.link.bits_per_second as f64 / 1e6,
        seconds(json.link.round_trip_ms)
    ));
    lines.join("\n")
}
