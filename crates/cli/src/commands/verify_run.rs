//! `pagein relayout --verify-run CMD`: the command line is run with the original and with the relaid program, and both runs have to
//! print and end alike.
//!
//! Programs find their files by the path that they were started from, by `/proc/self/exe` and by their name. So neither is
//! changed: this process enters a mount namespace of its own, in which the new file is mounted over the original's path for the second
//! run. An unprivileged user gets one with a user namespace, in which every ID stays what it was.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::{Uid, getegid, geteuid};
use pagein_loader::Failure;
use tokio::process::Command;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{failed, pagein};

/// Characters of a differing line that are shown.
const SHOWN: usize = 160;

/// Runs each line by the shell, first with `original` as it is and then with `relaid` in its place. Fails with the first difference.
///
/// The calling process lives in a namespace of its own afterwards and must have one thread only.
pub(crate) fn verify_run(original: &Path, relaid: &Path, lines: &[String]) -> Result<(), Failure> {
    let original = fs::canonicalize(original).map_err(|error| pagein(original, &error))?;
    let relaid = fs::canonicalize(relaid).map_err(|error| pagein(relaid, &error))?;
    enter_namespace()?;
    // In this thread: a namespace is a thread's.
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    runtime.block_on(async {
        for line in lines {
            compare(&original, &relaid, line).await?;
        }
        Ok(())
    })
}

async fn compare(original: &Path, relaid: &Path, line: &str) -> Result<(), Failure> {
    let before = shell(line).await?;
    // Before the mount: the file itself, not the one in front of it.
    let opened = Opened::watch(relaid)?;
    let mounted = mount(Some(relaid), original, None::<&str>, MsFlags::MS_BIND, None::<&str>);
    mounted
        .map_err(|error| refused(&format!("cannot mount {} over the program: {error}", relaid.display())))?;
    let after = shell(line).await;
    // The next line starts with the original again, and a file that is mounted cannot be renamed. Detached: what the line left
    // running may still use it.
    umount2(original, MntFlags::MNT_DETACH).map_err(failed)?;
    let after = after?;
    if !opened.was()? {
        let text = format!(
            "--verify-run: `{line}` did not start {}, so nothing was compared: name it as it is found in PATH",
            original.display()
        );
        return Err(Failure { code: Failure::PAGEIN, text });
    }
    let Some(difference) = difference(&before, &after) else { return Ok(()) };
    let text = match self::difference(&before, &shell(line).await?) {
        None => format!("--verify-run: `{line}` does not do the same with the relaid program: {difference}"),
        Some(own) => format!(
            "--verify-run: two runs of `{line}` with the original differ ({own}), so nothing can be compared: take a command that \
             prints the same each time and leaves its input as it was"
        ),
    };
    Err(Failure { code: Failure::PAGEIN, text })
}

fn refused(why: &str) -> Failure {
    let text = format!(
        "--verify-run needs a mount namespace of its own, which is not permitted here (try as root): {why}"
    );
    Failure { code: Failure::PAGEIN, text }
}

/// A mount namespace whose changes nobody else sees.
fn enter_namespace() -> Result<(), Failure> {
    let (uid, gid) = (geteuid(), getegid());
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
            .map_err(|error| refused(&error.to_string()))?;
        map_ids(uid, gid.as_raw()).map_err(|error| refused(&error.to_string()))?;
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(|error| refused(&error.to_string()))
}

/// Everybody stays who they are; `user_namespaces(7)`, "Defining user and group ID mappings".
fn map_ids(uid: Uid, gid: u32) -> std::io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Runs a line. A signal that would end this process ends the line instead, so that the new file is removed.
async fn shell(line: &str) -> Result<Output, Failure> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).kill_on_drop(true);
    let [mut interrupt, mut terminate, mut hangup] =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let number = tokio::select! {
        output = command.output() => return output.map_err(|error| pagein(Path::new("/bin/sh"), &error)),
        number = arrived(&mut interrupt, SignalKind::interrupt()) => number,
        number = arrived(&mut terminate, SignalKind::terminate()) => number,
        number = arrived(&mut hangup, SignalKind::hangup()) => number,
    };
    let text = format!("--verify-run: `{line}` was interrupted; nothing is written");
    Err(Failure { code: 128 + number, text })
}

