//! Connections over one link, in virtual time.

use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque, ops::Range, time::Duration};

use super::{
    config::{SACK_BYTES, SYN_BYTES, SYN_TIMEOUT, TcpConfig},
    receiver::{Ack, Receiver},
    sender::Sender,
    stream::Stream,
};
use crate::{
    link::Link,
    queue::{Chain, Packet, Stage as _},
    time::Time,
};

/// A connection of a [`TcpNetwork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(usize);

/// A request of a [`TcpNetwork`]; they count through all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) usize);

/// A request and what comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bytes that the client sends.
    pub request_bytes: u64,
    /// Bytes that the server sends back.
    pub response_bytes: u64,
    /// From the last byte of the request to the first of the response.
    pub think: Duration,
    /// Responses of higher urgency on the same connection overtake others (multiplexing, as HTTP/2 has it); equal ones follow
    /// each other in the order of their requests (pipelining).
    pub urgency: u8,
}

/// Something that the client notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The connection is set up.
    Connected {
        /// When.
        at: Time,
        /// Which.
        connection: ConnectionId,
    },
    /// Bytes of a response can be read.
    Arrived {
        /// When.
        at: Time,
        /// On which connection.
        connection: ConnectionId,
        /// Of which request.
        request: RequestId,
        /// Which bytes of the response, counted from 0. They come in order and without gaps.
        bytes: Range<u64>,
    },
}

/// Direction of data; its acknowledgements go the other way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// Client to server: requests.
    Up = 0,
    /// Server to client: responses.
    Down = 1,
}

#[derive(Debug)]
enum Kind {
    Syn,
    SynAck,
    Data(Flow, Range<u64>),
    Ack(Flow, Ack),
    Reset,
}

/// A packet on the link.
#[derive(Debug)]
struct Wire {
    connection: usize,
    kind: Kind,
    size: u64,
}

impl Packet for Wire {
    fn wire_bytes(&self) -> u64 {
        self.size
    }
}

/// Sender at one end, receiver at the other.
#[derive(Debug)]
struct Half {
    stream: Stream,
    sender: Sender,
    receiver: Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    /// The client waits for a SYN-ACK; when to repeat the SYN, and how long to wait after that.
    Client(Time, Duration),
    Done,
}

#[derive(Debug)]
struct Connection {
    halves: [Half; 2],
    client: Handshake,
    syn_sent: Time,
    /// When the server answered the SYN; it sends nothing before the client's next packet.
    syn_ack_sent: Option<Time>,
    is_server_up: bool,
    /// The client has closed it and reads nothing more.
    is_closed: bool,
    /// The server knows.
    is_reset: bool,
}

#[derive(Debug)]
struct Pending {
    connection: usize,
    request: Request,
    received: u64,
}

/// TCP connections between one client and one server, which share a link.
///
/// The server answers each request after its think time. Everything is deterministic: the same calls give the same events.
///
/// Left out, because they change little on the links of interest: Nagle's algorithm (off), congestion notification, the
/// undoing of needless back-offs, hosts that need time for a packet. TLS is a request and a response of the sizes of its
/// flights, for each of its round trips.
pub struct TcpNetwork {
    config: TcpConfig,
    now: Time,
    up: Chain<Wire>,
    down: Chain<Wire>,
    connections: Vec<Connection>,
    requests: Vec<Pending>,
    /// Responses that the server is still working on.
    thinking: BinaryHeap<Reverse<(Time, usize)>>,
    events: VecDeque<Event>,
}

impl TcpNetwork {
    /// No connections yet; the time is zero.
    pub fn new(link: &Link, config: TcpConfig) -> Self {
        Self {
            config,
            now: Time::ZERO,
            up: link.up.chain(link.seed, 0),
            down: link.down.chain(link.seed, 1),
            connections: Vec::new(),
            requests: Vec::new(),
            thinking: BinaryHeap::new(),
            events: VecDeque::new(),
        }
    }

    /// The time that [`Self::next_event`] has come to.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Opens a connection now: a round trip later it is set up.
    pub fn connect(&mut self) -> ConnectionId {
        let half = || Half {
            stream: Stream::default(),
            sender: Sender::new(self.config),
            receiver: Receiver::new(),
        };
        let index = self.connections.len();
        self.connections.push(Connection {
            halves: [half(), half()],
            client: Handshake::Client(self.now + SYN_TIMEOUT, SYN_TIMEOUT * 2),
            syn_sent: self.now,
            syn_ack_sent: None,
            is_server_up: false,
            is_closed: false,
            is_reset: false,
        });
        self.transmit(index, Kind::Syn);
        ConnectionId(index)
    }

