//! What only rtnetlink(7) can do to a new network namespace, or only it without root: switch on its loopback device, set the
//! length of a device's queue, and give a route its own congestion control.

use std::{io, net::Ipv4Addr, os::fd::AsRawFd as _};

use nix::{
    libc,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
};

/// The loopback device has index 1 in every network namespace.
const LOOPBACK_INDEX: i32 = 1;

/// Length of struct nlmsghdr.
const HEADER: u32 = 16;

/// Switches the loopback device on, in the calling thread's network namespace.
pub(super) fn loopback_up() -> io::Result<()> {
    // struct ifinfomsg: family and padding, device type, index, flags, which flags to change.
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    body.extend((libc::IFF_UP as u32).to_ne_bytes());
    body.extend((libc::IFF_UP as u32).to_ne_bytes());
    request(libc::RTM_NEWLINK, 0, &body)
}

/// Lets `device` hold so many packets. (The ioctl for it wants rights over the whole machine.)
pub(super) fn queue_length(device: &str, packets: u32) -> io::Result<()> {
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    body.extend(if_nametoindex(device)?.to_ne_bytes());
    body.extend([0; 8]);
    attribute(&mut body, libc::IFLA_TXQLEN, &packets.to_ne_bytes());
    request(libc::RTM_NEWLINK, 0, &body)
}

/// Leads `network` to `device`, and makes TCP use `congestion` there, if it is given.
///
/// The sysctl `tcp_congestion_control` of a network namespace takes only those that the machine allows to everybody; a route
/// takes any that the kernel has (`congctl` of ip-route(8)).
pub(super) fn route(
    device: &str,
    own: Ipv4Addr,
    (network, prefix): (Ipv4Addr, u8),
    congestion: Option<&str>,
) -> io::Result<()> {
    let index = if_nametoindex(device)?;
    // struct rtmsg: family, destination and source length, TOS, table, protocol, scope, type, flags.
    let mut body = vec![libc::AF_INET as u8, prefix, 0, 0, libc::RT_TABLE_MAIN];
    body.extend([libc::RTPROT_KERNEL, libc::RT_SCOPE_LINK, libc::RTN_UNICAST, 0, 0, 0, 0]);
    attribute(&mut body, libc::RTA_DST, &network.octets());
    attribute(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
    attribute(&mut body, libc::RTA_PREFSRC, &own.octets());
    if let Some(congestion) = congestion {
        let mut metrics = Vec::new();
        attribute(&mut metrics, RTAX_CC_ALGO, &[congestion.as_bytes(), &[0]].concat());
        attribute(&mut body, libc::RTA_METRICS, &metrics);
    }
    request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &body)
}

/// Of include/uapi/linux/rtnetlink.h; a string.
const RTAX_CC_ALGO: u16 = 16;

/// Appends a struct rtattr, padded to four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Sends one request in the calling thread's network namespace and waits for the kernel's answer.
fn request(kind: u16, flags: i32, body: &[u8]) -> io::Result<()> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    // struct nlmsghdr: length, type, flags, sequence number, sender (the kernel fills it in).
    let mut message = Vec::from((HEADER + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    sendto(netlink.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // struct nlmsgerr follows the header; its first word is the negative error number, or 0.
    match answer.get(16..20).filter(|_| length >= 20) {
        Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}
