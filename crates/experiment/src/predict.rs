//! What the replay simulator says of a cell: a prediction of each run, and the floor that no scheme can go below.

use std::fs;

use pagein_image::{GroupIndex, GroupSet, HEADER_LEN, ImageError, Manifest, object};
use pagein_model::Trace;
use pagein_simnet::link::Link;
use pagein_simnet::replay::{Host, Image, Job, floor, predict};

use crate::directory::Directory;
use crate::results::{Outcome, Row, one_line};
use crate::scenario::Scheme;

/// What the simulator says of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Start to the program's end, ms.
    pub total_ms: f64,
    /// Start to the first instruction, ms.
    pub exec_ms: f64,
    /// Bytes of response bodies.
    pub wire_bytes: u64,
    /// Those of them that no fault asked for.
    pub hot_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Faults that reach the pager.
    pub faults: u64,
    /// Faults on pages that had to be requested.
    pub demand_faults: u64,
    /// The policy; what `auto` has chosen.
    pub policy: &'static str,
    /// The shortest time that any scheme can take on this link, ms.
    pub floor_ms: f64,
    /// The same with the slow start of one TCP connection, ms.
    pub floor_slow_start_ms: f64,
}

/// A program as the simulator sees it: its image, and the job that is measured.
pub(crate) struct Model {
    manifest: Manifest,
    manifest_len: u64,
    groups: GroupIndex,
    paged: Option<GroupIndex>,
    job: Job,
    host: Host,
}

impl Model {
    /// Reads what was prepared for a program.
    pub(crate) fn load(directory: &Directory, name: &str) -> Result<Self, String> {
        let image = directory.images().join(name);
        let read =
            |path: &std::path::Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let damaged = |error: ImageError| format!("{}: {error}", image.display());
        let hot = read(&image.join(object::HOT))?;
        let header = hot.get(..HEADER_LEN).ok_or("the hot object is cut")?;
        let len = Manifest::stored_len(header).map_err(damaged)?;
        let manifest = Manifest::decode(hot.get(..len).ok_or("the manifest is cut")?).map_err(damaged)?;
        let index = |object: &str, set: &GroupSet| {
            GroupIndex::decode(&read(&image.join(object))?, set, manifest.file_size).map_err(damaged)
        };
        let groups = index(object::GROUPS_INDEX, &manifest.groups)?;
        let paged = manifest.paged.as_ref().map(|set| index(object::PAGED_INDEX, set)).transpose()?;
        let trace = directory.program(name).join("measured.trace");
        let text = String::from_utf8_lossy(&read(&trace)?).into_owned();
        let trace: Trace = text.parse().map_err(|error| format!("{}: {error}", trace.display()))?;
        let job = Job::from_trace(&trace);
        Ok(Self { manifest_len: len as u64, manifest, groups, paged, job, host: Host::default() })
    }

    /// What a run of a scheme takes on a link.
    pub(crate) fn forecast(&self, scheme: Scheme, link: &Link) -> Forecast {
        let image = Image {
            manifest: &self.manifest,
            manifest_len: self.manifest_len,
            groups: &self.groups,
            paged: self.paged.as_ref(),
        };
        let run = predict(&image, &self.job, link, scheme.0, &self.host);
        let floor = floor(&image, &self.job, link, &self.host);
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        Forecast {
            total_ms: ms(run.total),
            exec_ms: ms(run.exec),
            wire_bytes: run.wire_bytes,
            hot_bytes: run.hot_bytes,
            requests: run.requests,
            faults: run.faults,
            demand_faults: run.demand_faults,
            policy: run.policy.name(),
            floor_ms: ms(floor.total),
            floor_slow_start_ms: ms(floor.slow_start),
        }
    }
}

/// A simulated run's row.
pub(crate) fn fill(row: &mut Row, forecast: &Result<Forecast, String>) {
    match forecast {
        Err(why) => row.reason = one_line(why),
        Ok(forecast) => {
            row.outcome = Outcome::Ok;
            forecast.policy.clone_into(&mut row.policy_used);
            row.total_ms = Some(forecast.total_ms);
            row.exec_ms = Some(forecast.exec_ms);
            row.wire_bytes = Some(forecast.wire_bytes);
            row.hot_bytes = Some(forecast.hot_bytes);
            row.requests = Some(forecast.requests);
            row.faults = Some(forecast.faults);
            row.demand_faults = Some(forecast.demand_faults);
        }
    }
}
