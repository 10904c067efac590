//! Page-in linking: what a program finds in its relocated words is what the dynamic linker would have put there, in every
//! process and thread, however and whenever its pages come.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use pagein_testkit::{Finished, have, run, skip};
use pagein_tests::broken::{Bench, Live, copy_image};
use pagein_tests::image::trace;
use pagein_tests::real::{
    DEADLINE, POLICIES, compile, image, pagein, pagein_run, same_as_local, scratch, succeed,
};
use serde_json::Value;

fn nothing(_: &mut Command) {}

/// Runs an image with options of `run` before it; returns also the stats.
fn run_with_stats(options: &[&str], source: &str, args: &[&str]) -> (Finished, Value) {
    let stats = tempfile::NamedTempFile::new().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(pagein());
    command.arg("run").args(options).arg("--stats").arg(stats.path()).arg("--cache").arg(cache.path());
    let finished = run(command.arg(source).arg("--").args(args), DEADLINE);
    let text = std::fs::read(stats.path()).unwrap();
    (finished, serde_json::from_slice(&text).unwrap_or_default())
}

/// Cuts `program` with a trace of these pages.
fn cut(program: &Path, name: &str, pages: &[u32], options: &[&str]) -> PathBuf {
    let image = scratch().join("images").join(name);
    let path = scratch().join(format!("{name}.trace"));
    std::fs::write(&path, trace(program, pages)).unwrap();
    let mut split = Command::new(pagein());
    split.arg("split").arg(program).arg("--trace").arg(path).args(["--level", "1", "-o"]).arg(&image);
    succeed(split.args(options));
    image
}

fn inspect(image: &str) -> Value {
    let shown = succeed(Command::new(pagein()).args(["inspect", "--json", image]));
    serde_json::from_slice(&shown.stdout).unwrap()
}

/// The fixture, if there is a C++ compiler.
fn tables(flags: &[&str]) -> Option<PathBuf> {
    have(&["c++"]).then(|| compile("linked.cpp", &[&["-pthread"], flags].concat()))
}

fn page_count(program: &Path) -> u32 {
    std::fs::metadata(program).unwrap().len().div_ceil(4096) as u32
}

#[test]
fn forked_children_and_threads_see_right_pointers() {
    for flags in [&[][..], &["-static-pie"], &["-Wl,-z,now"], &["-Wl,-z,lazy,-z,norelro"]] {
        let Some(program) = tables(flags) else { return };
        // Nearly all of it is cold, and comes on demand.
        let url = image(&program, &["little"]);
        assert_eq!(inspect(&url)["page_in_linking"]["on"], true, "{flags:?}");
        assert_eq!(same_as_local(&program, &url, &[], nothing).code(), 7, "{flags:?}");
    }
}

#[test]
fn packed_relocation_tables() {
    let flags = ["-Wl,-z,pack-relative-relocs"];
    if !have(&["c++", "readelf"]) {
        return;
    }
    let known = run(Command::new("ld").arg("--help"), DEADLINE).stdout().contains("pack-relative-relocs");
    if !known {
        return skip("this linker has no -z pack-relative-relocs");
    }
    let Some(program) = tables(&flags) else { return };
    let dynamic = succeed(Command::new("readelf").arg("-dW").arg(&program)).stdout();
    assert!(dynamic.contains("(RELRSZ)"), "{dynamic}");
    let url = image(&program, &["little"]);
    assert!(inspect(&url)["page_in_linking"]["relocations"].as_u64().unwrap() > 40_000);
    assert_eq!(same_as_local(&program, &url, &[], nothing).code(), 7);
}

/// With every page there before the program starts, no pager is needed any more: it must leave the right words behind.
#[test]
fn a_program_that_is_complete_goes_on_without_its_pager() {
    let Some(program) = tables(&[]) else { return };
    let pages: Vec<u32> = (0..page_count(&program)).collect();
    let complete = cut(&program, "linked-complete", &pages, &[]);
    for policy in ["reordered", "streamed"] {
        let (finished, stats) = run_with_stats(&["--policy", policy], complete.to_str().unwrap(), &[]);
        assert_eq!(finished.code(), 7, "{policy}: {finished:?}");
        assert_eq!(stats["pages_installed"], stats["pages_total"], "{stats}");
        assert!(stats["linked_pages"].as_u64().unwrap() >= 80, "{stats}");
    }
}

