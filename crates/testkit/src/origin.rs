//! A small web server that misbehaves when it is told to.
//!
//! Not the `server` crate with switches: what comes over the wire here is written byte by byte, so that it
//! can be wrong in ways that a correct HTTP library would refuse to send.

mod connection;
mod response;
mod rules;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use pagein_source::ByteRange;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use rules::Rule;
use rules::Rules;

/// A request that the origin got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its path, without the slash in front.
    pub path: String,
    /// The bytes asked for; `None` for the whole object.
    pub range: Option<ByteRange>,
}

/// An HTTP/1.1 server on 127.0.0.1 with a thread of its own; it ends when this is dropped.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Whether connections are accepted; a change closes the existing ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    Refusing,
    Ended,
}

struct Shared {
    root: PathBuf,
    rules: Mutex<Rules>,
    requests: Mutex<Vec<Request>>,
    /// Body bytes written.
    sent: Mutex<u64>,
    mode: watch::Sender<Mode>,
    /// Whether the listener exists now, so that `refuse` and `come_back` return when it is done.
    listening: watch::Sender<bool>,
}

impl Origin {
    /// Serves the files below `root` at a free port, with `Range` support and no faults.
    pub fn serve(root: impl AsRef<Path>) -> Origin {
        let shared = Arc::new(Shared {
            root: root.as_ref().to_owned(),
            rules: Mutex::default(),
            requests: Mutex::default(),
            sent: Mutex::default(),
            mode: watch::Sender::new(Mode::Open),
            listening: watch::Sender::new(false),
        });
        let (tell, told) = mpsc::channel();
        let server = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for the origin").block_on(listen(server, tell));
        });
        let address = told.recv().expect("the origin's thread has a free port");
        Origin { address, shared, thread: Some(thread) }
    }

    /// `http://127.0.0.1:PORT/PATH`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{}", self.address, path.trim_start_matches('/'))
    }

    /// Adds a rule. All the rules that match a request apply to it.
    pub fn rule(&self, rule: Rule) {
        lock(&self.shared.rules).add(rule);
    }

    /// Drops all rules.
    pub fn clear(&self) {
        *lock(&self.shared.rules) = Rules::default();
    }

    /// Closes the listener and every connection; connecting is refused from now on.
    pub fn refuse(&self) {
        self.shared.mode.send_replace(Mode::Refusing);
        self.wait_until_listening(false);
    }

    /// Listens again, at the same port.
    pub fn come_back(&self) {
        self.shared.mode.send_replace(Mode::Open);
        self.wait_until_listening(true);
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// Bytes of bodies written so far (some may still be on their way).
    pub fn sent(&self) -> u64 {
        *lock(&self.shared.sent)
    }

    fn wait_until_listening(&self, wanted: bool) {
        // A short poll: this is not async, and the change takes microseconds.
        for _ in 0..5000 {
            if *self.shared.listening.borrow() == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the origin at {} did not {}", self.address, if wanted { "come back" } else { "go away" });
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::Ended);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; a second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

async fn listen(shared: Arc<Shared>, tell: mpsc::Sender<SocketAddr>) {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut mode = shared.mode.subscribe();
    loop {
        if *mode.borrow_and_update() == Mode::Open {
            let listener = TcpListener::bind(address).await.expect("the origin's port is free");
            address = listener.local_addr().expect("a bound socket has an address");
            // Only the first address is waited for.
            let _ = tell.send(address);
            shared.listening.send_replace(true);
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        connections.spawn(connection::serve(stream, shared.clone()));
                    },
                    _ = mode.changed() => break,
                }
            }
            drop(listener);
            connections.shutdown().await;
            shared.listening.send_replace(false);
        } else if *mode.borrow() == Mode::Ended || mode.changed().await.is_err() {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
