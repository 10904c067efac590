//! Which TCP ports a network namespace listens on, from /proc/net/tcp (`proc_net_tcp` in the kernel's documentation).

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// `TCP_LISTEN` of `include/net/tcp_states.h`.
const LISTEN: &str = "0A";

/// The tables of the network namespace in which they were opened.
pub(super) struct Listening(Vec<File>);

impl Listening {
    /// Those of the calling thread. Without IPv6 there is one.
    pub(super) fn open() -> io::Result<Self> {
        let mut tables = vec![File::open("/proc/thread-self/net/tcp")?];
        tables.extend(File::open("/proc/thread-self/net/tcp6").ok());
        Ok(Self(tables))
    }

    /// Where to connect for `port`: listeners on all addresses or on a loopback address. Others, which only a network would
    /// reach, are left out.
    pub(super) fn targets(&mut self, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut targets = Vec::new();
        for table in &mut self.0 {
            let mut text = String::new();
            table.rewind()?;
            table.read_to_string(&mut text)?;
            let local = sockets(&text).filter(|(address, state)| *state == LISTEN && address.port() == port);
            targets.extend(local.filter_map(|(address, _)| loopback(address)));
        }
        Ok(targets)
    }
}

/// What is to be looked up in [`ports`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Protocol {
    /// Listening sockets.
    Tcp,
    /// Bound sockets.
    Udp,
}

/// The ports that are open in the calling thread's network namespace.
pub(crate) fn ports(protocol: Protocol) -> io::Result<Vec<u16>> {
    let (name, is_tcp) = match protocol {
        Protocol::Tcp => ("tcp", true),
        Protocol::Udp => ("udp", false),
    };
    let mut text = fs::read_to_string(format!("/proc/thread-self/net/{name}"))?;
    text += &fs::read_to_string(format!("/proc/thread-self/net/{name}6")).unwrap_or_default();
    let open = sockets(&text).filter(|(_, state)| !is_tcp || *state == LISTEN);
    Ok(open.map(|(address, _)| address.port()).collect())
}

/// Local address and state of every row.
fn sockets(table: &str) -> impl Iterator<Item = (SocketAddr, &str)> {
    table.lines().filter_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let local = columns.nth(1)?;
        let state = columns.nth(1)?;
        Some((address(local)?, state))
    })
}

/// `0100007F:1F90`: the address as 32-bit words in the machine's byte order, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = address.get(index * 8..index * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The loopback address that reaches a listener.
fn loopback(listener: SocketAddr) -> Option<SocketAddr> {
    let ip = match listener.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip if ip.is_loopback() => ip,
        _ => return None,
    };
    Some(SocketAddr::new(ip, listener.port()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_are_understood() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
            1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0\n   \
            2: 020200C0:0050 0100007F:9999 01 0\n   3: bad\n";
        let rows: Vec<_> = sockets(table).map(|(address, state)| (address.to_string(), state)).collect();
        assert_eq!(
            rows,
            [
                ("127.0.0.1:8080".to_owned(), "0A"),
                ("[::1]:22".to_owned(), "0A"),
                ("192.0.2.2:80".to_owned(), "01"),
            ]
        );
    }

    #[test]
    fn a_listener_is_seen_when_it_comes_and_when_it_has_gone() {
        let mut listening = Listening::open().unwrap();
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let expected = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            assert_eq!(listening.targets(port).unwrap(), [expected]);
            assert!(ports(Protocol::Tcp).unwrap().contains(&port));
            drop(listener);
            assert_eq!(listening.targets(port).unwrap(), []);
        }
        assert_eq!(loopback("192.0.2.2:80".parse().unwrap()), None);
    }
}
