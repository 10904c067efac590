//! TCP in virtual time against arithmetic.

use std::{collections::HashMap, time::Duration};

use pagein_simnet::{
    link::Link,
    queue::QueueLimit,
    tcp::{CongestionControl, Event, Request, TcpConfig, TcpNetwork},
    time::Time,
};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn link(bandwidth: &str, rtt: Duration) -> Link {
    Link::symmetric(bandwidth.parse().unwrap(), rtt)
}

fn get(response_bytes: u64) -> Request {
    Request { request_bytes: 100, response_bytes, think: Duration::ZERO, urgency: 0 }
}

/// When a response of so many bytes is complete, on a new connection.
fn fetch(link: &Link, config: TcpConfig, bytes: u64) -> Time {
    let mut network = TcpNetwork::new(link, config);
    let connection = network.connect();
    network.request(connection, get(bytes));
    let mut read = 0;
    while let Some(event) = network.next_event(Time::MAX) {
        if let Event::Arrived { at, bytes: arrived, .. } = event {
            assert_eq!(arrived.start, read, "a gap or an overlap");
            read = arrived.end;
            if read == bytes {
                return at;
            }
        }
    }
    panic!("only {read} of {bytes} bytes arrived");
}

fn millis(time: Time) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn slow_start_takes_the_round_trips_that_arithmetic_says() {
    let mut link = link("1000gbit", 100 * MS);
    (link.up.queue, link.down.queue) = (QueueLimit::Unlimited, QueueLimit::Unlimited);
    let reno = TcpConfig { congestion: CongestionControl::Reno, ..TcpConfig::default() };
    // After the connection's round trip, 10 segments in the first, 20 in the second, 40 in the third and so on.
    for (segments, round_trips) in
        [(1, 2), (10, 2), (11, 3), (30, 3), (31, 4), (70, 4), (71, 5), (150, 5), (3_452, 10)]
    {
        let at = millis(fetch(&link, reno, segments * 1448));
        assert!((at - f64::from(round_trips) * 100.0).abs() < 1.0, "{segments} segments took {at} ms");
    }
}

#[test]
fn a_long_stream_fills_the_link() {
    for (bandwidth, rate, rtt, bytes) in
        [("1mbit", 1e6, 50, 2_000_000), ("10mbit", 1e7, 20, 10_000_000), ("100mbit", 1e8, 5, 50_000_000)]
    {
        let seconds = fetch(&link(bandwidth, rtt * MS), TcpConfig::default(), bytes).as_secs_f64();
        let payload = bytes as f64 * 8.0 / seconds;
        let ideal = rate * 1448.0 / 1500.0;
        assert!(payload <= ideal && payload > 0.95 * ideal, "{bandwidth}: {payload:.0} of {ideal:.0} bit/s");
    }
}

#[test]
fn connections_share_the_link_and_all_bytes_arrive() {
    let mut network = TcpNetwork::new(&link("10mbit", 20 * MS), TcpConfig::default());
    let requests: Vec<_> = (0..4)
        .map(|_| {
            let connection = network.connect();
            network.request(connection, get(1_000_000))
        })
        .collect();
    let mut done = HashMap::new();
    while let Some(event) = network.next_event(Time::MAX) {
        if let Event::Arrived { at, request, bytes, .. } = event
            && bytes.end == 1_000_000
        {
            done.insert(request, at);
        }
    }
    assert!(requests.iter().all(|request| done.contains_key(request)));
    // 4 MB with headers at 10 Mbit/s are 3.31 s.
    let last = done.values().max().unwrap().as_secs_f64();
    assert!((3.31..3.31 * 1.1).contains(&last), "the last came at {last}");
}

