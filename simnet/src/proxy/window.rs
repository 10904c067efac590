//! How many bytes a connection may have in flight.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// An upper bound for the bytes between a reader and its writer.
pub(super) struct Window(Arc<State>);

struct State {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Room that some bytes take up, until it is dropped: after they were written, or with whatever threw them away.
pub(super) struct Room {
    state: Arc<State>,
    bytes: u64,
}

impl Window {
    pub(super) fn new(limit: u64) -> Self {
        Self(Arc::new(State { limit, used: Mutex::new(0), freed: Condvar::new() }))
    }

    /// Waits until there is room. An empty window takes anything.
    pub(super) fn enter(&self, bytes: u64) -> Room {
        let state = &*self.0;
        let mut used = state.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > 0 && *used + bytes > state.limit {
            used = state.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        Room { state: Arc::clone(&self.0), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.state.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.state.freed.notify_one();
    }
}
