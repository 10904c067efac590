//! Clients that are slow, silent or greedy, files that change, and the end of the server.

mod common;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Site, pattern, within};
use pagein_server::{Config, ServeError, Server};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// More than the socket buffers of both sides hold.
const HUGE: usize = 48 << 20;
const SHORT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_is_closed() {
    let site = Site::with(|config| config.head_timeout = SHORT).await;
    for begun in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n"] {
        let mut client = site.connect().await;
        let start = Instant::now();
        client.stream.write_all(begun.as_bytes()).await.unwrap();
        assert_eq!(client.rest().await, b"", "{begun:?}");
        let took = start.elapsed();
        assert!(took > SHORT / 2 && took < SHORT * 5, "{begun:?} was closed after {took:?}");
    }
}

#[tokio::test]
async fn a_client_that_trickles_its_head_is_closed() {
    let site = Site::with(|config| config.head_timeout = SHORT).await;
    let mut client = site.connect().await;
    let start = Instant::now();
    let mut sent = 0;
    while client.stream.write_all(b"G").await.is_ok() {
        sent += 1;
        assert!(start.elapsed() < SHORT * 5, "still open after {sent} bytes");
        sleep(SHORT / 20).await;
    }
    assert!(sent > 5, "closed after {sent} bytes");
}

