//! Small programs, compiled in every way that changes the code's shape, behave the same with all of their functions cloned.

use std::process::Command;

use crate::support::{clone_to, compile, everything, same, source, write_program};
use pagein_relayout::{Functions, Options, Untreatable, build_id, points, relayout};

const OPTIMISATION: [&str; 3] = ["-O0", "-O2", "-Os"];
const KINDS: [&[&str]; 4] = [
    &["-fPIE", "-pie"],
    &["-no-pie", "-fno-pie"],
    &["-static", "-Wl,--eh-frame-hdr"],
    &["-static-pie", "-fPIE"],
];

#[test]
fn c_programs_behave_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for level in OPTIMISATION {
        for kind in KINDS {
            let (old, new) = (dir.path().join("old"), dir.path().join("new"));
            let flags = [&[level], kind].concat();
            let bytes = compile(&source("features.c"), &old, &flags);
            let report = clone_to(&bytes, &everything(&bytes), &new);
            assert!(report.cloned >= 15, "{flags:?}: {report:?}");
            if level == "-O2" {
                assert!(report.table_entries > 0, "{flags:?}: the switch is found: {report:?}");
            }
            for args in [&[][..], &["5"], &["abort"]] {
                let output = same(&old, &new, args);
                assert!(output.stdout.starts_with(b"constructor\n"), "{flags:?} {args:?}");
            }
        }
    }
}

#[test]
fn cpp_exceptions_pass_through_clones() {
    let dir = tempfile::tempdir().unwrap();
    for level in OPTIMISATION {
        for kind in KINDS {
            let (old, new) = (dir.path().join("old"), dir.path().join("new"));
            let bytes = compile(&source("features.cc"), &old, &[&[level], kind].concat());
            clone_to(&bytes, &everything(&bytes), &new);
            let output = same(&old, &new, &[]);
            assert_eq!(output.status.code(), Some(3));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("caught 8") && text.contains("deeper 5"), "{text}");
            let output = same(&old, &new, &["throw"]);
            assert_eq!(
                output.status.code(),
                None,
                "an exception that nobody catches ends the program by a signal"
            );
        }
    }
}

#[test]
fn what_cannot_be_treated_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let refused = |bytes: &[u8]| relayout(bytes, &everything(bytes), &Options::default()).unwrap_err();
    let bytes = compile(&source("features.c"), &old, &["-static"]);
    assert_eq!(refused(&bytes), Untreatable::NoUnwindHeader);
    let bytes = compile(&source("features.c"), &old, &["-fno-asynchronous-unwind-tables"]);
    let functions = Functions::read(&bytes).unwrap();
    let main = functions.as_slice().iter().find(|f| f.name.as_deref() == Some("main")).unwrap();
    assert!(!main.unwind, "its bounds come from the symbol");
    assert_eq!(
        relayout(&bytes, &[main.start], &Options::default()).unwrap_err(),
        Untreatable::NothingToClone
    );
    let mut bytes = compile(&source("features.c"), &old, &["-O2"]);
    bytes.extend([1; 1000]);
    assert_eq!(refused(&bytes), Untreatable::TrailingData(1000));
    bytes.truncate(bytes.len() - 1000);
    let again =
        relayout(&bytes, &everything(&bytes), &Options { even_without_gain: true, ..Options::default() });
    assert_eq!(refused(&again.unwrap().0), Untreatable::AlreadyDone);
    assert_eq!(relayout(&bytes, &[], &Options::default()).unwrap_err(), Untreatable::NothingToClone);
    assert_eq!(relayout(b"#!/bin/sh\n", &[], &Options::default()).unwrap_err(), Untreatable::NotElf);
}

#[test]
fn a_part_of_the_functions_behaves_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    for kind in [KINDS[0], KINDS[1]] {
        let bytes = compile(&source("features.cc"), &old, &[&["-O2"], kind].concat());
        let all = everything(&bytes);
        for step in 2..5 {
            let order: Vec<u64> = all.iter().copied().step_by(step).collect();
            clone_to(&bytes, &order, &new);
            same(&old, &new, &[]);
        }
    }
}

