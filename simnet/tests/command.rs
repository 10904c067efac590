//! `pagein net` as a program: what its command sees, and what is left of it.

mod common;

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Group, NET, must_skip, net, output, text, web_server, with_server};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const LIMIT: Duration = Duration::from_secs(20);

/// `pagein-net OPTIONS -- sh -c SCRIPT`.
fn shell(options: &str, script: &str) -> Command {
    let mut command = net(options, "sh -c");
    command.arg(script);
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output(command, LIMIT);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn output_and_exit_status_are_the_commands() {
    if must_skip(&[]) {
        return;
    }
    let (code, stdout, stderr) = run(&mut shell("--rtt 1ms", "echo out; echo err >&2; exit 7"));
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(run(&mut shell("--rtt 1ms", "kill -SEGV $$")).0, 128 + 11);
    assert_eq!(run(&mut shell("--rtt 1ms", "kill -TERM $$")).0, 128 + 15);
    let (code, _, stderr) = run(&mut net("", "no-such-program"));
    assert!(code == 127 && stderr.contains("no-such-program"), "{code} {stderr}");
    let (code, _, stderr) = run(&mut net("", "/etc/passwd"));
    assert!(code == 126 && stderr.contains("/etc/passwd"), "{code} {stderr}");
    let (code, _, stderr) = run(&mut net("--bandwidth 10", "true"));
    assert!(code != 0 && stderr.contains("such as 10mbit"), "{code} {stderr}");
}

#[test]
fn standard_input_environment_and_directory_pass_through() {
    if must_skip(&[]) {
        return;
    }
    let mut command = shell("--rtt 1ms", "read line; echo $line $SPECIAL; pwd");
    command.env("SPECIAL", "value").current_dir("/usr").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut group = Group::start(&mut command);
    group.0.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let lines: Vec<String> =
        BufReader::new(group.0.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["typed value", "/usr"]);
}

#[test]
fn signals_are_the_commands() {
    if must_skip(&[]) {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let script = "for s in TERM INT HUP USR1; do trap \"echo got $s; exit 9\" $s; done; echo ready; \
                      while :; do sleep 0.02; done";
        let mut group = Group::start(shell("--rtt 1ms", script).stdout(Stdio::piped()));
        let mut lines = BufReader::new(group.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        kill(group.pid(), signal).unwrap();
        assert_eq!(lines.next(), Some(format!("got {}", &signal.as_str()[3..])));
        assert_eq!(group.0.wait().unwrap().code(), Some(9));
    }
}

#[test]
fn servers_of_the_outer_machine_are_reached_and_nothing_else() {
    if must_skip(&["curl"]) {
        return;
    }
    for address in ["127.0.0.1", "0.0.0.0", "::1"] {
        let port = web_server(address, 100_000);
        let fetched =
            text(&mut shell("--rtt 10ms", &format!("curl -sf http://host.pagein:{port}/ | wc -c")), 5);
        assert_eq!(fetched.trim(), "100000", "a server on {address}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ask = |url: &str| {
        text(&mut shell("--rtt 40ms", &format!("curl -sm 5 -w '%{{time_total}}' {url}; echo \" $?\"")), 8)
    };
    let refused = ask(&format!("http://host.pagein:{closed}/"));
    let (seconds, code) = refused.trim().split_once(' ').unwrap();
    // curl's 7: could not connect; by a kernel's refusal, a round trip later.
    let seconds: f64 = seconds.parse().unwrap();
    assert!(code == "7" && (0.04..0.5).contains(&seconds), "{refused}");
    for url in ["http://192.0.2.1/", "http://[2001:db8::1]/"] {
        assert!(ask(url).ends_with("7\n"), "{url} can be reached");
    }
    assert!(ask("http://example.invalid/").ends_with("6\n"));
}

#[test]
fn a_server_that_comes_and_goes_is_followed() {
    if must_skip(&["curl"]) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let script =
        format!("while read line; do curl -sfm 5 http://host.pagein:{}/ | wc -c; done", address.port());
    let mut group = Group::start(shell("--rtt 2ms", &script).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = group.0.stdin.take().unwrap();
    let mut lines = BufReader::new(group.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut ask = || {
        stdin.write_all(b"\n").unwrap();
        lines.next().unwrap()
    };
    assert_eq!(ask(), "0");
    for _ in 0..2 {
        let listener = TcpListener::bind(address).unwrap();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = std::io::Read::read(&mut client, &mut [0; 4096]);
            client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        });
        assert_eq!(ask(), "3");
        server.join().unwrap();
        assert_eq!(ask(), "0");
    }
}

#[test]
fn a_server_on_the_far_side_is_waited_for_and_ends_with_the_command() {
    if must_skip(&["iperf3", "ping"]) {
        return;
    }
    // It listens late, and has a child that would stay.
    let server = "sleep 987654 & sleep 0.3; iperf3 -s > /dev/null";
    let mut command =
        with_server(Some(server), "--rtt 10ms --bandwidth 5mbit", "iperf3 -c server.pagein -u -b 1M -t 1");
    let report = text(&mut command, 10);
    assert!(report.contains("(0%)"), "{report}");
    let left = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(b"sleep\x00987654"))
    });
    assert!(!left, "a child of the server is still there");

    let mut command = with_server(Some("exit 3"), "", "true");
    let (code, _, stderr) = run(&mut command);
    assert!(
        code == 125 && stderr.contains("ended before it listened") && stderr.contains('3'),
        "{code} {stderr}"
    );
}

