//! An image at its source: manifest, indices, and the units in which its pages are fetched on demand.

use std::sync::Arc;

use pagein_image::{
    Digest, Frame, GroupId, GroupIndex, GroupSet, HEADER_LEN, Manifest, PageNo, Unpacked, object,
    page_file_name,
};
use pagein_model::Policy;
use pagein_source::{ByteRange, Location, Retry, Source, SourceError, fetch};
use tokio::sync::OnceCell;

use crate::cache::Blobs;
use crate::flow::{Flow, at_once};
use crate::stream::ObjectStream;
use crate::trouble::Trouble;

/// Stored length that groups usually have: 16 pages, each of which takes a third of its size.
const GROUP_BYTES: u64 = 16 * 4096 / 3;
/// What a page that is not hot has in [`Remote::frame_of_page`].
const COLD: u32 = u32::MAX;

/// An opened image.
pub(crate) struct Remote {
    pub(crate) source: Arc<dyn Source>,
    /// For what nobody waits for: it must not take the connections of the hot stream.
    pub(crate) background: Arc<dyn Source>,
    pub(crate) retry: Retry,
    pub(crate) manifest: Manifest,
    pub(crate) manifest_digest: Digest,
    /// What earlier runs kept; `None` if the source is as near.
    pub(crate) blobs: Option<Blobs>,
    /// Offset of each hot frame in the object `hot`, and the end of the last.
    pub(crate) frame_offsets: Vec<u64>,
    /// For each page the hot frame that holds it.
    frame_of_page: Vec<u32>,
    /// All of the object `hot`, if its server ignores ranges.
    hot: OnceCell<Vec<u8>>,
    cold: OnceCell<Groups>,
    paged: OnceCell<Groups>,
}

struct Groups {
    index: GroupIndex,
    by_page: Vec<Option<GroupId>>,
}

/// What is fetched by one request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    HotFrame(usize),
    Group(GroupId),
}

/// Reads and checks the manifest at the beginning of `stream`; also returns its stored form. A pinned one may have been
/// kept: then nothing is requested.
pub(crate) async fn read_manifest(
    stream: &mut ObjectStream,
    location: &Location,
    object: &str,
    blobs: Option<&Blobs>,
) -> Result<(Manifest, Vec<u8>), Trouble> {
    let damaged = |error| Trouble::Image { object: location.object(object), error };
    let kept = location.pinned().zip(blobs).and_then(|(pinned, blobs)| blobs.get(&Digest(*pinned)));
    if let Some(stored) = kept {
        return Ok((Manifest::decode(&stored).map_err(damaged)?, stored));
    }
    let len = Manifest::stored_len(stream.peek(HEADER_LEN).await?).map_err(damaged)?;
    let stored = stream.take(len).await?;
    if let Some(pinned) = location.pinned() {
        Digest(*pinned).check(&stored, "the manifest (pinned in the address)").map_err(damaged)?;
    }
    Ok((Manifest::decode(&stored).map_err(damaged)?, stored))
}

