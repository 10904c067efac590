//! One direction of a packet link: a thread that reads packets from one device and writes them to the other when their time
//! has come.
//!
//! It sleeps in ppoll(2) until a packet arrives or the next one is due, and spins for the last of it as far as a small budget
//! goes ([`SpinBudget`]). Beyond that the kernel wakes it some tens of microseconds late, which delays single packets but not
//! the rate, because departures follow the chain's exact times and not the wake-ups: what became due in the meantime leaves
//! together.

use std::{
    io::{self, ErrorKind, PipeReader},
    os::fd::AsFd,
    sync::Arc,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};

use super::{forward::Opener, spin::SpinBudget, statistics::Statistics, tun::Tun};
use crate::{
    clock::{Clock, be_punctual},
    queue::{Chain, Stage as _},
    time::Time,
};

/// Packets read in one go before those that are due are written; bounds the delay that a burst adds to others.
const BURST: usize = 32;

/// The largest packet that a TUN device can give.
const MAX_PACKET: usize = 65_536;

/// One direction, ready to run.
pub(super) struct Shaper {
    pub(super) from: Arc<Tun>,
    pub(super) to: Arc<Tun>,
    pub(super) chain: Chain<Vec<u8>>,
    pub(super) statistics: Arc<Statistics>,
    /// Sees connection requests before they are delivered.
    pub(super) opener: Option<Opener>,
    /// Becomes readable, or is closed at the other end, when the link goes down.
    pub(super) stop: PipeReader,
}

impl Shaper {
    /// Moves packets until the link goes down.
    pub(super) fn run(mut self) -> io::Result<()> {
        be_punctual();
        let clock = Clock::new();
        let mut buffer = vec![0; MAX_PACKET];
        let mut spin = SpinBudget::new(clock.now());
        loop {
            let drained = self.read(&mut buffer, clock)?;
            let next = self.deliver(clock);
            self.statistics.queue(self.chain.counters());
            let sleep = next.map(|next| spin.sleep(clock.now(), next));
            if drained && sleep != Some(Duration::ZERO) && self.wait(sleep)? {
                return Ok(());
            }
        }
    }

    /// Takes in up to a burst; true if the device has no more.
    fn read(&mut self, buffer: &mut [u8], clock: Clock) -> io::Result<bool> {
        for _ in 0..BURST {
            match self.from.read(buffer) {
                Ok(length) => self.chain.push(clock.now(), buffer[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Hands out what is due; when to come again.
    fn deliver(&mut self, clock: Clock) -> Option<Time> {
        loop {
            while let Some((_, packet)) = self.chain.pop(clock.now()) {
                self.statistics.delivered(packet.len());
                let packet = match &self.opener {
                    Some(opener) => opener.intercept(packet),
                    None => Some(packet),
                };
                if let Some(packet) = packet {
                    // What the receiving kernel refuses (its queue is full, a malformed packet) is lost, as on any network.
                    let _ = self.to.write(&packet);
                }
            }
            let next = self.chain.next();
            if next.is_none_or(|next| next > clock.now()) {
                return next;
            }
        }
    }

    /// Sleeps until a packet arrives or the time is over; true if the link goes down.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(self.from.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
            Ok(_) => Ok(fds[1].any().unwrap_or(true)),
            Err(nix::Error::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