/// Every function cut to a part of its blocks: control goes back and forth between fragments and originals, exceptions are thrown in
/// fragments and caught in originals.
#[test]
fn clipped_functions_behave_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let mut clipped = 0;
    for (name, args) in [("features.c", &["5"][..]), ("features.cc", &[]), ("features.cc", &["throw"])] {
        for level in OPTIMISATION {
            for kind in [KINDS[0], KINDS[1]] {
                let bytes = compile(&source(name), &old, &[&[level], kind].concat());
                let blocks = points(&bytes, true).unwrap().addresses;
                for step in [3, 9] {
                    // With the entries, more functions have two addresses named: one with a single one stays whole.
                    let mut order: Vec<u64> = blocks.iter().rev().copied().step_by(step).collect();
                    order.extend(everything(&bytes));
                    let options =
                        Options { even_without_gain: true, clip_over: Some(0), ..Options::default() };
                    let (bytes, report) = relayout(&bytes, &order, &options).unwrap();
                    clipped += report.clipped;
                    write_program(&new, &bytes);
                    same(&old, &new, args);
                }
            }
        }
    }
    assert!(clipped > 60, "{clipped} functions were clipped");
}

#[test]
fn callbacks_from_a_loaded_library_reach_the_same_functions() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("lib.c");
    // The library knows the program's functions by their exported names, and through pointers that it is given.
    std::fs::write(
        &library,
        "extern int exported(int);\n\
         int call(int (*f)(int), int x) { return f == exported ? f(x) + exported(x) : -1; }\n",
    )
    .unwrap();
    let program = dir.path().join("main.c");
    std::fs::write(
        &program,
        "#include <dlfcn.h>\n#include <stdio.h>\n\
         int exported(int x) { return x * 3; }\n\
         int main(int argc, char **argv) {\n\
           void *lib = dlopen(argv[1], RTLD_NOW); if (!lib) { puts(dlerror()); return 1; }\n\
           int (*call)(int (*)(int), int) = dlsym(lib, \"call\");\n\
           printf(\"%d %d\\n\", call(exported, 7), dlsym(RTLD_DEFAULT, \"exported\") == (void *)exported);\n\
           return 0; }\n",
    )
    .unwrap();
    let so = dir.path().join("lib.so");
    compile(&library, &so, &["-shared", "-fPIC"]);
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    for kind in [KINDS[0], KINDS[1]] {
        let bytes = compile(&program, &old, &[&["-O2", "-rdynamic"], kind].concat());
        clone_to(&bytes, &everything(&bytes), &new);
        let output = same(&old, &new, &[so.to_str().unwrap()]);
        assert_eq!(output.stdout, b"42 1\n");
    }
}

const NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noipa)) static void who(const char *caller) {
    Dl_info info;
    int found = dladdr(__builtin_return_address(0), &info);
    printf("%s is %s\n", caller, found && info.dli_sname ? info.dli_sname : "not exported");
}
__attribute__((noipa)) static void hidden(int x) { who("hidden"); printf("%d\n", x); }
__attribute__((noipa)) void exported(int x) {
    if (x > 100) { __asm__ volatile(".skip 3000, 0x90"); who("cold part"); }
    who("exported");
    /* So that the branch to the cold part is a long one, which may leave its fragment. */
    __asm__ volatile(".skip 200, 0x90");
    hidden(x);
    who("exported");
}
int main(int argc, char **argv) { exported(argc); return 0; }
"#;

/// The dynamic linker names an address after the exported function that covers it: a cut one must not cover the next clone.
#[test]
fn dladdr_names_the_functions_that_it_named_before() {
    let dir = tempfile::tempdir().unwrap();
    let (c, old, new) = (dir.path().join("a.c"), dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&c, NAMES).unwrap();
    let bytes = compile(&c, &old, &["-O1", "-fPIE", "-pie", "-rdynamic"]);
    let functions = Functions::read(&bytes).unwrap();
    let function = |name: &str| {
        functions.as_slice().iter().find(|f| f.name.as_deref() == Some(name)).expect("it has a symbol")
    };
    let cut = function("exported");
    let points = points(&bytes, true).unwrap();
    let blocks = points.addresses.iter().zip(&points.lengths);
    let hot = blocks.filter(|(at, len)| (cut.start..cut.start + cut.len).contains(at) && **len < 1000);
    let order: Vec<u64> = hot.map(|(at, _)| *at).chain([function("hidden").start]).collect();
    let options = Options { even_without_gain: true, clip_over: Some(0), ..Options::default() };
    let (relaid, report) = relayout(&bytes, &order, &options).unwrap();
    assert_eq!((report.cloned, report.clipped), (2, 1));
    write_program(&new, &relaid);
    let output = same(&old, &new, &[]);
    assert_eq!(output.stdout, b"exported is exported\nhidden is not exported\n1\nexported is exported\n");
}

