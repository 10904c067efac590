//! Lets the command reach servers of the outer machine, those that listen on 127.0.0.1 included, without a route, a firewall
//! rule or any privilege on that machine.
//!
//! The far side of the link is a namespace of its own. When a connection request for one of its ports arrives and the outer
//! machine has a TCP listener of that number, on a loopback address or on all addresses, the same port is opened on the far
//! side first; whatever connects there is relayed, byte by byte, to the listener. A port without a listener stays closed, so
//! that the client sees the refusal of a real kernel, a round trip later.
//!
//! The TCP that crosses the link is therefore the far namespace's, and the server's own socket sees the loopback device. A
//! server whose socket options or write scheduling are to be measured belongs on the far side (`--server`).

mod listening;
mod open_request;
mod relay;

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::fd::AsRawFd as _,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use listening::Listening;
pub(super) use listening::{Protocol, ports};
use nix::sys::socket::{Shutdown, shutdown};
use open_request::requested_port;

use super::{NetError, namespace::Namespace, tun::Tun};

/// Hands connection requests to the forwarder, which delivers them when their port is open.
#[derive(Clone)]
pub(super) struct Opener {
    host: Ipv4Addr,
    requests: mpsc::Sender<(u16, Vec<u8>)>,
}

impl Opener {
    /// Starts the forwarder for the far side `far` of a link, whose device is `device`; the calling thread's network namespace
    /// is the outer machine's. It ends with the last clone of the opener.
    pub(super) fn start(far: Namespace, device: Arc<Tun>, host: Ipv4Addr) -> Result<Self, NetError> {
        let listening = Listening::open().map_err(NetError::at("read the table of listening sockets"))?;
        let dialer = relay::start().map_err(NetError::at("start the relay"))?;
        let (requests, received) = mpsc::channel::<(u16, Vec<u8>)>();
        let (ready, is_ready) = mpsc::channel();
        let work = move || {
            let entered = far.enter();
            let failed = entered.is_err();
            let _ = ready.send(entered);
            if failed {
                return;
            }
            let mut ports = Ports { listening, host, dialer, open: HashMap::new() };
            for (port, packet) in received {
                // Without the port the far side's kernel refuses the connection, which is the right answer then.
                let _ = ports.follow(port);
                let _ = device.write(&packet);
            }
        };
        thread::Builder::new()
            .name("link opener".into())
            .spawn(work)
            .map_err(NetError::at("start the forwarder"))?;
        is_ready.recv().unwrap_or_else(|_| Err(NetError::Config("the forwarder ended early".into())))?;
        Ok(Self { host, requests })
    }

    /// Gives back every packet that is not a connection request for the outer machine.
    pub(super) fn intercept(&self, packet: Vec<u8>) -> Option<Vec<u8>> {
        match requested_port(&packet, self.host) {
            Some(port) => self.requests.send((port, packet)).err().map(|unsent| unsent.0.1),
            None => Some(packet),
        }
    }
}

/// The ports that are open on the far side for the outer machine's servers.
struct Ports {
    listening: Listening,
    host: Ipv4Addr,
    dialer: relay::Dialer,
    open: HashMap<u16, Port>,
}

/// One of them.
struct Port {
    listener: TcpListener,
    targets: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Ports {
    /// Opens or closes `port`, after what listens on the outer machine now.
    fn follow(&mut self, port: u16) -> io::Result<()> {
        let targets = self.listening.targets(port)?;
        if targets.is_empty() {
            self.open.remove(&port);
        } else if let Some(open) = self.open.get(&port) {
            *open.targets.lock().unwrap_or_else(PoisonError::into_inner) = targets;
        } else {
            // A server on the far side itself comes first: then the address is in use.
            let listener = TcpListener::bind((self.host, port))?;
            let port_open = Port { listener, targets: Arc::new(Mutex::new(targets)) };
            self.accept(&port_open)?;
            self.open.insert(port, port_open);
        }
        Ok(())
    }

    /// Hands what connects to the dialer, until the port is closed.
    fn accept(&self, port: &Port) -> io::Result<()> {
        let (listener, targets) = (port.listener.try_clone()?, Arc::clone(&port.targets));
        let dialer = self.dialer.clone();
        thread::Builder::new().name("link accept".into()).spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let targets = targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if dialer.send((client, targets)).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Wakes the accepting thread, which holds a descriptor of its own.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }
}
