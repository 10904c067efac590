//! One direction of the proxy's link, which all connections share.

use std::{
    sync::{Condvar, Mutex, PoisonError, mpsc},
    time::Duration,
};

use super::window::Room;
use crate::{
    clock::{Clock, be_punctual},
    queue::{Chain, Packet, Stage as _},
};

/// What comes out at the other end.
#[derive(Default)]
pub(super) struct Delivery {
    /// None at the end of the stream, and in the packets of the set-up.
    pub(super) bytes: Vec<u8>,
    /// Held until they are written.
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub(super) room: Option<Room>,
}

/// A delivery on its way to one end of a connection.
pub(super) struct Parcel {
    size: u64,
    delivery: Delivery,
    to: mpsc::Sender<Delivery>,
}

impl Packet for Parcel {
    fn wire_bytes(&self) -> u64 {
        self.size
    }
}

/// The queues, driven by the monotonic clock.
pub(super) struct Lane {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Gone when the lane is closed, and with it all that was on its way.
    chain: Option<Chain<Parcel>>,
}

impl Lane {
    pub(super) fn new(chain: Chain<Parcel>) -> Self {
        Self { clock: Clock::new(), state: Mutex::new(State { chain: Some(chain) }), changed: Condvar::new() }
    }

    /// Sends bytes that take up `size` on the wire; they come out at `to`, or the channel is closed with the lane.
    pub(super) fn send(&self, size: u64, delivery: Delivery, to: &mpsc::Sender<Delivery>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chain) = &mut state.chain {
            chain.push(self.clock.now(), Parcel { size, delivery, to: to.clone() });
            self.changed.notify_one();
        }
    }

    /// Hands out what has arrived, until the lane is closed.
    pub(super) fn run(&self) {
        be_punctual();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(chain) = &mut state.chain {
            while let Some((_, parcel)) = chain.pop(self.clock.now()) {
                // The receiver has gone with its connection.
                let _ = parcel.to.send(parcel.delivery);
            }
            let sleep = chain.next().map_or(Duration::MAX, |next| next.since(self.clock.now()));
            if !sleep.is_zero() {
                // An hour is as good as for ever, and fits every clock.
                let sleep = sleep.min(Duration::from_secs(3600));
                state = self.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Ends [`Self::run`] and everything that is on its way.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).chain = None;
        self.changed.notify_all();
    }
}
