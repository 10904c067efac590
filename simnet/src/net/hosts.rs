//! Gives the command an /etc/hosts with the names of the link's far ends, without touching the machine's.

use std::{fs, io, net::Ipv4Addr, path::Path};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{
    NetError,
    address::{HOST_ADDRESS, HOST_NAME, SERVER_NAME},
};

const HOSTS: &str = "/etc/hosts";

/// Puts the names into /etc/hosts in the calling thread's mount namespace, which is its own.
///
/// The file lies in a memory file system that only this namespace sees, so that nothing is left whatever happens.
pub(super) fn add_names(far: Ipv4Addr) -> Result<(), NetError> {
    if !Path::new(HOSTS).exists() {
        return Ok(());
    }
    let existing = fs::read(HOSTS).map_err(NetError::at("read /etc/hosts"))?;
    let text = String::from_utf8_lossy(&existing);
    // A link inside a link replaces the names of the one around it.
    let kept = text.lines().filter(|line| !line.contains(HOST_NAME) && !line.contains(SERVER_NAME));
    let own = format!("{HOST_ADDRESS} {HOST_NAME}\n{far} {SERVER_NAME}\n");
    let hosts: String = kept.flat_map(|line| [line, "\n"]).chain([own.as_str()]).collect();
    replace(&hosts).map_err(NetError::at("put a new /etc/hosts in place"))
}

fn replace(hosts: &str) -> io::Result<()> {
    const NONE: Option<&str> = None;
    // What is mounted outside still shows up inside, but not the other way round.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    let scratch = Path::new("/tmp");
    let file = scratch.join("hosts");
    mount(Some("pagein"), scratch, Some("tmpfs"), MsFlags::empty(), Some("size=1m,mode=0755"))?;
    let bound =
        fs::write(&file, hosts).and_then(|()| Ok(mount(Some(&file), HOSTS, NONE, MsFlags::MS_BIND, NONE)?));
    // The bound file keeps the memory file system alive; its place is free again.
    umount2(scratch, MntFlags::MNT_DETACH)?;
    bound
}
