//! docs/format.md and docs/trace.md against the code: a reader written from them alone reads what `pagein split` writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pagein_testkit::{Finished, have, run, skip};
use pagein_tests::binary::pagein_binary;
use pagein_tests::image::{files, pagein, tiny_program, trace};
use serde_json::Value;

/// `tests/second_reader.sh` ends with this if its environment cannot be made.
const CANNOT_INSTALL: i32 = 77;

/// Runs the second reader; `None` if it cannot run here, which is said.
fn second_reader(image: &Path, program: &Path, digest: &str) -> Option<Finished> {
    if !have(&["python3", "flock", "cmp"]) {
        skip("no python3, flock or cmp: apt-get install python3 python3-venv util-linux diffutils");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("second_reader.sh");
    let mut command = Command::new(script);
    let venv = pagein_binary().parent().unwrap().join("second-reader-venv");
    command.env("PAGEIN_TEST_VENV", venv).args([image, program]).arg(digest);
    let finished = run(&mut command, Duration::from_secs(300));
    if finished.code() == CANNOT_INSTALL {
        skip(&format!(
            "python3 cannot get blake3 and zstandard; run tests/second_reader.sh --install: {}",
            finished.stderr()
        ));
        return None;
    }
    Some(finished)
}

fn json(finished: Finished) -> Value {
    serde_json::from_slice(&finished.success().stdout).unwrap()
}

/// Cuts `program` with these options and traces into `name` below `directory`.
fn split(
    directory: &Path,
    name: &str,
    program: &Path,
    traces: &[&[u32]],
    options: &[&str],
) -> (PathBuf, Value) {
    let image = directory.join(name);
    let mut args = vec!["split".into(), program.into(), "--json".into(), "-o".into(), image.clone()];
    for (number, pages) in traces.iter().enumerate() {
        let path = directory.join(format!("{name}-{number}.trace"));
        fs::write(&path, trace(program, pages)).unwrap();
        args.extend(["--trace".into(), path]);
    }
    args.extend(options.iter().map(PathBuf::from));
    (image, json(pagein(args)))
}

/// Makes an image and has it read by the second reader, by `verify` and by `inspect`: all must say the same.
#[track_caller]
fn is_read_alike(program: &Path, traces: &[&[u32]], options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let (image, cut) = split(directory.path(), "image", program, traces, options);
    let digest = cut["digest"].as_str().unwrap();
    let Some(read) = second_reader(&image, program, digest) else { return };
    let read = json(read);
    let verified = json(pagein(["verify", "--json", &format!("{}#{digest}", image.display())]));
    let shown = json(pagein(["inspect", "--json", image.to_str().unwrap()]));
    assert_eq!(verified["ok"], true);
    assert_eq!(verified["frames_checked"], read["frames_checked"]);
    for field in [
        "digest",
        "file_digest",
        "file_bytes",
        "reads_self",
        "page_files",
        "traces",
        "pages_total",
        "hot_pages",
    ] {
        assert_eq!(shown[field], read[field], "{field}");
    }
    for field in ["on", "pages", "relocations"] {
        assert_eq!(shown["page_in_linking"][field], read["page_in_linking"][field], "{field}");
    }
    assert_eq!(read["page_files"], options.contains(&"--page-files"));
    assert_eq!(read["traces"], traces.len());
    let ways: &[&str] =
        if options.contains(&"--no-paged") { &["whole", "groups"] } else { &["whole", "groups", "paged"] };
    assert_eq!(read["rebuilt"], serde_json::json!(ways));
    // Of one program is enough: each file costs two processes.
    if program == bash().0 {
        is_damage_noticed(&image, program, digest);
    }
}

/// One flipped byte anywhere is noticed by both readers.
#[track_caller]
fn is_damage_noticed(image: &Path, program: &Path, digest: &str) {
    for (name, mut bytes) in files(image) {
        let path = image.join(&name);
        let good = bytes.clone();
        let Some(last) = bytes.len().checked_sub(1) else { continue };
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let read = second_reader(image, program, digest).expect("it could run before");
        assert_eq!(read.code(), 1, "{} damaged: {read:?}", name.display());
        assert!(read.stderr().starts_with("second_reader: "), "{read:?}");
        let verified = pagein(["verify", "--json", image.to_str().unwrap()]);
        assert_eq!(verified.code(), 125, "{} damaged: {verified:?}", name.display());
        fs::write(&path, good).unwrap();
        if name.starts_with("pages") {
            // One page file stands for all.
            break;
        }
    }
}

/// Pages of bash in an order with jumps both ways, and the last, partly filled one.
fn bash() -> (&'static Path, Vec<u32>) {
    let path = Path::new("/bin/bash");
    let last =
        (fs::metadata(path).expect("every Linux test machine has bash").len().div_ceil(4096) - 1) as u32;
    assert!(last > 200, "bash has shrunk");
    (path, [[0, 7, 3, last, 150].as_slice(), &(20..120).rev().collect::<Vec<_>>()].concat())
}

#[test]
fn without_a_trace() {
    is_read_alike(bash().0, &[], &["--level=3"]);
}

#[test]
fn with_one_trace_at_full_strength() {
    let (program, pages) = bash();
    is_read_alike(program, &[&pages], &[]);
}

#[test]
fn with_several_traces_and_rare_pages() {
    let (program, pages) = bash();
    is_read_alike(
        program,
        &[&pages, &pages[3..60], &[1, 2, 3], &[]],
        &["--level=3", "--group-pages=5", "--min-probability=0.3"],
    );
}

#[test]
fn with_page_files() {
    let (program, pages) = bash();
    is_read_alike(program, &[&pages], &["--level=3", "--page-files"]);
}

#[test]
fn without_groups_in_file_order() {
    let (program, pages) = bash();
    is_read_alike(program, &[&pages], &["--level=3", "--no-paged", "--page-files"]);
}

/// Linked pages in every way that a program may have them, and the same program without.
#[test]
fn with_and_without_page_in_linking() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("pointers.c");
    let text = "int puts(const char *); const char *volatile p[3000] = {[3] = \"a\", [700] = \"b\", [2999] = \"c\"};\n\
                int main(void) { return puts(p[3]); }\n";
    fs::write(&source, text).unwrap();
    for (name, flags) in [
        ("long", &["-pie", "-fPIE"][..]),
        ("packed", &["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"]),
        ("fixed", &["-no-pie"]),
    ] {
        let program = directory.path().join(name);
        let mut compiler = Command::new("cc");
        let _ =
            run(compiler.args(flags).arg("-o").arg(&program).arg(&source), Duration::from_secs(60)).success();
        let on = name != "fixed";
        let (image, _) = split(directory.path(), "probe", &program, &[], &["--level=1"]);
        let shown = json(pagein(["inspect", "--json", image.to_str().unwrap()]));
        assert_eq!(shown["page_in_linking"]["on"], on, "{name}");
        is_read_alike(&program, &[&[0, 1]], &["--level=3"]);
        is_read_alike(&program, &[], &["--level=3", "--group-pages=2", "--page-files"]);
        is_read_alike(&program, &[&[1, 4]], &["--level=3", "--no-page-in-linking"]);
    }
}

