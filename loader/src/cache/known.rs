//! What earlier runs learned about images and sources. It only saves work: what is wrong or missing here is found out again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pagein_image::{Digest, Manifest};
use pagein_source::Location;
use serde::{Deserialize, Serialize};

use super::{Cache, mark_used};
use crate::publish::Unnamed;

/// The program of an image.
#[derive(Debug, PartialEq)]
pub(crate) struct KnownImage {
    pub(crate) name: String,
    pub(crate) file_size: u64,
    pub(crate) file_digest: Digest,
}

impl KnownImage {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self { name: manifest.name.clone(), file_size: manifest.file_size, file_digest: manifest.file_digest }
    }
}

/// The image that a source had when it was last looked at.
#[derive(Debug, PartialEq)]
pub(crate) struct KnownSource {
    pub(crate) manifest: Digest,
    /// Bytes of the stored manifest.
    pub(crate) manifest_len: u64,
}

#[derive(Serialize, Deserialize)]
struct ImageRecord {
    name: String,
    file_size: u64,
    file_digest: String,
}

#[derive(Serialize, Deserialize)]
struct SourceRecord {
    manifest: String,
    manifest_len: u64,
}

impl Cache {
    /// Notes what `source` has now.
    pub(crate) fn learn(&self, source: &Location, known: &KnownSource, image: &KnownImage) {
        let image = ImageRecord {
            name: image.name.clone(),
            file_size: image.file_size,
            file_digest: image.file_digest.to_string(),
        };
        let record = SourceRecord { manifest: known.manifest.to_string(), manifest_len: known.manifest_len };
        put(&self.image_path(known.manifest), &image);
        put(&self.source_path(source), &record);
    }

    pub(super) fn known_image(&self, digest: Digest) -> Option<KnownImage> {
        let path = self.image_path(digest);
        let record: ImageRecord = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        mark_used(&path);
        // A name with a slash never came from a manifest.
        let file_digest = record.file_digest.parse().ok()?;
        (!record.name.contains('/')).then_some(KnownImage {
            name: record.name,
            file_size: record.file_size,
            file_digest,
        })
    }

    /// The image of `source`, if it was looked at no longer than `max_age` ago.
    pub(crate) fn known_source(&self, source: &Location, max_age: Duration) -> Option<KnownSource> {
        let path = self.source_path(source);
        let age = SystemTime::now().duration_since(fs::metadata(&path).ok()?.modified().ok()?);
        if age.is_ok_and(|age| age > max_age) {
            return None;
        }
        let record: SourceRecord = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        Some(KnownSource { manifest: record.manifest.parse().ok()?, manifest_len: record.manifest_len })
    }

    fn image_path(&self, digest: Digest) -> PathBuf {
        self.root.join("images").join(&digest.to_string()[..32])
    }

    /// Addresses may hold passwords, so their digest is the name.
    fn source_path(&self, source: &Location) -> PathBuf {
        let name = Digest::of(source.argument(&[0; 32]).as_bytes()).to_string();
        self.root.join("sources").join(&name[..32])
    }
}

fn put(path: &Path, record: &impl Serialize) {
    let Some(directory) = path.parent() else { return };
    // A full disk costs only what this would have saved.
    if let Ok(unnamed) = Unnamed::new(directory)
        && serde_json::to_writer(unnamed.file(), record).is_ok()
    {
        let _ = unnamed.publish(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_known_for_as_long_as_asked_and_garbage_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("cache")).unwrap();
        let source = Location::parse("https://user:secret@host/tool").unwrap();
        let digest = Digest::of(b"manifest");
        let image = KnownImage { name: "tool".into(), file_size: 7, file_digest: Digest::of(b"file") };
        let hour = Duration::from_secs(3600);
        assert_eq!(cache.known_source(&source, hour), None);
        let known = KnownSource { manifest: digest, manifest_len: 99 };
        cache.learn(&source, &known, &image);
        assert_eq!(cache.known_source(&source, hour), Some(known));
        assert_eq!(cache.known_image(digest), Some(image));
        assert_eq!(cache.known_source(&Location::parse("https://host/other").unwrap(), hour), None);
        let path = cache.source_path(&source);
        assert!(!path.display().to_string().contains("secret"));
        fs::File::open(&path).unwrap().set_modified(SystemTime::now() - 2 * hour).unwrap();
        assert_eq!(cache.known_source(&source, hour), None, "too long ago");
        fs::write(&path, b"{\"manifest\": 3").unwrap();
        fs::write(cache.image_path(digest), b"{\"name\":\"../../x\",\"file_size\":1,\"file_digest\":\"\"}")
            .unwrap();
        assert_eq!(cache.known_source(&source, hour), None);
        assert_eq!(cache.known_image(digest), None);
    }
}
