//! Profiles on real programs: matched to rebuilt ones, stripped or not; Go; ordering files that linkers take.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagein_profile::linker::Linker;
use pagein_profile::order::{FirstTouch, Graph, Order};
use pagein_profile::{Matched, Profile, Program, Touch, import};
use pagein_relayout::{Bounds, Options, Untreatable, relayout};

const SOURCE: &str = "
#include <stdio.h>
static int counter;
EXTRA
__attribute__((noipa)) int alpha(int x) { counter += x; return x * 3 + 1; }
__attribute__((noipa)) int beta(int x) { return x > 3 ? alpha(x) : x; }
__attribute__((noipa)) int gamma_(int x) { for (int i = 0; i < x; i++) counter ^= beta(i); return counter; }
__attribute__((noipa)) int delta(int x) { printf(\"%d\\n\", x); return x * 7 + DELTA; }
int main(int argc, char **argv) { return delta(gamma_(argc)) + counter; }
";

fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    let (c, out) = (dir.join("a.c"), dir.join(name));
    std::fs::write(&c, source).unwrap();
    let status =
        Command::new("gcc").args(["-O1", "-w"]).args(flags).arg("-o").arg(&out).arg(&c).status().unwrap();
    assert!(status.success());
    std::fs::read(out).unwrap()
}

fn build(extra: &str, delta: u32, flags: &[&str]) -> Program {
    let dir = tempfile::tempdir().unwrap();
    let source = SOURCE.replace("EXTRA", extra).replace("DELTA", &delta.to_string());
    Program::read(&compile(dir.path(), "out", &source, flags)).unwrap()
}

/// A profile of a run that touched main, gamma, beta, alpha, delta.
fn profile(program: &Program) -> Profile {
    let start = |name: &str| {
        program.functions.as_slice().iter().find(|f| f.name.as_deref() == Some(name)).unwrap().start
    };
    let names = ["main", "gamma_", "beta", "alpha", "delta"];
    let callers = [0, start("main") + 9, start("gamma_") + 9, start("beta") + 9, start("main") + 20];
    let touches = names.iter().zip(callers).map(|(name, caller)| Touch { address: start(name), caller });
    Profile::from_touches("out", program, touches)
}

fn matched_names(matched: &Matched, program: &Program) -> Vec<String> {
    matched
        .functions
        .iter()
        .map(|n| program.functions.as_slice()[*n].name.clone().unwrap_or_default())
        .collect()
}

const EXTRA: &str = "__attribute__((noipa)) int before(int x) { return x * 12345 + counter; }";

#[test]
fn touches_become_functions_and_calls() {
    let program = build("", 1, &[]);
    let profile = profile(&program);
    let names: Vec<_> = profile.functions.iter().filter_map(|f| f.name.as_deref()).collect();
    assert_eq!(names, ["main", "gamma_", "beta", "alpha", "delta"]);
    let calls: Vec<_> = profile.calls.iter().map(|c| (c.caller, c.callee)).collect();
    assert_eq!(calls, [(0, 1), (0, 4), (1, 2), (2, 3)]);
    assert_eq!(Profile::parse(&profile.to_string()).unwrap(), profile);
}

#[test]
fn the_same_file_is_matched_by_address_and_a_rebuilt_one_by_name() {
    let old = build("", 1, &["-Wl,--build-id"]);
    let profile = profile(&old);
    assert!(profile.build_id.is_some());
    let same = Matched::new(&profile, &old);
    assert_eq!((same.by_address, same.dropped, same.calls.len()), (5, 0, 4));
    let new = build(EXTRA, 2, &["-Wl,--build-id"]);
    let rebuilt = Matched::new(&profile, &new);
    assert_eq!(rebuilt.functions.len(), 5);
    assert_eq!(matched_names(&rebuilt, &new), ["main", "gamma_", "beta", "alpha", "delta"]);
    assert_eq!(rebuilt.warning(), None);
}

#[test]
fn a_stripped_rebuilt_program_is_matched_by_code() {
    let old = build("", 1, &[]);
    let profile = profile(&old);
    let dir = tempfile::tempdir().unwrap();
    let source = SOURCE.replace("EXTRA", EXTRA).replace("DELTA", "2");
    let named = Program::read(&compile(dir.path(), "named", &source, &[])).unwrap();
    let stripped = Program::read(&compile(dir.path(), "stripped", &source, &["-s"])).unwrap();
    let matched = Matched::new(&profile, &stripped);
    let found: Vec<_> = matched
        .functions
        .iter()
        .map(|n| named.functions.find(stripped.functions.as_slice()[*n].start))
        .map(|n| named.functions.as_slice()[n.unwrap()].name.clone().unwrap())
        .collect();
    assert_eq!(found, ["main", "gamma_", "beta", "alpha"], "delta has another constant in it now");
    assert_eq!((matched.by_hash, matched.dropped), (4, 1));
}

#[test]
fn a_stale_profile_is_warned_about() {
    let profile = profile(&build("", 1, &[]));
    let other = build("", 1, &["-s", "-O0"]);
    let matched = Matched::new(&profile, &other);
    assert!(matched.share() < 0.5, "{matched:?}");
    assert!(matched.warning().unwrap().contains("stale"));
}

#[test]
fn an_order_reaches_the_clones() {
    let dir = tempfile::tempdir().unwrap();
    let source = SOURCE.replace("EXTRA", "").replace("DELTA", "1");
    let bytes = compile(dir.path(), "out", &source, &[]);
    let program = Program::read(&bytes).unwrap();
    let profile = profile(&program);
    let matched = Matched::new(&profile, &program);
    let graph = Graph::of_matched(&matched, &program);
    let order = matched.addresses(&profile, &program, &FirstTouch.arrange(&graph));
    let options = Options { even_without_gain: true, ..Options::default() };
    let (new, report) = relayout(&bytes, &order, &options).unwrap();
    assert_eq!(report.cloned, 5);
    let new = Program::read(&new).unwrap();
    let clones: Vec<_> = new
        .functions
        .as_slice()
        .iter()
        .filter(|f| f.start >= report.clones_start)
        .filter_map(|f| f.name.as_deref())
        .collect();
    assert_eq!(clones, ["main", "gamma_", "beta", "alpha", "delta"]);
}

#[test]
fn go_programs_have_bounds_but_no_clones() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.go"), "package main\nimport \"fmt\"\nfunc main() { fmt.Println(1) }\n")
        .unwrap();
    let mut command = Command::new("go");
    command.args(["build", "-ldflags=-s -w", "-o", "a", "a.go"]).current_dir(dir.path());
    command.env("GO111MODULE", "off");
    if !command.status().is_ok_and(|s| s.success()) {
        eprintln!("go is not installed: nothing is shown about it");
        return;
    }
    let bytes = std::fs::read(dir.path().join("a")).unwrap();
    let program = Program::read(&bytes).unwrap();
    assert_eq!(program.functions.bounds(), Bounds::GoPclntab);
    assert!(program.functions.as_slice().iter().any(|f| f.name.as_deref() == Some("main.main")));
    assert_eq!(relayout(&bytes, &[], &Options::default()).unwrap_err(), Untreatable::Go);
}

