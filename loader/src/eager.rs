//! The whole file first, then exec: the `original` policy, and the way out where the kernel does not page.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pagein_elf::Program;
use pagein_image::{Digest, ImageError, Manifest, PAGE_SIZE, object};
use pagein_source::Source;

use crate::launch::check_interpreter;
use crate::lazy::runs;
use crate::publish::Unnamed;
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
    (right_size && digest_of(&fs::File::open(&path).ok()?).ok()? == manifest.file_digest).then_some(path)
}

fn digest_of(mut file: &fs::File) -> std::io::Result<Digest> {
    use std::io::Seek as _;
    file.rewind()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
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
    let damaged = |error| Trouble::Image { object: place.clone(), error };
    let path = complete_path(cache, manifest);
    let unnamed = Unnamed::new(path.parent().expect("it was joined"))?;
    let file = unnamed.file();
    let pages = manifest.whole_pages();
    let mut rest = &pages[..];
    for (number, frame) in manifest.whole_frames.iter().enumerate() {
        let stored = stream.take(frame.stored_len as usize).await?;
        let raw = frame.decode(&stored, &format!("frame {number}")).map_err(damaged)?;
        let (here, after) = rest.split_at(frame.pages as usize);
        for (first, count) in runs(here, |_| false) {
            let bytes = &raw[first * PAGE_SIZE..(first + count) * PAGE_SIZE];
            file.write_all_at(bytes, here[first].offset().0).map_err(Trouble::cache(&path))?;
        }
        rest = after;
    }
    publish_complete(unnamed, manifest, cache, &place)
}

/// Checks a file that holds all pages, and gives it its name in the cache. `place` is where they came from.
pub(crate) fn publish_complete(
    unnamed: Unnamed,
    manifest: &Manifest,
    cache: &Path,
    place: &str,
) -> Result<PathBuf, Trouble> {
    let path = complete_path(cache, manifest);
    let file = unnamed.file();
    file.set_len(manifest.file_size).map_err(Trouble::cache(&path))?;
    let found = digest_of(file).map_err(Trouble::cache(&path))?;
    if found != manifest.file_digest {
        let (what, expected) = ("the program put together".to_owned(), manifest.file_digest);
        let error = ImageError::Digest { what, expected, found };
        return Err(Trouble::Image { object: place.to_owned(), error });
    }
    let program = Program::parse(manifest.file_size, |offset, len| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    });
    let program = program.map_err(|error| Trouble::Elf { program: manifest.name.clone(), error })?;
    check_interpreter(&manifest.name, &program)?;
    // A good copy that is there stays: other runs may be about to execute it.
    if find_complete(cache, manifest).is_none() {
        unnamed.publish(&path)?;
    }
    Ok(path)
}
