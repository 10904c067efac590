//! `pagein plan`: what each policy would take over a link, the floor, and the decision of `auto`.

mod report;
mod text;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pagein_image::{GroupIndex, object};
use pagein_loader::Failure;
use pagein_model::{Link as ModelLink, Policy, Shape, Trace, decide};
use pagein_simnet::link::{Direction, Link, LinkRate};
use pagein_simnet::queue::{LossModel, QueueLimit};
use pagein_simnet::replay::{self, Floor, Host, Job, Prediction};

use super::image::Image;
use super::{pagein, print, print_json, runtime};
use crate::args;
use report::Json;

pub(crate) fn plan(args: &args::Plan) -> Result<ExitCode, Failure> {
    let link = link(args)?;
    let (image, groups, paged) = runtime()?.block_on(async {
        let image = Image::open(&args.source).await?;
        let groups = image.index(object::GROUPS_INDEX, &image.manifest.groups).await?;
        let paged = match &image.manifest.paged {
            Some(set) => Some(image.index(object::PAGED_INDEX, set).await?),
            None => None,
        };
        Ok::<(Image, GroupIndex, Option<GroupIndex>), Failure>((image, groups, paged))
    })?;
    let tables = replay::Image {
        manifest: &image.manifest,
        manifest_len: image.stored.len() as u64,
        groups: &groups,
        paged: paged.as_ref(),
    };
    let host = Host::default();
    let model_link =
        ModelLink { bandwidth: args.bandwidth.bits_per_second() as f64 / 8.0, round_trip: link.round_trip() };
    let decision = decide(&Shape::of(&image.manifest, tables.manifest_len), &model_link);
    let jobs = jobs(args, &tables)?;
    let plans: Vec<Plan> =
        jobs.iter().map(|(name, job)| Plan::new(name, job, &tables, &link, &host)).collect();
    let json = Json::new(args, &image, &link, &decision, &plans);
    if args.json {
        print_json(&json)?;
    } else {
        print(&text::text(&json))?;
    }
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
        down: direction(LinkRate::Constant(args.bandwidth), args.rtt.saturating_sub(one_way)),
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

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