impl Remote {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        retry: Retry,
        manifest: Manifest,
        stored: Vec<u8>,
        blobs: Option<Blobs>,
    ) -> Self {
        let mut frame_offsets = vec![stored.len() as u64];
        let mut frame_of_page = vec![COLD; manifest.page_count() as usize];
        let mut rank = 0;
        for (number, frame) in manifest.hot_frames.iter().enumerate() {
            frame_offsets.push(frame_offsets[number] + u64::from(frame.stored_len));
            for page in &manifest.hot_pages[rank..rank + frame.pages as usize] {
                frame_of_page[page.index()] = number as u32;
            }
            rank += frame.pages as usize;
        }
        let manifest_digest = Digest::of(&stored);
        let background = source.beside().unwrap_or_else(|| Arc::clone(&source));
        if let Some(blobs) = blobs.as_ref().filter(|blobs| !blobs.has(&manifest_digest)) {
            blobs.keep(manifest_digest, stored);
        }
        Self {
            source,
            background,
            retry,
            manifest,
            manifest_digest,
            blobs,
            frame_offsets,
            frame_of_page,
            hot: OnceCell::new(),
            cold: OnceCell::new(),
            paged: OnceCell::new(),
        }
    }

    /// Number of hot frames from the first one on that earlier runs kept.
    pub(crate) fn kept_frames(&self) -> usize {
        let Some(blobs) = &self.blobs else { return 0 };
        self.manifest.hot_frames.iter().take_while(|frame| blobs.has(&frame.digest)).count()
    }

    fn kept(&self, digest: &Digest) -> Option<Vec<u8>> {
        self.blobs.as_ref()?.get(digest)
    }

    /// Keeps for later runs what was received and checked.
    pub(crate) fn keep(&self, digest: Digest, stored: Vec<u8>) {
        if let Some(blobs) = &self.blobs {
            blobs.keep(digest, stored);
        }
    }

    /// The hot frame that holds `page`.
    pub(crate) fn frame_of(&self, page: PageNo) -> Option<usize> {
        let frame = self.frame_of_page[page.index()];
        (frame != COLD).then_some(frame as usize)
    }

    /// The pages of a hot frame, in its order.
    pub(crate) fn frame_pages(&self, number: usize) -> &[PageNo] {
        let before: u32 = self.manifest.hot_frames[..number].iter().map(|frame| frame.pages).sum();
        let len = self.manifest.hot_frames[number].pages;
        &self.manifest.hot_pages[before as usize..(before + len) as usize]
    }

    /// What to fetch when `page` is needed now.
    pub(crate) async fn unit(&self, page: PageNo, policy: Policy) -> Result<(Unit, Vec<PageNo>), Trouble> {
        if let Some(frame) =
            self.frame_of(page).filter(|_| policy != Policy::Paged || self.manifest.paged.is_none())
        {
            return Ok((Unit::HotFrame(frame), self.frame_pages(frame).to_vec()));
        }
        let groups = self.groups(policy).await?;
        let Some(id) = groups.by_page[page.index()] else {
            let why = format!("page {page} is in no group");
            let error = pagein_image::ImageError::Invalid { what: "the group index", offset: 0, why };
            return Err(Trouble::Image { object: self.source.describe(object::COLD_INDEX), error });
        };
        Ok((Unit::Group(id), groups.index.group(id).pages.clone()))
    }

    async fn groups(&self, policy: Policy) -> Result<&Groups, Trouble> {
        match self.manifest.paged {
            Some(set) if policy == Policy::Paged => {
                self.paged.get_or_try_init(|| self.load_index(object::PAGED_INDEX, set)).await
            }
            _ => self.cold.get_or_try_init(|| self.load_index(object::COLD_INDEX, self.manifest.cold)).await,
        }
    }

    /// The table of the cold groups, fetched when it is needed first.
    pub(crate) async fn cold_index(&self) -> Result<&GroupIndex, Trouble> {
        let load = || self.load_index(object::COLD_INDEX, self.manifest.cold);
        Ok(&self.cold.get_or_try_init(load).await?.index)
    }

    /// Whether a cold group was kept by an earlier run.
    pub(crate) async fn has_kept(&self, id: GroupId) -> Result<bool, Trouble> {
        let Some(blobs) = &self.blobs else { return Ok(false) };
        Ok(blobs.has(&self.cold_index().await?.group(id).frame.digest))
    }

    /// Mean stored length of the cold groups, as soon as their table is here; before that what it usually is.
    pub(crate) fn group_bytes(&self) -> u64 {
        let set = self.manifest.cold;
        let groups = self.cold.get().map_or(1, |groups| groups.index.groups().len().max(1));
        if groups > 1 { set.data_len / groups as u64 } else { GROUP_BYTES }
    }

    /// A part of an object, in one request.
    pub(crate) fn stream_part(&self, object: &'static str, range: ByteRange) -> ObjectStream {
        let (source, retry) = (Arc::clone(&self.source), self.retry.clone());
        let flow = Flow::new(Arc::clone(&source), object, range, retry.clone(), at_once());
        ObjectStream::of_flow(source, object, retry, flow)
    }

    async fn load_index(&self, name: &'static str, set: GroupSet) -> Result<Groups, Trouble> {
        let kept = self.kept(&set.index_digest);
        let is_new = kept.is_none();
        let stored = match kept {
            Some(stored) => stored,
            None => fetch(&*self.background, name, None, u64::from(set.index_len), &self.retry).await?,
        };
        let file_size = self.manifest.file_size;
        let index = GroupIndex::decode(&stored, &set, file_size)
            .map_err(|error| Trouble::Image { object: self.source.describe(name), error })?;
        if is_new {
            self.keep(set.index_digest, stored);
        }
        let by_page = index.by_page(file_size);
        Ok(Groups { index, by_page })
    }

    /// Fetches, checks and decompresses a unit, which `holds` these pages.
    pub(crate) async fn fetch(
        &self,
        unit: &Unit,
        holds: &[PageNo],
        policy: Policy,
    ) -> Result<Unpacked, Trouble> {
        let (name, range, frame) = self.place(unit, policy).await?;
        let linked = self.manifest.linking.pages();
        let damaged = |error| Trouble::Image { object: self.source.describe(&name), error };
        if let Some(stored) = self.kept(&frame.digest) {
            return frame.decode_linked(&stored, holds, linked, "it").map_err(damaged);
        }
        let expected = u64::from(frame.stored_len);
        let what = range.as_ref().map_or_else(|| "it".into(), |r| format!("bytes {}-{}", r.start, r.end - 1));
        let stored = match fetch(&*self.source, &name, range.clone(), expected, &self.retry).await {
            Err(SourceError::RangeIgnored { .. }) if name == object::HOT => self.cut_from_hot(range).await?,
            other => other?,
        };
        let unpacked = frame.decode_linked(&stored, holds, linked, &what).map_err(damaged)?;
        self.keep(frame.digest, stored);
        Ok(unpacked)
    }

    /// Which bytes of which object a unit is.
    async fn place(
        &self,
        unit: &Unit,
        policy: Policy,
    ) -> Result<(String, Option<ByteRange>, Frame), Trouble> {
        Ok(match unit {
            Unit::HotFrame(number) => {
                let range = self.frame_offsets[*number]..self.frame_offsets[*number + 1];
                (object::HOT.into(), Some(range), self.manifest.hot_frames[*number])
            }
            Unit::Group(id) => {
                let group = self.groups(policy).await?.index.group(*id);
                if self.manifest.page_files {
                    (page_file_name(&group.frame.digest), None, group.frame)
                } else {
                    let paged = policy == Policy::Paged && self.manifest.paged.is_some();
                    let name = if paged { object::PAGED } else { object::COLD };
                    (name.into(), Some(group.range()), group.frame)
                }
            }
        })
    }

    /// Part of the object `hot` from a server that only sends all of it, which images with page files may lie on.
    async fn cut_from_hot(&self, range: Option<ByteRange>) -> Result<Vec<u8>, SourceError> {
        let len = *self.frame_offsets.last().expect("at least the end of the manifest");
        let all = || fetch(&*self.source, object::HOT, None, len, &self.retry);
        let hot = self.hot.get_or_try_init(all).await?;
        let range = range.unwrap_or(0..len);
        Ok(hot[range.start as usize..range.end as usize].to_vec())
    }
}
