//! The HTTP source against canned responses over real sockets.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pagein_source::{Location, Options, Retry, Source, SourceError, fetch, open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to write for one request, and whether to hold the connection open afterwards without writing more.
#[derive(Clone)]
struct Reply {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Answer the next request on this connection.
    Keep,
    Close,
    Hang,
    /// Write zeros for ever.
    Flood,
}

fn reply(head: &str, body: &[u8], then: Then) -> Reply {
    let head = head.replace('\n', "\r\n");
    Reply { bytes: [head.as_bytes(), b"\r\n\r\n", body].concat(), then }
}

fn simple(status: &str, headers: &str, body: &[u8]) -> Reply {
    reply(&format!("HTTP/1.1 {status}\nContent-Length: {}{headers}", body.len()), body, Then::Keep)
}

struct Server {
    base: String,
    /// The heads of the requests, in order of arrival.
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

/// Answers the n-th request with the n-th reply, and every later one with the last.
async fn server(replies: Vec<Reply>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/img", listener.local_addr().unwrap());
    let server = Server { base, seen: Arc::default(), connections: Arc::default() };
    let (seen, connections) = (server.seen.clone(), server.connections.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *connections.lock().unwrap() += 1;
            tokio::spawn(connection(stream, replies.clone(), seen.clone()));
        }
    });
    server
}

async fn connection(mut stream: TcpStream, replies: Vec<Reply>, seen: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        head.push(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let nth = {
            let mut seen = seen.lock().unwrap();
            seen.push(String::from_utf8_lossy(&std::mem::take(&mut head)).to_ascii_lowercase());
            seen.len() - 1
        };
        let reply = &replies[nth.min(replies.len() - 1)];
        if stream.write_all(&reply.bytes).await.is_err() {
            return;
        }
        match reply.then {
            Then::Keep => {}
            Then::Close => return,
            Then::Hang => tokio::time::sleep(Duration::from_secs(60)).await,
            Then::Flood => while stream.write_all(&[0; 8192]).await.is_ok() {},
        }
    }
}

fn options() -> Options {
    Options { stall: Duration::from_millis(300), proxy: false, ..Options::default() }
}

fn source_at(base: &str) -> Arc<dyn Source> {
    open(&Location::parse(base).unwrap(), &options()).unwrap()
}

fn quick(attempts: u32) -> Retry {
    Retry { attempts, first: Duration::from_millis(5), longest: Duration::from_millis(20) }
}

async fn get(server: &Server, range: Option<std::ops::Range<u64>>, len: u64) -> Result<Vec<u8>, SourceError> {
    fetch(&*source_at(&server.base), "hot", range, len, &quick(1)).await
}

#[tokio::test]
async fn asks_as_it_should_and_keeps_the_connection() {
    let server = server(vec![
        simple("200 OK", "", b"hello"),
        simple("206 Partial Content", "\nContent-Range: bytes 1-3/5", b"ell"),
    ])
    .await;
    let source = source_at(&server.base);
    assert_eq!(fetch(&*source, "hot", None, 5, &quick(1)).await.unwrap(), b"hello");
    assert_eq!(fetch(&*source, "pages/ab/abc", Some(1..4), 3, &quick(1)).await.unwrap(), b"ell");
    let seen = server.seen.lock().unwrap();
    assert!(seen[0].starts_with("get /img/hot http/1.1\r\n"), "{}", seen[0]);
    assert!(seen[0].contains(&format!("user-agent: pagein/{}\r\n", env!("CARGO_PKG_VERSION"))));
    assert!(seen[0].contains("accept-encoding: identity\r\n") && !seen[0].contains("range:"));
    assert!(seen[1].starts_with("get /img/pages/ab/abc ") && seen[1].contains("range: bytes=1-3\r\n"));
    assert_eq!(*server.connections.lock().unwrap(), 1);
    let wire = source.wire();
    assert_eq!((wire.requests, wire.bytes), (2, 8));
    assert!(wire.first_byte_min.unwrap() < Duration::from_millis(300));
}

