//! The packet link against arithmetic and against independent tools: ping, iperf3 and curl.
//!
//! They measure time, so they take turns.

mod common;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{net, text, web_server};
use pagein_simnet::{
    link::Link,
    tcp::{Event, Request, TcpConfig, TcpNetwork},
    time::Time,
};

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value behind `key` in ping's, iperf3's or curl's output.
fn number_after(text: &str, key: &str) -> f64 {
    let rest = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key:?} in {text}"));
    let number: String = rest
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | '+' | '-'))
        .collect();
    number.parse().unwrap_or_else(|_| panic!("no number behind {key:?} in {text}"))
}

/// The median of the round trips that ping reports, in ms: a scheduler's hiccup must not decide.
fn median_round_trip(ping: &str) -> f64 {
    let mut times: Vec<f64> =
        ping.lines().filter(|line| line.contains("time=")).map(|l| number_after(l, "time=")).collect();
    assert!(times.len() >= 5, "{ping}");
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn ping_takes_the_round_trip() {
    if common::must_skip(&["ping"]) {
        return;
    }
    let _turn = turn();
    for (rtt, count, interval) in
        [("0.2ms", 40, 0.02), ("1ms", 40, 0.02), ("20ms", 20, 0.05), ("200ms", 8, 0.1), ("2s", 5, 0.1)]
    {
        let millis = pagein_simnet::units::parse_duration(rtt).unwrap().as_secs_f64() * 1e3;
        let ping = text(
            &mut net(&format!("--rtt {rtt}"), &format!("ping -c {count} -i {interval} host.pagein")),
            10,
        );
        let measured = median_round_trip(&ping);
        println!("rtt {rtt}: ping {measured:.3} ms");
        assert!((measured - millis).abs() <= (0.02 * millis).max(0.3), "{rtt}: {measured} ms\n{ping}");
    }
}

#[test]
fn serialisation_adds_to_the_round_trip() {
    if common::must_skip(&["ping"]) {
        return;
    }
    let _turn = turn();
    // 1500 bytes at 1 Mbit/s are 12 ms, there and back.
    let ping = text(&mut net("--bandwidth 1mbit --rtt 10ms", "ping -c 10 -i 0.1 -s 1472 host.pagein"), 3);
    let measured = median_round_trip(&ping);
    assert!((measured - 34.0).abs() <= 0.68, "{measured} ms");
}

#[test]
fn ten_nested_delays_add_up() {
    if common::must_skip(&["ping"]) {
        return;
    }
    let _turn = turn();
    // The command of each link but the last is the next link.
    let inner = format!("{} --rtt 10ms -- ", common::NET).repeat(9);
    let ping = text(&mut net("--rtt 10ms", &format!("{inner} ping -c 10 -i 0.1 host.pagein")), 5);
    let measured = median_round_trip(&ping);
    println!("ten nested round trips of 10 ms: ping {measured:.3} ms");
    // Ten links, each with its own tolerance of 0.3 ms.
    assert!((measured - 100.0).abs() <= 3.0, "{measured} ms\n{ping}");
}

/// iperf3's goodput in bit/s at the receiver, without the first second.
fn iperf3(options: &str, seconds: u32, reverse: bool) -> f64 {
    let reverse = if reverse { "-R" } else { "" };
    let mut command = net(options, &format!("iperf3 -c server.pagein -J -O 1 -t {seconds} {reverse}"));
    // The server must come before `--`, in one word.
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = std::process::Command::new(common::NET);
    command.arg("--server").arg("exec iperf3 -s -1 > /dev/null").args(arguments);
    let report = text(&mut command, u64::from(seconds) + 10);
    let received = report.split("\"sum_received\"").nth(1).unwrap_or_else(|| panic!("{report}"));
    number_after(received, "\"bits_per_second\":")
}

#[test]
fn iperf3_reaches_the_rate() {
    if common::must_skip(&["iperf3"]) {
        return;
    }
    let _turn = turn();
    for (bandwidth, rtt, bits, seconds) in [
        ("1mbit", "50ms", 1e6, 6),
        ("10mbit", "20ms", 1e7, 4),
        ("100mbit", "5ms", 1e8, 3),
        ("1gbit", "0.5ms", 1e9, 3),
    ] {
        for reverse in [false, true] {
            // Others may need the processor, too: up to three attempts.
            let measured = (0..3).map(|_| {
                let goodput = iperf3(&format!("--bandwidth {bandwidth} --rtt {rtt}"), seconds, reverse);
                // Of 1500 bytes on the link 1448 are payload.
                let rate = goodput * 1500.0 / 1448.0;
                println!(
                    "{bandwidth} {rtt} reverse {reverse}: goodput {goodput:.0} bit/s, link {:.1} %",
                    rate / bits * 100.0
                );
                rate
            });
            let rates: Vec<f64> = measured
                .scan(false, |is_done, rate| {
                    let result = (!*is_done).then_some(rate);
                    *is_done = (rate / bits - 1.0).abs() <= 0.05;
                    result
                })
                .collect();
            let within = rates.iter().any(|rate| (rate / bits - 1.0).abs() <= 0.05);
            assert!(within, "{bandwidth} {rtt}: {rates:.0?} bit/s on the link");
        }
    }
}

#[test]
fn directions_can_differ() {
    if common::must_skip(&["iperf3"]) {
        return;
    }
    let _turn = turn();
    let goodput = iperf3("--bandwidth 50mbit --uplink 5mbit --rtt 10ms", 2, false);
    let rate = goodput * 1500.0 / 1448.0;
    assert!((rate / 5e6 - 1.0).abs() <= 0.05, "{rate:.0} bit/s up");
}

#[test]
fn a_trace_gives_its_mean_rate() {
    if common::must_skip(&["iperf3"]) {
        return;
    }
    let _turn = turn();
    let trace = tempfile::NamedTempFile::new().unwrap();
    // Twenty packets in 20 ms, unevenly: 12 Mbit/s.
    std::fs::write(trace.path(), format!("{}{}20\n", "3\n".repeat(12), "11\n".repeat(7))).unwrap();
    let goodput = iperf3(&format!("--trace {} --rtt 10ms", trace.path().display()), 3, true);
    let rate = goodput * 1500.0 / 1448.0;
    assert!((rate / 12e6 - 1.0).abs() <= 0.05, "{rate:.0} bit/s");
}

#[test]
fn loss_is_inside_its_confidence_interval() {
    if common::must_skip(&["ping"]) {
        return;
    }
    let _turn = turn();
    for (loss, mean, spread) in [("5%", 0.05, 1.0), ("burst:2%,30%", 0.0625, 2.4)] {
        let count = 2000u32;
        let options = format!("--rtt 1ms --seed 11 --loss {loss}");
        let mut command = net(&options, &format!("ping -q -c {count} -i 0.002 -W 1 host.pagein"));
        let output = common::output(&mut command, Duration::from_secs(30));
        let report = String::from_utf8_lossy(&output.stdout);
        let received = number_after(&report, "transmitted,");
        // Echo and reply must both get through.
        let expected = (1.0 - mean) * (1.0 - mean);
        // Losses in bursts of 1 / r packets vary more than single ones, by sqrt((2 - p - r) / (p + r)).
        let error = (expected * (1.0 - expected) / f64::from(count)).sqrt() * spread;
        let share = received / f64::from(count);
        println!("loss {loss}: {share:.4} came back, expected {expected:.4} +- {:.4}", 3.29 * error);
        assert!(
            (share - expected).abs() <= 3.29 * error,
            "{loss}: {share} came back, expected {expected}\n{report}"
        );
    }
}

/// Seconds from a new connection's set-up until a response of so many bytes is complete, by the model.
fn virtual_time(link: &Link, bytes: u64) -> f64 {
    let mut network = TcpNetwork::new(link, TcpConfig::default());
    let connection = network.connect();
    let Some(Event::Connected { at: connected, .. }) = network.next_event(Time::MAX) else {
        panic!("not connected")
    };
    network.request(
        connection,
        Request { request_bytes: 90, response_bytes: bytes, think: Duration::ZERO, urgency: 0 },
    );
    while let Some(event) = network.next_event(Time::MAX) {
        if let Event::Arrived { at, bytes: arrived, .. } = event
            && arrived.end == bytes
        {
            return at.since(connected).as_secs_f64();
        }
    }
    panic!("the response is not complete");
}

#[test]
fn virtual_time_agrees_with_the_packet_link() {
    if common::must_skip(&["curl"]) {
        return;
    }
    let _turn = turn();
    let mut report = String::new();
    let mut worst = 0.0f64;
    for (bandwidth, rtt, bytes) in [
        ("1mbit", 50, 20_000),
        ("1mbit", 50, 300_000),
        ("10mbit", 20, 30_000),
        ("10mbit", 20, 300_000),
        ("10mbit", 20, 4_000_000),
        ("10mbit", 200, 400_000),
        ("100mbit", 50, 90_000),
        ("100mbit", 50, 3_000_000),
        ("100mbit", 20, 20_000_000),
    ] {
        let port = web_server("127.0.0.1", bytes);
        let options = format!("--bandwidth {bandwidth} --rtt {rtt}ms");
        let curl = format!(
            "curl -s -o /dev/null -w connect:%{{time_connect}},total:%{{time_total}} http://10.77.0.1:{port}/"
        );
        // curl needs some milliseconds for itself before it connects.
        let fetch = || {
            let times = text(&mut net(&options, &curl), 10);
            number_after(&times, "total:") - number_after(&times, "connect:")
        };
        let mut measured: Vec<f64> = (0..3).map(|_| fetch()).collect();
        measured.sort_by(f64::total_cmp);
        let link = Link::symmetric(bandwidth.parse().unwrap(), Duration::from_millis(rtt));
        // The head of the response takes some bytes more.
        let predicted = virtual_time(&link, bytes as u64 + 65);
        let error = predicted / measured[1] - 1.0;
        worst = worst.max(error.abs());
        report += &format!(
            "{bandwidth} {rtt} ms {bytes} bytes: packet link {:.4} s, virtual time {predicted:.4} s, {:+.1} %\n",
            measured[1],
            error * 100.0
        );
    }
    println!("{report}");
    assert!(worst <= 0.05, "{report}");
}
