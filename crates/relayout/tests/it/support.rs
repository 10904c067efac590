//! Compilers and child processes for the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pagein_relayout::{Functions, Options, Report, relayout};

/// Compiles a program with `gcc` or `g++`, by the extension.
pub(crate) fn compile(source: &Path, out: &Path, flags: &[&str]) -> Vec<u8> {
    let compiler = if source.extension().is_some_and(|e| e == "cc") { "g++" } else { "gcc" };
    let mut command = Command::new(compiler);
    command.args(["-w", "-pthread"]).args(flags).arg("-o").arg(out).arg(source);
    let output = command.output().expect("the tests need a C compiler");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(out).unwrap()
}

/// A source of `tests/programs`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Every function, the last one first: what any profile could ask for, and then some.
pub(crate) fn everything(bytes: &[u8]) -> Vec<u64> {
    Functions::read(bytes).unwrap().as_slice().iter().rev().map(|f| f.start).collect()
}

/// Clones `order` (or everything), whatever it gains, and writes the result.
pub(crate) fn clone_to(bytes: &[u8], order: &[u64], out: &Path) -> Report {
    let options = Options { even_without_gain: true, ..Options::default() };
    let (new, report) = relayout(bytes, order, &options).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    write_program(out, &new);
    report
}

/// Writes an executable file.
pub(crate) fn write_program(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a program under the name `program`, whatever its file is called.
pub(crate) fn run(file: &Path, args: &[&str]) -> Output {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(file);
    command.arg0("program").args(args).stdin(std::process::Stdio::null()).env("LC_ALL", "C");
    command.output().unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Both programs behave alike: output, errors, exit status or signal.
pub(crate) fn same(a: &Path, b: &Path, args: &[&str]) -> Output {
    let (x, y) = (run(a, args), run(b, args));
    assert_eq!(
        String::from_utf8_lossy(&x.stdout),
        String::from_utf8_lossy(&y.stdout),
        "{} {args:?}",
        b.display()
    );
    assert_eq!(
        String::from_utf8_lossy(&x.stderr),
        String::from_utf8_lossy(&y.stderr),
        "{} {args:?}",
        b.display()
    );
    assert_eq!(x.status, y.status, "{} {args:?}", b.display());
    y
}
