//! Which addresses the two ends of a link have.
//!
//! Namespaces keep links apart, so every link has the same addresses, and results can be compared. Only links inside links
//! differ, by their depth: the link at depth d has 10.77.d.1 on the far side and 10.77.d.2 on the command's side. The
//! command's end takes the whole 10.77.0.0/16 as reachable; there is no default route, so that anything else is unreachable
//! at once. A nested link's far end sits in the namespace of the command of the link around it, which forwards.

use std::{io, net::Ipv4Addr};

use nix::ifaddrs::getifaddrs;

/// The outer machine, from inside any link, also called [`HOST_NAME`].
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The name of the outer machine in the command's /etc/hosts.
pub const HOST_NAME: &str = "host.pagein";

/// The name of the far side of the innermost link in the command's /etc/hosts: where `--server` runs.
pub const SERVER_NAME: &str = "server.pagein";

/// The addresses of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    depth: u8,
}

impl Addresses {
    /// Those of a link made in the calling thread's network namespace: one deeper than the link that it is behind.
    pub(super) fn for_next_link() -> io::Result<Self> {
        let deepest = getifaddrs()?
            .filter_map(|interface| interface.address?.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::ip))
            .filter_map(|address| match address.octets() {
                [10, 77, depth, 2] => Some(depth),
                _ => None,
            })
            .max();
        let depth = match deepest {
            None => 0,
            Some(depth) => {
                depth.checked_add(1).ok_or_else(|| io::Error::other("256 links are nested already"))?
            }
        };
        Ok(Self { depth })
    }

    /// Whether the link is inside another.
    pub(super) fn is_nested(self) -> bool {
        self.depth > 0
    }

    /// The far side.
    pub(super) fn far(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.depth, 1)
    }

    /// What is behind the far end of a nested link, as network and prefix length: this link and all deeper ones, whose commands
    /// the packets for them pass through.
    pub(super) fn behind(self) -> Vec<(Ipv4Addr, u8)> {
        let mut networks = Vec::new();
        let mut first = u32::from(self.depth);
        while first < 256 {
            // The largest aligned block that begins here.
            let bits = first.trailing_zeros().min(8);
            networks.push((Ipv4Addr::new(10, 77, first as u8, 0), 24 - bits as u8));
            first += 1 << bits;
        }
        networks
    }

    /// The command's side.
    pub(super) fn near(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.depth, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_link_leads_to_itself_and_all_deeper_ones() {
        for depth in 1..=255u8 {
            let networks = Addresses { depth }.behind();
            for address in 0..=255u8 {
                let holds = |(network, prefix): &(Ipv4Addr, u8)| {
                    u32::from(*network) >> (32 - prefix)
                        == u32::from(Ipv4Addr::new(10, 77, address, 2)) >> (32 - prefix)
                };
                assert_eq!(
                    networks.iter().filter(|network| holds(network)).count(),
                    usize::from(address >= depth)
                );
            }
        }
    }
}
