//! HTTP/1.1 as the loader's client (hyper behind reqwest) has it: a connection carries one request at a time, is kept for the
//! next one when its response was read to the end, and is closed when it was not. A request that finds no idle connection opens
//! one, and takes whichever is free first.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::Host;
use crate::{
    link::Link,
    tcp::{ConnectionId, Event, Request, RequestId, TcpNetwork},
    time::Time,
};

/// Bytes of the head of a request: `GET /IMAGE/OBJECT HTTP/1.1` with `accept-encoding`, `user-agent`, `accept` and `host`.
const REQUEST_HEAD: u64 = 120;
/// A `range` field.
const RANGE_FIELD: u64 = 26;
/// Bytes of the head of a response with status 200, as `pagein serve` sends it.
const RESPONSE_HEAD: u64 = 275;
/// What status 206 adds: `content-range`.
const CONTENT_RANGE_FIELD: u64 = 53;

/// A request of the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FetchId(usize);

#[derive(Debug)]
struct Fetch {
    bytes: u64,
    is_range: bool,
    connection: Option<ConnectionId>,
    asked_at: Time,
    received: u64,
    /// When how many bytes of the body had come.
    log: Vec<(Time, u64)>,
    is_closed: bool,
}

/// The client and the network under it.
pub(super) struct Client {
    network: TcpNetwork,
    host: Host,
    fetches: Vec<Fetch>,
    by_request: HashMap<RequestId, FetchId>,
    idle: Vec<ConnectionId>,
    /// Requests that have no connection yet.
    waiting: VecDeque<FetchId>,
    first_byte_min: Option<Duration>,
    pub(super) connections: u64,
}

impl Client {
    pub(super) fn new(link: &Link, host: &Host) -> Self {
        Self {
            network: TcpNetwork::new(link, host.tcp),
            host: *host,
            fetches: Vec::new(),
            by_request: HashMap::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            first_byte_min: None,
            connections: 0,
        }
    }

    /// Requests made.
    pub(super) fn requests(&self) -> u64 {
        self.fetches.len() as u64
    }

    /// Requests `bytes` bytes of an object now, at the time that [`Self::next`] has come to.
    pub(super) fn get(&mut self, bytes: u64, is_range: bool) -> FetchId {
        let id = FetchId(self.fetches.len());
        let fetch = Fetch {
            bytes,
            is_range,
            connection: None,
            asked_at: self.network.now(),
            received: 0,
            log: Vec::new(),
            is_closed: false,
        };
        self.fetches.push(fetch);
        if let Some(connection) = self.idle.pop() {
            self.send(id, connection);
        } else {
            self.network.connect();
            self.connections += 1;
            self.waiting.push_back(id);
        }
        id
    }

    fn send(&mut self, id: FetchId, connection: ConnectionId) {
        let fetch = &mut self.fetches[id.0];
        fetch.connection = Some(connection);
        let (ask, answer) = if fetch.is_range { (RANGE_FIELD, CONTENT_RANGE_FIELD) } else { (0, 0) };
        let request = Request {
            request_bytes: REQUEST_HEAD + ask,
            response_bytes: RESPONSE_HEAD + answer + fetch.bytes,
            think: self.host.server,
            urgency: 0,
        };
        self.by_request.insert(self.network.request(connection, request), id);
    }

    fn free(&mut self, connection: ConnectionId) {
        match self.waiting.pop_front() {
            Some(id) => self.send(id, connection),
            None => self.idle.push(connection),
        }
    }

    /// Lets time pass until bytes of a body come, but not beyond `until`: whose they are, or `None` when it is `until`.
    pub(super) fn next(&mut self, until: Time) -> Option<FetchId> {
        while let Some(event) = self.network.next_event(until) {
            match event {
                Event::Connected { connection, .. } => self.free(connection),
                Event::Arrived { at, connection, request, bytes } => {
                    let id = self.by_request[&request];
                    let fetch = &mut self.fetches[id.0];
                    if fetch.is_closed {
                        continue;
                    }
                    let head = RESPONSE_HEAD + if fetch.is_range { CONTENT_RANGE_FIELD } else { 0 };
                    if bytes.start < head && bytes.end >= head {
                        let taken = at.since(fetch.asked_at) + self.host.request;
                        self.first_byte_min =
                            Some(self.first_byte_min.map_or(taken, |least| least.min(taken)));
                    }
                    fetch.received = bytes.end.saturating_sub(head);
                    if fetch.received == 0 {
                        continue;
                    }
                    fetch.log.push((at, fetch.received));
                    if fetch.received == fetch.bytes {
                        self.free(connection);
                    }
                    return Some(id);
                }
            }
        }
        None
    }

    /// Bytes of a body that were asked for.
    pub(super) fn asked(&self, id: FetchId) -> u64 {
        self.fetches[id.0].bytes
    }

    /// The least time from a request to the head of its response, as the loader measures it: with the connection's own round
    /// trip, if one was opened for it.
    pub(super) fn first_byte_min(&self) -> Option<Duration> {
        self.first_byte_min
    }

    /// Bytes of a body that have come.
    pub(super) fn received(&self, id: FetchId) -> u64 {
        self.fetches[id.0].received
    }

    /// Bytes of a body that had come at `time`, which is past.
    pub(super) fn received_at(&self, id: FetchId, time: Time) -> u64 {
        let log = &self.fetches[id.0].log;
        let count = log.partition_point(|&(at, _)| at <= time);
        count.checked_sub(1).map_or(0, |last| log[last].1)
    }

    /// When `bytes` bytes of a body had come, if they have.
    pub(super) fn arrival(&self, id: FetchId, bytes: u64) -> Option<Time> {
        let log = &self.fetches[id.0].log;
        log.get(log.partition_point(|&(_, have)| have < bytes)).map(|&(at, _)| at)
    }

    /// Nobody wants the rest of a body: its connection is closed now, unless it is all here.
    pub(super) fn drop_rest(&mut self, id: FetchId) {
        let fetch = &mut self.fetches[id.0];
        if fetch.received < fetch.bytes && !fetch.is_closed {
            fetch.is_closed = true;
            if let Some(connection) = fetch.connection {
                self.network.close(connection);
            }
        }
    }

    /// Bytes of all bodies.
    pub(super) fn bytes(&self) -> u64 {
        self.fetches.iter().map(|fetch| fetch.received).sum()
    }

    /// The time that it is.
    pub(super) fn now(&self) -> Time {
        self.network.now()
    }
}
