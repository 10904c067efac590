//! `pagein net`: a command behind an emulated link, in a network namespace of its own.
//!
//! ```text
//!   command ── pagein0 ─► TUN ══ up ══► TUN ── server (--server)
//!   10.77.0.2             ◄══ down ══          10.77.0.1 = host.pagein ── relay ── the outer machine's servers
//! ```
//!
//! Both ends are kernels with real TCP; what lies between them is the same chain of queues that the virtual-time front uses.
//! Neither namespace has a name, the devices live and die with them, and no rule or route is added anywhere else. Killing
//! pagein (-9 included) therefore leaves nothing behind: the command gets SIGKILL, the server's PID namespace ends, and
//! processes that the command has left in the background find themselves without a network.
//!
//! | reachable for the command | how |
//! |---|---|
//! | `--server`, at `server.pagein` | everything that IP carries; real TCP from end to end |
//! | TCP servers of the outer machine on a loopback address or on all addresses, at `host.pagein` | relayed at the far end |
//! | `host.pagein` by ping | answered by the far side |
//! | anything else: other machines, UDP servers of the outer machine | unreachable, at once |
//!
//! Unix sockets with a path are files and not cut off.

mod address;
mod child;
mod config;
mod error;
mod forward;
mod hosts;
mod log;
mod namespace;
mod netlink;
mod packet_link;
mod server;
mod shaper;
mod signals;
mod spin;
mod statistics;
mod tun;

use std::{
    ffi::OsString,
    io,
    net::Ipv4Addr,
    os::unix::process::ExitStatusExt as _,
    process::{Child, ExitStatus},
    sync::mpsc,
};

pub use address::{HOST_ADDRESS, HOST_NAME, SERVER_NAME};
pub use child::run_if_child;
pub use config::{NetArgs, NetConfig};
pub use error::NetError;
use nix::{
    sched::{CloneFlags, unshare},
    sys::wait::{Id, WaitPidFlag, waitid},
    unistd::Pid,
};
pub use tun::MTU;

use self::{
    child::Role,
    namespace::{Namespace, denied, gain_rights},
    packet_link::PacketLink,
    server::Server,
    signals::Signals,
};

/// Runs a command behind a link and waits for it; terminal, signals and exit status are the command's own.
///
/// The program must call [`run_if_child`] first of all. Without root it must not have started threads yet.
pub fn run(config: &NetConfig) -> Result<ExitStatus, NetError> {
    // Threads inherit this, so it comes first.
    let signals = Signals::collect().map_err(|error| NetError::at("collect signals")(error.into()))?;
    gain_rights()?;
    let link = PacketLink::new(&config.link, &config.congestion, config.log.as_deref())?;
    let server = config.server.as_deref().map(|line| Server::start(&link.far, line)).transpose()?;
    let status = run_command(&link.near, link.far_address(), &config.command, &signals)?;
    drop(server);
    Ok(status)
}

/// The exit code that stands for a status: the command's own, or 128 + the number of the signal that ended it.
pub fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => (128 + signal) as u8,
        (None, None) => 125,
    }
}

fn run_command(
    near: &Namespace,
    far_address: Ipv4Addr,
    words: &[OsString],
    signals: &Signals,
) -> Result<ExitStatus, NetError> {
    let (ended, end) = io::pipe().map_err(NetError::at("make a pipe"))?;
    let (started, is_started) = mpsc::channel::<Child>();
    let start = move || {
        near.enter()?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(denied("mount"))?;
        hosts::add_names(far_address)?;
        let child =
            child::command(Role::Command, words).spawn().map_err(NetError::at("start the command"))?;
        let pid = Pid::from_raw(child.id() as i32);
        let _ = started.send(child);
        // This thread must live as long as the command: the death of a process's maker is that of the thread. The command is
        // left as a zombie, so that signals on their way cannot hit a process that got its number.
        while let Err(nix::Error::EINTR) = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
        }
        drop(end);
        Ok(())
    };
    std::thread::scope(|scope| {
        let maker = scope.spawn(start);
        let Ok(mut child) = is_started.recv() else {
            let failed = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            return Err(failed.err().unwrap_or_else(|| NetError::Config("the command did not start".into())));
        };
        signals
            .pass_on_until(&ended, Pid::from_raw(child.id() as i32))
            .map_err(|error| NetError::at("wait for signals")(error.into()))?;
        child.wait().map_err(NetError::at("wait for the command"))
    })
}
