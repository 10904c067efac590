//! The two devices of a packet link.

use std::{
    fs, io,
    net::Ipv4Addr,
    os::fd::{AsFd, BorrowedFd},
};

use tun_rs::{DeviceBuilder, SyncDevice};

use super::{NetError, netlink};

/// The largest IP packet on the link, as on Ethernet.
pub const MTU: u16 = 1500;

/// How many packets the device itself holds for us to read. Never the limit: queues are what the emulator is for.
const DEVICE_QUEUE: u32 = 10_000;

/// One end of the link; it disappears when it is closed, or with its namespace.
pub(super) struct Tun(SyncDevice);

impl Tun {
    /// A device in the calling thread's network namespace, up, with an address.
    pub(super) fn new(name: &str, address: Ipv4Addr, prefix: u8) -> Result<Self, NetError> {
        let device = DeviceBuilder::new()
            .name(name)
            .mtu(MTU)
            .ipv4(address, prefix, None)
            .enable(true)
            .build_sync()
            .map_err(NetError::Tun)?;
        netlink::queue_length(name, DEVICE_QUEUE).map_err(NetError::at("set the queue of the TUN device"))?;
        device.set_nonblocking(true).map_err(NetError::Tun)?;
        Ok(Self(device))
    }

    /// The next packet that the kernel sends; `WouldBlock` if there is none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }

    /// Hands a packet to the kernel as received.
    pub(super) fn write(&self, packet: &[u8]) -> io::Result<usize> {
        self.0.send(packet)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a new network namespace needs before its devices: loopback up, no IPv6 chatter (router solicitations and the like
/// would use the link), ping for everybody.
pub(super) fn prepare_namespace() -> Result<(), NetError> {
    netlink::loopback_up().map_err(NetError::at("switch on the loopback device"))?;
    // Without IPv6, or with /proc/sys read-only in a container, there is nothing to switch off or no way to do it.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let group = nix::unistd::getegid();
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", format!("{group} {group}"));
    Ok(())
}

/// Sets a parameter of the calling thread's network namespace.
pub(super) fn sysctl(name: &str, value: &str) -> Result<(), NetError> {
    let file = format!("/proc/sys/net/ipv4/{name}");
    fs::write(&file, value).map_err(NetError::at(format!("write {value:?} to {file}")))
}
