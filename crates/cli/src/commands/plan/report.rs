//! What `pagein plan` prints for machines.

use std::time::Duration;

use pagein_model::cost::{Cost, crossover};
use pagein_model::{Decision, Policy, Shape};
use pagein_simnet::link::Link;
use pagein_simnet::replay::Prediction;
use serde::Serialize;

use super::text::why;
use super::{Plan, ms};
use crate::args;
use crate::commands::image::Image;

#[derive(Serialize)]
pub(super) struct Json {
    pub(super) program: String,
    pub(super) link: LinkJson,
    pub(super) decision: DecisionJson,
    pub(super) jobs: Vec<JobJson>,
}

#[derive(Serialize)]
pub(super) struct LinkJson {
    pub(super) bits_per_second: u64,
    pub(super) round_trip_ms: f64,
    /// Bandwidth times round trip, bytes.
    pub(super) product_bytes: f64,
    pub(super) loss: Option<String>,
}

#[derive(Serialize)]
pub(super) struct DecisionJson {
    pub(super) policy: &'static str,
    pub(super) why: String,
    pub(super) traces: u32,
    pub(super) reads_self: bool,
    pub(super) hot_bytes: u64,
    pub(super) whole_bytes: u64,
    pub(super) cluster_pages: u32,
    pub(super) fill_piece_bytes: Option<u64>,
    pub(super) connections: u32,
    pub(super) estimates: Vec<EstimateJson>,
}

#[derive(Serialize)]
pub(super) struct EstimateJson {
    pub(super) policy: &'static str,
    pub(super) time_ms: f64,
    pub(super) bytes: f64,
    pub(super) requests: f64,
}

#[derive(Serialize)]
pub(super) struct JobJson {
    pub(super) job: String,
    pub(super) touches: usize,
    pub(super) cpu_ms: f64,
    pub(super) floor_ms: f64,
    pub(super) floor_slow_start_ms: f64,
    pub(super) floor_bytes: u64,
    pub(super) policies: Vec<PolicyJson>,
    pub(super) auto: PolicyJson,
    pub(super) crossovers: Vec<CrossoverJson>,
}

#[derive(Serialize)]
pub(super) struct PolicyJson {
    pub(super) policy: &'static str,
    pub(super) total_ms: f64,
    pub(super) exec_ms: f64,
    pub(super) waited_ms: f64,
    pub(super) wire_bytes: u64,
    pub(super) requests: u64,
    pub(super) faults: u64,
    pub(super) demand_faults: u64,
    pub(super) demand_requests: u64,
    pub(super) connections: u64,
    pub(super) hot_bytes: u64,
    pub(super) demanded_bytes: u64,
    pub(super) unused_bytes: u64,
}

/// Equation 3 for two policies.
#[derive(Serialize)]
pub(super) struct CrossoverJson {
    pub(super) fewer_requests: &'static str,
    pub(super) fewer_bytes: &'static str,
    /// Below this product of bandwidth and round trip the policy with fewer bytes is quicker, bytes. `None`: one is better in both.
    pub(super) product_bytes: Option<f64>,
    /// What the equation says for this link.
    pub(super) quicker_by_equation: Option<&'static str>,
    /// What the replay says.
    pub(super) quicker_predicted: &'static str,
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
    pub(super) fn new(
        args: &args::Plan,
        image: &Image,
        link: &Link,
        decision: &Decision,
        plans: &[Plan],
    ) -> Self {
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
