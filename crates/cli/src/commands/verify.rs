//! `pagein verify`.

use std::process::ExitCode;

use pagein_image::{
    Frame, Group, ImageError, Manifest, PAGE_SIZE, PageNo, StreamDecoder, Unpacked, object, page_file_name,
};
use pagein_loader::Failure;
use pagein_source::{ByteRange, fetch};
use serde::Serialize;

use super::image::Image;
use super::{bytes, print, print_json, runtime};
use crate::args;

#[derive(Serialize)]
struct Json {
    source: String,
    ok: bool,
    objects_checked: usize,
    frames_checked: usize,
    bytes_checked: u64,
    problems: Vec<String>,
}

pub(crate) fn verify(args: &args::Verify) -> Result<ExitCode, Failure> {
    let json = runtime()?.block_on(async {
        let image = Image::open(&args.source).await?;
        let mut check = Check::new(image);
        check.all().await;
        Ok::<_, Failure>(Json {
            source: args.source.to_string(),
            ok: check.problems.is_empty(),
            objects_checked: check.objects,
            frames_checked: check.frames,
            bytes_checked: check.bytes,
            problems: check.problems,
        })
    })?;
    if args.json {
        print_json(&json)?;
    } else {
        json.problems.iter().try_for_each(|problem| print(&format!("damaged: {problem}")))?;
        let verdict = if json.ok { "all is well" } else { "damaged; cut and upload the image again" };
        let (frames, size) = (json.frames_checked, bytes(json.bytes_checked));
        print(&format!(
            "{}: {} objects, {frames} frames, {size}: {verdict}",
            json.source, json.objects_checked
        ))?;
    }
    Ok(if json.ok { ExitCode::SUCCESS } else { ExitCode::from(Failure::PAGEIN) })
}

struct Check {
    image: Image,
    /// The program, as put together from the object `whole`.
    file: Vec<u8>,
    objects: usize,
    frames: usize,
    bytes: u64,
    problems: Vec<String>,
}

impl Check {
    fn new(image: Image) -> Self {
        Self { image, file: Vec::new(), objects: 0, frames: 0, bytes: 0, problems: Vec::new() }
    }

    async fn all(&mut self) {
        let manifest = self.image.manifest.clone();
        self.file = vec![0; manifest.page_count() as usize * PAGE_SIZE];
        self.whole(&manifest).await;
        self.frames_of(object::HOT, &manifest.hot_frames, &manifest.hot_pages, false).await;
        for (name, index_name, set) in self.image.group_sets() {
            self.objects += 1;
            self.bytes += u64::from(set.index_len);
            match self.image.index(index_name, &set).await {
                Ok(index) => self.groups(name, &manifest, index.groups()).await,
                Err(failure) => self.problems.push(failure.text),
            }
        }
    }

    async fn whole(&mut self, manifest: &Manifest) {
        let pages = manifest.whole_pages();
        let frames: Vec<Frame> = manifest.whole_frames().copied().collect();
        if !self.frames_of(object::WHOLE, &frames, &pages, true).await {
            return;
        }
        let file = &self.file[..manifest.file_size as usize];
        if let Err(error) = manifest.file_digest.check(file, "the program put together") {
            self.problems.push(format!("{}: {error}", self.image.source.describe(object::WHOLE)));
        }
    }

    /// Checks an object that begins with the manifest; whether all of it was well.
    async fn frames_of(&mut self, name: &str, frames: &[Frame], pages: &[PageNo], fills_file: bool) -> bool {
        self.objects += 1;
        let place = self.image.source.describe(name);
        let head = self.image.stored.len();
        let len = head as u64 + frames.iter().map(|frame| u64::from(frame.stored_len)).sum::<u64>();
        let Some(object) = self.fetch(name, None, len).await else { return false };
        let before = self.problems.len();
        if object[..head] != self.image.stored {
            self.problems.push(format!("{place}: its manifest is not that of {}", object::HOT));
        }
        let linked = self.image.manifest.linking.pages().clone();
        let mut decoder = StreamDecoder::default();
        let mut at = head;
        let mut rest = pages;
        for (number, frame) in frames.iter().enumerate() {
            let stored = &object[at..at + frame.stored_len as usize];
            let (here, after) = rest.split_at(frame.pages as usize);
            let what = format!("frame {number}");
            let unpacked = decoder.decode(frame, stored, here, &linked, &what);
            let is_bad = unpacked.is_err();
            self.compare(&place, &what, here, unpacked, fills_file);
            if is_bad {
                // What follows cannot be unpacked without it.
                return false;
            }
            at += stored.len();
            rest = after;
        }
        self.problems.len() == before
    }

    async fn groups(&mut self, name: &str, manifest: &Manifest, groups: &[Group]) {
        self.objects += 1;
        for group in groups {
            let (object, range) = if manifest.page_files {
                (page_file_name(&group.frame.digest), None)
            } else {
                (name.to_owned(), Some(group.range()))
            };
            let what =
                range.as_ref().map_or_else(|| "it".into(), |r| format!("bytes {}-{}", r.start, r.end - 1));
            let Some(stored) = self.fetch(&object, range, u64::from(group.frame.stored_len)).await else {
                // One problem says enough about an object that is not there.
                return;
            };
            let place = self.image.source.describe(&object);
            let linked = self.image.manifest.linking.pages();
            let unpacked = group.frame.decode_group(&stored, &group.pages, linked, &what);
            self.compare(&place, &what, &group.pages, unpacked, false);
        }
    }

    /// Compares pages with the file, or fills it with them.
    fn compare(
        &mut self,
        place: &str,
        what: &str,
        pages: &[PageNo],
        unpacked: Result<Unpacked, ImageError>,
        fills_file: bool,
    ) {
        self.frames += 1;
        let raw = match unpacked {
            Ok(unpacked) => unpacked.into_file_form(),
            Err(error) => return self.problems.push(format!("{place}: {error}")),
        };
        for (page, bytes) in pages.iter().zip(raw.chunks_exact(PAGE_SIZE)) {
            let start = page.offset().0 as usize;
            let known = &mut self.file[start..start + PAGE_SIZE];
            if fills_file {
                known.copy_from_slice(bytes);
            } else if known != bytes {
                self.problems.push(format!("{place}: {what}: page {page} is not that of {}", object::WHOLE));
            }
        }
    }

    async fn fetch(&mut self, name: &str, range: Option<ByteRange>, len: u64) -> Option<Vec<u8>> {
        match fetch(&*self.image.source, name, range, len, &self.image.options.retry()).await {
            Ok(stored) => {
                self.bytes += len;
                Some(stored)
            }
            Err(error) => {
                self.problems.push(error.to_string());
                None
            }
        }
    }
}