#[test]
fn linkers_take_the_ordering_files() {
    let profile = profile(&build("", 1, &[]));
    let graph = Graph::of_profile(&profile);
    let dir = tempfile::tempdir().unwrap();
    // The reverse of what the compiler would do.
    let order = [4, 3, 2, 1, 0];
    let mut tried = 0;
    for (name, linker) in Linker::ALL {
        let installed = Command::new(format!("ld.{name}")).arg("--version").output();
        if installed.is_err() {
            eprintln!("ld.{name} is not installed: nothing is shown about it");
            continue;
        }
        tried += 1;
        let file: PathBuf = dir.path().join(name);
        std::fs::write(&file, linker.file(&graph, &order).0).unwrap();
        let flags = linker.flags(file.to_str().unwrap());
        let source = SOURCE.replace("EXTRA", "").replace("DELTA", "1");
        let flags: Vec<&str> = flags.split(' ').collect();
        let program = Program::read(&compile(dir.path(), "out", &source, &flags)).unwrap();
        let wanted = ["delta", "alpha", "beta", "gamma_"];
        let found: Vec<_> = program
            .functions
            .as_slice()
            .iter()
            .filter_map(|f| f.name.as_deref())
            .filter(|n| wanted.contains(n))
            .collect();
        assert_eq!(found, wanted, "{name}");
    }
    assert!(tried > 0, "some linker is installed, or nothing could be compiled");
}

#[test]
fn perf_samples_and_symbol_lists_are_read() {
    let program = build("", 1, &[]);
    let text = "            5555 gamma_+0x4 (/x/out) gamma_+0x9/beta+0x0/P/-/-/3 beta+0x2/alpha+0x0/P/-/-/1\n\
                            5555 alpha+0x1 (/x/out)\n            7f00 memcpy+0x2 (/lib/libc.so.6)\n";
    let perf = import::perf_script("out", &program, text).unwrap();
    let names: Vec<_> = perf.functions.iter().filter_map(|f| f.name.as_deref()).collect();
    assert_eq!(names, ["gamma_", "beta", "alpha"]);
    assert_eq!(perf.calls.iter().map(|c| (c.caller, c.callee)).collect::<Vec<_>>(), [(0, 1), (1, 2)]);
    assert!(import::perf_script("out", &program, "hello (there)\n").is_err());
    let list = import::symbols("out", &program, "delta\nnothing\nmain\ndelta\n").unwrap();
    let names: Vec<_> = list.functions.iter().filter_map(|f| f.name.as_deref()).collect();
    assert_eq!(names, ["delta", "main"]);
    assert!(import::symbols("out", &program, "x\n").is_err());
}
