//! `pagein plan`: what each policy would take over a link, the floor, and the decision of `auto`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pagein_image::{GroupIndex, object};
use pagein_loader::Failure;
use pagein_model::cost::{Cost, crossover};
use pagein_model::{Decision, Link as ModelLink, Policy, Shape, Trace, decide};
use pagein_simnet::link::{Direction, Link, LinkRate};
use pagein_simnet::queue::{LossModel, QueueLimit};
use pagein_simnet::replay::{self, Floor, Host, Job, Prediction};
use pagein_simnet::units::format_duration;
use serde::Serialize;

use super::image::Image;
use super::{bytes, pagein, print, print_json, runtime};
use crate::args;

pub(crate) fn plan(args: &args::Plan) -> Result<ExitCode, Failure> {
    let link = link(args)?;
    let (image, cold, paged) = runtime()?.block_on(async {
        let image = Image::open(&args.source).await?;
        let cold = image.index(object::COLD_INDEX, &image.manifest.cold).await?;
        let paged = match &image.manifest.paged {
            Some(set) => Some(image.index(object::PAGED_INDEX, set).await?),
            None => None,
        };
        Ok::<(Image, GroupIndex, Option<GroupIndex>), Failure>((image, cold, paged))
    })?;
    let tables = replay::Image {
        manifest: &image.manifest,
        manifest_len: image.stored.len() as u64,
        cold: &cold,
        paged: paged.as_ref(),
    };
    let host = Host::default();
    let model_link = ModelLink {
        bandwidth: args.bandwidth.bits_per_second() as f64 / 8.0,
        round_trip: link.round_trip(),
    };
    let decision = decide(&Shape::of(&image.manifest, tables.manifest_len), &model_link);
    let jobs = jobs(args, &tables)?;
    let plans: Vec<Plan> = jobs.iter().map(|(name, job)| Plan::new(name, job, &tables, &link, &host)).collect();
    let json = Json::new(args, &image, &link, &decision, plans);
    if args.json { print_json(&json)? } else { print(&text(&json))? }
    Ok(ExitCode::SUCCESS)
}

/// The link that the options describe, as `pagein net` would make it.
fn link(args: &args::Plan) -> Result<Link, Failure> {
    let direction = |rate: LinkRate, delay| Direction {
        queue: args.queue.unwrap_or_else(|| rate.default_queue(args.rtt)),
        rate,
        loss: args.loss.unwrap_or(LossModel::NONE),
        delay,
        ..Direction::IDEAL
    };
    let uplink = args.uplink.unwrap_or(args.bandwidth);
    if args.loss.is_some_and(|loss| loss.mean() >= 1.0) {
        let text = "with this --loss no packet would ever arrive; it must be below 100%".to_owned();
        return Err(Failure { code: Failure::PAGEIN, text });
    }
    if matches!(args.queue, Some(QueueLimit::Packets(0) | QueueLimit::Bytes(..1500))) {
        let text = "--queue must hold at least one packet of 1500 bytes".to_owned();
        return Err(Failure { code: Failure::PAGEIN, text });
    }
    let one_way = args.rtt / 2;
    Ok(Link {
        up: direction(LinkRate::Constant(uplink), one_way),
        down: direction(LinkRate::Constant(args.bandwidth), args.rtt - one_way),
        seed: 0,
    })
}

/// The jobs to predict, with names.
fn jobs(args: &args::Plan, image: &replay::Image<'_>) -> Result<Vec<(String, Job)>, Failure> {
    if args.traces.is_empty() {
        return Ok(vec![("no trace: the hot pages in order".to_owned(), Job::in_order(image.manifest))]);
    }
    args.traces.iter().map(|path| job(path, image)).collect()
}

fn job(path: &Path, image: &replay::Image<'_>) -> Result<(String, Job), Failure> {
    let text = fs::read_to_string(path).map_err(|error| pagein(path, &error))?;
    let trace: Trace = text.parse().map_err(|error| pagein(path, &error))?;
    if trace.digest != image.manifest.file_digest {
        let why = format!(
            "this trace is of another file than the image's ({}, {} bytes): record the program that was cut",
            trace.program, trace.size
        );
        return Err(pagein(path, &why));
    }
    Ok((trace.command.join(" "), Job::from_trace(&trace)))
}

/// What is predicted for one job.
struct Plan {
    name: String,
    touches: usize,
    cpu: Duration,
    predictions: Vec<Prediction>,
    automatic: Prediction,
    floor: Floor,
}

impl Plan {
    fn new(name: &str, job: &Job, image: &replay::Image<'_>, link: &Link, host: &Host) -> Self {
        let predict = |policy| replay::predict(image, job, link, policy, host);
        Self {
            name: name.to_owned(),
            touches: job.touches.len(),
            cpu: job.cpu(),
            predictions: Policy::ALL.map(|policy| predict(Some(policy))).to_vec(),
            automatic: predict(None),
            floor: replay::floor(image, job, link, host),
        }
    }

    fn of(&self, policy: Policy) -> &Prediction {
        self.predictions.iter().find(|prediction| prediction.policy == policy).expect("each was predicted")
    }
}

#[derive(Serialize)]
struct Json {
    program: String,
    link: LinkJson,
    decision: DecisionJson,
    jobs: Vec<JobJson>,
}

#[derive(Serialize)]
struct LinkJson {
    bits_per_second: u64,
    round_trip_ms: f64,
    /// Bandwidth times round trip, bytes.
    product_bytes: f64,
    loss: Option<String>,
}

