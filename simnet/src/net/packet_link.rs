//! A packet link between two network namespaces: a TUN device at each end, and a shaping thread for each direction.

use std::{
    io::{self, PipeWriter},
    net::Ipv4Addr,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};

use super::{
    NetError,
    address::{Addresses, HOST_ADDRESS},
    forward::Opener,
    log::Log,
    namespace::Namespace,
    netlink,
    shaper::Shaper,
    statistics::Statistics,
    tun::{self, Tun},
};
use crate::link::Link;

/// The name of the device in a namespace of our own.
const DEVICE: &str = "pagein0";

/// What an end takes to be behind the link: the addresses of all links.
const ALL_LINKS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 77, 0, 0), 16);

/// TCP buffers grow as far as Linux lets them by default, 6 MB and 4 MB, or to this many bandwidth-delay products, so that
/// buffers never decide what a stream reaches on a link.
const BUFFER_PRODUCTS: f64 = 4.0;

/// A link that is up. Dropped, it goes down, and its namespaces go when the last process inside ends.
pub(super) struct PacketLink {
    /// Where the command runs.
    pub(super) near: Namespace,
    /// Where the server runs: a namespace of its own, or that of the command of the link around this one.
    pub(super) far: Namespace,
    pub(super) addresses: Addresses,
    pub(super) up: Arc<Statistics>,
    pub(super) down: Arc<Statistics>,
    stop: Option<PipeWriter>,
    shapers: Vec<JoinHandle<io::Result<()>>>,
    /// Ends before the shapers do.
    log: Option<Log>,
}

impl PacketLink {
    /// Builds the link, from the calling thread's network namespace.
    pub(super) fn new(link: &Link, congestion: &str, log: Option<&Path>) -> Result<Self, NetError> {
        let addresses = Addresses::for_next_link().map_err(NetError::at("list the network addresses"))?;
        let near = Namespace::new()?;
        let near_tun = near.run(|| {
            tun::prepare_namespace()?;
            end(link, addresses.near(), congestion)
        })?;
        let (far, far_tun) = Self::far_side(link, congestion, addresses)?;
        let (near_tun, far_tun) = (Arc::new(near_tun), Arc::new(far_tun));
        let opener = if addresses.is_nested() {
            None
        } else {
            // Namespaces are held by descriptors; the forwarder gets its own.
            let far = far.try_clone().map_err(NetError::at("duplicate a descriptor"))?;
            Some(Opener::start(far, Arc::clone(&far_tun), HOST_ADDRESS)?)
        };
        let (stopped, stop) = io::pipe().map_err(NetError::at("make a pipe"))?;
        let (up, down) = (Arc::new(Statistics::default()), Arc::new(Statistics::default()));
        let log = log
            .map(|path| {
                Log::start(path, link, Arc::clone(&up), Arc::clone(&down))
                    .map_err(NetError::at(format!("write the log {}", path.display())))
            })
            .transpose()?;
        let mut built = Self { near, far, addresses, up, down, stop: Some(stop), shapers: Vec::new(), log };
        let also_stopped = stopped.try_clone().map_err(NetError::at("duplicate a pipe"))?;
        built.start(
            "link up",
            Shaper {
                from: Arc::clone(&near_tun),
                to: Arc::clone(&far_tun),
                chain: link.up.chain(link.seed, 0),
                statistics: Arc::clone(&built.up),
                opener,
                stop: stopped,
            },
        )?;
        built.start(
            "link down",
            Shaper {
                from: far_tun,
                to: near_tun,
                chain: link.down.chain(link.seed, 1),
                statistics: Arc::clone(&built.down),
                opener: None,
                stop: also_stopped,
            },
        )?;
        Ok(built)
    }

    /// A namespace of its own for the far end, or, inside another link, the one we are in, which then passes packets on.
    fn far_side(link: &Link, congestion: &str, addresses: Addresses) -> Result<(Namespace, Tun), NetError> {
        if addresses.is_nested() {
            tun::sysctl("ip_forward", "1").map_err(|_| NetError::NestedWithoutRoot)?;
            let name = format!("pagein{}", addresses.far().octets()[2]);
            let device = Tun::new(&name, addresses.far(), 24).map_err(|error| match error {
                NetError::Tun(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                    NetError::NestedWithoutRoot
                }
                other => other,
            })?;
            for network in addresses.behind() {
                netlink::route(&name, addresses.far(), network, None)
                    .map_err(NetError::at("add a route to a nested link"))?;
            }
            return Ok((Namespace::current()?, device));
        }
        let far = Namespace::new()?;
        let device = far.run(|| {
            tun::prepare_namespace()?;
            end(link, addresses.far(), congestion)
        })?;
        Ok((far, device))
    }

    fn start(&mut self, name: &str, shaper: Shaper) -> Result<(), NetError> {
        let work = thread::Builder::new().name(name.to_owned());
        self.shapers.push(work.spawn(|| shaper.run()).map_err(NetError::at("start a shaping thread"))?);
        Ok(())
    }

    /// The address of the far side.
    pub(super) fn far_address(&self) -> Ipv4Addr {
        self.addresses.far()
    }
}

impl Drop for PacketLink {
    fn drop(&mut self) {
        // The log's last row comes before the devices go.
        drop(self.log.take());
        drop(self.stop.take());
        for shaper in self.shapers.drain(..) {
            let _ = shaper.join();
        }
    }
}

/// One end, in the calling thread's network namespace, which is new. TCP is made the same everywhere, whatever the machine is
/// tuned to.
fn end(link: &Link, own: Ipv4Addr, congestion: &str) -> Result<Tun, NetError> {
    let rate = [&link.up, &link.down]
        .into_iter()
        .filter_map(|way| way.rate.mean_bits_per_second())
        .fold(0.0, f64::max);
    let wanted = BUFFER_PRODUCTS * rate / 8.0 * link.round_trip().as_secs_f64();
    let limit = |default: u64| (wanted as u64).clamp(default, 1 << 30);
    tun::sysctl("tcp_rmem", &format!("4096 131072 {}", limit(6_291_456)))?;
    tun::sysctl("tcp_wmem", &format!("4096 16384 {}", limit(4_194_304)))?;
    let device = Tun::new(DEVICE, own, ALL_LINKS.1)?;
    netlink::route(DEVICE, own, ALL_LINKS, Some(congestion))
        .map_err(NetError::at(format!("use the congestion control {congestion:?}")))?;
    Ok(device)
}