#[test]
fn odd_sizes() {
    let directory = tempfile::tempdir().unwrap();
    for size in [120, 4095, 4096, 4097, 3 * 4096] {
        let program = directory.path().join(format!("tiny-{size}"));
        fs::write(&program, tiny_program(size)).unwrap();
        is_read_alike(&program, &[], &[]);
        is_read_alike(&program, &[&[0]], &["--page-files", "--group-pages=1"]);
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (program, pages) = bash();
    let traces: &[&[u32]] = &[&pages, &pages[3..60], &[1, 2, 3]];
    for options in [&["--level=5"][..], &["--level=5", "--page-files"]] {
        let (first, cut) = split(directory.path(), "first", program, traces, options);
        let (second, cut_again) = split(directory.path(), "second", program, traces, options);
        assert_eq!(cut["digest"], cut_again["digest"]);
        let alone = directory.path().join("alone");
        let mut command = Command::new(pagein_binary());
        command.env("RAYON_NUM_THREADS", "1").arg("split").arg(program).args(options).arg("-o").arg(&alone);
        for number in 0..traces.len() {
            command.arg("--trace").arg(directory.path().join(format!("first-{number}.trace")));
        }
        let _ = run(&mut command, Duration::from_secs(120)).success();
        // Not assert_eq: nobody wants to read megabytes.
        let first = files(&first);
        assert!(first.len() >= 4, "{:?}", first.keys());
        assert!(first == files(&second), "two runs differ");
        assert!(first == files(&alone), "one thread and several differ");
    }
}
