//! Files that appear complete or not at all, and of which nothing is left if this process is killed before.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use crate::trouble::Trouble;

/// A file without a name (`O_TMPFILE`, `open(2)`).
pub(crate) struct Unnamed {
    file: File,
}

impl Unnamed {
    /// Makes the directory, if need be, and an empty file in it.
    pub(crate) fn new(directory: &Path) -> Result<Self, Trouble> {
        let error = || Trouble::cache(directory);
        fs::create_dir_all(directory).map_err(error())?;
        let file = tempfile::tempfile_in(directory).map_err(error())?;
        file.set_permissions(fs::Permissions::from_mode(0o700)).map_err(error())?;
        Ok(Self { file })
    }

    /// To be written to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, in the directory that it was made for; whatever had that name before loses it.
    pub(crate) fn publish(self, path: &Path) -> Result<(), Trouble> {
        let error = || Trouble::cache(path);
        let descriptor = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link = || linkat(AT_FDCWD, &descriptor[..], AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW);
        let mut outcome = link();
        if outcome == Err(Errno::EEXIST) {
            fs::remove_file(path).map_err(error())?;
            outcome = link();
        }
        match outcome {
            // Another process was quicker, with the same content: names here are made of digests.
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            // File systems without O_TMPFILE (NFS) gave a file that can never have a name.
            Err(_) => self.copy_to(path).map_err(error()),
        }
    }

    fn copy_to(mut self, path: &Path) -> io::Result<()> {
        use io::Seek as _;
        self.file.rewind()?;
        let mut named = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
        io::copy(&mut self.file, &mut named)?;
        named.as_file().set_permissions(fs::Permissions::from_mode(0o700))?;
        let (file, place) = named.into_parts();
        // Executing a file that is open for writing is refused (ETXTBSY).
        drop(file);
        Ok(place.persist(path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_appears_with_all_its_bytes_and_replaces_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/er/name");
        for text in ["first", "second"] {
            let unnamed = Unnamed::new(path.parent().unwrap()).unwrap();
            unnamed.file().write_all(text.as_bytes()).unwrap();
            unnamed.publish(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let copied = Unnamed::new(path.parent().unwrap()).unwrap();
        copied.file().write_all(b"third").unwrap();
        copied.copy_to(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }
}
