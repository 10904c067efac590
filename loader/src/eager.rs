//! The whole file first, then exec: the `original` policy, and the way out where the kernel does not page.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pagein_elf::Program;
use pagein_image::{Digest, Manifest, PAGE_SIZE, object};
use pagein_source::Source;

use crate::exec_file::publish;
use crate::launch::check_interpreter;
use crate::stream::ObjectStream;
use crate::trouble::Trouble;

/// Where the complete file of a program lies in the cache.
pub(crate) fn complete_path(cache: &Path, manifest: &Manifest) -> PathBuf {
    cache.join("exe").join(format!("all-{}", &manifest.file_digest.to_string()[..16])).join(&manifest.name)
}

/// The complete file, if it is in the cache and undamaged.
pub(crate) fn find_complete(cache: &Path, manifest: &Manifest) -> Option<PathBuf> {
    let path = complete_path(cache, manifest);
    let right_size = fs::metadata(&path).ok()?.size() == manifest.file_size;
    (right_size && digest_of_file(&path).ok()? == manifest.file_digest).then_some(path)
}

/// The digest of a file, read by mapping it.
pub(crate) fn digest_of_file(path: &Path) -> std::io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path)?)?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Receives all frames of the object `whole` behind its manifest, and puts the file into the cache.
pub(crate) async fn fetch_complete(
    source: &dyn Source,
    stream: &mut ObjectStream,
    manifest: &Manifest,
    cache: &Path,
) -> Result<PathBuf, Trouble> {
    let place = source.describe(object::WHOLE);
    let mut file = vec![0; manifest.file_size.next_multiple_of(PAGE_SIZE as u64) as usize];
    let pages = manifest.whole_pages();
    let mut rest = &pages[..];
    for (number, frame) in manifest.whole_frames.iter().enumerate() {
        let stored = stream.take(frame.stored_len as usize).await?;
        let damaged = |error| Trouble::Image { object: place.clone(), error };
        let raw = frame.decode(&stored, &format!("frame {number}")).map_err(damaged)?;
        let (here, after) = rest.split_at(frame.pages as usize);
        for (page, bytes) in here.iter().zip(raw.chunks_exact(PAGE_SIZE)) {
            let start = page.offset().0 as usize;
            file[start..start + PAGE_SIZE].copy_from_slice(bytes);
        }
        rest = after;
    }
    file.truncate(manifest.file_size as usize);
    manifest
        .file_digest
        .check(&file, "the program put together")
        .map_err(|error| Trouble::Image { object: place, error })?;
    let program =
        Program::parse_file(&file).map_err(|error| Trouble::Elf { program: manifest.name.clone(), error })?;
    check_interpreter(&manifest.name, &program)?;
    let path = complete_path(cache, manifest);
    let directory = path.parent().expect("it was joined");
    publish(directory, &path, |out| out.write_all_at(&file, 0))?;
    Ok(path)
}
