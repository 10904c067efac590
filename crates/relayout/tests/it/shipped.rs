//! Programs as they are shipped behave the same with every function cloned, last one first; the ones that are not installed are named.
//! More programs (ruff, uv, cmake from the package index) with `PAGEIN_SHIPPED=/path/a:/path/b`.

use std::path::Path;

use crate::support::{clone_to, everything, same};

/// Whether two runs of the original agree: if not, nothing can be compared.
fn check(program: &str, jobs: &[&[&str]]) {
    let Ok(file) = std::fs::canonicalize(program) else {
        eprintln!("{program} is not installed: nothing is shown about it");
        return;
    };
    let bytes = std::fs::read(&file).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("program");
    let report = clone_to(&bytes, &everything(&bytes), &new);
    let refused: usize = report.refused.values().sum();
    assert!(refused * 20 < report.cloned, "{program}: {report:?}");
    for args in jobs {
        same(&file, &new, args);
    }
}

#[test]
fn bash() {
    let script = "x=(1 2 3); echo ${x[@]/2/b}; trap 'echo trap' USR1; kill -USR1 $$; (exit 4); echo $?; \
        f() { local a=$1; echo $a; }; f 3; cat <<< here; [[ abc =~ b ]] && printf '%05.2f\\n' 3.14; \
        for i in {1..500}; do a[i]=$(echo $i); done; echo ${#a[@]}; ls /nosuch; exit 7";
    check("/bin/bash", &[&["-c", script], &["-c", "if then"], &["/nosuch"]]);
}

#[test]
fn git() {
    check(
        "/usr/bin/git",
        &[
            &["--version"],
            &["help", "-a"],
            &["nosuch"],
            &["-C", "/", "status"],
            &["hash-object", "/etc/passwd"],
        ],
    );
}

#[test]
fn sqlite() {
    let sql = "create table t(a,b); insert into t values(1,'x'),(2,'y'); select *,sum(a) over () from t; \
        with recursive c(x) as (select 1 union all select x+1 from c where x<1000) select sum(x) from c; select json('{bad')";
    check(
        "/usr/bin/sqlite3",
        &[&[":memory:", sql], &[":memory:", "selec"], &["/nosuch/dir/file", ".tables"]],
    );
}

#[test]
fn gdb() {
    let run = ["-batch", "-nx", "-ex", "break main", "-ex", "info line", "-ex", "p nosuch", "/bin/true"];
    check("/usr/bin/gdb", &[&["-batch", "-nx", "-ex", "p 1+2", "-ex", "python raise ValueError(1)"], &run]);
}

#[test]
fn python() {
    let script = "import json,re,signal,threading,ctypes,decimal\n\
        print(json.dumps({'a':[1,2.5,None]}), re.sub('a+','b','caat'), decimal.Decimal(1)/3)\n\
        ts=[threading.Thread(target=lambda:sum(range(10000))) for _ in range(4)]\n\
        [t.start() for t in ts];[t.join() for t in ts]\n\
        signal.signal(signal.SIGALRM,lambda *a:print('alarm')); signal.raise_signal(signal.SIGALRM)\n\
        I=ctypes.POINTER(ctypes.c_int); f=ctypes.CFUNCTYPE(ctypes.c_int,I,I)(lambda a,b:a[0]-b[0])\n\
        a=(ctypes.c_int*3)(3,1,2); ctypes.CDLL(None).qsort(a,3,4,f); print(list(a))\n\
        def r(n): return r(n+1)\n\
        try: r(0)\n\
        except RecursionError: print('deep')\n\
        1/0";
    check("/usr/bin/python3.11", &[&["-c", script], &["-c", "def f("], &["-m", "nosuch"]]);
}

#[test]
fn perl() {
    let script = "my %h=map{$_=>1}1..100; print join(',',sort keys %h); $_='abc'; s/b/sprintf('%d',5)/e; print; \
        $SIG{ALRM}=sub{print 'x'}; kill ALRM=>$$; eval {die 'q'}; print $@; die 'z'";
    check("/usr/bin/perl", &[&["-e", script], &["-e", "}"]]);
}

#[test]
fn python_passes_its_own_tests() {
    let python = Path::new("/usr/bin/python3.11");
    if !Path::new("/usr/lib/python3.11/test/test_generators.py").exists() {
        eprintln!("python's test package is not installed: nothing is shown about it");
        return;
    }
    let bytes = std::fs::read(python).unwrap();
    // Where python finds its library: beside the directory that it lies in.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::os::unix::fs::symlink("/usr/lib", dir.path().join("lib")).unwrap();
    let new = dir.path().join("bin/python3.11");
    clone_to(&bytes, &everything(&bytes), &new);
    let suites = ["test_generators", "test_exceptions", "test_descr", "test_struct", "test_functools"];
    let mut command = std::process::Command::new(&new);
    let run = command.args(["-m", "test"]).args(suites).current_dir(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && text.contains("All 5 tests OK"), "{text}");
}

#[test]
fn node() {
    let script = "const e = require('events'); try { JSON.parse('{') } catch (x) { console.log(x.message) } \
        console.log([3, 1, 2].sort().map((x) => x ** 2), /a(b+)/.exec('abb')[1], typeof e); \
        let s = 0; for (let i = 0; i < 1e6; i++) s += i % 7; console.log(s); process.on('exit', (c) => console.log(c)); \
        Promise.reject(new Error('late')).catch((x) => { console.error(x.message); process.exitCode = 4 })";
    check("/usr/bin/node", &[&["-e", script], &["-e", "throw 1"], &["--nosuch"]]);
}

#[test]
fn redis() {
    // Its other messages begin with process number and time.
    check("/usr/bin/redis-server", &[&["--version"], &["--help"], &["--port", "x"], &["--nosuch"]]);
}

#[test]
fn more() {
    for program in std::env::var("PAGEIN_SHIPPED").unwrap_or_default().split(':').filter(|p| !p.is_empty()) {
        assert!(Path::new(program).exists(), "{program}");
        check(program, &[&["--version"], &["--help"], &["--no-such-option"]]);
    }
}
