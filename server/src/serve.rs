//! The listening socket, the connections, and their end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::answer::Site;
use crate::body::ReplyBody;
use crate::config::Config;
use crate::error::ServeError;
use crate::guard::Guarded;
use crate::log::{self, Record};
use crate::path::{Root, Wait};

/// The head of a request, in bytes: twice what a `Range` field of [`crate::range::MAX_RANGES`] long ranges needs.
const MAX_HEAD: u32 = 32 << 10;
/// Fields in a head. Browsers and proxies send about 30.
const MAX_FIELDS: usize = 100;
/// Requests at once on an HTTP/2 connection: the least that RFC 9113 (section 6.5.2) recommends.
const MAX_STREAMS: u32 = 100;
/// How long to wait when the machine has no descriptor left for a new connection. Others are closed meanwhile.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// A server that has its address, but does not yet accept.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

/// What the connections share.
#[derive(Debug)]
struct Shared {
    site: Site,
    config: Config,
}

impl Server {
    /// Opens the directory and binds the address. From here on clients may connect; they are answered by
    /// [`Server::run`].
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        let root = Root::open(&config.dir).map_err(|error| ServeError::from_dir(&config.dir, error))?;
        let failed = |error| ServeError::from_listen(config.listen, error);
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let site = Site::new(root, config.max_age);
        Ok(Self { listener, addr, shared: Arc::new(Shared { site, config }) })
    }

    /// The address that was bound, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `shutdown` is ready. Then no connection is accepted any more, idle ones are closed, running
    /// responses have [`Config::grace`] to end, and what still runs then is cut off.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { listener, addr, shared } = self;
        let builder = Arc::new(protocol(&shared.config));
        let slots = Arc::new(Semaphore::new(shared.config.max_connections));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        let result = loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break Ok(()),
                Some(ended) = connections.join_next() => {
                    report(ended);
                    continue;
                }
                accepted = accept(&listener, &slots) => accepted,
            };
            match accepted {
                Ok((stream, peer, slot)) => {
                    let connection = connection(
                        stream,
                        peer,
                        Arc::clone(&shared),
                        Arc::clone(&builder),
                        graceful.watcher(),
                    );
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) if is_fatal(&error) => break Err(ServeError::Accept { addr, source: error }),
                Err(error) => {
                    log::line(&format_args!("cannot accept a connection: {error}"));
                    sleep(EXHAUSTED).await;
                }
            }
        };
        // A client that connects from now on is refused, rather than left waiting in the queue.
        drop(listener);
        let ended = async {
            graceful.shutdown().await;
            while let Some(ended) = connections.join_next().await {
                report(ended);
            }
        };
        if timeout(shared.config.grace, ended).await.is_err() {
            log::line(&format_args!("{} connections did not end in time: cut off", connections.len()));
        }
        connections.shutdown().await;
        result
    }
}

/// A connection and the slot that it takes. Nothing is lost when this is dropped while it waits.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, slot))
}

/// accept(2) hands over errors of the network that concern one connection; only those of the socket itself are final.
fn is_fatal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)
    )
}

/// A task that panicked took its connection with it, and nothing else.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        log::line(&format_args!("a connection was dropped: {error}"));
    }
}

fn protocol(config: &Config) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Runs between requests, too, so it must leave an idle client its time. The first request has its own limit.
        .header_read_timeout(config.idle_timeout)
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD);
    builder
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    builder: Arc<auto::Builder<TokioExecutor>>,
    watcher: Watcher,
) {
    // The head of a response must not wait for an acknowledgement. If it fails, the connection is gone anyway.
    let _ = stream.set_nodelay(true);
    let greeted = Arc::new(AtomicBool::new(false));
    let Config { head_timeout, idle_timeout, .. } = shared.config;
    let stream = Guarded::new(stream, Arc::clone(&greeted), head_timeout, idle_timeout);
    let service = service_fn(move |request| {
        greeted.store(true, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(shared, peer, request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    // What ends a connection early is the client's doing, or a body that broke off, which has its line in the log.
    let _ = watcher.watch(connection).await;
}

async fn respond(shared: Arc<Shared>, peer: SocketAddr, request: Request<Incoming>) -> Response<ReplyBody> {
    let (head, _) = request.into_parts();
    let record = shared.config.log.then(|| Record::new(peer, &head.method, &head.uri, &head.headers));
    // What is in the page cache is answered at once; the way over another thread would cost more than the answer.
    let mut response = match shared.site.answer(&head, Wait::Never) {
        Some(response) => response,
        None => spawn_blocking(move || shared.site.answer(&head, Wait::Allowed))
            .await
            .ok()
            .flatten()
            .unwrap_or_else(|| {
                let mut response = Response::new(ReplyBody::default());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }),
    };
    if let Some(record) = record {
        let record = record.answered(response.status(), response.body().remaining());
        response.body_mut().set_record(record);
    }
    response
}
