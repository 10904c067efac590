//! Numbers that equal a function's address by accident stay what they are, and pointers that carry a mark still lead to their function.

use std::path::Path;

use pagein_relayout::{Functions, Options, relayout};

use crate::support::{clone_to, compile, everything, same, write_program};

const FIXED: [&str; 3] = ["-O1", "-no-pie", "-fno-pie"];

/// Two functions that only a table leads to, and a table of numbers, one of which is `NUMBER`.
const TABLES: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int odd(int x) { return x * 3 + 1; }
__attribute__((noinline)) static int even(int x) { return x / 2; }
int (*volatile steps[])(int) = { even, odd };
volatile unsigned long long numbers[] = { 3, 5, 7, 9, 11, 13, 15, 17, 19, NUMBER, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39 };

int main(void) { printf("%d %llu %d\n", steps[1](steps[0](10)), numbers[9], numbers[9] == 0x1234567); return 0; }
"#;

/// Code of which only the middle is called.
const MIDDLE: &str = r#"
#include <stdio.h>
__asm__(".text\n.type part,@function\npart: .cfi_startproc\nmov $1, %eax\nret\nmiddle: mov $2, %eax\nret\n.cfi_endproc\n"
        ".size part, .-part");
extern int middle(void);
volatile unsigned long long number = NUMBER;
int main(void) { printf("%d %llu\n", middle(), number); return 0; }
"#;

/// A pointer and the same pointer with a mark in its lowest bit.
const MARKED: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int f(int x) { return x * 3 + 1; }
int (*volatile plain)(int) = f;
char *volatile marked = (char *)f + 1;
int main(void) { printf("%d %d\n", plain(2), (char *)plain + 1 == marked); return 0; }
"#;

fn address(bytes: &[u8], name: &str) -> u64 {
    let functions = Functions::read(bytes).unwrap();
    functions.as_slice().iter().find(|f| f.name.as_deref() == Some(name)).unwrap().start
}

/// Compiles a program with the address of its own function as `NUMBER`.
fn with_address_of(name: &str, text: &str, dir: &Path) -> Vec<u8> {
    let (source, old) = (dir.join("a.c"), dir.join("old"));
    std::fs::write(&source, text).unwrap();
    let build =
        |number: u64| compile(&source, &old, &[&FIXED[..], &[&format!("-DNUMBER={number}")]].concat());
    let addr = address(&build(0x0012_3457), name);
    let bytes = build(addr);
    assert_eq!(address(&bytes, name), addr, "the number has the same size");
    bytes
}

#[test]
fn a_number_beside_a_pointer_of_the_same_value_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let bytes = with_address_of("odd", TABLES, dir.path());
    let report = clone_to(&bytes, &everything(&bytes), &new);
    assert!(report.pointers_moved > 0, "the other function's pointer moves: {report:?}");
    same(&old, &new, &[]);
}

#[test]
fn a_function_that_ran_from_its_middle_proves_no_pointer() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let bytes = with_address_of("part", MIDDLE, dir.path());
    let part = address(&bytes, "part");
    let order = [part + 6, address(&bytes, "main")];
    let options = Options { even_without_gain: true, ..Options::default() };
    let (file, report) = relayout(&bytes, &order, &options).unwrap();
    assert_eq!(report.cloned, 2, "{report:?}");
    write_program(&new, &file);
    same(&old, &new, &[]);
}

#[test]
fn a_pointer_with_a_mark_stays_with_the_plain_one() {
    let dir = tempfile::tempdir().unwrap();
    let (source, old, new) = (dir.path().join("a.c"), dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&source, MARKED).unwrap();
    for flags in [&FIXED[..], &["-O1", "-pie", "-fPIE"]] {
        let bytes = compile(&source, &old, flags);
        clone_to(&bytes, &everything(&bytes), &new);
        let output = same(&old, &new, &[]);
        assert_eq!(output.stdout, b"7 1\n");
    }
}
