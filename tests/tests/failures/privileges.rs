//! Users who may not use userfaultfd.

use std::process::Command;

use pagein_testkit::{Finished, run_with_input};
use pagein_tests::broken::{
    Bench, Book, DEADLINE, POLICIES, assert_failed, assert_words, copy_image, pagein,
};

/// `nobody`, on the systems that have it; any user without rights will do.
const USER: &str = "65534";

/// `pagein` as somebody else, from a copy that this user may execute, in a directory that this user may write; or
/// `None` where that is not possible.
fn as_nobody(bench: &Bench, args: &[&str], input: &str) -> Option<Finished> {
    if !nix::unistd::geteuid().is_root() {
        pagein_testkit::skip("only root can become somebody else");
        return None;
    }
    if std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").is_ok_and(|text| text.trim() == "1") {
        pagein_testkit::skip("everybody may use userfaultfd here");
        return None;
    }
    let copy = bench.path("pagein");
    if !copy.exists() {
        std::fs::copy(pagein(), &copy).unwrap();
        std::fs::create_dir(bench.path("theirs")).unwrap();
        nix::unistd::chown(&bench.path("theirs"), Some(65534.into()), Some(65534.into())).unwrap();
        copy_image(&Book::get().image, &bench.path("image"));
        std::fs::copy(&Book::get().program, bench.path("book-program")).unwrap();
    }
    let mut command: Command = bench.command("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(copy).args(args);
    command.env("PAGEIN_CACHE", bench.path("theirs/cache")).current_dir(bench.path("theirs"));
    Some(run_with_input(&mut command, input.as_bytes(), DEADLINE))
}

#[test]
fn a_run_fetches_all_of_it_first_and_says_so() {
    let bench = Bench::new();
    for policy in ["auto"].into_iter().chain(POLICIES) {
        let args = ["run", "--policy", policy, "../image"];
        let Some(done) = as_nobody(&bench, &args, "pages 0 400\nexit 5\n") else { return };
        assert_eq!((done.code(), done.stdout()), (5, Book::get().all()), "{policy}: {done:?}");
        let stderr = done.stderr();
        if policy != "auto" {
            // That is what was asked for, or it is in the cache by now.
            assert_eq!(stderr, "", "{policy}");
            continue;
        }
        assert_eq!(stderr.lines().count(), 1, "{policy}: {stderr}");
        let words =
            ["fetching all of", "image before it starts", "not permitted", "CAP_SYS_PTRACE", "docker"];
        assert_words(&stderr, &words);
    }
    let args = ["run", "--quiet", "--policy=paged", "../image"];
    let Some(done) = as_nobody(&bench, &args, "page 3\n") else { return };
    assert_eq!((done.code(), done.stderr()), (0, String::new()), "{done:?}");
}

#[test]
fn a_recording_says_how_to_get_permission() {
    let bench = Bench::new();
    let args = ["record", "-o", "book.trace", "--", "../book-program"];
    let Some(done) = as_nobody(&bench, &args, "page 3\n") else { return };
    assert_failed(&done, 125, &["userfaultfd is not permitted", "as root or with CAP_SYS_PTRACE"]);
    assert!(!bench.path("theirs/book.trace").exists());
}

#[test]
fn a_cut_needs_no_permission() {
    let bench = Bench::new();
    let args = ["split", "--level=1", "-o", "cut", "../book-program"];
    let Some(done) = as_nobody(&bench, &args, "") else { return };
    let _ = done.success();
    let _ = bench.run(["verify", "theirs/cut"]).success();
}
