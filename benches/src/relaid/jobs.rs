//! The programs and their jobs. Every job starts, does one small thing and ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// A program and what it is let do.
#[derive(Debug)]
pub struct Subject {
    /// Name of the file.
    pub name: &'static str,
    /// The jobs that are profiled; the first alone makes a profile of one job.
    pub profiled: [&'static [&'static str]; 3],
    /// The job that is measured.
    pub measured: &'static [&'static str],
    /// A shell command that runs at the same time: it ends servers.
    pub alongside: Option<&'static str>,
}

const REDIS: &[&str] = &["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--dir", "."];
const REDIS_WITH_LOG: &[&str] = &["--port", "0", "--unixsocket", "redis.sock", "--appendonly", "yes"];
const REDIS_AS_CACHE: &[&str] = &[
    "--port",
    "0",
    "--unixsocket",
    "redis.sock",
    "--maxmemory",
    "20mb",
    "--maxmemory-policy",
    "allkeys-lru",
];

/// All of them.
pub const SUBJECTS: [Subject; 13] = [
    Subject {
        name: "git",
        profiled: [&["status"], &["log", "-3"], &["branch", "-a"]],
        measured: &["diff", "--stat", "HEAD~1"],
        alongside: None,
    },
    Subject {
        name: "gdb",
        profiled: [
            &["-batch", "-nx", "-ex", "p 1+2"],
            &["-batch", "-nx", "-ex", "help list"],
            &["-batch", "-nx", "-ex", "info files", "hello"],
        ],
        measured: &["-batch", "-nx", "-ex", "info line main", "-ex", "disassemble main", "hello"],
        alongside: None,
    },
    Subject {
        name: "cmake",
        profiled: [&["-P", "a.cmake"], &["-E", "echo", "x"], &["--help-command", "list"]],
        measured: &["-P", "b.cmake"],
        alongside: None,
    },
    Subject {
        name: "ruff",
        profiled: [
            &["check", "--no-cache", "a.py"],
            &["format", "--no-cache", "--diff", "a.py"],
            &["rule", "E501"],
        ],
        measured: &["check", "--no-cache", "b.py"],
        alongside: None,
    },
    Subject {
        name: "uv",
        profiled: [&["--version"], &["python", "dir"], &["pip", "list", "--offline"]],
        measured: &["cache", "dir"],
        alongside: None,
    },
    Subject {
        name: "biome",
        profiled: [&["check", "a.js"], &["format", "a.js"], &["--version"]],
        measured: &["lint", "b.ts"],
        alongside: None,
    },
    Subject {
        name: "node",
        profiled: [&["-e", "console.log(1)"], &["a.js"], &["-p", "require('path').resolve('x')"]],
        measured: &["b.js"],
        alongside: None,
    },
    Subject {
        name: "python3.11",
        profiled: [&["-c", "1"], &["-m", "json.tool", "a.json"], &["a.py"]],
        measured: &["b.py"],
        alongside: None,
    },
    Subject {
        name: "cargo",
        profiled: [
            &["--version"],
            &["metadata", "--offline", "--no-deps", "--format-version=1"],
            &["tree", "--offline"],
        ],
        measured: &["pkgid", "--offline"],
        alongside: None,
    },
    Subject {
        name: "redis-server",
        profiled: [REDIS, REDIS_WITH_LOG, REDIS_AS_CACHE],
        measured: &["redis.conf"],
        alongside: Some(
            // Seconds, because a profiled server starts slowly.
            "for i in 0 1 2 3 4; do for j in 0 1 2 3 4 5 6 7 8 9; do sleep 0.1; test -S redis.sock && break 2; done; done; \
             test -S redis.sock && redis-cli -s redis.sock set a b && redis-cli -s redis.sock shutdown nosave",
        ),
    },
    Subject {
        name: "sqlite3",
        profiled: [
            &[":memory:", "select 1"],
            &["a.db", ".tables"],
            &[":memory:", "create table t(a); select * from t"],
        ],
        measured: &["a.db", "select a, count(*) from t group by a order by 2 limit 3"],
        alongside: None,
    },
    Subject {
        name: "duckdb",
        profiled: [
            &["-c", "select 1"],
            &["-json", "-c", "select sum(x) from range(1000) t(x)"],
            &["-c", "create table t(a int); describe t"],
        ],
        measured: &["-csv", "-c", "select x % 3 as k, count(*) from range(100) t(x) group by k order by k"],
        alongside: None,
    },
    Subject {
        name: "clang-tidy",
        profiled: [&["--version"], &["-checks=bugprone-*", "a.c", "--"], &["--list-checks"]],
        measured: &["-checks=readability-*", "b.c", "--"],
        alongside: None,
    },
];