#[tokio::test]
async fn statuses() {
    for (status, transient) in [("404 Not Found", false), ("410 Gone", false)] {
        let error = get(&server(vec![simple(status, "", b"no")]).await, None, 5).await.unwrap_err();
        assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
        assert_eq!(error.is_transient(), transient);
        assert!(error.to_string().contains("/img/hot"), "{error}");
    }
    for (status, expected) in [("403 Forbidden", 403), ("503 Busy", 503), ("204 No Content", 204)] {
        let reply = reply(&format!("HTTP/1.1 {status}\nContent-Length: 0"), b"", Then::Keep);
        let error = get(&server(vec![reply]).await, None, 5).await.unwrap_err();
        assert!(matches!(error, SourceError::Status { code, .. } if code == expected), "{error}");
        assert_eq!(error.is_transient(), expected == 503);
    }
}

#[tokio::test]
async fn ranges_that_are_not_what_was_asked_for() {
    let partial = |range: &str, body: &[u8]| simple("206 Partial Content", range, body);
    let cases = [
        (simple("200 OK", "", b"0123456789"), "ignores ranges"),
        (reply("HTTP/1.1 200 OK\nConnection: close", b"234", Then::Close), "ignores ranges"),
        (partial("\nContent-Range: bytes 0-2/10", b"012"), "asked for bytes 2-4"),
        (partial("\nContent-Range: bytes 2-9/10", b"23456789"), "asked for bytes 2-4"),
        (partial("", b"234"), "no Content-Range"),
        (partial("\nContent-Range: nonsense", b"234"), "\"nonsense\""),
        (partial("\nContent-Range: bytes 2-3/4", b"23"), "2 of 3 bytes"),
        (partial("\nContent-Range: bytes 2-4/10", b"23"), "2 of 3 bytes"),
        (partial("\nContent-Range: bytes 2-4/10", b"2345"), "longer than the 3 bytes"),
        (simple("416 Range Not Satisfiable", "\nContent-Range: bytes */1", b""), "answered 416"),
    ];
    for (reply, part) in cases {
        let error = get(&server(vec![reply]).await, Some(2..5), 3).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}, not {part}");
    }
    let whole = server(vec![simple("200 OK", "", b"0123456789")]).await;
    assert_eq!(get(&whole, Some(0..10), 10).await.unwrap(), b"0123456789");
    let unasked = server(vec![partial("\nContent-Range: bytes 0-4/5", b"01234")]).await;
    assert!(matches!(get(&unasked, None, 5).await, Err(SourceError::Status { code: 206, .. })));
}

#[tokio::test]
async fn bodies_that_end_early_or_never() {
    let early = reply("HTTP/1.1 200 OK\nContent-Length: 9", b"0123", Then::Close);
    let error = get(&server(vec![early]).await, None, 9).await.unwrap_err();
    assert!(matches!(error, SourceError::Truncated { expected: 9, got: 4, .. }), "{error:?}");

    let endless = reply("HTTP/1.1 200 OK\nConnection: close", b"", Then::Flood);
    let error = get(&server(vec![endless]).await, None, 100_000).await.unwrap_err();
    assert!(matches!(error, SourceError::TooLong { expected: 100_000, .. }), "{error:?}");

    let announced = reply("HTTP/1.1 200 OK\nContent-Length: 99999999999999", b"", Then::Flood);
    let error = get(&server(vec![announced]).await, None, 100_000).await.unwrap_err();
    assert!(matches!(error, SourceError::TooLong { .. }), "{error:?}");

    let garbage = reply("SSH-2.0-OpenSSH", b"", Then::Close);
    let error = get(&server(vec![garbage]).await, None, 9).await.unwrap_err();
    assert!(matches!(error, SourceError::Broken { got: 0, .. }), "{error:?}");
}