    /// Sends a request now, or as soon as the connection is set up.
    pub fn request(&mut self, connection: ConnectionId, request: Request) -> RequestId {
        let id = RequestId(self.requests.len());
        self.requests.push(Pending { connection: connection.0, request, received: 0 });
        self.connections[connection.0].halves[Flow::Up as usize].stream.push(id, request.request_bytes, 0);
        if request.request_bytes == 0 {
            self.thinking.push(Reverse((self.now + request.think, id.0)));
        }
        self.pump(connection.0);
        id
    }

    /// Closes a connection now, whatever is under way. What the server has sent until it hears of that still takes the link's time;
    /// there are no more events of this connection.
    pub fn close(&mut self, connection: ConnectionId) {
        if !std::mem::replace(&mut self.connections[connection.0].is_closed, true) {
            self.events.retain(|event| match event {
                Event::Connected { connection: of, .. } | Event::Arrived { connection: of, .. } => {
                    *of != connection
                }
            });
            self.transmit(connection.0, Kind::Reset);
        }
    }

    /// Lets time pass until something happens that the client notices, but not beyond `until`: the event, or `None` when it is
    /// `until` (and if nothing will ever happen again).
    pub fn next_event(&mut self, until: Time) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(next) = self.next_time().filter(|next| *next <= until) else {
                if until < Time::MAX {
                    self.now = self.now.max(until);
                }
                return None;
            };
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next_time(&self) -> Option<Time> {
        let timers =
            self.connections.iter().filter(|connection| !connection.is_reset).filter_map(|connection| {
                let handshake = match connection.client {
                    Handshake::Client(repeat, _) => Some(repeat),
                    Handshake::Done => None,
                };
                let halves =
                    connection.halves.iter().flat_map(|half| [half.sender.timer(), half.receiver.ack_at]);
                halves.chain([handshake]).flatten().min()
            });
        let thinking = self.thinking.peek().map(|first| first.0.0);
        timers.chain(thinking).chain(self.up.next()).chain(self.down.next()).min()
    }

    /// Everything that happens now.
    fn step(&mut self) {
        while let Some((_, packet)) = self.up.pop(self.now) {
            self.at_server(packet);
        }
        while let Some((_, packet)) = self.down.pop(self.now) {
            self.at_client(packet);
        }
        while let Some(Reverse((_, index))) =
            self.thinking.peek().copied().filter(|first| first.0.0 <= self.now)
        {
            self.thinking.pop();
            let Pending { connection, request, .. } = self.requests[index];
            if self.connections[connection].is_reset {
                continue;
            }
            let down = &mut self.connections[connection].halves[Flow::Down as usize];
            down.stream.push(RequestId(index), request.response_bytes, request.urgency);
            self.pump(connection);
        }
        for index in 0..self.connections.len() {
            self.run_timers(index);
        }
    }

    fn run_timers(&mut self, index: usize) {
        let now = self.now;
        let connection = &mut self.connections[index];
        if connection.is_reset {
            return;
        }
        if let Handshake::Client(repeat, wait) = connection.client
            && repeat <= now
        {
            connection.client = Handshake::Client(now + wait, wait * 2);
            connection.syn_sent = now;
            self.transmit(index, Kind::Syn);
        }
        for flow in [Flow::Up, Flow::Down] {
            let half = &mut self.connections[index].halves[flow as usize];
            let ack =
                half.receiver.ack_at.is_some_and(|at| at <= now).then(|| half.receiver.acknowledge(None));
            let is_due = half.sender.timer().is_some_and(|at| at <= now);
            if is_due {
                half.sender.on_timer(now);
            }
            if let Some(ack) = ack {
                self.transmit(index, Kind::Ack(flow, ack));
            }
            if is_due {
                self.pump(index);
            }
        }
    }

