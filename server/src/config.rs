//! What may be set.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What to serve, where, and within which bounds. [`Config::new`] has a reasonable value for every bound.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory below which everything is served.
    pub dir: PathBuf,
    /// The address to listen on; port 0 is any free port.
    pub listen: SocketAddr,
    /// Writes a line per response to standard error.
    pub log: bool,
    /// How long running responses may go on after the shutdown began.
    pub grace: Duration,
    /// How long a cache may use an object without asking. Zero, the default, lets it ask each time, which is right
    /// while images are replaced under the same name.
    pub max_age: Duration,
    /// How long a new connection may take until its first request is complete. This is what a client gets that sends
    /// its header one byte a minute.
    pub head_timeout: Duration,
    /// How long a connection may be open without a byte in either direction. Long, for the next page of a program may be
    /// touched minutes after the last one, and should not have to wait for a new connection.
    pub idle_timeout: Duration,
    /// Connections open at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
}

impl Config {
    /// Serves `dir` at `listen`, without a log, with default bounds.
    pub fn new(dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            dir: dir.into(),
            listen,
            log: false,
            grace: Duration::from_secs(10),
            max_age: Duration::ZERO,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            max_connections: 512,
        }
    }
}
