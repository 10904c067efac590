//! Carries bytes between a connection from the link and one to a server of the outer machine.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};

/// Bytes moved at once.
const CHUNK: usize = 64 * 1024;

/// A listener on the loopback device answers at once, unless its queue is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Takes connections from the link, each with the addresses to try.
pub(super) type Dialer = mpsc::Sender<(TcpStream, Vec<SocketAddr>)>;

/// Starts the relay in the calling thread's network namespace: what it connects to is looked up there. It ends with the last
/// clone of the dialer; connections live on until one of their sides ends them.
pub(super) fn start() -> io::Result<Dialer> {
    let (dialer, accepted) = mpsc::channel::<(TcpStream, Vec<SocketAddr>)>();
    thread::Builder::new().name("link dialer".into()).spawn(move || {
        for (client, targets) in accepted {
            // Without memory for a thread the connection is closed, as by an overloaded server.
            let _ = thread::Builder::new().name("link relay".into()).spawn(move || serve(&client, &targets));
        }
    })?;
    Ok(dialer)
}

fn serve(client: &TcpStream, targets: &[SocketAddr]) {
    let connected =
        targets.iter().find_map(|target| TcpStream::connect_timeout(target, CONNECT_TIMEOUT).ok());
    let Some(server) = connected else {
        // The server went away after its port was seen: a reset, the nearest thing to a refusal.
        let abort = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = setsockopt(client, sockopt::Linger, &abort);
        return;
    };
    // Small writes are the client's and the server's affair; they must not wait for us.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    thread::scope(|scope| {
        scope.spawn(|| copy(client, &server));
        copy(&server, client);
    });
}

/// One direction, until its end, which is passed on; an error ends both.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(length) if to.write_all(&buffer[..length]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
