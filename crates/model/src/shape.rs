//! What the decision must know of an image: sizes and probabilities, no pages.

use std::time::Duration;

use pagein_image::{Frame, GroupSet, Manifest};

/// Some pages that travel together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Part {
    /// Stored bytes.
    pub bytes: u64,
    /// Pages.
    pub pages: u32,
    /// Pages of it that one run is expected to touch: the sum of their probabilities.
    pub expected: f64,
}

/// Groups that are fetched on demand, and their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Groups {
    /// Stored bytes of all groups.
    pub bytes: u64,
    /// Pages in them.
    pub pages: u32,
    /// Stored bytes of the index.
    pub index_bytes: u64,
}

/// An image as the model sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shape {
    /// Traces that it was cut with.
    pub traces: u32,
    /// The program opens its own file, so all of it must be there.
    pub reads_self: bool,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// What must be there before exec.
    pub exec: Part,
    /// The hot frames behind it, in order.
    pub hot: Vec<Part>,
    /// Groups of the pages that are not hot; of all groups a share that corresponds to their number.
    pub cold: Groups,
    /// Groups of all pages in file order, if there are any.
    pub paged: Option<Groups>,
    /// Bytes of the object `whole`, manifest included.
    pub whole_bytes: u64,
    /// Bytes of the frames of `whole` behind the hot ones.
    pub rest_bytes: u64,
    /// Time that the program computes; zero if it is not known, which the manifest does not say.
    pub cpu: Duration,
}

impl Shape {
    /// The shape of an image whose stored manifest has `manifest_bytes`.
    pub fn of(manifest: &Manifest, manifest_bytes: u64) -> Self {
        let traces = f64::from(manifest.traces.max(1));
        let mut touched = manifest.hot_touched.iter();
        let mut parts: Vec<Part> = manifest
            .hot_frames
            .iter()
            .map(|frame| {
                let counts = touched.by_ref().take(frame.pages as usize);
                let expected = counts.map(|&count| f64::from(count) / traces).sum();
                Part { bytes: frame.stored_len.into(), pages: frame.pages, expected }
            })
            .collect();
        let hot = parts.split_off((manifest.exec_frames as usize).min(parts.len()));
        let exec = parts.iter().fold(Part::default(), |all, part| all.and(*part));
        let hot_pages = manifest.hot_pages.len() as u32;
        let sum =
            |frames: &mut dyn Iterator<Item = &Frame>| frames.map(|frame| u64::from(frame.stored_len)).sum();
        let (pages, cold_pages) = (manifest.page_count(), manifest.page_count() - hot_pages);
        let groups =
            |set: &GroupSet, pages| Groups { bytes: set.data_len, pages, index_bytes: set.index_len.into() };
        let all = groups(&manifest.groups, pages);
        let cold_bytes = all.bytes_per_page() * f64::from(cold_pages);
        Self {
            traces: manifest.traces,
            reads_self: manifest.reads_self,
            manifest_bytes,
            exec: Part { expected: f64::from(exec.pages), ..exec },
            hot,
            cold: Groups { bytes: cold_bytes as u64, pages: cold_pages, ..all },
            paged: manifest.paged.as_ref().map(|set| groups(set, pages)),
            whole_bytes: manifest_bytes + sum(&mut manifest.whole_frames()),
            rest_bytes: sum(&mut manifest.rest_frames.iter()),
            cpu: Duration::ZERO,
        }
    }

    /// All hot frames behind those for exec, together.
    pub fn hot_total(&self) -> Part {
        self.hot.iter().fold(Part::default(), |all, part| all.and(*part))
    }

    /// Bytes of the object `hot`.
    pub fn hot_bytes(&self) -> u64 {
        self.manifest_bytes + self.exec.bytes + self.hot_total().bytes
    }
}

impl Part {
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            pages: self.pages + other.pages,
            expected: self.expected + other.expected,
        }
    }
}

impl Groups {
    /// Mean stored bytes of a page.
    pub fn bytes_per_page(&self) -> f64 {
        self.bytes as f64 / f64::from(self.pages.max(1))
    }
}
