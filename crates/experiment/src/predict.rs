//! What the replay simulator says of a cell.

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
    /// Requests.
    pub requests: u64,
    /// Faults on pages that had to be requested.
    pub demand_faults: u64,
    /// The shortest time that any scheme can take on this link, ms.
    pub floor_ms: f64,
}

/// A program as the simulator sees it.
pub(crate) struct Model;

impl Model {
    pub(crate) fn load(_directory: &Directory, _name: &str) -> Result<Self, String> {
        Err("no simulator".into())
    }

    pub(crate) fn forecast(
        &self,
        _scheme: Scheme,
        _link: &pagein_simnet::link::Link,
    ) -> Result<Forecast, String> {
        Err("no simulator".into())
    }
}

/// A simulated run's row.
pub(crate) fn fill(row: &mut Row, forecast: &Result<Forecast, String>) {
    match forecast {
        Err(why) => row.reason = one_line(why),
        Ok(forecast) => {
            row.outcome = Outcome::Ok;
            row.policy_used.clone_from(&row.policy);
            row.total_ms = Some(forecast.total_ms);
            row.exec_ms = Some(forecast.exec_ms);
            row.wire_bytes = Some(forecast.wire_bytes);
            row.requests = Some(forecast.requests);
            row.demand_faults = Some(forecast.demand_faults);
        }
    }
}
