//! An image at its source: manifest, indices, hot frames, and the groups in which its pages are fetched on demand.

use std::sync::Arc;

use pagein_image::{
    Digest, GroupId, GroupIndex, GroupSet, HEADER_LEN, Manifest, PageNo, Unpacked, object, page_file_name,
};
use pagein_model::Policy;
use pagein_source::{ByteRange, Location, Retry, Source, fetch};
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
    /// The same over connections of its own: what it brings must not take those of the hot stream.
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
    groups: OnceCell<Groups>,
    paged: OnceCell<Groups>,
}

struct Groups {
    index: GroupIndex,
    by_page: Vec<Option<GroupId>>,
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
            groups: OnceCell::new(),
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

    /// Size of the object `hot`, bytes.
    pub(crate) fn hot_end(&self) -> u64 {
        self.frame_offsets.last().map_or(0, |&end| end)
    }

    /// Size of the object `whole`, which begins with `hot`, bytes.
    pub(crate) fn whole_end(&self) -> u64 {
        let rest = self.manifest.rest_frames.iter().map(|frame| u64::from(frame.stored_len));
        self.hot_end() + rest.sum::<u64>()
    }

    /// The pages of a hot frame, in its order.
    pub(crate) fn frame_pages(&self, number: usize) -> &[PageNo] {
        let before: u32 = self.manifest.hot_frames[..number].iter().map(|frame| frame.pages).sum();
        let len = self.manifest.hot_frames[number].pages;
        &self.manifest.hot_pages[before as usize..(before + len) as usize]
    }

    /// The stored bytes of a hot frame: kept by an earlier run, or from the source if they were damaged there.
    pub(crate) async fn stored_frame(&self, number: usize) -> Result<Vec<u8>, Trouble> {
        let frame = self.manifest.hot_frames[number];
        if let Some(stored) = self.kept(&frame.digest) {
            return Ok(stored);
        }
        let mut stream = ObjectStream::new(Arc::clone(&self.source), object::HOT, self.retry.clone());
        stream.skip_to(self.frame_offsets[number], self.frame_offsets[number + 1]);
        let stored = stream.take(frame.stored_len as usize).await?;
        self.keep(frame.digest, stored.clone());
        Ok(stored)
    }

    /// What to fetch when `page` is needed now, and its pages.
    pub(crate) async fn group_of(
        &self,
        page: PageNo,
        policy: Policy,
    ) -> Result<(GroupId, &[PageNo]), Trouble> {
        let groups = self.groups(policy).await?;
        let Some(id) = groups.by_page[page.index()] else {
            let why = format!("page {page} is in no group");
            let error = pagein_image::ImageError::Invalid { what: "the group index", offset: 0, why };
            return Err(Trouble::Image { object: self.source.describe(object::GROUPS_INDEX), error });
        };
        Ok((id, &groups.index.group(id).pages))
    }

    async fn groups(&self, policy: Policy) -> Result<&Groups, Trouble> {
        match self.manifest.paged {
            Some(set) if policy == Policy::Paged => {
                self.paged.get_or_try_init(|| self.load_index(object::PAGED_INDEX, set)).await
            }
            _ => {
                let load = || self.load_index(object::GROUPS_INDEX, self.manifest.groups);
                self.groups.get_or_try_init(load).await
            }
        }
    }

    /// The table of the groups, fetched when it is needed first.
    pub(crate) async fn group_index(&self) -> Result<&GroupIndex, Trouble> {
        Ok(&self.groups(Policy::Streamed).await?.index)
    }

    /// Whether a group was kept by an earlier run.
    pub(crate) async fn has_kept(&self, id: GroupId) -> Result<bool, Trouble> {
        let Some(blobs) = &self.blobs else { return Ok(false) };
        Ok(blobs.has(&self.group_index().await?.group(id).frame.digest))
    }

    /// Mean stored length of the groups, as soon as their table is here; before that what it usually is.
    pub(crate) fn group_bytes(&self) -> u64 {
        let count = self.groups.get().map_or(1, |groups| groups.index.groups().len().max(1));
        if count > 1 { self.manifest.groups.data_len / count as u64 } else { GROUP_BYTES }
    }

    /// A part of an object, in one request.
    pub(crate) fn stream_part(
        &self,
        source: &Arc<dyn Source>,
        object: &'static str,
        range: ByteRange,
    ) -> ObjectStream {
        let (source, retry) = (Arc::clone(source), self.retry.clone());
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

    /// Fetches, checks and decompresses a group.
    pub(crate) async fn fetch(
        &self,
        source: &Arc<dyn Source>,
        id: GroupId,
        policy: Policy,
    ) -> Result<Unpacked, Trouble> {
        let group = self.groups(policy).await?.index.group(id);
        let (name, range) = if self.manifest.page_files {
            (page_file_name(&group.frame.digest), None)
        } else {
            let is_paged = policy == Policy::Paged && self.manifest.paged.is_some();
            let name = if is_paged { object::PAGED } else { object::GROUPS };
            (name.to_owned(), Some(group.range()))
        };
        let linked = self.manifest.linking.pages();
        let damaged = |error| Trouble::Image { object: self.source.describe(&name), error };
        if let Some(stored) = self.kept(&group.frame.digest) {
            return group.frame.decode_group(&stored, &group.pages, linked, "it").map_err(damaged);
        }
        let expected = u64::from(group.frame.stored_len);
        let what = range.as_ref().map_or_else(|| "it".into(), |r| format!("bytes {}-{}", r.start, r.end - 1));
        let stored = fetch(&**source, &name, range, expected, &self.retry).await?;
        let unpacked = group.frame.decode_group(&stored, &group.pages, linked, &what).map_err(damaged)?;
        self.keep(group.frame.digest, stored);
        Ok(unpacked)
    }
}
