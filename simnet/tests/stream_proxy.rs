//! The stream proxy against arithmetic, on loopback.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use pagein_simnet::{
    link::Link,
    proxy::{Proxy, ProxyError},
};

const MS: Duration = Duration::from_millis(1);
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn link(bandwidth: &str, rtt: Duration) -> Link {
    Link::symmetric(bandwidth.parse().unwrap(), rtt)
}

/// A server that reads a number in text, ended by the client's end of stream, and answers with as many bytes.
fn server() -> SocketAddr {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(client));
        }
    });
    address
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    let mut request = String::new();
    client.read_to_string(&mut request)?;
    let length = request.parse().map_err(io::Error::other)?;
    let pattern: Vec<u8> = (0..length).map(|index: usize| (index % 251) as u8).collect();
    client.write_all(&pattern)
}

/// How long a connection, a request and its response take; the bytes must be right.
fn fetch(address: SocketAddr, bytes: usize) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes.to_string().as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    assert_eq!(response.len(), bytes);
    assert!(response.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
    start.elapsed()
}

/// The least of five: what the machine adds is never negative.
fn least(address: SocketAddr, bytes: usize) -> f64 {
    (0..5).map(|_| fetch(address, bytes).as_secs_f64() * 1e3).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_small_response_takes_two_round_trips() {
    let server = server();
    for rtt in [0, 10, 60] {
        let proxy = Proxy::start(LOCAL, server, &link("1gbit", rtt * MS)).unwrap();
        let measured = least(proxy.address(), 100);
        let expected = 2.0 * f64::from(rtt);
        assert!(measured >= expected && measured < expected + 3.0, "rtt {rtt} ms: {measured} ms");
    }
}

#[test]
fn a_stream_has_the_rate_of_the_link_and_two_streams_share_it() {
    let proxy = Proxy::start(LOCAL, server(), &link("20mbit", 10 * MS)).unwrap();
    let address = proxy.address();
    let bytes = 2_000_000;
    // 1500 bytes on the wire for 1448 of payload, and two round trips.
    let one = bytes as f64 * 8.0 * 1500.0 / 1448.0 / 20e6 + 0.02;
    let measured = fetch(address, bytes).as_secs_f64();
    assert!((measured / one - 1.0).abs() < 0.05, "one stream: {measured} s, expected {one}");
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| fetch(address, bytes));
        }
    });
    let measured = started.elapsed().as_secs_f64();
    let two = 2.0 * one - 0.02;
    assert!((measured / two - 1.0).abs() < 0.05, "two streams: {measured} s, expected {two}");
}

#[test]
fn directions_differ() {
    let mut slow_up = link("100mbit", 4 * MS);
    slow_up.up = link("1mbit", 4 * MS).up;
    let sink = TcpListener::bind(LOCAL).unwrap();
    let proxy = Proxy::start(LOCAL, sink.local_addr().unwrap(), &slow_up).unwrap();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    let start = Instant::now();
    let writer = thread::spawn(move || client.write_all(&vec![7; 50_000]));
    let mut received = Vec::new();
    sink.accept().unwrap().0.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(received, vec![7; 50_000]);
    // 414 ms at 1 Mbit/s, and a round trip and a half.
    let measured = start.elapsed().as_secs_f64();
    assert!((0.414..0.44).contains(&measured), "{measured} s up");
}

#[test]
fn a_refused_connection_ends_after_the_round_trip() {
    let closed = TcpListener::bind(LOCAL).unwrap().local_addr().unwrap();
    let proxy = Proxy::start(LOCAL, closed, &link("10mbit", 20 * MS)).unwrap();
    let start = Instant::now();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    assert!(start.elapsed() >= 10 * MS);
}

#[test]
fn a_stopped_proxy_ends_its_connections() {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let proxy = Proxy::start(LOCAL, listener.local_addr().unwrap(), &link("10mbit", 2 * MS)).unwrap();
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    drop(proxy);
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn what_a_stream_cannot_have_is_refused() {
    let mut lossy = link("10mbit", 2 * MS);
    lossy.down.loss = "1%".parse().unwrap();
    let refused = Proxy::start(LOCAL, LOCAL, &lossy).err().unwrap();
    assert!(refused.to_string().contains("pagein net"), "{refused}");
    let public = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Proxy::start(public, LOCAL, &link("10mbit", 2 * MS)), Err(ProxyError::NotLoopback(_))));
}
