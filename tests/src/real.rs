//! Images of real programs, a server for them, and runs that are compared with local ones.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::Duration;

use pagein_testkit::{Finished, run};

pub use crate::binary::pagein_binary as pagein;
use crate::binary::profile_directory;

/// A run that takes longer is a failed assertion.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// All policies.
pub const POLICIES: [&str; 5] = ["original", "paged", "reordered-paged", "reordered", "streamed"];

/// A directory for this test process, removed with it as far as the process gets to it.
pub fn scratch() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let base = profile_directory().join("real");
        // What earlier processes left.
        for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().parse::<u32>().ok();
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let directory = base.join(std::process::id().to_string());
        std::fs::create_dir_all(&directory).expect("target can be written");
        directory
    });
    &DIRECTORY
}

/// Runs a command that must end well.
pub fn succeed(command: &mut Command) -> Finished {
    run(command, DEADLINE).success()
}

/// Compiles a fixture, once for each set of flags: another test may be about to run it.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    static MADE: Mutex<()> = Mutex::new(());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let name = format!("{}{}", source.replace('.', "_"), flags.concat().replace(['/', '='], "_"));
    let out = scratch().join(name);
    let _one_at_a_time = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !out.exists() {
        let compiler = if Path::new(source).extension() == Some("cpp".as_ref()) { "c++" } else { "cc" };
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-o"]).arg(&out).arg(fixtures.join(source)).args(flags);
        succeed(&mut command);
    }
    out
}

/// A served image of `program`, cut with a trace of `job`; made once for each program and job.
pub fn image(program: &Path, job: &[&str]) -> String {
    static MADE: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
    let mut made = MADE.lock().expect("no test panics while it makes an image");
    let made = made.get_or_insert_default();
    let key = format!("{} {job:?}", program.display());
    if let Some(url) = made.get(&key) {
        return url.clone();
    }
    let name = format!("image{}", made.len());
    let trace = scratch().join(format!("{name}.trace"));
    let recorded = run(
        Command::new(pagein()).arg("record").arg("-o").arg(&trace).arg("--").arg(program).args(job),
        DEADLINE,
    );
    assert!(trace.exists(), "no trace of {key}: {}", recorded.stderr());
    let mut split = Command::new(pagein());
    split.arg("split").arg(program).arg("--trace").arg(&trace).args(["--level", "1", "-o"]);
    succeed(split.arg(scratch().join("images").join(&name)));
    let url = format!("{}/{name}", server().url);
    made.insert(key, url.clone());
    url
}

/// The command to run an image with a fresh cache.
pub fn pagein_run(policy: &str, url: &str) -> Command {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut command = Command::new(pagein());
    command.args(["run", "--policy", policy, "--cache"]).arg(scratch().join(format!("cache{number}")));
    command.arg(url).arg("--");
    command
}

/// Asserts that a run under every policy prints and ends as the local one.
pub fn same_as_local(program: &Path, url: &str, job: &[&str], prepare: impl Fn(&mut Command)) -> Finished {
    let start = |mut command: Command| {
        prepare(command.args(job));
        run(&mut command, DEADLINE)
    };
    let local = start(Command::new(program));
    for policy in POLICIES {
        let paged = start(pagein_run(policy, url));
        let what = format!("{} {job:?} under {policy}; stderr: {}", program.display(), paged.stderr());
        assert_eq!(paged.stdout(), local.stdout(), "{what}");
        assert_eq!(paged.code(), local.code(), "{what}");
    }
    local
}

struct Server {
    url: String,
    #[allow(dead_code, reason = "ends with the test process: its standard input closes")]
    child: Child,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let images = scratch().join("images");
        std::fs::create_dir_all(&images).expect("target can be written");
        // A static is never dropped, so the server watches this process: `cat` ends when the pipe to it closes.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "\"$0\" serve --listen 127.0.0.1:0 \"$1\" & server=$!; cat >/dev/null; kill $server",
            ])
            .arg(pagein())
            .arg(images)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("the server speaks");
        let url = line.trim_end().rsplit_once("at ").expect("serving DIR at URL").1.trim_end_matches('/');
        Server { url: url.to_owned(), child }
    })
}
