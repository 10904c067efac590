//! Complete programs, ready to be executed without a pager.
//!
//! A file is checked against its digest once and then marked: with its inode, size, times and the boot. A file system
//! changes the time of the last status change whenever anybody writes, and a crash of the machine, after which data may be
//! missing, is another boot; so a marked file that still fits its mark has the bytes that were checked.

use std::fs::{self, File};
use std::io::Seek as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pagein_image::{Digest, Manifest};

use super::{Cache, mark_used};

impl Cache {
    /// Where the complete file of a program lies.
    pub(crate) fn complete_path(&self, manifest: &Manifest) -> PathBuf {
        self.path_of(manifest.file_digest, &manifest.name)
    }

    fn path_of(&self, digest: Digest, name: &str) -> PathBuf {
        self.root.join("exe").join(format!("all-{}", &digest.to_string()[..16])).join(name)
    }

    pub(super) fn complete(&self, digest: Digest, size: u64, name: &str) -> Option<PathBuf> {
        let path = self.path_of(digest, name);
        let file = File::open(&path).ok()?;
        let meta = file.metadata().ok()?;
        if meta.size() != size || meta.mode() & 0o100 == 0 {
            return None;
        }
        let mark = mark(&meta, digest);
        let marked = checked_path(&path);
        if mark.is_none() || fs::read_to_string(&marked).ok() != mark {
            if digest_of(&file).ok()? != digest {
                return None;
            }
            // Without the mark the next start checks again.
            let _ = mark.map(|mark| fs::write(&marked, mark));
        }
        mark_used(path.parent()?);
        Some(path)
    }
}

/// Notes that `path`, which was just published, has been checked.
pub(crate) fn mark_complete(path: &Path, digest: Digest) {
    let mark = fs::metadata(path).ok().and_then(|meta| mark(&meta, digest));
    let _ = mark.map(|mark| fs::write(checked_path(path), mark));
}

/// Beside the directory and not in it: a program may have any name.
pub(super) fn checked_path(program: &Path) -> PathBuf {
    program.parent().unwrap_or(program).with_extension("checked")
}

fn mark(meta: &fs::Metadata, digest: Digest) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!(
        "{digest} {}:{} {} {}.{} {}.{} {boot}",
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ))
}

/// The digest of a file's bytes.
pub(crate) fn digest_of(mut file: &File) -> std::io::Result<Digest> {
    file.rewind()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_checked_program_is_found_without_reading_it_and_a_changed_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("cache")).unwrap();
        let bytes = b"the program's bytes";
        let digest = Digest::of(bytes);
        let find = || cache.complete(digest, bytes.len() as u64, "tool");
        assert_eq!(find(), None);
        let path = cache.path_of(digest, "tool");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        assert_eq!(find(), None, "not executable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find().as_ref(), Some(&path));
        let marked = checked_path(&path);
        assert!(marked.exists());
        assert_eq!(find().as_ref(), Some(&path));
        // The same size, other bytes, and the modification time set back.
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(b"THE").unwrap();
        file.set_modified(before).unwrap();
        drop(file);
        assert_eq!(find(), None);
    }
}
