//! Caches that cannot be used: full, read-only, noexec, open to others.

use std::os::unix::fs::PermissionsExt;

use pagein_testkit::{Finished, run};
use pagein_tests::broken::{Bench, Book, DEADLINE, assert_failed, pagein};

/// Runs the book under `policy` with the cache on a tmpfs of its own with these mount options, in a mount namespace that
/// ends with it. Also prints what is left on the tmpfs, to standard error.
fn on_tmpfs(bench: &Bench, policy: &str, options: &str) -> Option<Finished> {
    let mount = bench.path("mount");
    std::fs::create_dir_all(&mount).unwrap();
    let mut probe = bench.command("unshare");
    if !run(probe.args(["--mount", "true"]), DEADLINE).status.success() {
        pagein_testkit::skip("mount namespaces are not permitted");
        return None;
    }
    let script = "mount -t tmpfs -o \"$3\" none \"$2\" || exit 99
        echo 'page 300' | \"$1\" run --policy \"$4\" --cache \"$2/cache\" \"$5\"
        status=$?; find \"$2\" -path '*/exe/*' -type f >&2; exit $status";
    let mut command = bench.command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(pagein()).arg(&mount);
    command.args([options, policy]).arg(&Book::get().image);
    Some(run(&mut command, DEADLINE))
}

#[test]
fn full() {
    let bench = Bench::new();
    // A streamed run needs a few pages for the file that is exec'ed, the original policy all of it.
    for (policy, size) in [("streamed", "8k"), ("original", "256k"), ("paged", "4k")] {
        let Some(done) = on_tmpfs(&bench, policy, &format!("size={size}")) else { return };
        assert_failed(&done, 125, &["mount/cache", "No space left", "--cache"]);
    }
    let Some(done) = on_tmpfs(&bench, "streamed", "size=256k") else { return };
    assert_eq!((done.code(), done.stdout()), (0, Book::get().page(300) + "\n"), "{done:?}");
}

#[test]
fn read_only_or_noexec() {
    let bench = Bench::new();
    let Some(done) = on_tmpfs(&bench, "streamed", "ro") else { return };
    assert_failed(&done, 125, &["mount/cache", "Read-only", "--cache"]);
    for policy in ["streamed", "original"] {
        let Some(done) = on_tmpfs(&bench, policy, "noexec") else { return };
        // What is in the cache stays there, as on any other run.
        assert_eq!((done.code(), done.stdout()), (126, String::new()), "{done:?}");
        let stderr = done.stderr();
        let first = stderr.lines().next().unwrap();
        pagein_tests::broken::assert_words(first, &["mount/cache", "Permission denied", "noexec", "--cache"]);
    }
}

#[test]
fn open_to_others_or_no_directory() {
    let bench = Bench::new();
    let image = Book::get().image.to_str().unwrap();
    let cache = bench.path("shared");
    std::fs::create_dir(&cache).unwrap();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
    let shared = cache.to_str().unwrap();
    assert_failed(&bench.run(["run", "--cache", shared, image]), 125, &[shared, "others", "--cache"]);
    let file = bench.file("file", "");
    let file = file.to_str().unwrap();
    assert_failed(&bench.run(["run", "--cache", file, image]), 125, &[file, "--cache"]);
    let below = format!("{file}/cache");
    assert_failed(&bench.run(["run", "--cache", &below, image]), 125, &[&below, "--cache"]);
    // A link could be pointed elsewhere by its owner only; it is what it leads to that counts.
    let link = bench.path("link");
    std::os::unix::fs::symlink(&cache, &link).unwrap();
    assert_failed(&bench.run(["run", "--cache", link.to_str().unwrap(), image]), 125, &["others"]);
}

/// What the cache holds is not trusted: a file in it that was changed is made again.
#[test]
fn damaged_contents() {
    let bench = Bench::new();
    let book = Book::get();
    let image = book.image.to_str().unwrap();
    for policy in ["original", "streamed"] {
        let _ = bench.read_book(policy, image, "page 3\n").success();
    }
    let files = bench.cached();
    let programs = files.iter().filter(|file| file.ends_with("/book-program")).count();
    assert_eq!((programs, files.len()), (2, 5), "{files:?}");
    let spoil: [fn(&mut Vec<u8>); 3] = [
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0xff;
        },
        |bytes| bytes.truncate(bytes.len().min(5000) / 2),
        |bytes| bytes.fill(0),
    ];
    for spoil in spoil {
        for file in &files {
            let path = bench.cache().join(file);
            let mut bytes = std::fs::read(&path).unwrap();
            spoil(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
        }
        for policy in ["auto", "streamed", "original"] {
            let done = bench.read_book(policy, image, "page 3\n").success();
            assert_eq!((done.stdout(), done.stderr()), (book.page(3) + "\n", String::new()));
        }
        assert!(bench.cached().is_superset(&files), "{:?}", bench.cached());
    }
}

/// What `ulimit -f` forbids ends with SIGXFSZ, in a pager that would have nobody to tell.
#[test]
fn a_limit_on_file_sizes() {
    let bench = Bench::new();
    for (policy, words) in [("streamed", "ulimit -f"), ("original", "--cache")] {
        let mut command = bench.command("sh");
        command.args(["-c", "ulimit -f 100; exec \"$0\" run --policy \"$1\" \"$2\""]);
        command.arg(pagein()).arg(policy).arg(&Book::get().image);
        assert_failed(&run(&mut command, DEADLINE), 125, &["File too large", words]);
    }
}
