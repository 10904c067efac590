//! Writes an image's directory: beside its place first, then renamed, so that it is there completely or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pagein_image::{object, page_file_name};
use tempfile::TempDir;

use crate::SplitError;
use crate::pack::Frames;

/// Refuses an output directory that holds something else than an image.
pub(crate) fn check_output(output: &Path) -> Result<(), SplitError> {
    let is_empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(output).is_err() || output.join(object::HOT).is_file() || is_empty(output) {
        return Ok(());
    }
    Err(SplitError::OutputExists { path: output.into() })
}

/// An image that is being written; dropped unpublished, it disappears.
pub(crate) struct Output {
    place: PathBuf,
    temporary: TempDir,
}

impl Output {
    pub(crate) fn new(place: &Path) -> Result<Self, SplitError> {
        let place = std::path::absolute(place).map_err(SplitError::file(place))?;
        let parent = place.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(SplitError::file(parent))?;
        let temporary = tempfile::Builder::new().prefix(".pagein-").tempdir_in(parent);
        let temporary = temporary.map_err(SplitError::file(parent))?;
        // A temporary directory is private; what a web server is to serve must not be.
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o755))
            .map_err(SplitError::file(temporary.path()))?;
        Ok(Self { place, temporary })
    }

    /// Writes one object from its parts.
    pub(crate) fn object<'a>(
        &mut self,
        name: &str,
        parts: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Result<(), SplitError> {
        let path = self.temporary.path().join(name);
        let write = || {
            let mut file = BufWriter::new(File::create(&path)?);
            parts.into_iter().try_for_each(|part| file.write_all(part))?;
            file.into_inner()?.sync_data()
        };
        // The message names the place that the user gave.
        write().map_err(SplitError::file(self.place.join(name)))
    }

    /// Writes every group as a file named by its digest.
    pub(crate) fn page_files(&mut self, packed: &Frames) -> Result<(), SplitError> {
        for (frame, bytes) in packed.frames.iter().zip(&packed.data) {
            let name = page_file_name(&frame.digest);
            let path = self.temporary.path().join(&name);
            let directory = path.parent().expect("page files lie in directories");
            let write = || {
                fs::create_dir_all(directory)?;
                fs::write(&path, bytes)
            };
            write().map_err(SplitError::file(self.place.join(name)))?;
        }
        Ok(())
    }

    /// Puts the image in its place; an older one there is removed.
    pub(crate) fn publish(self) -> Result<(), SplitError> {
        let error = || SplitError::file(&self.place);
        let fresh = self.temporary.path().join("");
        let mut old = None;
        if fs::symlink_metadata(&self.place).is_ok() {
            let parent = self.place.parent().unwrap_or(Path::new("/"));
            let aside = tempfile::Builder::new().prefix(".pagein-old-").tempdir_in(parent).map_err(error())?;
            fs::rename(&self.place, aside.path().join("image")).map_err(error())?;
            old = Some(aside);
        }
        if let Err(reason) = fs::rename(fresh, &self.place) {
            // The old image would go with its temporary directory.
            if let Some(old) = &old {
                let _ = fs::rename(old.path().join("image"), &self.place);
            }
            return Err(error()(reason));
        }
        // It is no longer where the guard would remove it.
        let _ = self.temporary.keep();
        Ok(())
    }
}
