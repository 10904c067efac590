//! Unpacks the frames of an image, each of which continues the one before.

use std::sync::{Condvar, Mutex};

use pagein_image::{Frame, ImageError, LinkedPages, PageNo, StreamDecoder, Unpacked};

use crate::processes::lock;

/// How far the frames have been unpacked.
#[derive(Default)]
pub(crate) struct InOrder {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Default)]
struct Progress {
    decoder: StreamDecoder,
    /// Number of the next frame.
    next: usize,
    /// Nothing follows.
    ended: bool,
}

impl InOrder {
    /// Unpacks frame `number` of the object `whole`, as soon as all before it are; `None` if they do not come any more.
    pub(crate) fn decode(
        &self,
        number: usize,
        frame: &Frame,
        stored: &[u8],
        pages: &[PageNo],
        linked: &LinkedPages,
    ) -> Option<Result<Unpacked, ImageError>> {
        let progress = lock(&self.progress);
        let is_early = |progress: &mut Progress| progress.next < number && !progress.ended;
        let mut progress =
            self.moved.wait_while(progress, is_early).unwrap_or_else(std::sync::PoisonError::into_inner);
        if progress.ended {
            return None;
        }
        let unpacked = progress.decoder.decode(frame, stored, pages, linked, &format!("frame {number}"));
        progress.next += 1;
        progress.ended = unpacked.is_err();
        self.moved.notify_all();
        Some(unpacked)
    }

    /// No frame follows the ones that have come: who waits for one need not any more.
    pub(crate) fn end(&self) {
        lock(&self.progress).ended = true;
        self.moved.notify_all();
    }
}