#[test]
fn an_urgent_response_overtakes_a_stream_by_all_but_the_queue() {
    let link = link("10mbit", 20 * MS);
    let overtake = |urgency, unsent_buffer| {
        let mut network = TcpNetwork::new(&link, TcpConfig { unsent_buffer, ..TcpConfig::default() });
        let connection = network.connect();
        network.request(connection, get(5_000_000));
        let asked = Time::from_millis(1000);
        while network.next_event(asked).is_some() {}
        assert_eq!(network.now(), asked);
        let page = network.request(connection, Request { urgency, ..get(4096) });
        loop {
            match network.next_event(Time::MAX) {
                Some(Event::Arrived { at, request, bytes, .. }) if request == page && bytes.end == 4096 => {
                    return at.since(asked);
                }
                Some(_) => {}
                None => panic!("the page never came"),
            }
        }
    };
    // A round trip, a full queue (48 kB: 38 ms) and the page itself.
    let urgent = overtake(1, 0);
    assert!(urgent > 20 * MS && urgent < 70 * MS, "{urgent:?}");
    // Half a megabyte that was handed to the kernel before: 0.4 s more.
    let buffered = overtake(1, 500_000);
    assert!(buffered > urgent + 350 * MS && buffered < urgent + 450 * MS, "{buffered:?}");
    assert!(overtake(0, 0) > 2000 * MS);
}

#[test]
fn a_lost_syn_costs_a_second() {
    let mut lossy = link("10mbit", 20 * MS);
    lossy.up.loss = "50%".parse().unwrap();
    let connected = |seed| {
        let mut network = TcpNetwork::new(&Link { seed, ..lossy.clone() }, TcpConfig::default());
        network.connect();
        match network.next_event(Time::MAX) {
            Some(Event::Connected { at, .. }) => millis(at),
            other => panic!("{other:?}"),
        }
    };
    let times: Vec<f64> = (0..40).map(connected).collect();
    let close = |time: f64, expected: f64| (time - expected).abs() < 1.0;
    let first = times.iter().filter(|time| close(**time, 20.1)).count();
    assert!(
        times
            .iter()
            .all(|time| [20.1, 1020.1, 3020.1, 7020.1, 15020.1, 31020.1].iter().any(|t| close(*time, *t)))
    );
    // Half of forty, by four standard deviations.
    assert!((8..=32).contains(&first), "{first} of 40 at the first attempt");
    assert!(times.iter().any(|time| close(*time, 1020.1)));
}

#[test]
fn a_pause_costs_slow_start_again() {
    let link = link("100mbit", 50 * MS);
    let second = |slow_start_after_idle| {
        let mut network = TcpNetwork::new(&link, TcpConfig { slow_start_after_idle, ..TcpConfig::default() });
        let connection = network.connect();
        network.request(connection, get(300_000));
        let later = Time::from_millis(5000);
        while network.next_event(later).is_some() {}
        network.request(connection, get(100_000));
        let mut last = later;
        while let Some(Event::Arrived { at, .. }) = network.next_event(Time::MAX) {
            last = at;
        }
        last.since(later)
    };
    assert!(second(false) < 65 * MS, "{:?}", second(false));
    // 100 kB are 70 segments: 10 + 20 + 40, three round trips.
    assert!(second(true) > 145 * MS && second(true) < 165 * MS, "{:?}", second(true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is lost, in either direction and in bursts, every byte arrives, in order, not sooner than the link allows, and
    /// the same seed gives the same time.
    #[test]
    fn every_byte_arrives_in_order_under_loss(
        seed: u64,
        bytes in 1u64..400_000,
        loss in prop_oneof![Just("3%"), Just("20%"), Just("burst:2%,20%")],
        reno: bool,
    ) {
        let mut lossy = link("10mbit", 20 * MS);
        lossy.seed = seed;
        lossy.down.loss = loss.parse().unwrap();
        lossy.up.loss = loss.parse().unwrap();
        let congestion = if reno { CongestionControl::Reno } else { CongestionControl::Cubic };
        let config = TcpConfig { congestion, ..TcpConfig::default() };
        let at = fetch(&lossy, config, bytes);
        prop_assert_eq!(fetch(&lossy, config, bytes), at);
        prop_assert!(at.as_secs_f64() > 0.040 + bytes as f64 * 8.0 / 1e7);
    }
}
