//! The `pagein` command under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// `PAGEIN_BIN`, or the command of the build that this test belongs to; built if need be, since cargo does not build the
/// binaries of other packages for a test.
pub fn pagein_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("PAGEIN_BIN") {
            return path.into();
        }
        let profile = profile_directory();
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "pagein",
            "--bin",
            "pagein",
            "--target-dir",
        ]);
        build.arg(profile.parent().expect("it has one")).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        // ring is built again whenever these change, and `cargo test` has set them for this package.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                build.env_remove(&name);
            }
        }
        // The first build of all may take minutes.
        let _ = pagein_testkit::run(&mut build, Duration::from_secs(1800)).success();
        profile.join("pagein")
    })
}

/// `target/PROFILE`, from `target/PROFILE/deps/TEST`.
pub fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps").to_owned()
}