#[test]
fn tools_accept_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let bytes = compile(&source("features.c"), &old, &["-O2", "-g"]);
    let report = clone_to(&bytes, &everything(&bytes), &new);
    assert!(report.headers_in_place);
    let tool = |name: &str, args: &[&str]| {
        let output = Command::new(name).args(args).arg(&new).output().expect("the tests need binutils");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(tool("readelf", &["-aW"]).contains(".text.pagein"));
    assert!(tool("objdump", &["-d", "-j", ".text.pagein"]).contains("<classify>:"), "clones have names");
    tool("strip", &[]);
    same(&old, &new, &["4"]);
}

#[test]
fn gdb_names_clones_in_a_backtrace() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let bytes = compile(&source("features.c"), &old, &["-O0"]);
    let report = clone_to(&bytes, &everything(&bytes), &new);
    let Ok(output) = Command::new("gdb")
        .args([
            "-batch",
            "-nx",
            "-ex",
            "break siglongjmp",
            "-ex",
            "run",
            "-ex",
            "bt",
            "-ex",
            "info symbol $pc",
        ])
        .args(["-ex", "up 2", "-ex", "print/x $pc - (unsigned long)&__executable_start"])
        .arg(&new)
        .output()
    else {
        eprintln!("gdb is not installed: nothing is shown about it");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames = text.lines().filter(|l| l.starts_with('#') && l.contains(" deep ")).count();
    assert!(frames >= 6 && text.contains(" main "), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let offset = text.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("$1 = 0x")?, 16).ok());
    if let Some(offset) = offset {
        assert!((report.clones_start..report.clones_end).contains(&offset), "the frames are clones': {text}");
    }
}

const SPIN: &str = "#include <stdio.h>\n\
    __attribute__((noipa)) static double spin(long n) { double x = 0; for (long i = 1; i < n; i++) x += 1.0 / i; return x; }\n\
    int main(void) { printf(\"%.3f\\n\", spin(100000000)); return 0; }\n";

/// The original is recorded first: perf keeps its symbols under its build ID, and must not use them for the relaid file.
#[test]
fn perf_names_clones() {
    let dir = tempfile::tempdir().unwrap();
    let (c, old, new) = (dir.path().join("a.c"), dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&c, SPIN).unwrap();
    let perf = |args: &[&str]| {
        let mut command = Command::new("perf");
        command.arg("--buildid-dir").arg(dir.path().join("ids")).args(args).current_dir(dir.path());
        command.output()
    };
    let record = ["record", "-q", "-e", "cpu-clock", "-F", "1000", "-o", "data", "--"];
    if !perf(&[&record[..], &["true"]].concat()).is_ok_and(|output| output.status.success()) {
        eprintln!("perf is not installed, or may not record here: nothing is shown about it");
        return;
    }
    for kind in [KINDS[0], KINDS[1]] {
        let bytes = compile(&c, &old, &[&["-O1"], kind].concat());
        let report = clone_to(&bytes, &everything(&bytes), &new);
        for program in ["./old", "./new"] {
            perf(&[&record[..], &[program]].concat()).unwrap();
            let output = perf(&["script", "-i", "data", "-F", "ip,sym"]).unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let in_program = |line: &&str| !line.trim_start().starts_with("ffffffff");
            let samples: Vec<&str> = text.lines().filter(in_program).collect();
            let named: Vec<_> = samples.iter().filter_map(|line| line.trim().strip_suffix(" spin")).collect();
            assert!(
                named.len() * 10 > samples.len() * 9 && named.len() > 20,
                "{program} {kind:?}: nearly all samples are in that function, and it has a name: {text}"
            );
            if kind == KINDS[1] && program == "./new" {
                let is_clone = |ip: &&str| {
                    let ip = u64::from_str_radix(ip, 16).unwrap();
                    (report.clones_start..report.clones_end).contains(&ip)
                };
                assert!(named.iter().all(is_clone), "the clone is what runs: {text}");
            }
        }
    }
}