/// What the jobs work on: a repository, sources, a database. Made by `sh`, which stops at the first failure.
const FILES: &str = r#"
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
git init -q -b main .
git config user.name n; git config user.email e@example.org
printf 'import os, sys\n\n\ndef f(x: int) -> int:\n    return [x for x in range(10) if x %% 2][0]\n\n\nprint(f(3))\n' > a.py
printf 'from dataclasses import dataclass\nimport json\n\n\n@dataclass\nclass A:\n    x: int = 1\n\n\ntry:\n    print(json.dumps([A().x, 2.5, None]), "%%s" %% "y")\nexcept ValueError as e:\n    raise\nassert not None\n' > b.py
printf '{"a": [1, 2.5, null, "x"]}\n' > a.json
printf 'const a = { b: 1 };\nfunction f(x) { return x == a.b }\nconsole.log(f(1));\n' > a.js
printf "const fs = require('fs'); class A { #x = 1; get x() { return this.#x } }\nconsole.log([...'abc'].map((c) => c + new A().x).join('-'), fs.readdirSync('.').length > 0);\n" > b.js
printf 'export interface A { x: number }\nexport const f = (a: A | null): number => { var y = a!.x; return y == 1 ? 2 : 3 }\n' > b.ts
printf 'set(x 1 2 3)\nlist(LENGTH x n)\nmessage(STATUS "${n}")\n' > a.cmake
printf 'function(f a)\n  string(TOUPPER "${a}" b)\n  message("${b}")\nendfunction()\nforeach(i RANGE 3)\n  f("x${i}")\nendforeach()\nfile(GLOB g *.py)\nif("a1" MATCHES "[a-z]([0-9])")\n  math(EXPR m "${CMAKE_MATCH_1}+1")\nendif()\n' > b.cmake
printf 'int f(int x) { if (x) return 1; return 0; }\nint main(void) { int y = f(2); return y == 1; }\n' > a.c
printf 'struct s { int a; char *b; };\nstatic int g(struct s *p) { switch (p->a) { case 1: return 2; default: break; } return p->b != 0; }\nint main(void) { struct s t = {1, 0}; return g(&t); }\n' > b.c
printf 'port 0\nunixsocket redis.sock\nsave ""\nappendonly no\nmaxmemory 10mb\nloglevel verbose\n' > redis.conf
cc -g -o hello b.c
mkdir -p src; printf 'fn main() {}\n' > src/main.rs
printf '[package]\nname = "hello"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
printf 'version = 4\n\n[[package]]\nname = "hello"\nversion = "0.1.0"\n' > Cargo.lock
for i in 1 2 3 4 5 6; do echo $i >> n; git add a.* b.* n; git commit -qm "c$i"; done
if command -v sqlite3 > /dev/null; then sqlite3 a.db "create table t(a, b); insert into t values (1, 'x'), (2, 'y'), (1, 'z')"; fi
"#;

/// Makes the files.
pub fn make_files(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    let done = Command::new("sh").args(["-c", FILES]).current_dir(directory).status()?;
    if !done.success() {
        bail!("the jobs' files cannot be made in {}", directory.display());
    }
    Ok(())
}

/// A place from which the program in `file` finds everything that it finds from where it is installed: the directory
/// above its own is rebuilt of symbolic links. Returns the program's path there: `name`, which need not be that of the file. (Debian's
/// redis-server is a link to redis-check-rdb, and does what its name says.)
pub fn install(original: &Path, name: &str, file: &Path, root: &Path) -> anyhow::Result<PathBuf> {
    let bin = original.parent().context("a program lies in a directory")?;
    let above = bin.parent().unwrap_or(bin);
    let own = root.join(bin.file_name().unwrap_or("bin".as_ref()));
    fs::create_dir_all(&own)?;
    for (from, to, but) in [(above, root, bin.file_name()), (bin, own.as_path(), Some(name.as_ref()))] {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if Some(entry.file_name().as_os_str()) != but {
                symlink(entry.path(), to.join(entry.file_name()))?;
            }
        }
    }
    let path = own.join(name);
    fs::copy(file, &path)?;
    Ok(path)
}
