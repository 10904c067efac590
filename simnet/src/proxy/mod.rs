//! A stream proxy: shapes the TCP streams of any client and server in user space, without any privilege.
//!
//! It listens on a loopback address and passes what it reads on to a server, through the same queues as the other fronts:
//! every read of up to 1448 bytes counts as a packet with 52 bytes of headers, all connections share the link, and a
//! connection starts with a round trip. What it cannot do, because a stream is not packets:
//!
//! - the client's `connect` returns at once; the round trip of the set-up comes before its first byte goes out instead;
//! - nothing is dropped: a full queue stops the reading (backpressure), and a link with loss is refused;
//! - the window of a connection is fixed (one round trip's worth of bytes and the queue), so there is no slow start.
//!
//! For those, use the packet link ([`crate::net`]).

mod lane;
mod pipe;
mod window;

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use self::{
    lane::{Delivery, Lane},
    pipe::pipe,
};
use crate::{
    link::{Direction, Link},
    queue::QueueLimit,
};

/// Bytes of a SYN on the wire.
const SYN_BYTES: u64 = 60;

/// The window where neither rate nor queue says how large it should be.
const DEFAULT_WINDOW: u64 = 4 << 20;

/// A proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A stream cannot lose packets.
    #[error("a stream proxy cannot lose packets (loss {0}); use the packet link, `pagein net`")]
    Loss(String),
    /// Others could use it.
    #[error("a stream proxy listens on a loopback address such as 127.0.0.1:0, not on {0}")]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A proxy that runs until it is dropped; its connections end with it.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    up: Lane,
    down: Lane,
    up_window: u64,
    down_window: u64,
    is_closed: AtomicBool,
    /// Both ends of every connection, so that they can be ended.
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens on `listen`, a loopback address (port 0 for any), for connections to `upstream` over `link`.
    pub fn start(listen: SocketAddr, upstream: SocketAddr, link: &Link) -> Result<Self, ProxyError> {
        if !listen.ip().is_loopback() {
            return Err(ProxyError::NotLoopback(listen));
        }
        for direction in [&link.up, &link.down] {
            if !direction.loss.is_none() {
                return Err(ProxyError::Loss(direction.loss.to_string()));
            }
        }
        let failed = |cause| ProxyError::Listen { address: listen, cause };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // The windows keep the queues finite; nothing may be dropped from them.
        let lane = |direction: &Direction, stream| {
            Lane::new(
                Direction { queue: QueueLimit::Unlimited, ..direction.clone() }.chain(link.seed, stream),
            )
        };
        let shared = Arc::new(Shared {
            upstream,
            up: lane(&link.up, 0),
            down: lane(&link.down, 1),
            up_window: window(&link.up, link),
            down_window: window(&link.down, link),
            is_closed: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let mut proxy = Self { shared: Arc::clone(&shared), address, threads: Vec::new() };
        let (for_up, for_down) = (Arc::clone(&shared), Arc::clone(&shared));
        proxy.spawn("proxy up", move || for_up.up.run())?;
        proxy.spawn("proxy down", move || for_down.down.run())?;
        proxy.spawn("proxy accept", move || accept(&listener, &shared))?;
        Ok(proxy)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ProxyError> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(work).map_err(ProxyError::Thread)?);
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.up.close();
        self.shared.down.close();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for stream in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What one connection may have in flight: what the link holds in a round trip, and the queue.
fn window(direction: &Direction, link: &Link) -> u64 {
    let queue = match direction.queue {
        QueueLimit::Bytes(bytes) => Some(bytes),
        QueueLimit::Packets(packets) => Some(packets.saturating_mul(1500)),
        QueueLimit::Unlimited => None,
    };
    match (direction.rate.mean_bits_per_second(), queue) {
        (Some(rate), Some(queue)) => {
            ((rate / 8.0 * link.round_trip().as_secs_f64()) as u64).saturating_add(queue)
        }
        _ => DEFAULT_WINDOW,
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.is_closed.load(Ordering::Acquire) {
            return;
        }
        let shared = Arc::clone(shared);
        // Without memory for a thread the connection is closed, as by an overloaded server.
        let _ = thread::Builder::new().name("proxy connection".into()).spawn(move || {
            // Its end is all that the client is told, as with any broken connection.
            let _ = serve(&client, &shared);
        });
    }
}

/// One connection, from its set-up to the end of both directions.
fn serve(client: &TcpStream, shared: &Shared) -> io::Result<()> {
    cross(&shared.up)?;
    let server = TcpStream::connect(shared.upstream)?;
    cross(&shared.down)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        // Those of connections that have ended have no peer any more.
        open.retain(|stream| stream.peer_addr().is_ok());
        open.extend([client.try_clone()?, server.try_clone()?]);
    }
    thread::scope(|scope| {
        scope.spawn(|| pipe(client, &server, &shared.up, shared.up_window));
        pipe(&server, client, &shared.down, shared.down_window);
    });
    Ok(())
}

/// Waits until a packet of the set-up has crossed a lane.
fn cross(lane: &Lane) -> io::Result<()> {
    let (arrived, wait) = mpsc::channel();
    lane.send(SYN_BYTES, Delivery::default(), &arrived);
    // The lane may have been closed.
    drop(arrived);
    wait.recv().map(drop).map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))
}
