//! The second command, on the far side of the link.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};

use super::{
    NetError,
    child::{self, Role},
    forward::{Protocol, ports},
    namespace::{Namespace, denied, in_thread},
};

/// How long a server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at its ports.
const LOOK: Duration = Duration::from_millis(5);

/// A server that runs; dropped, it ends, with all processes it has made.
pub(super) struct Server(Child);

impl Server {
    /// Starts `line` with sh(1) on the far side, and waits until it listens on a port that was not open before.
    ///
    /// Its standard output goes to our standard error, so that the command's output stays the command's.
    pub(super) fn start(far: &Namespace, line: &OsStr) -> Result<Self, NetError> {
        let before = far.run(open_ports)?;
        let words = [OsString::from("/bin/sh"), "-c".into(), line.to_owned()];
        let spawn = || {
            far.enter()?;
            // Its own PID namespace: when its first process ends, so does everything that it started.
            unshare(CloneFlags::CLONE_NEWPID).map_err(denied("process"))?;
            // Its own process group: Ctrl-C is for the command.
            let mut command = child::command(Role::Server, &words);
            command.stdin(Stdio::piped()).stdout(io::stderr()).process_group(0);
            command.spawn().map_err(NetError::at("start the server"))
        };
        let mut server = Self(in_thread(spawn)?);
        server.wait_until_listening(far, &before)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, far: &Namespace, before: &HashSet<u16>) -> Result<(), NetError> {
        let deadline = Instant::now() + START_TIMEOUT;
        far.run(|| {
            loop {
                if !open_ports()?.is_subset(before) {
                    return Ok(());
                }
                if let Some(status) = self.0.try_wait().map_err(NetError::at("wait for the server"))? {
                    return Err(NetError::ServerEnded(status));
                }
                if Instant::now() > deadline {
                    return Err(NetError::ServerSilent(START_TIMEOUT));
                }
                thread::sleep(LOOK);
            }
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its first process ends with its standard input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn open_ports() -> Result<HashSet<u16>, NetError> {
    let read = |protocol| ports(protocol).map_err(NetError::at("read the table of sockets"));
    Ok(read(Protocol::Tcp)?.into_iter().chain(read(Protocol::Udp)?).collect())
}
