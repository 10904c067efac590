//! What is kept between runs, in a directory of this user's alone.
//!
//! | below the directory | what |
//! |---|---|
//! | `exe/all-DIGEST/NAME` | a complete program (`complete.rs`); `exe/all-DIGEST.checked` says that it was checked |
//! | `exe/DIGEST/NAME` | the file of headers that is exec'ed while pages are missing (`exec_file.rs`) |
//! | `blobs/XX/DIGEST` | manifests, frames, groups and indices as they travelled (`blobs.rs`) |
//! | `images/`, `sources/` | which program an image is, which image a source had (`known.rs`) |
//! | `pagers/` | sockets of running pagers that further instances may join (`instances.rs`) |
//! | `lock` | shared by who is about to execute a file, exclusive for who deletes some (`trim.rs`) |
//!
//! Everything is named by its content and appears complete or not at all, so that runs, versions and programs share it
//! and a killed one leaves nothing half. What is used is marked by its modification time; when the directory is larger than
//! its limit, what was not used for longest goes first.

mod blobs;
mod complete;
mod known;
mod trim;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use pagein_image::{Digest, Manifest};
use pagein_source::Location;

use crate::trouble::Trouble;

pub(crate) use blobs::Blobs;
pub(crate) use complete::{digest_of, mark_complete};
pub(crate) use known::{KnownImage, KnownSource};
pub use trim::{Contents, Count, Trimmed};

/// Most bytes that the cache takes if nothing else is said: some ten large programs.
pub const DEFAULT_LIMIT: u64 = 5 << 30;

/// The directory for what may be kept: `PAGEIN_CACHE`, `XDG_CACHE_HOME/pagein` or `~/.cache/pagein`; without a home
/// directory, one below /tmp for this user alone.
pub fn default_cache() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("PAGEIN_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME").filter(|path| path.is_absolute())?.join("pagein")))
        .or_else(|| Some(from("HOME").filter(|path| path.is_absolute())?.join(".cache/pagein")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/pagein-{}", nix::unistd::getuid())))
}

/// An open cache.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Makes the directory if need be, and sure that it is this user's alone: programs are executed from it.
    pub fn open(root: &Path) -> Result<Self, Trouble> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(Trouble::cache(root))?;
        let root = fs::canonicalize(root).map_err(Trouble::cache(root))?;
        let meta = fs::metadata(&root).map_err(Trouble::cache(&root))?;
        let mine = meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0;
        if !mine {
            let error = io::Error::other("others may write here, so programs cannot be run from it");
            return Err(Trouble::Cache { path: root, error });
        }
        Ok(Self { root })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// While this is held, or until this process execs, no file of the cache is deleted.
    pub(crate) fn hold(&self) -> Option<Flock<File>> {
        self.lock(FlockArg::LockShared)
    }

    fn lock(&self, kind: FlockArg) -> Option<Flock<File>> {
        self.lock_file("lock", kind).ok()
    }

    /// Held by who looks for a running pager and may take its place.
    pub(crate) fn lock_pagers(&self) -> io::Result<Flock<File>> {
        self.lock_file("pagers/lock", FlockArg::LockExclusive)
    }

    fn lock_file(&self, name: &str, kind: FlockArg) -> io::Result<Flock<File>> {
        let file = File::options().create(true).append(true).open(self.root.join(name))?;
        Flock::lock(file, kind).map_err(|(_, errno)| errno.into())
    }

    /// The complete program of the image that `source` is known to have, if it is here: a pinned image for ever, another one
    /// if the source was looked at no longer than `max_age` ago.
    pub(crate) fn ready(&self, source: &Location, max_age: Duration) -> Option<PathBuf> {
        let digest = match source.pinned() {
            Some(digest) => Digest(*digest),
            None if max_age.is_zero() => return None,
            None => self.known_source(source, max_age)?.manifest,
        };
        let image = self.known_image(digest)?;
        self.complete(image.file_digest, image.file_size, &image.name)
    }

    /// The complete program of an image, if it is here and undamaged.
    pub(crate) fn find_complete(&self, manifest: &Manifest) -> Option<PathBuf> {
        self.complete(manifest.file_digest, manifest.file_size, &manifest.name)
    }
}

/// Notes that a file or directory was used now.
pub(crate) fn mark_used(path: &Path) {
    // Another user's or a read-only cache: then there is nobody who deletes anything either.
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        Cache::open(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Cache::open(&root).unwrap_err().to_string();
        assert!(error.contains("others may write") && error.contains("--cache"), "{error}");
    }
}