    fn at_server(&mut self, packet: Wire) {
        let (index, now) = (packet.connection, self.now);
        let connection = &mut self.connections[index];
        if connection.is_reset {
            return;
        }
        if !matches!(packet.kind, Kind::Syn) && !connection.is_server_up {
            connection.is_server_up = true;
            if let Some(sent) = connection.syn_ack_sent {
                connection.halves[Flow::Down as usize].sender.rtt.sample(now.since(sent));
            }
        }
        match packet.kind {
            Kind::Syn => {
                connection.syn_ack_sent = Some(now);
                self.transmit(index, Kind::SynAck);
            }
            Kind::Data(flow, bytes) => {
                let length = self.receive(index, flow, bytes);
                for piece in self.connections[index].halves[flow as usize].stream.read(length) {
                    let pending = &mut self.requests[piece.request.0];
                    pending.received = piece.bytes.end;
                    if pending.received == pending.request.request_bytes {
                        self.thinking.push(Reverse((now + pending.request.think, piece.request.0)));
                    }
                }
            }
            Kind::Ack(flow, ack) => connection.halves[flow as usize].sender.on_ack(now, &ack),
            Kind::Reset => connection.is_reset = true,
            Kind::SynAck => {}
        }
        self.pump(index);
    }

    fn at_client(&mut self, packet: Wire) {
        let (index, now) = (packet.connection, self.now);
        let connection = &mut self.connections[index];
        if connection.is_closed {
            // Answered by another reset, should the first have been lost.
            if !connection.is_reset {
                self.transmit(index, Kind::Reset);
            }
            return;
        }
        match packet.kind {
            Kind::SynAck => {
                if connection.client != Handshake::Done {
                    connection.client = Handshake::Done;
                    let sent = connection.syn_sent;
                    connection.halves[Flow::Up as usize].sender.rtt.sample(now.since(sent));
                    self.events.push_back(Event::Connected { at: now, connection: ConnectionId(index) });
                }
                let ack = Ack { sequence: 0, beyond: None };
                self.transmit(index, Kind::Ack(Flow::Down, ack));
            }
            Kind::Data(flow, bytes) => {
                let length = self.receive(index, flow, bytes);
                let pieces = self.connections[index].halves[flow as usize].stream.read(length);
                self.events.extend(pieces.into_iter().map(|piece| Event::Arrived {
                    at: now,
                    connection: ConnectionId(index),
                    request: piece.request,
                    bytes: piece.bytes,
                }));
            }
            Kind::Ack(flow, ack) => connection.halves[flow as usize].sender.on_ack(now, &ack),
            Kind::Syn | Kind::Reset => {}
        }
        self.pump(index);
    }

    /// Data at its receiver; how many bytes came into order.
    fn receive(&mut self, index: usize, flow: Flow, bytes: Range<u64>) -> u64 {
        let (read, ack) = self.connections[index].halves[flow as usize].receiver.receive(self.now, bytes);
        if let Some(ack) = ack {
            self.transmit(index, Kind::Ack(flow, ack));
        }
        read.end - read.start
    }

    /// Sends what may be sent, in both directions.
    fn pump(&mut self, index: usize) {
        if self.connections[index].is_reset {
            return;
        }
        for flow in [Flow::Up, Flow::Down] {
            loop {
                let connection = &mut self.connections[index];
                let is_open = match flow {
                    Flow::Up => connection.client == Handshake::Done,
                    Flow::Down => connection.is_server_up,
                };
                if !is_open {
                    break;
                }
                let half = &mut connection.halves[flow as usize];
                let wanted = half.sender.next() + self.config.segment + self.config.unsent_buffer;
                let written = half.stream.write_to(wanted);
                let Some(bytes) = half.sender.send(self.now, written) else { break };
                self.transmit(index, Kind::Data(flow, bytes));
            }
        }
    }

    fn transmit(&mut self, connection: usize, kind: Kind) {
        let (extra, is_up) = match &kind {
            Kind::Syn => (SYN_BYTES, true),
            Kind::SynAck => (SYN_BYTES, false),
            Kind::Data(flow, bytes) => (bytes.end - bytes.start, *flow == Flow::Up),
            Kind::Ack(flow, ack) => (ack.beyond.map_or(0, |_| SACK_BYTES), *flow == Flow::Down),
            Kind::Reset => (0, true),
        };
        let packet = Wire { connection, kind, size: self.config.header + extra };
        let chain = if is_up { &mut self.up } else { &mut self.down };
        chain.push(self.now, packet);
    }
}