#[tokio::test]
async fn stalls_in_the_head_and_in_the_body() {
    for (bytes, expected) in [("", 0), ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n0123", 4)] {
        let server = server(vec![Reply { bytes: bytes.into(), then: Then::Hang }]).await;
        let start = Instant::now();
        let error = get(&server, None, 9).await.unwrap_err();
        assert!(matches!(error, SourceError::Stalled { got, .. } if got == expected), "{error:?}");
        assert!((300..3000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn nobody_listens() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/img", listener.local_addr().unwrap());
    drop(listener);
    let error = fetch(&*source_at(&base), "hot", None, 5, &quick(3)).await.unwrap_err();
    assert!(matches!(error.kind(), SourceError::Connect { .. }), "{error:?}");
    assert_eq!(error.attempts(), 3);
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains("tried 3 times"), "{text}");
    assert_eq!(text.matches(&base).count(), 1, "{text}");
}

#[tokio::test]
async fn tries_again_only_what_may_pass() {
    let busy = simple("503 Service Unavailable", "", b"");
    let cut = reply("HTTP/1.1 200 OK\nContent-Length: 5", b"he", Then::Close);
    let fine = simple("200 OK", "", b"hello");
    let server = server(vec![busy, cut, fine]).await;
    let source = source_at(&server.base);
    assert_eq!(fetch(&*source, "hot", None, 5, &quick(3)).await.unwrap(), b"hello");
    assert_eq!(source.wire().requests, 3);

    let server = self::server(vec![simple("404 Not Found", "", b"")]).await;
    let error = fetch(&*source_at(&server.base), "hot", None, 5, &quick(3)).await.unwrap_err();
    assert!(matches!(error, SourceError::NotFound { .. }), "{error:?}");
    assert_eq!(server.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn redirects() {
    let to = |target: &str| simple("302 Found", &format!("\nLocation: {target}"), b"");
    let server = server(vec![
        to("/elsewhere/hot"),
        simple("206 Partial Content", "\nContent-Range: bytes 1-2/5", b"el"),
    ])
    .await;
    assert_eq!(get(&server, Some(1..3), 2).await.unwrap(), b"el");
    let seen = server.seen.lock().unwrap().clone();
    assert!(seen[1].starts_with("get /elsewhere/hot ") && seen[1].contains("range: bytes=1-2"), "{seen:?}");

    for (reply, part) in [
        (to("/img/hot"), "more than 10 redirects"),
        (to("ftp://127.0.0.1/x"), "neither http nor https"),
        (simple("301 Moved", "", b""), "to nowhere"),
    ] {
        let error = get(&self::server(vec![reply]).await, None, 5).await.unwrap_err();
        assert!(matches!(error, SourceError::Redirect { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn a_hostile_name_is_never_asked_for() {
    let server = server(vec![simple("200 OK", "", b"hello")]).await;
    let error = source_at(&server.base).get("../other/hot", None).await.unwrap_err();
    assert!(matches!(error, SourceError::BadName { .. }), "{error:?}");
    assert!(server.seen.lock().unwrap().is_empty());
}

/// One request, whatever the server makes of the range.
#[tokio::test]
async fn the_first_bytes_of_longer_and_shorter_objects_and_without_ranges() {
    let cases = [
        (simple("206 Partial Content", "\nContent-Range: bytes 0-3/9", b"abcd"), "abcd", true, Some(9)),
        (simple("206 Partial Content", "\nContent-Range: bytes 0-1/2", b"ab"), "ab", true, Some(2)),
        (simple("200 OK", "", b"abcdefghi"), "abcdefghi", false, Some(9)),
    ];
    for (reply, bytes, ranged, size) in cases {
        let server = server(vec![reply]).await;
        let source = source_at(&server.base);
        let first = source.get_first("hot", 4).await.unwrap();
        assert_eq!((first.ranged, first.size), (ranged, size));
        assert_eq!(first.body.exactly(bytes.len() as u64).await.unwrap(), bytes.as_bytes());
        assert_eq!(server.seen.lock().unwrap().len(), 1);
        assert!(
            source.wire().connect_min.is_some() && source.wire().round_trip() <= source.wire().first_byte_min
        );
    }
    for (status, headers) in [("404 Not Found", ""), ("206 Partial Content", "\nContent-Range: bytes 5-6/9")]
    {
        let server = server(vec![simple(status, headers, b"ab")]).await;
        source_at(&server.base).get_first("hot", 4).await.unwrap_err();
    }
}
