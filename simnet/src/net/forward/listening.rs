//! Which TCP ports a network namespace listens on: one port's listeners from `sock_diag(7)`, all of them from /proc/net/tcp
//! (`proc_net_tcp` in the kernel's documentation).

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    libc,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
};

/// `TCP_LISTEN` of `include/net/tcp_states.h`.
const LISTEN: &str = "0A";

/// The listeners of the network namespace in which it was opened, asked for through `sock_diag(7)`.
///
/// Every connection request waits for the answer. /proc/net/tcp, which walks the machine's whole table of connections, takes
/// 10 to 60 ms for it; this takes well under one.
pub(super) struct Listening(OwnedFd);

impl Listening {
    /// Those of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?))
    }

    /// Where to connect for `port`: listeners on all addresses or on a loopback address. Others, which only a network would
    /// reach, are left out.
    pub(super) fn targets(&mut self, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut targets = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            sendto(
                self.0.as_raw_fd(),
                &question(family as u8, port),
                &NetlinkAddr::new(0, 0),
                MsgFlags::empty(),
            )?;
            let mut answer = vec![0; 32 * 1024];
            loop {
                let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
                let (listeners, is_last) = listeners(&answer[..length])?;
                targets.extend(listeners.into_iter().filter(|at| at.port() == port).filter_map(loopback));
                if is_last {
                    break;
                }
            }
        }
        Ok(targets)
    }
}

/// `SOCK_DIAG_BY_FAMILY` of `include/uapi/linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// `TCP_LISTEN`, as a bit of `idiag_states`.
const LISTEN_BIT: u32 = 1 << 10;

/// Asks for the listening TCP sockets of a family and a port: struct nlmsghdr and struct `inet_diag_req_v2`.
fn question(family: u8, port: u16) -> Vec<u8> {
    let mut message = Vec::from(72u32.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, libc::IPPROTO_TCP as u8, 0, 0]);
    message.extend(LISTEN_BIT.to_ne_bytes());
    // struct inet_diag_sockid: its source port, and nothing else.
    message.extend(port.to_be_bytes());
    message.resize(72, 0);
    message
}

/// The listeners in an answer, which are `inet_diag_msg` structures behind `nlmsghdr` ones, and whether it is the last part.
fn listeners(mut answer: &[u8]) -> io::Result<(Vec<SocketAddr>, bool)> {
    let mut listeners = Vec::new();
    while let Some(header) = answer.first_chunk::<16>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = answer.get(16..length) else { break };
        match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
            libc::NLMSG_DONE => return Ok((listeners, true)),
            libc::NLMSG_ERROR => {
                // Its first word is the negative error number.
                let code = body.first_chunk::<4>().map_or(libc::EIO, |word| -i32::from_ne_bytes(*word));
                return Err(io::Error::from_raw_os_error(code));
            }
            _ => listeners.extend(listener(body)),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((listeners, false))
}

/// Family, state, timer, retransmissions; then source port, destination port and source address in network order.
fn listener(body: &[u8]) -> Option<SocketAddr> {
    let fields = body.first_chunk::<24>()?;
    let port = u16::from_be_bytes([fields[4], fields[5]]);
    let address = fields[8..].first_chunk::<16>()?;
    let ip = if i32::from(fields[0]) == libc::AF_INET6 {
        IpAddr::V6(Ipv6Addr::from(*address))
    } else {
        IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?))
    };
    Some(SocketAddr::new(ip, port))
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
