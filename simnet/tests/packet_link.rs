//! The packet link against arithmetic and against independent tools: ping, iperf3 and curl.
//!
//! They measure time, so they take turns.

mod common;

use std::{
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use common::{net, text, web_server, with_server};
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
    // Ten links, twenty shaping threads: what other processes on the machine add is never negative, so the least counts.
    let times = ping.lines().filter(|line| line.contains("time=")).map(|line| number_after(line, "time="));
    let measured = times.fold(f64::INFINITY, f64::min);
    println!("ten nested round trips of 10 ms: ping {measured:.3} ms");
    // Each link with its own tolerance of 0.3 ms.
    assert!((99.99..=103.0).contains(&measured), "{measured} ms\n{ping}");
}

/// iperf3's goodput in bit/s at the receiver, without the first second.
fn iperf3(options: &str, seconds: u32, reverse: bool) -> f64 {
    let reverse = if reverse { "-R" } else { "" };
    let client = format!("iperf3 -c server.pagein -J -O 0.5 -t {seconds} {reverse}");
    let mut command = with_server(Some("exec iperf3 -s -1 > /dev/null"), options, &client);
    let report = text(&mut command, u64::from(seconds) + 10);
    let received = report.split("\"sum_received\"").nth(1).unwrap_or_else(|| panic!("{report}"));
    number_after(received, "\"bits_per_second\":")
}

/// What a link of 1 Gbit/s may have to leave to others: it needs nearly all of two processors.
const ROOM_FOR_OTHERS: f64 = 0.2;

/// Checks the rate on the link: of 1500 bytes there, 1448 are iperf3's payload. Others may need the processor, too, so that a
/// miss is measured again, up to five times; a link that is wrong stays wrong.
fn assert_rate(options: &str, bits: f64, seconds: u32, reverse: bool) {
    let load = common::Load::now();
    let mut rates = Vec::new();
    for _ in 0..5 {
        let goodput = iperf3(options, seconds, reverse);
        let rate = goodput * 1500.0 / 1448.0;
        let way = if reverse { "down" } else { "up" };
        println!(
            "{options} {way}: payload {:.3} Mbit/s, link {:.1} % busy",
            goodput / 1e6,
            rate / bits * 100.0
        );
        if (rate / bits - 1.0).abs() <= 0.05 {
            return;
        }
        rates.push(rate);
    }
    let others = load.of_others();
    if bits >= 1e9 && others > ROOM_FOR_OTHERS {
        let share = others * 100.0;
        common::skipped(&format!(
            "other processes took {share:.0} % of the processors; {options} gave {rates:.0?} bit/s"
        ));
        return;
    }
    panic!(
        "{options}: {rates:.0?} bit/s on the link, expected {bits:.0}; others took {:.0} %",
        others * 100.0
    );
}

#[test]
fn iperf3_reaches_the_rate() {
    if common::must_skip(&["iperf3"]) {
        return;
    }
    let _turn = turn();
    assert_rate("--bandwidth 1mbit --rtt 50ms", 1e6, 5, true);
    for reverse in [false, true] {
        assert_rate("--bandwidth 10mbit --rtt 20ms", 1e7, 2, reverse);
        assert_rate("--bandwidth 100mbit --rtt 5ms", 1e8, 2, reverse);
        assert_rate("--bandwidth 1gbit --rtt 0.5ms", 1e9, 2, reverse);
    }
}

#[test]
fn directions_can_differ() {
    if common::must_skip(&["iperf3"]) {
        return;
    }
    let _turn = turn();
    assert_rate("--bandwidth 50mbit --uplink 5mbit --rtt 10ms", 5e6, 2, false);
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
    assert_rate(&format!("--trace {} --rtt 10ms", trace.path().display()), 12e6, 2, true);
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
        ("1mbit", 50, 150_000),
        ("10mbit", 20, 30_000),
        ("10mbit", 20, 300_000),
        ("10mbit", 20, 1_500_000),
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
        let link = Link::symmetric(bandwidth.parse().unwrap(), Duration::from_millis(rtt));
        // The head of the response takes some bytes more.
        let predicted = virtual_time(&link, bytes as u64 + 65);
        // Whatever else runs on the machine only adds to a measurement: the least of up to six counts.
        let mut measured = f64::INFINITY;
        for _ in 0..6 {
            measured = measured.min(fetch());
            if (predicted / measured - 1.0).abs() < 0.05 {
                break;
            }
        }
        let error = predicted / measured - 1.0;
        worst = worst.max(error.abs());
        writeln!(
            report,
            "{bandwidth} {rtt} ms {bytes} bytes: packet link {measured:.4} s, virtual time {predicted:.4} s, {:+.1} %",
            error * 100.0
        )
        .unwrap();
    }
    println!("{report}");
    assert!(worst <= 0.05, "{report}");
}