/// The processes below `pid`.
fn descendants(pid: Pid) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all: Vec<Pid> =
        children.split_whitespace().map(|child| Pid::from_raw(child.parse().unwrap())).collect();
    // Those that other threads have started.
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().map(|child| Pid::from_raw(child.parse::<i32>().unwrap())));
    }
    all.sort();
    all.dedup();
    let below: Vec<Pid> = all.iter().copied().flat_map(descendants).collect();
    all.extend(below);
    all
}

fn is_alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

#[test]
fn nothing_is_left_after_kill_9() {
    if must_skip(&["iperf3"]) {
        return;
    }
    let mut command = Command::new(NET);
    command.args(["--rtt", "10ms", "--server", "sleep 1000 & iperf3 -s > /dev/null", "--", "sh", "-c"]);
    command.arg("echo ready; sleep 1000; :").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = Group::start(&mut command);
    let mut line = String::new();
    BufReader::new(group.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // The command and its sleep, the server's init, its shell, its sleep and iperf3: wait for the last of them to be made.
    let deadline = Instant::now() + Duration::from_secs(5);
    let below = loop {
        let below = descendants(group.pid());
        if below.len() >= 6 {
            break below;
        }
        assert!(Instant::now() < deadline, "only {below:?}");
        thread::sleep(Duration::from_millis(5));
    };
    let named = |pid: &Pid| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let near =
        below.iter().map(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()).collect::<Vec<_>>();
    assert!(near.iter().all(|namespace| *namespace != fs::read_link("/proc/self/ns/net").unwrap()));

    kill(group.pid(), Signal::SIGKILL).unwrap();
    group.0.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(2);
    while below.iter().filter(|pid| is_alive(**pid)).count() > 1 {
        let alive: Vec<_> = below.iter().filter(|pid| is_alive(**pid)).map(|pid| (pid, named(pid))).collect();
        assert!(Instant::now() < deadline, "still alive: {alive:?}");
        thread::sleep(Duration::from_millis(5));
    }
    // What the command itself had started lives on, without a network: the device went with its file descriptor.
    let orphan = below.iter().find(|pid| is_alive(**pid)).expect("the command's child is nobody's to end");
    let devices = fs::read_to_string(format!("/proc/{orphan}/net/dev")).unwrap();
    assert!(devices.contains("lo:") && !devices.contains("pagein0"), "{devices}");
}

#[test]
fn links_inside_links_carry_tcp() {
    if must_skip(&["curl", "ping"]) {
        return;
    }
    let port = web_server("127.0.0.1", 50_000);
    let script = format!(
        "ping -c 1 server.pagein | grep -o 'time=.*'; curl -s -o /dev/null -w '%{{size_download}}' http://host.pagein:{port}/"
    );
    let mut command = net("--rtt 20ms", &format!("{NET} --rtt 30ms -- sh -c"));
    let printed = text(command.arg(script), 5);
    let (ping, size) = printed.split_once('\n').unwrap();
    let millis: f64 = ping.trim_start_matches("time=").trim_end_matches(" ms").parse().unwrap();
    // Not the 50 ms of both; what a busy machine adds does not matter.
    assert!((30.0..45.0).contains(&millis) && size == "50000", "{printed}");
}

#[test]
fn the_log_adds_up() {
    if must_skip(&["iperf3"]) {
        return;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(NET);
    command.args(["--bandwidth", "8mbit", "--rtt", "20ms", "--queue", "20p", "--log"]).arg(log.path());
    command.args(["--server", "iperf3 -s -1 > /dev/null", "--", "iperf3", "-c", "server.pagein", "-t", "2"]);
    text(&mut command, 10);
    let text = fs::read_to_string(log.path()).unwrap();
    let mut lines = text.lines().skip_while(|line| line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name| {
        columns.iter().position(|column| *column == name).unwrap_or_else(|| panic!("no column {name}"))
    };
    let rows: Vec<Vec<&str>> =
        lines.map(|line| line.split(',').collect()).filter(|row: &Vec<_>| row[1] == "up").collect();
    let values = |name| rows.iter().map(|row| row[column(name)].parse::<f64>().unwrap()).collect::<Vec<_>>();
    let most = |name| values(name).into_iter().fold(0.0, f64::max);
    // Two seconds and a little of 8 Mbit/s; a queue that fills and drops.
    let delivered = values("delivered_bytes").iter().sum::<f64>();
    assert!((1.8e6..2.3e6).contains(&delivered), "{delivered}\n{text}");
    assert!(most("queue_packets") <= 20.0 && most("queue_peak_bytes") > 15_000.0, "{text}");
    assert!(values("dropped_packets").iter().sum::<f64>() > 0.0, "{text}");
    let busy = values("throughput_bit_per_s").iter().filter(|rate| (**rate / 8e6 - 1.0).abs() < 0.1).count();
    assert!(busy >= 10, "{text}");
}

/// Runs a command as user 65534, with a /dev/net/tun that everybody may open, as udev makes it, or without one.
fn as_ordinary_user(arguments: &str, with_tun: bool) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("pagein-net");
    fs::copy(NET, &program).unwrap();
    let mount = folder.path().join("dev");
    fs::create_dir(&mount).unwrap();
    // In a mount namespace of its own, so that the machine's device keeps its mode.
    let prepare = format!(
        "mount -t tmpfs none {dev} && mknod -m {mode} {dev}/tun c 10 200 && mount --bind {dev}/tun /dev/net/tun && ",
        dev = mount.display(),
        mode = if with_tun { "666" } else { "600" },
    );
    let user = "exec setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!("{prepare} cd / && {user} ${{0}} {arguments}");
    run(Command::new("unshare").args(["--mount", "sh", "-c", &script]).arg(&program))
}

#[test]
fn an_ordinary_user_can_do_it_where_user_namespaces_are_open() {
    if must_skip(&["unshare", "setpriv", "mount", "ping", "iperf3", "curl"]) {
        return;
    }
    if fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|most| most.trim() == "0")
        || Path::new("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists()
    {
        eprintln!("SKIPPED: this kernel keeps user namespaces from ordinary users");
        return;
    }
    let port = web_server("127.0.0.1", 1234);
    let script = format!(
        "id -u; ping -c 1 host.pagein | grep -c time=; curl -s http://host.pagein:{port}/ | wc -c; \
         iperf3 -c server.pagein -n 100K | grep -c receiver"
    );
    let arguments = format!("--rtt 10ms --server 'iperf3 -s > /dev/null' -- sh -c '{script}'");
    let (code, stdout, stderr) = as_ordinary_user(&arguments, true);
    assert_eq!((code, stdout.as_str()), (0, "65534\n1\n1234\n1\n"), "{stderr}");

    let (code, _, stderr) = as_ordinary_user("-- true", false);
    assert!(code == 125 && stderr.contains("chmod 0666 /dev/net/tun"), "{code} {stderr}");
    // The kernel gives no rights over the namespace that the first link made.
    let (code, _, stderr) = as_ordinary_user("--rtt 1ms -- ${0} --rtt 1ms -- true", true);
    assert!(code == 125 && stderr.contains("links inside links need root"), "{code} {stderr}");
}