#[test]
fn the_new_file_has_its_own_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    for flags in [&["-O1"][..], &["-O1", "-s", "-no-pie"], &["-O1", "-Wl,--no-dynamic-linker", "-static-pie"]]
    {
        let bytes = compile(&source("features.c"), &old, &[flags, &["-Wl,--build-id=sha1"]].concat());
        let id = build_id(&bytes).expect("the linker wrote one");
        let mut order = everything(&bytes);
        clone_to(&bytes, &order, &new);
        let own = build_id(&std::fs::read(&new).unwrap()).expect("it has one");
        assert!(own != id && own.len() == id.len(), "{flags:?}: {own}");
        clone_to(&bytes, &order, &new);
        assert_eq!(build_id(&std::fs::read(&new).unwrap()), Some(own.clone()), "equal files, equal IDs");
        order.reverse();
        clone_to(&bytes, &order, &new);
        assert_ne!(build_id(&std::fs::read(&new).unwrap()), Some(own), "another order is another file");
    }
}

/// Functions that only words and immediates lead to, in a program that is not position-independent.
const POINTERS: &str = r#"
#include <stdio.h>
#include <stdint.h>
typedef int (*fn)(int);
/* Far from the start files' code, in which any four bytes count as an operand. */
__attribute__((noipa)) int far_away(int x) { __asm__(".skip 5000, 0x90"); return x; }
__attribute__((noipa)) static int only_in_table(int x) { return x + 1; }
__attribute__((noipa)) static int as_argument(int x) { return x + 2; }
__attribute__((noipa)) static int called_too(int x) { return x + 3; }
__attribute__((noipa)) static int in_two_places(int x) { return x + 4; }
__attribute__((noipa)) static int packed_away(int x) { return x + 5; }
__attribute__((noipa)) static int apply(fn f, int x) { return f(x) * (f == as_argument ? 10 : 1); }
struct entry { const char *name; fn f; } table[] = { {"a", only_in_table}, {"b", in_two_places}, {"c", called_too} };
fn again = in_two_places;
struct __attribute__((packed)) { char c; fn f; } packed = { 1, packed_away };
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < 3; i++) sum = sum * 7 + table[i].f(i) + (table[i].f == again) + (table[i].f == called_too);
    printf("%d %d %d %d\n", sum, apply(as_argument, argc), called_too(argc), packed.f(argc));
}
"#;

#[test]
fn without_position_independence_what_nothing_else_explains_is_a_pointer() {
    let dir = tempfile::tempdir().unwrap();
    let (c, old, new) = (dir.path().join("a.c"), dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&c, POINTERS).unwrap();
    let bytes = compile(&c, &old, &["-O1", "-no-pie", "-fno-pie"]);
    let report = clone_to(&bytes, &everything(&bytes), &new);
    same(&old, &new, &[]);
    let functions = Functions::read(&bytes).unwrap();
    let relaid = std::fs::read(&new).unwrap();
    let words = |bytes: &[u8], addr: u64| {
        let word = addr.to_le_bytes();
        bytes.windows(8).filter(|window| *window == word).count()
    };
    let in_data = |name: &str| {
        let f = functions.as_slice().iter().find(|f| f.name.as_deref() == Some(name)).unwrap();
        let copy = report.copies.iter().find(|copy| copy.from == f.start).unwrap();
        (words(&relaid, f.start), words(&relaid, copy.to))
    };
    // Two words each are the symbol tables, the old one and the new one.
    assert_eq!(in_data("only_in_table"), (2, 2));
    assert_eq!(in_data("in_two_places"), (2, 3), "all of them or none");
    assert_eq!(in_data("called_too"), (3, 1), "a call explains that it ran: the word may be a number");
    assert_eq!(in_data("packed_away"), (3, 1), "an unaligned word is not understood");
    let objdump = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&new).output();
    if let Ok(objdump) = objdump {
        let text = String::from_utf8_lossy(&objdump.stdout).into_owned();
        let f = functions.as_slice().iter().find(|f| f.name.as_deref() == Some("as_argument")).unwrap();
        assert!(!text.contains(&format!("$0x{:x}", f.start)), "its immediates are redirected");
    }
}