#[derive(Serialize)]
struct DecisionJson {
    policy: &'static str,
    why: String,
    traces: u32,
    reads_self: bool,
    hot_bytes: u64,
    whole_bytes: u64,
    cluster_pages: u32,
    fill_piece_bytes: Option<u64>,
    connections: u32,
    estimates: Vec<EstimateJson>,
}

#[derive(Serialize)]
struct EstimateJson {
    policy: &'static str,
    time_ms: f64,
    bytes: f64,
    requests: f64,
}

#[derive(Serialize)]
struct JobJson {
    job: String,
    touches: usize,
    cpu_ms: f64,
    floor_ms: f64,
    floor_slow_start_ms: f64,
    floor_bytes: u64,
    policies: Vec<PolicyJson>,
    auto: PolicyJson,
    crossovers: Vec<CrossoverJson>,
}

#[derive(Serialize)]
struct PolicyJson {
    policy: &'static str,
    total_ms: f64,
    exec_ms: f64,
    waited_ms: f64,
    wire_bytes: u64,
    requests: u64,
    faults: u64,
    demand_faults: u64,
    demand_requests: u64,
    connections: u64,
    hot_bytes: u64,
    demanded_bytes: u64,
    unused_bytes: u64,
}

/// Equation 3 for two policies.
#[derive(Serialize)]
struct CrossoverJson {
    fewer_requests: &'static str,
    fewer_bytes: &'static str,
    /// Below this product of bandwidth and round trip the policy with fewer bytes is quicker, bytes. `None`: one is better in both.
    product_bytes: Option<f64>,
    /// What the equation says for this link.
    quicker_by_equation: Option<&'static str>,
    /// What the replay says.
    quicker_predicted: &'static str,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl From<&Prediction> for PolicyJson {
    fn from(of: &Prediction) -> Self {
        Self {
            policy: of.policy.name(),
            total_ms: ms(of.total),
            exec_ms: ms(of.exec),
            waited_ms: ms(of.waited),
            wire_bytes: of.wire_bytes,
            requests: of.requests,
            faults: of.faults,
            demand_faults: of.demand_faults,
            demand_requests: of.demand_requests,
            connections: of.connections,
            hot_bytes: of.hot_bytes,
            demanded_bytes: of.demanded_bytes,
            unused_bytes: of.unused_bytes,
        }
    }
}

impl Json {
    fn new(args: &args::Plan, image: &Image, link: &Link, decision: &Decision, plans: Vec<Plan>) -> Self {
        let shape = Shape::of(&image.manifest, image.stored.len() as u64);
        let product = decision.link.product();
        Self {
            program: image.manifest.name.clone(),
            link: LinkJson {
                bits_per_second: args.bandwidth.bits_per_second(),
                round_trip_ms: ms(link.round_trip()),
                product_bytes: product,
                loss: args.loss.map(|loss| loss.to_string()),
            },
            decision: DecisionJson {
                policy: decision.policy.name(),
                why: why(&shape, decision),
                traces: shape.traces,
                reads_self: shape.reads_self,
                hot_bytes: shape.hot_bytes(),
                whole_bytes: shape.whole_bytes,
                cluster_pages: decision.cluster_pages,
                fill_piece_bytes: decision.fill.map(|fill| fill.piece),
                connections: decision.connections,
                estimates: decision
                    .estimates
                    .iter()
                    .map(|estimate| EstimateJson {
                        policy: estimate.policy.name(),
                        time_ms: ms(estimate.time),
                        bytes: estimate.bytes,
                        requests: estimate.requests,
                    })
                    .collect(),
            },
            jobs: plans.iter().map(|plan| JobJson::new(plan, product)).collect(),
        }
    }
}

/// Why `auto` chooses what it does, in one sentence.
fn why(shape: &Shape, decision: &Decision) -> String {
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

impl JobJson {
    fn new(plan: &Plan, product: f64) -> Self {
        let crossovers = [(Policy::Original, Policy::Paged), (Policy::Reordered, Policy::ReorderedPaged)];
        Self {
            job: plan.name.clone(),
            touches: plan.touches,
            cpu_ms: ms(plan.cpu),
            floor_ms: ms(plan.floor.total),
            floor_slow_start_ms: ms(plan.floor.slow_start),
            floor_bytes: plan.floor.bytes,
            policies: plan.predictions.iter().map(PolicyJson::from).collect(),
            auto: PolicyJson::from(&plan.automatic),
            crossovers: crossovers
                .map(|(whole, paged)| crossover_of(plan.of(whole), plan.of(paged), product))
                .into(),
        }
    }
}

fn crossover_of(whole: &Prediction, paged: &Prediction, product: f64) -> CrossoverJson {
    let cost = |of: &Prediction| Cost {
        bytes: of.wire_bytes as f64,
        requests: of.requests as f64,
        overhead: Duration::ZERO,
    };
    let (fewer_requests, fewer_bytes) = (cost(whole), cost(paged));
    let at = crossover(&fewer_requests, &fewer_bytes);
    CrossoverJson {
        fewer_requests: whole.policy.name(),
        fewer_bytes: paged.policy.name(),
        product_bytes: at,
        quicker_by_equation: at.map(|at| if product < at { paged } else { whole }.policy.name()),
        quicker_predicted: if paged.total < whole.total { paged } else { whole }.policy.name(),
    }
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

fn text(json: &Json) -> String {
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
