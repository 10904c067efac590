//! One connection to the origin.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::response::{Response, Then, asked_range, compose};
use super::{Mode, Request, Shared, lock};

/// Bytes per write, so that `sent` and rules about it are about that exact.
const CHUNK: usize = 16 << 10;

/// Answers requests until the client closes, or a fault does.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Failing to would only make it slower.
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream).await {
        let Some(path) = head.split(' ').nth(1) else { return };
        let path = path.split('?').next().unwrap_or(path).trim_start_matches('/').to_owned();
        let range = asked_range(&head);
        lock(&shared.requests).push(Request { path: path.clone(), range: range.clone() });
        let sent = *lock(&shared.sent);
        let faults = lock(&shared.rules).faults(&path, sent);
        let object = read_object(&shared.root, &path);
        let mut response = compose(object, range, &faults);
        tokio::time::sleep(std::mem::take(&mut response.delay)).await;
        if response.refuse {
            shared.mode.send_replace(Mode::Refusing);
            // The listener goes first and then this task: a client that sees the close and connects again
            // at once must not get into the backlog.
            return std::future::pending().await;
        }
        if write(stream.get_mut(), &response, &shared).await.is_err()
            || !after(&mut stream, response.then).await
        {
            return;
        }
    }
}

async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// A test's own files: read at once, and only names that stay below the root.
fn read_object(root: &Path, path: &str) -> Option<Vec<u8>> {
    let inside = !path.split('/').any(|part| part.is_empty() || part == "..");
    inside.then(|| std::fs::read(root.join(path)).ok())?
}

async fn write(stream: &mut TcpStream, response: &Response, shared: &Shared) -> std::io::Result<()> {
    stream.write_all(&response.head).await?;
    for chunk in response.body.chunks(CHUNK) {
        stream.write_all(chunk).await?;
        *lock(&shared.sent) += chunk.len() as u64;
    }
    stream.flush().await
}

/// Whether to read the next request.
async fn after(stream: &mut BufReader<TcpStream>, then: Then) -> bool {
    match then {
        Then::KeepAlive => return true,
        // Until the client gives up: what it may still send is not looked at.
        Then::Hang => {
            while stream.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty()) {
                let pending = stream.buffer().len();
                stream.consume(pending);
            }
        }
        Then::Flood => while stream.get_mut().write_all(&[0; 4096]).await.is_ok() {},
        Then::Close => {}
    }
    false
}