#[test]
fn it_can_be_turned_off_when_cut_and_when_run() {
    let Some(program) = tables(&[]) else { return };
    let linked = cut(&program, "linked-on", &[1, 2, 3], &[]);
    let plain = cut(&program, "linked-off", &[1, 2, 3], &["--no-page-in-linking"]);
    for policy in POLICIES {
        for (image, options) in
            [(&linked, &["--no-page-in-linking"][..]), (&plain, &[]), (&plain, &["--no-page-in-linking"])]
        {
            let options = [&["--policy", policy], options].concat();
            let (finished, stats) = run_with_stats(&options, image.to_str().unwrap(), &[]);
            assert_eq!(finished.code(), 7, "{policy} {options:?}: {finished:?}");
            assert_eq!(stats["linked_pages"], 0, "{stats}");
        }
    }
    let shown = inspect(plain.to_str().unwrap());
    assert_eq!(shown["page_in_linking"]["on"], false);
    assert!(shown["page_in_linking"]["reason"].as_str().unwrap().contains("turned off"), "{shown}");
}

/// What has no relative relocations, and what is at fixed addresses, is cut as it is, and `split` says so.
#[test]
fn where_it_cannot_be_done_it_is_off_by_itself() {
    let program = compile("threads.c", &["-pthread", "-no-pie"]);
    let image = scratch().join("images/linked-fixed");
    let cut =
        succeed(Command::new(pagein()).arg("split").arg(&program).args(["--level", "1", "-o"]).arg(&image));
    assert!(
        cut.stdout().contains("page-in linking: off: the program is loaded at fixed addresses"),
        "{cut:?}"
    );
}

/// Fewer pages are touched, and none of the pages that a linked run touches is missing in a trace made by one.
#[test]
fn a_trace_has_what_a_linked_run_touches() {
    let Some(program) = tables(&[]) else { return };
    let record = |name: &str, options: &[&str]| {
        let path = scratch().join(name);
        let mut command = Command::new(pagein());
        command.arg("record").args(options).arg("-o").arg(&path).arg("--").arg(&program).arg("little");
        succeed(&mut command);
        path
    };
    let linked = record("with-linking.trace", &[]);
    let plain = record("without-linking.trace", &["--no-page-in-linking"]);
    let count = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    // 80 pages of pointers, and 320 of the table that says so.
    assert!(count(&plain) - count(&linked) > 300, "{} and {}", count(&plain), count(&linked));
    let image = scratch().join("images/linked-little");
    let mut split = Command::new(pagein());
    succeed(
        split.arg("split").arg(&program).args(["--level", "1", "--trace"]).arg(&linked).arg("-o").arg(&image),
    );
    let image = image.to_str().unwrap();
    let (finished, stats) = run_with_stats(&["--policy", "streamed"], image, &["little"]);
    assert_eq!(finished.stdout(), "little\n");
    assert_eq!(stats["demand_faults"], 0, "{stats}");
    // The same trace serves a run without linking, by demand.
    let (finished, stats) =
        run_with_stats(&["--policy", "streamed", "--no-page-in-linking"], image, &["little"]);
    assert_eq!(finished.stdout(), "little\n");
    assert!(stats["demand_faults"].as_u64().unwrap() > 0, "{stats}");
}

/// A Rust program, which has more vtables than anything else: this command itself.
#[test]
fn rust() {
    let program = pagein();
    let url = image(program, &["--version"]);
    assert_eq!(inspect(&url)["page_in_linking"]["on"], true);
    same_as_local(program, &url, &["run", "--help"], nothing);
    same_as_local(program, &url, &["inspect", "--json", &url], nothing);
    assert_eq!(same_as_local(program, &url, &["inspect", "/nowhere"], nothing).code(), 127);
}

