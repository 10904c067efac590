//! TCP in virtual time: when each byte of each response arrives, on a link and over connections that behave like real ones.
//!
//! Connection set-up, the initial window and slow start, CUBIC, loss recovery and timeouts are modelled as Linux has them; the
//! test `virtual_time_agrees_with_the_packet_link` holds the result against the kernel's own TCP.
//!
//! ```
//! use std::time::Duration;
//! use pagein_simnet::{link::Link, tcp::{Event, Request, TcpConfig, TcpNetwork}, time::Time};
//!
//! let link = Link::symmetric("10mbit".parse()?, Duration::from_millis(20));
//! let mut network = TcpNetwork::new(&link, TcpConfig::default());
//! let connection = network.connect();
//! let page = Request { request_bytes: 200, response_bytes: 4096, think: Duration::ZERO, urgency: 0 };
//! network.request(connection, page);
//! let mut complete = None;
//! while let Some(event) = network.next_event(Time::MAX) {
//!     if let Event::Arrived { at, bytes, .. } = event && bytes.end == 4096 {
//!         complete = Some(at);
//!     }
//! }
//! // Two round trips, and the serialisation of five packets that way and this.
//! assert!(complete.is_some_and(|at| at > Time::from_millis(40) && at < Time::from_millis(45)));
//! # Ok::<(), pagein_simnet::units::UnitError>(())
//! ```

mod config;
mod congestion;
mod network;
mod receiver;
mod rtt;
mod sender;
mod stream;

pub use config::{CongestionControl, TcpConfig};
pub use network::{ConnectionId, Event, Request, RequestId, TcpNetwork};
