//! Real programs under every policy: what they print and how they end is what a local run prints and how it ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagein_testkit::{have, skip};
use pagein_tests::real::{compile, image, pagein_run, same_as_local, scratch, succeed};

/// The program behind a name, if it is here and is no script.
fn elf(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates =
        std::env::split_paths(&path).map(|dir| dir.join(name)).chain([PathBuf::from("/usr/bin").join(name)]);
    let found = candidates
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .find(|path| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")));
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

fn nothing(_: &mut Command) {}

#[test]
fn git() {
    let Some(git) = elf("git") else { return };
    let url = image(&git, &["--version"]);
    let repository = scratch().join("repository");
    let init = |command: &mut Command| {
        command.current_dir(scratch()).env("HOME", scratch()).env("GIT_CONFIG_NOSYSTEM", "1");
    };
    succeed(Command::new(&git).args(["init", "-q"]).arg(&repository));
    std::fs::write(repository.join("file"), "text\n").unwrap();
    same_as_local(&git, &url, &["--version"], init);
    let inside = |command: &mut Command| {
        init(command);
        command.current_dir(&repository);
    };
    same_as_local(&git, &url, &["status", "--porcelain", "--branch"], inside);
    same_as_local(&git, &url, &["hash-object", "file"], inside);
    assert_eq!(
        same_as_local(&git, &url, &["log"], inside).code(),
        128,
        "a branch without commits is an error"
    );
    assert_eq!(same_as_local(&git, &url, &["no-such-command"], inside).code(), 1);
}

#[test]
fn bash_forks() {
    let bash = PathBuf::from("/bin/bash");
    let url = image(&bash, &["-c", "true"]);
    let script = "for i in 1 2 3 4 5; do (x=$((i*i)); echo $x; exit $i) | cat; done; echo ${PIPESTATUS[0]}; \
                  cat <(echo substitution); wait; trap 'echo trapped' EXIT; exit 42";
    assert_eq!(same_as_local(&bash, &url, &["-c", script], nothing).code(), 42);
    assert_eq!(same_as_local(&bash, &url, &["-c", "kill -TERM $$"], nothing).code(), 143);
    assert_eq!(same_as_local(&bash, &url, &["-c", "exec ls /"], nothing).code(), 0);
    assert_eq!(
        same_as_local(&bash, &url, &["-c", "yes | head -1; echo ${PIPESTATUS[*]}"], nothing).code(),
        0
    );
}

#[test]
fn python() {
    let Some(python) = elf("python3.11").or_else(|| elf("python3")) else { return };
    let url = image(&python, &["-c", "print(1)"]);
    same_as_local(&python, &url, &["-c", "print(1)"], nothing);
    same_as_local(
        &python,
        &url,
        &["-c", "import json, re, decimal; print(json.dumps({'a': [1, 2.5, None]}))"],
        nothing,
    );
    assert_eq!(same_as_local(&python, &url, &["-c", "raise SystemExit(9)"], nothing).code(), 9);
    assert_eq!(same_as_local(&python, &url, &["-c", "1/0"], nothing).code(), 1);
    let threads = "import threading, multiprocessing as m\n\
                   t = [threading.Thread(target=lambda: sum(range(1000))) for _ in range(8)]\n\
                   [x.start() for x in t]; [x.join() for x in t]\n\
                   print(m.get_context('fork').Pool(2).map(abs, [-1, -2, 3]))";
    same_as_local(&python, &url, &["-c", threads], nothing);
}

#[test]
fn gdb() {
    let Some(gdb) = elf("gdb") else { return };
    let url = image(&gdb, &["--batch", "-ex", "print 1"]);
    same_as_local(&gdb, &url, &["--version"], nothing);
    same_as_local(
        &gdb,
        &url,
        &["--batch", "-ex", "print 6*7", "-ex", "info line main", "/bin/true"],
        nothing,
    );
    let threads = compile("threads.c", &["-pthread"]);
    let jobs =
        ["--batch", "-ex", "break work", "-ex", "run", "-ex", "print sizeof(big)", threads.to_str().unwrap()];
    let local = same_as_local(&gdb, &url, &["--batch", "-ex", "print sizeof(big)", jobs[7]], nothing);
    assert!(local.stdout().contains("1048576"), "{}", local.stdout());
}

#[test]
fn node() {
    let Some(node) = elf("node") else { return };
    let url = image(&node, &["-e", "console.log(1)"]);
    same_as_local(&node, &url, &["-e", "console.log(1)"], nothing);
    let work = "const c = require('crypto'), z = require('zlib');\
                console.log(c.createHash('sha256').update(z.gzipSync('x'.repeat(1000)).slice(10)).digest('hex'));\
                setTimeout(() => process.exit(5), 10)";
    assert_eq!(same_as_local(&node, &url, &["-e", work], nothing).code(), 5);
    assert_eq!(same_as_local(&node, &url, &["-e", "throw new Error('x')"], nothing).code(), 1);
    assert_eq!(
        same_as_local(&node, &url, &["-e", "process.kill(process.pid, 'SIGKILL')"], nothing).code(),
        137
    );
    let worker = "const { Worker } = require('worker_threads');\
                  new Worker('require(\"worker_threads\").parentPort.postMessage(2+2)', { eval: true })\
                  .on('message', (m) => console.log(m))";
    same_as_local(&node, &url, &["-e", worker], nothing);
    // Starts itself again by the name under which it runs.
    let again = "console.log(require('child_process').execFileSync(process.execPath, ['-p', '40+2'], {encoding: 'utf8'}))";
    let local = same_as_local(&node, &url, &["-e", again], nothing);
    assert_eq!(local.stdout().trim(), "42");
}

#[test]
fn go_is_static() {
    let Some(go) = elf("go") else { return };
    let root =
        pagein_testkit::run(Command::new(&go).args(["env", "GOROOT"]), pagein_tests::real::DEADLINE).stdout();
    let cache = scratch().join("go-cache");
    let prepare = |command: &mut Command| {
        command
            .env("GOROOT", root.trim())
            .env("GOCACHE", &cache)
            .env("GOFLAGS", "-mod=mod")
            .current_dir(scratch());
    };
    let url = image(&go, &["version"]);
    same_as_local(&go, &url, &["version"], prepare);
    same_as_local(&go, &url, &["env", "GOVERSION", "GOOS", "GOROOT"], prepare);
    assert_eq!(same_as_local(&go, &url, &["no-such-command"], prepare).code(), 2);
}

#[test]
fn threads_in_position_independent_fixed_and_static_programs() {
    for flags in
        [&["-pthread"][..], &["-pthread", "-no-pie"], &["-pthread", "-static"], &["-pthread", "-static-pie"]]
    {
        let program = compile("threads.c", flags);
        let local = same_as_local(&program, &image(&program, &[]), &[], nothing);
        assert_eq!((local.stdout().trim(), local.code()), ("897", 3), "{flags:?}");
    }
}

#[test]
fn children_of_fork_and_vfork() {
    for flags in [&[][..], &["-static"]] {
        let program = compile("fork.c", flags);
        // Cut with a trace that touches little: `--help` is no option of it, so the trace is of the job itself; and
        // without any trace, so that every page is missing in some child.
        same_as_local(&program, &image(&program, &[]), &[], nothing);
        let untraced = scratch().join("images/fork-untraced");
        let mut split = Command::new(pagein_tests::real::pagein());
        split.arg("split").arg(&program).args(["--level", "1", "--group-pages", "1", "-o"]).arg(&untraced);
        succeed(&mut split);
        same_as_local(&program, untraced.to_str().unwrap(), &[], nothing);
    }
}

#[test]
fn exceptions() {
    if !have(&["c++"]) {
        return;
    }
    let program = compile("exceptions.cpp", &[]);
    let url = image(&program, &[]);
    let local = same_as_local(&program, &url, &[], nothing);
    assert!(local.stdout().contains("caught n is 3\n"), "{}", local.stdout());
    assert_eq!(same_as_local(&program, &url, &["uncaught"], nothing).code(), 134);
}

#[test]
fn dlopen() {
    let program = compile("dlopen.c", &["-ldl"]);
    same_as_local(&program, &image(&program, &[]), &[], nothing);
}

/// Part of python's own test suite, whose tests start the interpreter again in many ways.
#[test]
fn pythons_own_tests() {
    let Some(python) = elf("python3.11") else { return };
    let probe =
        Command::new(&python).args(["-c", "import test.test_json, test.test_subprocess"]).output().unwrap();
    if !probe.status.success() {
        return skip("python's test package is not installed (Debian: libpython3.11-testsuite)");
    }
    let url = image(&python, &["-c", "print(1)"]);
    let directory = scratch().join("python-tests");
    std::fs::create_dir_all(&directory).unwrap();
    let mut command = pagein_run("streamed", &url);
    command.args(["-m", "test", "-q", "test_json", "test_re", "test_subprocess"]);
    // python finds itself (sys.executable) in PATH by the name that it is called by.
    command.env("PATH", python.parent().unwrap());
    command.current_dir(&directory);
    let finished = pagein_testkit::run(&mut command, std::time::Duration::from_secs(400));
    assert_eq!(finished.code(), 0, "{}\n{}", finished.stdout(), finished.stderr());
    assert!(finished.stdout().contains("SUCCESS"), "{}", finished.stdout());
}

/// A path relative to the working directory, an argv\[0\] of one's own, and a name that is not the file's.
#[test]
fn names() {
    let bash = Path::new("/bin/bash");
    let url = image(bash, &["-c", "true"]);
    let mut command = pagein_run("streamed", &url);
    let name = pagein_testkit::run(command.args(["-c", "echo $0"]), pagein_tests::real::DEADLINE);
    assert_eq!(name.stdout(), "bash\n");
    // Some programs do what their name says, and are there as links (Debian's redis-server).
    let link = scratch().join("another-name");
    std::os::unix::fs::symlink(bash, &link).unwrap();
    let mut command = pagein_run("streamed", &image(&link, &["-c", "true"]));
    let name = pagein_testkit::run(command.args(["-c", "echo $0"]), pagein_tests::real::DEADLINE);
    assert_eq!(name.stdout(), "another-name\n");
}