#[tokio::test]
async fn a_silent_connection_lives_as_long_as_it_may_be_idle() {
    let site = Site::with(|config| {
        config.head_timeout = SHORT;
        config.idle_timeout = SHORT * 4;
    })
    .await;
    site.put("hot", b"x");
    let mut client = site.connect().await;
    assert_eq!(client.request("GET", "/hot", "").await.status, 200);
    sleep(SHORT * 2).await;
    assert_eq!(client.request("GET", "/hot", "").await.status, 200);
    let start = Instant::now();
    assert_eq!(client.rest().await, b"");
    let took = start.elapsed();
    assert!(took > SHORT * 3 && took < SHORT * 12, "closed after {took:?}");
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed() {
    let site = Site::with(|config| config.idle_timeout = SHORT).await;
    site.put("hot", &pattern(HUGE));
    let mut client = site.connect().await;
    client.send("GET", "/hot", "").await;
    sleep(SHORT * 3).await;
    let got = client.rest().await.len();
    assert!(got < HUGE, "all of it came, {got} bytes");
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let site = Site::new().await;
    let large = format!("X-Large: {}\r\n", "x".repeat(40 << 10));
    let mut client = site.connect().await;
    // The server may close before all of it is sent.
    let _ = client.stream.write_all(format!("GET / HTTP/1.1\r\n{large}\r\n").as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 431);
    let many = "X-Field: y\r\n".repeat(200);
    assert_eq!(site.get("/", &many).await.status, 431);
    // Room for the largest set of ranges that is honoured.
    site.put("cold", &pattern(1000));
    let ranges: Vec<String> = (0..256).map(|i| format!("{i}-{}", u64::MAX)).collect();
    let reply = site.get("/cold", &format!("Range: bytes={}\r\n", ranges.join(","))).await;
    assert_eq!((reply.status, reply.body.len()), (206, 1000));
}

#[tokio::test]
async fn nonsense_is_a_bad_request() {
    let site = Site::new().await;
    let mut client = site.connect().await;
    client.stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS?\r\n\r\n").await.unwrap();
    assert!(client.rest().await.starts_with(b"HTTP/1.1 400"));
}

#[tokio::test]
async fn slow_clients_do_not_hold_up_others() {
    let site = Site::new().await;
    let content = pattern(HUGE);
    site.put("hot", &content);
    let mut slow = [site.connect().await, site.connect().await];
    for client in &mut slow {
        client.send("GET", "/hot", "").await;
    }
    // Both are stuck now, with full buffers.
    sleep(SHORT).await;
    let start = Instant::now();
    let mut quick = site.connect().await;
    for i in 0..100 {
        let reply = quick.request("GET", "/hot", &format!("Range: bytes={i}-{}\r\n", i + 32767)).await;
        assert!(reply.body == content[i..i + 32768]);
    }
    assert!(start.elapsed() < SHORT * 5, "100 ranges took {:?}", start.elapsed());
    for client in &mut slow {
        assert!(client.reply("GET").await.unwrap().body == content);
    }
}

#[tokio::test]
async fn connections_are_bounded() {
    let site = Site::with(|config| config.max_connections = 1).await;
    site.put("hot", b"x");
    let mut first = site.connect().await;
    assert_eq!(first.request("GET", "/hot", "").await.status, 200);
    let mut second = site.connect().await;
    second.send("GET", "/hot", "").await;
    assert!(tokio::time::timeout(SHORT, second.head()).await.is_err(), "two are served at once");
    drop(first);
    assert_eq!(second.reply("GET").await.unwrap().status, 200);
}

/// Begins to fetch a huge file, lets `change` happen to it, and returns how much came, and whether it is the
/// old content.
async fn changed_while_sent(change: impl FnOnce(&std::path::Path)) -> (usize, bool) {
    let site = Site::new().await;
    let content = pattern(HUGE);
    let path = site.put("hot", &content);
    let mut client = site.connect().await;
    client.send("GET", "/hot", "").await;
    assert_eq!(client.head().await.unwrap().field("content-length"), HUGE.to_string());
    change(&path);
    let got = client.rest_or(HUGE).await;
    let is_old = content.starts_with(&got);
    (got.len(), is_old)
}

#[tokio::test]
async fn a_file_that_is_truncated_breaks_the_response_off() {
    let (got, is_old) = changed_while_sent(|path| {
        fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
    })
    .await;
    assert!(got < HUGE && is_old, "{got} bytes came");
}

#[tokio::test]
async fn a_file_that_is_overwritten_breaks_the_response_off() {
    let (got, is_old) = changed_while_sent(|path| {
        fs::File::options().write(true).open(path).unwrap().write_all(&vec![0; HUGE]).unwrap();
    })
    .await;
    assert!(got < HUGE && is_old, "{got} bytes came");
}

#[tokio::test]
async fn a_file_that_is_replaced_is_sent_to_its_end() {
    let (got, is_old) = changed_while_sent(|path| {
        let other = path.with_extension("new");
        fs::write(&other, vec![0; HUGE]).unwrap();
        fs::rename(other, path).unwrap();
    })
    .await;
    assert!(got == HUGE && is_old, "{got} bytes came");
}

#[tokio::test]
async fn shutdown_lets_a_running_response_end() {
    let mut site = Site::new().await;
    let content = pattern(HUGE);
    site.put("hot", &content);
    let mut idle = site.connect().await;
    assert_eq!(idle.request("GET", "/hot", "Range: bytes=0-0\r\n").await.status, 206);
    let mut silent = site.connect().await;
    let mut busy = site.connect().await;
    busy.send("GET", "/hot", "").await;
    sleep(SHORT / 2).await;
    site.begin_shutdown();
    assert_eq!(idle.rest().await, b"", "an idle connection is closed");
    assert_eq!(silent.rest().await, b"", "so is one that has said nothing");
    assert!(TcpStream::connect(site.addr).await.is_err(), "nobody is accepted any more");
    assert!(busy.reply("GET").await.unwrap().body == content);
    assert_eq!(busy.rest().await, b"");
    site.ended().await.unwrap();
}

#[tokio::test]
async fn shutdown_does_not_wait_longer_than_the_grace() {
    let mut site = Site::with(|config| config.grace = SHORT).await;
    site.put("hot", &pattern(HUGE));
    let mut stuck = site.connect().await;
    stuck.send("GET", "/hot", "").await;
    sleep(SHORT / 2).await;
    site.begin_shutdown();
    let start = Instant::now();
    site.ended().await.unwrap();
    let took = start.elapsed();
    assert!(took > SHORT / 2 && took < SHORT * 5, "it took {took:?}");
    assert!(stuck.rest().await.len() < HUGE);
}

#[tokio::test]
async fn what_cannot_be_served_is_an_error_that_helps() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let dir = tempfile::tempdir().unwrap();
    let bind = async |dir: &std::path::Path, addr| {
        within("bind", Server::bind(Config::new(dir, addr))).await.map(|server| server.local_addr())
    };
    let error = bind(&dir.path().join("none"), any).await.unwrap_err();
    assert!(matches!(error, ServeError::DirMissing { .. }), "{error:?}");
    assert!(error.to_string().ends_with("none does not exist: give the directory that holds the images"));

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = bind(&file, any).await.unwrap_err();
    assert!(matches!(error, ServeError::NotADirectory { .. }), "{error:?}");

    let taken = Server::bind(Config::new(dir.path(), any)).await.unwrap();
    let error = bind(dir.path(), taken.local_addr()).await.unwrap_err();
    assert!(matches!(error, ServeError::AddressInUse { .. }), "{error:?}");

    // 192.0.2.0/24 is for documentation (RFC 5737).
    let error = bind(dir.path(), SocketAddr::from(([192, 0, 2, 1], 0))).await.unwrap_err();
    assert!(matches!(error, ServeError::AddressNotHere { .. }), "{error:?}");
}