/// Other linkers than the system's own leave zeros where that leaves addends, or sort their tables otherwise.
#[test]
fn programs_of_other_linkers() {
    for linker in ["gold", "lld", "mold"] {
        if !have(&[&format!("ld.{linker}")]) {
            skip(&format!("ld.{linker} is not installed"));
            continue;
        }
        let Some(program) = tables(&[&format!("-fuse-ld={linker}")]) else { return };
        let url = image(&program, &["little"]);
        assert!(inspect(&url)["page_in_linking"]["relocations"].as_u64().unwrap() > 40_000, "{linker}");
        assert_eq!(same_as_local(&program, &url, &[], nothing).code(), 7, "{linker}");
    }
}

/// A Go program relocates nothing itself, and has its own idea of how memory is laid out.
#[test]
fn position_independent_go() {
    if !have(&["go"]) {
        return skip("go is not installed");
    }
    let source = scratch().join("hello.go");
    let text = "package main\nimport \"fmt\"\nvar p = map[string]fmt.Stringer{}\nfunc main() { fmt.Println(\"go\", p) }\n";
    std::fs::write(&source, text).unwrap();
    let program = scratch().join("hello-go");
    let mut build = Command::new("go");
    build.args(["build", "-buildmode=pie", "-o"]).arg(&program).arg(&source);
    build.env("GOCACHE", scratch().join("go-cache")).env("GOFLAGS", "-mod=mod").env("CGO_ENABLED", "0");
    succeed(&mut build);
    let url = image(&program, &[]);
    assert_eq!(inspect(&url)["page_in_linking"]["on"], true);
    assert_eq!(same_as_local(&program, &url, &[], nothing).stdout(), "go map[]\n");
}

/// The tables in a process that waits, with nearly all of their pages missing, under `paged` from a copy of the image.
fn waiting(bench: &Bench) -> Option<(Live, PathBuf)> {
    let program = tables(&[])?;
    let copy = bench.path("image");
    copy_image(
        &cut(&program, &format!("waiting-{}", bench.path("").display()).replace('/', "-"), &[1, 2, 3], &[]),
        &copy,
    );
    let mut live =
        Live::start(&mut bench.pagein(["run", "--policy=paged", copy.to_str().unwrap(), "--", "wait"]));
    assert_eq!(live.hear(), "ready");
    Some((live, copy))
}

#[test]
fn pages_that_come_late_are_right() {
    let bench = Bench::new();
    let Some((mut live, _)) = waiting(&bench) else { return };
    assert_eq!(live.ask("go on"), "right");
    assert_eq!(live.end(DEADLINE).code, 0);
}

/// A missing linked page is no page of zeros, whatever dies.
#[test]
fn lost_linked_pages_are_not_zeros() {
    let bench = Bench::new();
    let Some((live, _)) = waiting(&bench) else { return };
    kill(bench.process("pagein"), Signal::SIGKILL).unwrap();
    let ended = live.end(DEADLINE);
    assert_eq!((ended.code, ended.lines, ended.stderr.lines().count()), (135, vec![], 1), "{}", ended.stderr);

    let bench = Bench::new();
    let Some((mut live, copy)) = waiting(&bench) else { return };
    std::fs::remove_dir_all(copy).unwrap();
    live.say("go on");
    let ended = live.end(DEADLINE);
    assert_eq!((ended.code, ended.lines), (135, vec![]), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot be had"), "{}", ended.stderr);
}

/// gdb reads data that the program has not touched yet: it sees what the program would.
#[test]
fn gdb_sees_relocated_data() {
    if !have(&["gdb"]) {
        return skip("gdb is not installed");
    }
    let Some(program) = tables(&[]) else { return };
    let mut live = Live::start(pagein_run("streamed", &image(&program, &["little"])).arg("wait"));
    assert_eq!(live.hear(), "ready");
    let pid = live.pid().to_string();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch"]).arg(&program).args(["-p", &pid, "-ex", "set language c++"]);
    for (table, index) in [("fixed", 20479), ("changing", 77)] {
        let value = index * 7 % 20480;
        gdb.args(["-ex", &format!("print {table}._M_elems[{index}] == &values[{value}]")]);
    }
    let answer = run(gdb.args(["-ex", "bt"]), DEADLINE);
    assert_eq!(live.ask("go on"), "right");
    assert_eq!(live.end(DEADLINE).code, 0);
    assert_eq!(answer.stdout().matches("= true").count(), 2, "{answer:?}");
    assert!(answer.stdout().contains("main ("), "{answer:?}");
}
