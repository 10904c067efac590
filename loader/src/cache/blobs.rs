//! Frames, groups, indices and manifests as they travelled, each in a file named by its digest.
//!
//! Whatever has the same content is there once, whichever image it came from. A file is checked when it is read; one that
//! is damaged is as good as none. Writing is left to a thread of its own, which nobody waits for while the program runs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use pagein_image::Digest;

use super::{Cache, mark_used};
use crate::processes::lock;
use crate::publish::Unnamed;
use crate::trouble::Trouble;

/// Most blobs that wait to be written; what comes while they do is not kept.
const QUEUE: usize = 256;

/// The blobs of a cache, for one run.
#[derive(Debug)]
pub(crate) struct Blobs {
    root: PathBuf,
    writer: Mutex<Option<Writer>>,
}

#[derive(Debug)]
struct Writer {
    queue: SyncSender<(Digest, Vec<u8>)>,
    thread: JoinHandle<u64>,
}

impl Cache {
    /// The blobs in this cache. Nothing is written before something is kept.
    pub(crate) fn blobs(&self) -> Blobs {
        Blobs { root: self.root.join("blobs"), writer: Mutex::new(None) }
    }
}

impl Blobs {
    fn path(root: &Path, digest: &Digest) -> PathBuf {
        let name = digest.to_string();
        root.join(&name[..2]).join(name)
    }

    /// Whether there is a blob; it may still turn out to be damaged.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        Self::path(&self.root, digest).exists()
    }

    /// The blob with this digest, checked.
    pub(crate) fn get(&self, digest: &Digest) -> Option<Vec<u8>> {
        let path = Self::path(&self.root, digest);
        let bytes = fs::read(&path).ok()?;
        if Digest::of(&bytes) != *digest {
            let _ = fs::remove_file(&path);
            return None;
        }
        mark_used(&path);
        Some(bytes)
    }

    /// Keeps bytes that were checked to have this digest.
    pub(crate) fn keep(&self, digest: Digest, bytes: Vec<u8>) {
        let mut writer = lock(&self.writer);
        if writer.is_none() {
            *writer = Writer::start(self.root.clone()).ok();
        }
        if let Some(writer) = &*writer {
            // A full queue: the disk is slower than the network. The program must not wait for it.
            let _ = writer.queue.try_send((digest, bytes));
        }
    }

    /// Waits until all is written; the number of bytes that are new.
    pub(crate) fn finish(&self) -> u64 {
        let Some(writer) = lock(&self.writer).take() else { return 0 };
        drop(writer.queue);
        writer.thread.join().unwrap_or(0)
    }
}

impl Writer {
    fn start(root: PathBuf) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel::<(Digest, Vec<u8>)>(QUEUE);
        let thread = std::thread::Builder::new().name("cache".into()).spawn(move || {
            let mut written = 0;
            for (digest, bytes) in jobs {
                // A full disk, a directory that has gone: then it is fetched again.
                if write(&Blobs::path(&root, &digest), &bytes).is_ok() {
                    written += bytes.len() as u64;
                }
            }
            written
        })?;
        Ok(Self { queue, thread })
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    let unnamed = Unnamed::new(path.parent().unwrap_or(path))?;
    unnamed.file().write_all(bytes).map_err(Trouble::cache(path))?;
    unnamed.publish(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_by_another_run_and_damage_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("cache")).unwrap();
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        let blobs = cache.blobs();
        assert_eq!(blobs.get(&one), None);
        assert_eq!(blobs.finish(), 0);
        blobs.keep(one, b"one".to_vec());
        blobs.keep(two, b"two".to_vec());
        assert_eq!(blobs.finish(), 6);
        let later = cache.blobs();
        assert_eq!(later.get(&one).as_deref(), Some(&b"one"[..]));
        fs::write(Blobs::path(&later.root, &two), b"twO").unwrap();
        assert!(later.has(&two));
        assert_eq!(later.get(&two), None);
        assert!(!later.has(&two), "a damaged one is removed");
    }
}