/// The signal's number, once it has come; never, if it cannot be waited for.
async fn arrived(signal: &mut std::io::Result<Signal>, kind: SignalKind) -> u8 {
    match signal {
        Ok(signal) => signal.recv().await,
        Err(_) => std::future::pending().await,
    };
    kind.as_raw_value() as u8
}

/// Whether a file is opened, as it is when it is executed.
struct Opened(Inotify);

impl Opened {
    fn watch(file: &Path) -> Result<Self, Failure> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(failed)?;
        inotify.add_watch(file, AddWatchFlags::IN_OPEN).map_err(failed)?;
        Ok(Self(inotify))
    }

    fn was(&self) -> Result<bool, Failure> {
        match self.0.read_events() {
            Ok(events) => Ok(!events.is_empty()),
            Err(nix::errno::Errno::EAGAIN) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// What differs, in words; `None` if nothing does.
fn difference(before: &Output, after: &Output) -> Option<String> {
    if before.status != after.status {
        let mut text = format!("{} became {}", ended(before.status), ended(after.status));
        if let Some(last) = String::from_utf8_lossy(&after.stderr).lines().next_back() {
            let _ = write!(text, "; the last line of its stderr is {}", shown(last));
        }
        return Some(text);
    }
    [("stdout", &before.stdout, &after.stdout), ("stderr", &before.stderr, &after.stderr)]
        .into_iter()
        .find_map(|(name, before, after)| {
            let (line, was, is) = first_difference(before, after)?;
            Some(format!("line {line} of {name} was {was} and is {is}"))
        })
}

/// The first line that differs: its number from 1, and both.
fn first_difference(before: &[u8], after: &[u8]) -> Option<(usize, String, String)> {
    if before == after {
        return None;
    }
    let lines = |bytes: &[u8]| -> Vec<String> {
        bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    };
    let (before, after) = (lines(before), lines(after));
    let line = before.iter().zip(&after).take_while(|(was, is)| was == is).count();
    let at = |lines: &[String]| lines.get(line).map_or_else(|| "missing".to_owned(), |line| shown(line));
    Some((line + 1, at(&before), at(&after)))
}

fn shown(line: &str) -> String {
    format!("{:?}", line.chars().take(SHOWN).collect::<String>())
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code @ 129..), _) => format!("exit status {code} (signal {})", code - 128),
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("an end by signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn output(status: i32, stdout: &str, stderr: &str) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: stdout.into(), stderr: stderr.into() }
    }

    #[test]
    fn the_first_difference_is_named() {
        let before = output(0, "a\nb\nc\n", "x\n");
        assert_eq!(difference(&before, &before), None);
        let text = |after: &Output| difference(&before, after).unwrap();
        assert_eq!(text(&output(0, "a\nz\nc\n", "")), r#"line 2 of stdout was "b\n" and is "z\n""#);
        assert_eq!(text(&output(0, "a\nb\n", "x\n")), r#"line 3 of stdout was "c\n" and is missing"#);
        assert_eq!(text(&output(0, "a\nb\nc", "x\n")), r#"line 3 of stdout was "c\n" and is "c""#);
        assert_eq!(text(&output(0, "a\nb\nc\n", "")), r#"line 1 of stderr was "x\n" and is missing"#);
        let ends = text(&output(139 << 8, "", "oh\nSegmentation fault\n"));
        assert!(ends.starts_with("exit status 0 became exit status 139 (signal 11)"), "{ends}");
        assert!(ends.ends_with("\"Segmentation fault\""), "{ends}");
    }
}
