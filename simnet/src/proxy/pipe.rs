//! One direction of one connection: a reader that puts packets on the lane, and a writer that takes them off.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::mpsc,
    thread,
};

use super::{
    lane::{Delivery, Lane},
    window::Window,
};

/// Payload of a packet, and its headers: 1500 bytes on the wire.
const SEGMENT: usize = 1448;
const HEADER: u64 = 52;

/// Bytes read at once, a whole number of segments.
const CHUNK: usize = 16 * SEGMENT;

/// Carries bytes from one stream to the other, over the lane, until the first ends; the end is carried, too.
pub(super) fn pipe(from: &TcpStream, to: &TcpStream, lane: &Lane, limit: u64) {
    let window = Window::new(limit);
    let (arrived, arrivals) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            if write(to, arrivals).is_err() {
                // Nobody reads any more: the other side must not go on.
                let _ = from.shutdown(Shutdown::Both);
            }
        });
        read(from, lane, &window, &arrived);
        // The writer ends when the last packet has arrived and this, the last sender, is gone.
        drop(arrived);
    });
}

fn read(mut from: &TcpStream, lane: &Lane, window: &Window, arrived: &mpsc::Sender<Delivery>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                for segment in buffer[..length].chunks(SEGMENT) {
                    let room = window.enter(segment.len() as u64);
                    let delivery = Delivery { bytes: segment.to_vec(), room: Some(room) };
                    lane.send(segment.len() as u64 + HEADER, delivery, arrived);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    // The end takes a packet of its own, behind all others.
    lane.send(HEADER, Delivery::default(), arrived);
}

fn write(mut to: &TcpStream, arrivals: mpsc::Receiver<Delivery>) -> io::Result<()> {
    for delivery in arrivals {
        if delivery.bytes.is_empty() {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&delivery.bytes)?;
    }
    // The lane was closed before the end came.
    Err(io::Error::from(io::ErrorKind::ConnectionAborted))
}
