//! What the bytes of one direction mean: which request or response each of them belongs to, and which goes first.

use std::{collections::VecDeque, ops::Range};

use super::RequestId;

/// A run of bytes of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) request: RequestId,
    /// Bytes of the message.
    pub(super) bytes: Range<u64>,
}

/// A message of which some bytes are not written yet.
#[derive(Debug)]
struct Waiting {
    urgency: u8,
    rest: Piece,
}

/// The writing application and the bytes under way.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Most urgent first; those of one urgency in the order in which they came.
    waiting: VecDeque<Waiting>,
    /// Written and not yet read by the other side, in order.
    under_way: VecDeque<Piece>,
    written: u64,
}

impl Stream {
    /// A message is there to be written.
    pub(super) fn push(&mut self, request: RequestId, length: u64, urgency: u8) {
        if length > 0 {
            let place = self.waiting.partition_point(|other| other.urgency >= urgency);
            self.waiting.insert(place, Waiting { urgency, rest: Piece { request, bytes: 0..length } });
        }
    }

    /// Writes until `end`, or until nothing is left to be written; how far it came.
    pub(super) fn write_to(&mut self, end: u64) -> u64 {
        while self.written < end
            && let Some(first) = self.waiting.front_mut()
        {
            let length = (first.rest.bytes.end - first.rest.bytes.start).min(end - self.written);
            let bytes = first.rest.bytes.start..first.rest.bytes.start + length;
            self.under_way.push_back(Piece { request: first.rest.request, bytes });
            first.rest.bytes.start += length;
            self.written += length;
            if first.rest.bytes.is_empty() {
                self.waiting.pop_front();
            }
        }
        self.written
    }

    /// The other side has read `length` more bytes: what they are.
    pub(super) fn read(&mut self, mut length: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        while length > 0
            && let Some(first) = self.under_way.front_mut()
        {
            let taken = length.min(first.bytes.end - first.bytes.start);
            let bytes = first.bytes.start..first.bytes.start + taken;
            match pieces.last_mut() {
                Some(last) if last.request == first.request && last.bytes.end == bytes.start => {
                    last.bytes.end = bytes.end;
                }
                _ => pieces.push(Piece { request: first.request, bytes }),
            }
            first.bytes.start += taken;
            length -= taken;
            if first.bytes.is_empty() {
                self.under_way.pop_front();
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_urgent_overtakes_what_is_not_written_yet() {
        let (bulk, urgent) = (RequestId(0), RequestId(1));
        let mut stream = Stream::default();
        stream.push(bulk, 1000, 0);
        assert_eq!(stream.write_to(300), 300);
        stream.push(urgent, 200, 9);
        assert_eq!(stream.write_to(700), 700);
        let piece = |request, bytes| Piece { request, bytes };
        assert_eq!(stream.read(250), [piece(bulk, 0..250)]);
        assert_eq!(stream.read(350), [piece(bulk, 250..300), piece(urgent, 0..200), piece(bulk, 300..400)]);
        assert_eq!(stream.write_to(5000), 1200);
        assert_eq!(stream.read(5000), [piece(bulk, 400..1000)]);
    }
}
