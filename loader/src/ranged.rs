//! Whether a source knows range requests, found out when it must be known, or beside something else.

use std::sync::Arc;

use pagein_image::object;
use pagein_source::{Source, SourceError};
use tokio::sync::OnceCell;

/// The answer for one source.
pub(crate) struct Ranged {
    source: Arc<dyn Source>,
    answer: OnceCell<bool>,
}

impl Ranged {
    /// Nothing is asked yet.
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source, answer: OnceCell::new() }
    }

    /// Asks, if nobody has, for one byte. The connection stays for the next request.
    pub(crate) async fn get(&self) -> bool {
        *self.answer.get_or_init(|| self.ask()).await
    }

    /// Notes what another request has found out.
    pub(crate) fn learn(&self, answer: bool) {
        let _ = self.answer.set(answer);
    }

    /// The answer, if there is one already.
    pub(crate) fn known(&self) -> Option<bool> {
        self.answer.get().copied()
    }

    async fn ask(&self) -> bool {
        let answered = match self.source.get(object::HOT, Some(0..1)).await {
            Ok(body) => body.exactly(1).await.map(drop),
            Err(error) => Err(error),
        };
        // Any other failure shows when something is needed.
        !matches!(answered, Err(error) if matches!(error.kind(), SourceError::RangeIgnored { .. }))
    }
}
