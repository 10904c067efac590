//! Images on servers that know nothing of pagein.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagein_testkit::have;
use pagein_tests::real::{pagein, same_as_local, scratch, succeed};

const BASH: &str = "/bin/bash";

/// Ends the server it holds.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn await_port(port: u16) {
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(20), "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cut(name: &str, extra: &[&str]) {
    let trace = scratch().join("bash.trace");
    if !trace.exists() {
        succeed(Command::new(pagein()).args(["record", "-o"]).arg(&trace).args(["--", BASH, "-c", "true"]));
    }
    let mut split = Command::new(pagein());
    split.args(["split", BASH, "--level", "1", "--trace"]).arg(&trace).args(extra);
    succeed(split.arg("-o").arg(scratch().join("static").join(name)));
}

fn runs_from(url: &str) {
    let job = ["-c", "echo $((6*7)); (exit 3); echo $?; type cd; help pwd | head -1; exit 9"];
    let local = same_as_local(Path::new(BASH), url, &job, |_| {});
    assert_eq!(local.code(), 9);
    succeed(Command::new(pagein()).args(["verify", url]));
}

#[test]
fn nginx_serves_images_with_ranges_and_as_page_files() {
    if !have(&["nginx"]) {
        return;
    }
    cut("ranges", &[]);
    cut("files", &["--page-files"]);
    let prefix = scratch().join("nginx");
    fs::create_dir_all(prefix.join("logs")).unwrap();
    let port = free_port();
    let user = if nix_is_root() { "user root;" } else { "" };
    let config = format!(
        "{user} daemon off; master_process off; pid {p}/pid; error_log {p}/logs/error.log; events {{}} http {{ \
         access_log off; client_body_temp_path {p}/a; proxy_temp_path {p}/b; fastcgi_temp_path {p}/c; \
         uwsgi_temp_path {p}/d; scgi_temp_path {p}/e; \
         server {{ listen 127.0.0.1:{port}; root {root}; location /files/ {{ max_ranges 0; }} }} }}",
        p = prefix.display(),
        root = scratch().join("static").display(),
    );
    fs::write(prefix.join("nginx.conf"), config).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(&prefix).arg("-c").arg(prefix.join("nginx.conf")).stderr(Stdio::null());
    let _running = Running(nginx.spawn().unwrap());
    await_port(port);
    runs_from(&format!("http://127.0.0.1:{port}/ranges"));
    // Here nginx ignores ranges.
    runs_from(&format!("http://127.0.0.1:{port}/files"));
}

#[test]
fn a_directory_is_a_source() {
    cut("directory", &[]);
    runs_from(scratch().join("static/directory").to_str().unwrap());
}

fn nix_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}
