//! Keeps the cache below its limit: what was not used for longest goes first, and nothing that runs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::FlockArg;

use super::Cache;
use super::complete::checked_path;

/// One thing that can be deleted by itself.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    kind: Kind,
    /// Bytes on disk.
    size: u64,
    used: SystemTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A directory below `exe` with a complete program.
    Program,
    /// A directory below `exe` with a file of headers.
    Headers,
    Blob,
    Record,
}

/// What a cache holds: number of things and bytes on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Contents {
    /// The directory.
    pub path: PathBuf,
    /// Complete programs, which start without a pager.
    pub programs: Count,
    /// Files of headers of programs that were started lazily.
    pub headers: Count,
    /// Frames, groups, indices and manifests.
    pub blobs: Count,
    /// Notes about images and sources.
    pub records: Count,
}

/// How many and how large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// Number.
    pub entries: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Trimmed {
    /// What is gone.
    pub removed: Count,
    /// What stays although it should go, because it runs.
    pub in_use: Count,
    /// Bytes that are left.
    pub left: u64,
}

impl Cache {
    /// What there is.
    pub fn contents(&self) -> Contents {
        let mut counts: BTreeMap<Kind, Count> = BTreeMap::new();
        for entry in self.entries() {
            let count = counts.entry(entry.kind).or_default();
            count.entries += 1;
            count.bytes += entry.size;
        }
        let count = |kind| counts.get(&kind).copied().unwrap_or_default();
        Contents {
            path: self.root.clone(),
            programs: count(Kind::Program),
            headers: count(Kind::Headers),
            blobs: count(Kind::Blob),
            records: count(Kind::Record),
        }
    }

    /// Deletes what was not used for longest until at most `limit` bytes are left. `None` if another process is about
    /// to execute something or is deleting already, and `wait` was not asked for.
    pub fn trim(&self, limit: u64, wait: bool) -> Option<Trimmed> {
        let kind = if wait { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
        let _lock = self.lock(kind)?;
        // What a killed one left.
        let trash = self.root.join("trash");
        let _ = fs::remove_dir_all(&trash);
        let mut entries = self.entries();
        entries.sort_by_key(|entry| entry.used);
        let mut trimmed =
            Trimmed { left: entries.iter().map(|entry| entry.size).sum(), ..Trimmed::default() };
        for entry in entries {
            if trimmed.left <= limit {
                break;
            }
            let count = if entry.remove(&trash).is_ok() {
                trimmed.left -= entry.size;
                &mut trimmed.removed
            } else {
                &mut trimmed.in_use
            };
            count.entries += 1;
            count.bytes += entry.size;
        }
        let _ = fs::remove_dir_all(&trash);
        Some(trimmed)
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for path in children(&self.root.join("exe")) {
            if path.is_dir() {
                let complete =
                    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"all-"));
                let kind = if complete { Kind::Program } else { Kind::Headers };
                entries.extend(Entry::new(path, kind));
            }
        }
        for directory in children(&self.root.join("blobs")) {
            entries.extend(children(&directory).into_iter().filter_map(|path| Entry::new(path, Kind::Blob)));
        }
        for directory in ["images", "sources"] {
            let records = children(&self.root.join(directory));
            entries.extend(records.into_iter().filter_map(|path| Entry::new(path, Kind::Record)));
        }
        entries
    }
}

impl Entry {
    fn new(path: PathBuf, kind: Kind) -> Option<Self> {
        let meta = fs::metadata(&path).ok()?;
        let inside = if meta.is_dir() { children(&path) } else { Vec::new() };
        let size = |meta: &fs::Metadata| meta.blocks() * 512;
        let size = size(&meta)
            + inside.iter().filter_map(|path| fs::metadata(path).ok()).map(|m| size(&m)).sum::<u64>();
        Some(Self { path, kind, size, used: meta.modified().ok()? })
    }

    /// Moved away at once and deleted then, so that nobody finds a half.
    fn remove(&self, trash: &Path) -> io::Result<()> {
        let programs = if self.path.is_dir() { children(&self.path) } else { Vec::new() };
        if programs.iter().any(|program| is_executed(program)) {
            return Err(Errno::ETXTBSY.into());
        }
        fs::create_dir_all(trash)?;
        let aside = trash.join("entry");
        let _ = fs::remove_dir_all(&aside).or_else(|_| fs::remove_file(&aside));
        if let Some(program) = programs.first() {
            let _ = fs::remove_file(checked_path(program));
        }
        fs::rename(&self.path, &aside)
    }
}

/// Whether a program runs from this file: then it cannot be opened for writing (`open(2)`, ETXTBSY).
fn is_executed(path: &Path) -> bool {
    let opened = File::options().write(true).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(Errno::ETXTBSY as i32))
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("cache")).unwrap();
        (directory, cache)
    }

    fn put(cache: &Cache, path: &str, bytes: &[u8], age: u64) -> PathBuf {
        let path = cache.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let used = SystemTime::now() - Duration::from_secs(age);
        let marked = if path.starts_with(cache.root.join("exe")) { path.parent().unwrap() } else { &path };
        File::open(marked).unwrap().set_modified(used).unwrap();
        path
    }

    #[test]
    fn what_was_used_last_stays() {
        let (_directory, cache) = cache();
        let page = [1; 4096];
        let old = put(&cache, "blobs/aa/aa01", &page, 300);
        let new = put(&cache, "blobs/aa/aa02", &page, 100);
        let program = put(&cache, "exe/all-1/tool", &page, 200);
        let all = cache.contents();
        assert_eq!((all.programs.entries, all.blobs.entries), (1, 2));
        let total = all.programs.bytes + all.blobs.bytes;
        let trimmed = cache.trim(total - 1, true).unwrap();
        assert_eq!(trimmed.removed.entries, 1);
        assert!(!old.exists() && new.exists() && program.exists());
        let trimmed = cache.trim(0, true).unwrap();
        assert_eq!((trimmed.removed.entries, trimmed.left), (2, 0));
        assert!(!cache.root.join("trash").exists());
    }

    /// Ends with the test, whatever its outcome.
    struct Running(Child);
    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_runs_stays() {
        let (_directory, cache) = cache();
        let sleep = fs::read("/bin/sleep").unwrap();
        let path = put(&cache, "exe/all-1/sleep", &sleep, 300);
        let running = Running(Command::new(&path).arg("60").stdin(Stdio::null()).spawn().unwrap());
        let trimmed = cache.trim(0, true).unwrap();
        assert_eq!((trimmed.removed.entries, trimmed.in_use.entries), (0, 1));
        assert!(path.exists());
        drop(running);
        assert_eq!(cache.trim(0, true).unwrap().removed.entries, 1);
        assert!(!path.exists());
    }

    #[test]
    fn nothing_is_deleted_while_somebody_is_about_to_execute() {
        let (_directory, cache) = cache();
        let path = put(&cache, "blobs/aa/aa01", &[1; 4096], 300);
        let held = cache.hold();
        assert_eq!(cache.trim(0, false), None);
        assert!(path.exists());
        drop(held);
        assert!(cache.trim(0, false).is_some());
    }
}
