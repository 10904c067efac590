//! Generated C++ programs behave the same, whichever of their functions and blocks are cloned: switches, tail calls, cold parts,
//! tables of functions, comparisons of function pointers, computed gotos, exceptions through several frames; compiled at all
//! usual levels, position-independent and not, with symbols and without.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use pagein_relayout::{Functions, Options, points, relayout};
use proptest::prelude::*;

use crate::support::{compile, same, write_program};

/// Programs that are compiled: each takes about a second.
const CASES: u32 = 14;

const FLAGS: [&[&str]; 8] = [
    &["-O0", "-pie"],
    &["-O0", "-no-pie", "-fno-pie"],
    &["-O2", "-pie"],
    &["-O2", "-no-pie", "-fno-pie"],
    &["-Os", "-pie", "-s"],
    &["-Os", "-no-pie", "-fno-pie", "-s"],
    &["-O2", "-static-pie", "-fPIE"],
    &["-O3", "-no-pie", "-fno-pie", "-ffunction-sections", "-freorder-functions"],
];

/// One function: what it does, and numbers to do it with.
#[derive(Debug, Clone)]
struct Body {
    kind: u8,
    number: u32,
    calls: [u32; 4],
}

fn bodies() -> impl Strategy<Value = Vec<Body>> {
    let body = (0..9u8, 1..60u32, any::<[u32; 4]>());
    let body = body.prop_map(|(kind, number, calls)| Body { kind, number, calls });
    prop::collection::vec(body, 3..14)
}

/// The program. Functions call later ones only, and have fuel, so that every run ends.
fn source(bodies: &[Body]) -> String {
    let count = bodies.len();
    let mut out = String::from(
        "#include <cstdio>\n#include <cstdlib>\ntypedef unsigned u;\nstatic u fuel, state;\n\
         static __attribute__((cold, noinline)) u rare(u x) { state ^= x; printf(\"rare %u\\n\", x); return state % 7; }\n\
         extern \"C\" __attribute__((noinline)) u last(u x) { return x * 2654435761u >> 7; }\n",
    );
    for n in 0..count {
        let _ = writeln!(out, "u f{n}(u);");
    }
    for (n, Body { kind, number: c, calls }) in bodies.iter().enumerate() {
        let later = count - n - 1;
        let call = |k: usize| match later {
            0 => "last".to_owned(),
            _ => format!("f{}", n + 1 + calls[k] as usize % later),
        };
        let (a, b, d, e) = (call(0), call(1), call(2), call(3));
        let _ = writeln!(out, "__attribute__((noinline)) u f{n}(u x) {{ if (++fuel > 3000) return x;");
        let body = match kind {
            0 => {
                let cases = (0..c % 17 + 4).fold(String::new(), |mut text, k| {
                    let _ = match k % 4 {
                        0 => write!(text, "case {k}: state += {a}(x / 2); break;"),
                        1 => write!(text, "case {k}: return {b}(x + {k});"),
                        2 => write!(text, "case {k}: state ^= x * {k};"),
                        _ => write!(text, "case {k}: printf(\"%u\\n\", state % {}u); break;", k + 2),
                    };
                    text
                });
                format!(
                    "switch (x % {}) {{ {cases} default: return {d}(x ^ 5); }} return state + x;",
                    c % 17 + 6
                )
            }
            1 => format!("return {a}(x + {c});"),
            2 => format!(
                "if (__builtin_expect(x % 13 == {}, 0)) return rare(x) + {a}(x); return {b}(x * 3);",
                c % 13
            ),
            3 => format!(
                "static u (*const t[])(u) = {{ {a}, {b}, {d}, {e}, last }}; return t[(x + {c}) % 5](x >> 1) + t[x % 5](x);"
            ),
            4 => format!("if (x % 5 == {}) throw x + {c}; return {a}(x + 1);", c % 5),
            5 => format!(
                "struct g {{ u v; ~g() {{ state += v; }} }} guard = {{ x }}; \
                 try {{ return {a}(x) + {b}(x + {c}); }} catch (u v) {{ return v ^ {d}(v + 3); }}"
            ),
            6 => format!("for (u k = 0; k < x % 5; k++) state += {a}(x + k) * {c}; return state;"),
            7 => format!(
                "static u (*p)(u) = {a}; p = x % 2 ? {b} : {d}; \
                 return (p == {a}) * 4 + (p == {b}) * 2 + (p == {d}) + {e}(x);"
            ),
            _ => format!(
                "static void *const l[] = {{ &&one, &&two, &&three }}; goto *l[x % 3]; \
                 one: state += {c}; two: return {a}(x + 2); three: state ^= 9; return {b}(state);"
            ),
        };
        let _ = writeln!(out, "{body}\n}}");
    }
    out.push_str(
        "int main(int argc, char **argv) { for (int i = 1; i < argc; i++) { fuel = 0; u x = strtoul(argv[i], 0, 10);\n\
         try { printf(\"%u \", f0(x)); } catch (u v) { printf(\"thrown %u \", v); } printf(\"%u\\n\", state); }\n\
         return state % 100; }\n",
    );
    out
}

/// Addresses in an order that the numbers shuffle: entries of some functions, and some of their blocks.
fn order(bytes: &[u8], numbers: &[u32]) -> Vec<u64> {
    let functions = Functions::read(bytes).unwrap();
    let pick = |n: usize| numbers[n % numbers.len()].wrapping_mul(n as u32 | 1).rotate_left(n as u32 % 31);
    let mut chosen: Vec<(u32, usize)> = (0..functions.as_slice().len())
        .filter(|n| numbers[0].is_multiple_of(4) || pick(*n) % 3 > 0)
        .map(|n| (pick(n), n))
        .collect();
    chosen.sort_unstable();
    let blocks: BTreeSet<u64> = points(bytes, true).unwrap().addresses.into_iter().collect();
    let mut out = Vec::new();
    for (_, n) in chosen {
        let f = &functions.as_slice()[n];
        out.push(f.start);
        out.extend(blocks.range(f.start + 1..f.end()).filter(|at| pick(**at as usize).is_multiple_of(2)));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, max_shrink_iters: 24, ..ProptestConfig::default() })]

    #[test]
    fn programs_behave_the_same(
        bodies in bodies(),
        flags in 0..FLAGS.len(),
        numbers in prop::collection::vec(any::<u32>(), 4..9),
        clip_over in prop::sample::select(vec![None, Some(0), Some(64)]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (text, old, new) = (dir.path().join("a.cc"), dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&text, source(&bodies)).unwrap();
        let bytes = compile(&text, &old, FLAGS[flags]);
        let options = Options { clip_over, even_without_gain: true, ..Options::default() };
        let (file, report) = relayout(&bytes, &order(&bytes, &numbers), &options).unwrap();
        prop_assert!(report.cloned > 0);
        write_program(&new, &file);
        runs_alike(&old, &new, &numbers);
    }
}

fn runs_alike(old: &Path, new: &Path, numbers: &[u32]) {
    for chunk in numbers.chunks(3) {
        let args: Vec<String> = chunk.iter().map(|n| (n % 1000).to_string()).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        same(old, new, &args);
    }
}