/// GNU ld writes addends also into the words. Page-in linking keeps a list of the words that hold anything else, and it is short.
#[test]
fn page_in_linking_stays_possible() {
    let dir = tempfile::tempdir().unwrap();
    let (c, old, new) = (dir.path().join("a.c"), dir.path().join("old"), dir.path().join("new"));
    let functions: Vec<String> =
        (0..400).map(|n| format!("static int f{n}(int x) {{ return x * {n} + 1; }}\n")).collect();
    let names: Vec<String> = (0..400).map(|n| format!("f{n}")).collect();
    let main = "int main(int argc, char **argv) { int s = 0; for (int i = 0; i < 400; i++) s ^= table[i](argc); return s & 63; }";
    let table = format!("int (*const volatile table[])(int) = {{ {} }};\n", names.join(", "));
    std::fs::write(&c, functions.concat() + &table + main).unwrap();
    for flags in ["-Wl,-z,relro", "-Wl,-z,pack-relative-relocs"] {
        let bytes = compile(&c, &old, &["-O1", "-fPIE", "-pie", "-fuse-ld=bfd", flags]);
        let plan = |bytes: &[u8]| {
            let program = pagein_elf::Program::parse_file(bytes).unwrap();
            pagein_elf::LinkPlan::new(bytes, &program).map(|plan| plan.linking())
        };
        let report = clone_to(&bytes, &everything(&bytes), &new);
        assert!(report.pointers_moved > 350, "{flags:?}: {}", report.pointers_moved);
        assert!(
            matches!(plan(&bytes), Ok(pagein_image::Linking::On { relocations: 400.., .. })),
            "{flags:?}"
        );
        assert_eq!(plan(&std::fs::read(&new).unwrap()), plan(&bytes), "{flags:?}");
        same(&old, &new, &[]);
    }
}

const PANICS: &str = r#"
use std::panic::catch_unwind;
struct Guard(u32);
impl Drop for Guard { fn drop(&mut self) { println!("dropped {}", self.0); } }
#[inline(never)]
fn deep(n: u32) -> u32 {
    let _guard = Guard(n);
    if n == 0 { panic!("bottom") }
    deep(n - 1) + 1
}
fn main() {
    std::panic::set_hook(Box::new(|info| println!("hook: {}", info.location().unwrap().line())));
    println!("{:?}", catch_unwind(|| deep(3)).map_err(|e| e.downcast_ref::<&str>().map(|s| s.to_string())));
    let thread = std::thread::spawn(|| { let _guard = Guard(9); Vec::<u32>::new()[std::env::args().count()] });
    println!("{}", thread.join().is_err());
    println!("{:?}", std::env::args().nth(1).map(|a| a.parse::<u32>()));
    deep(1);
}
"#;

#[test]
fn rust_panics_are_caught_in_clones() {
    let dir = tempfile::tempdir().unwrap();
    let (text, old, new) = (dir.path().join("a.rs"), dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&text, PANICS).unwrap();
    for flags in [&["-O"][..], &["-Copt-level=0"], &["-O", "-Crelocation-model=static"]] {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command
            .args(["--edition=2021", "-Awarnings", "-Cstrip=symbols"])
            .args(flags)
            .arg("-o")
            .arg(&old)
            .arg(&text);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = std::fs::read(&old).unwrap();
        clone_to(&bytes, &everything(&bytes), &new);
        for args in [&[][..], &["7"], &["x"]] {
            let output = same(&old, &new, args);
            assert_eq!(output.status.code(), Some(101));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("Err(Some(\"bottom\"))") && text.contains("dropped 9\ntrue"), "{text}");
        }
    }
}
