//! Reads an image for people who look at it: `inspect` and `verify`.

use std::sync::Arc;

use pagein_image::{Digest, GroupIndex, GroupSet, HEADER_LEN, ImageError, Manifest, object};
use pagein_loader::Failure;
use pagein_source::{Location, Options, Source, SourceError, fetch};

/// An opened image.
pub(crate) struct Image {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) options: Options,
    pub(crate) manifest: Manifest,
    /// The manifest as stored.
    pub(crate) stored: Vec<u8>,
}

pub(crate) fn source_failure(error: &SourceError) -> Failure {
    let missing = matches!(error.kind(), SourceError::NotFound { .. });
    Failure { code: if missing { Failure::NOT_FOUND } else { Failure::PAGEIN }, text: error.to_string() }
}

pub(crate) fn image_failure(place: &str, error: &ImageError) -> Failure {
    Failure { code: Failure::PAGEIN, text: format!("{place}: {error}") }
}

impl Image {
    /// Reads and checks the manifest.
    pub(crate) async fn open(location: &Location) -> Result<Self, Failure> {
        let options = Options::default();
        let source = pagein_source::open(location, &options).map_err(|e| source_failure(&e))?;
        let place = source.describe(object::HOT);
        let damaged = |error| image_failure(&place, &error);
        let mut body = source.get(object::HOT, None).await.map_err(|e| source_failure(&e))?;
        let mut start = Vec::new();
        let mut needed = HEADER_LEN;
        // Only as much as the manifest has: the hot frames may be large.
        loop {
            match body.chunk().await.map_err(|e| source_failure(&e))? {
                Some(chunk) => start.extend_from_slice(&chunk),
                None => break,
            }
            if start.len() >= needed {
                needed = Manifest::stored_len(&start[..start.len().min(HEADER_LEN)]).map_err(damaged)?;
                if start.len() >= needed {
                    break;
                }
            }
        }
        start.truncate(needed);
        if let Some(pinned) = location.pinned() {
            Digest(*pinned).check(&start, "the manifest (pinned in the address)").map_err(damaged)?;
        }
        let manifest = Manifest::decode(&start).map_err(damaged)?;
        Ok(Self { source, options, manifest, stored: start })
    }

    /// The group sets that the image has: object, index object, where.
    pub(crate) fn group_sets(&self) -> Vec<(&'static str, &'static str, GroupSet)> {
        let groups = Some((object::GROUPS, object::GROUPS_INDEX, self.manifest.groups));
        let paged = self.manifest.paged.map(|set| (object::PAGED, object::PAGED_INDEX, set));
        groups.into_iter().chain(paged).collect()
    }

    /// Reads and checks an index.
    pub(crate) async fn index(&self, name: &str, set: &GroupSet) -> Result<GroupIndex, Failure> {
        let retry = self.options.retry();
        let stored = fetch(&*self.source, name, None, u64::from(set.index_len), &retry).await;
        let stored = stored.map_err(|e| source_failure(&e))?;
        GroupIndex::decode(&stored, set, self.manifest.file_size)
            .map_err(|e| image_failure(&self.source.describe(name), &e))
    }
}
