//! The whole file first, then exec: the `original` policy, and the way out where the kernel does not page.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use pagein_elf::Program;
use pagein_image::{ImageError, Manifest, PAGE_SIZE, StreamDecoder, object};
use pagein_source::Source;

use crate::cache::{Cache, digest_of, mark_complete};
use crate::launch::check_interpreter;
use crate::lazy::runs;
use crate::publish::Unnamed;
use crate::stream::ObjectStream;
use crate::trouble::Trouble;

/// Receives all frames of the object `whole` behind its manifest, and puts the file into the cache.
pub(crate) async fn fetch_complete(
    source: &dyn Source,
    stream: &mut ObjectStream,
    manifest: &Manifest,
    cache: &Cache,
) -> Result<PathBuf, Trouble> {
    let place = source.describe(object::WHOLE);
    let damaged = |error| Trouble::Image { object: place.clone(), error };
    let path = cache.complete_path(manifest);
    let unnamed = Unnamed::new(path.parent().expect("it was joined"))?;
    let file = unnamed.file();
    let pages = manifest.whole_pages();
    let mut rest = &pages[..];
    let mut decoder = StreamDecoder::default();
    for (number, frame) in manifest.whole_frames().enumerate() {
        let stored = stream.take(frame.stored_len as usize).await?;
        let (here, after) = rest.split_at(frame.pages as usize);
        let unpacked =
            decoder.decode(frame, &stored, here, manifest.linking.pages(), &format!("frame {number}"));
        let raw = unpacked.map_err(damaged)?.into_file_form();
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
    cache: &Cache,
    place: &str,
) -> Result<PathBuf, Trouble> {
    let path = cache.complete_path(manifest);
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
    if cache.find_complete(manifest).is_none() {
        unnamed.publish(&path)?;
        mark_complete(&path, manifest.file_digest);
    }
    Ok(path)
}
