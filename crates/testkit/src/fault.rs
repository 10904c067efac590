//! What can go wrong on the way.

use std::time::Duration;

/// One thing that goes wrong with one response. Several may apply to the same response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This HTTP status and no body. A [`crate::FaultySource`] turns it into the error that the HTTP source
    /// would.
    Status(u16),
    /// No connection. [`crate::Origin`]: from this request on the listener and all connections are gone,
    /// until [`crate::Origin::come_back`].
    Refuse,
    /// The head of the response comes this much later.
    Delay(Duration),
    /// After this many bytes of the body nothing more comes; with 0 not even the head of the response does.
    StallAfter(u64),
    /// After this many bytes of the body the connection is closed.
    CloseAfter(u64),
    /// After the body, zeros for ever; its length is not announced.
    Endless,
    /// The byte at this offset *of the object* has all its bits inverted.
    Flip(u64),
    /// A request for a range is answered with 200 and the whole object.
    IgnoreRange,
    /// A request for a range is answered with 206 and a range one byte further on.
    WrongRange,
}
