//! Tests that cannot run on this machine.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// Says that the current test is skipped: prints `SKIPPED <test>: <reason>` and appends the line to the file
/// that the environment variable `PAGEIN_SKIP_LOG` names, from which the test command makes its summary. The
/// test then returns by itself.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: {reason}\n", thread.name().unwrap_or("unnamed test"));
    eprint!("{line}");
    let Some(path) = std::env::var_os("PAGEIN_SKIP_LOG") else { return };
    // One write of a short line: lines of tests that run at once do not mix (O_APPEND).
    let written = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut log| log.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("PAGEIN_SKIP_LOG={}: {error}", path.display());
    }
}

/// Whether all these programs are in `PATH`.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    programs.iter().all(|program| {
        std::env::split_paths(&path).any(|dir| {
            std::fs::metadata(dir.join(program))
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
    })
}
