//! A server over a temporary directory, and a client that shows what is on the wire.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagein_server::{Config, ServeError, Server};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// What takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Fails the test when `future` hangs.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what} took more than {LIMIT:?}"))
}

/// Bytes that differ everywhere, so that a wrong offset shows.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A running server.
pub(crate) struct Site {
    outer: TempDir,
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Site {
    /// Serves an empty directory, with `adjust` on the configuration.
    pub(crate) async fn with(adjust: impl FnOnce(&mut Config)) -> Self {
        let outer = TempDir::new().unwrap();
        let dir = outer.path().join("served");
        std::fs::create_dir(&dir).unwrap();
        let mut config = Config::new(dir, SocketAddr::from(([127, 0, 0, 1], 0)));
        adjust(&mut config);
        let server = Server::bind(config).await.unwrap();
        let addr = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { outer, addr, stop: Some(stop), task }
    }

    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) fn outer(&self) -> &Path {
        self.outer.path()
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.outer.path().join("served")
    }

    /// Writes a file whose date is strong: it is a minute old.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
        path
    }

    pub(crate) async fn connect(&self) -> Client {
        let stream = within("connecting", TcpStream::connect(self.addr)).await.unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// One GET on a connection of its own.
    pub(crate) async fn get(&self, path: &str, fields: &str) -> Reply {
        self.connect().await.request("GET", path, fields).await
    }

    pub(crate) fn begin_shutdown(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the server to end.
    pub(crate) async fn ended(self) -> Result<(), ServeError> {
        within("the end of the server", self.task).await.unwrap()
    }
}

/// A connection that speaks HTTP/1.1, by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Client {
    pub(crate) async fn send(&mut self, method: &str, path: &str, fields: &str) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        within("sending", self.stream.write_all(head.as_bytes())).await.unwrap();
    }

    /// `fields` are whole lines with `\r\n`.
    pub(crate) async fn request(&mut self, method: &str, path: &str, fields: &str) -> Reply {
        self.send(method, path, fields).await;
        self.reply(method).await.unwrap()
    }

    /// Status, fields; the body stays to be read.
    pub(crate) async fn head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            self.fill().await?;
        };
        let head = String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Ok(Reply { status, fields, body: Vec::new() })
    }

    /// A whole response; an error if it breaks off.
    pub(crate) async fn reply(&mut self, method: &str) -> io::Result<Reply> {
        let mut reply = self.head().await?;
        let has_body = method != "HEAD" && reply.status != 304;
        let len = if has_body { reply.field("content-length").parse().unwrap() } else { 0 };
        while self.buffer.len() < len {
            self.fill().await?;
        }
        reply.body = self.buffer.drain(..len).collect();
        Ok(reply)
    }

    /// Whatever is left until the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await.is_ok() {}
        std::mem::take(&mut self.buffer)
    }

    /// Whatever comes until the server closes, or `len` bytes.
    pub(crate) async fn rest_or(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len && self.fill().await.is_ok() {}
        std::mem::take(&mut self.buffer)
    }

    async fn fill(&mut self) -> io::Result<()> {
        match within("reading", self.stream.read_buf(&mut self.buffer)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
