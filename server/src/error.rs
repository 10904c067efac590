//! What keeps the server from serving. What happens to a single request is a status, not an error.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why the server could not start, or had to stop. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// There is no such directory.
    #[error("{} does not exist: give the directory that holds the images", .dir.display())]
    DirMissing {
        /// As it was given.
        dir: PathBuf,
    },
    /// It is a file, for example an object of the image itself.
    #[error("{} is not a directory: give the directory that holds the images", .dir.display())]
    NotADirectory {
        /// As it was given.
        dir: PathBuf,
    },
    /// It is there, but cannot be opened.
    #[error("cannot open {}: it has to be readable and searchable for the user that serves it", .dir.display())]
    DirUnreadable {
        /// As it was given.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else listens there.
    #[error(
        "{addr} is in use: stop the program that listens there, or listen on another port (port 0 takes a free one)"
    )]
    AddressInUse {
        /// As it was given.
        addr: SocketAddr,
    },
    /// Ports below 1024 need privilege.
    #[error("no permission to listen on {addr}: take a port from 1024 up, or grant CAP_NET_BIND_SERVICE")]
    AddressForbidden {
        /// As it was given.
        addr: SocketAddr,
    },
    /// The address is not one of this machine.
    #[error("{addr} is not an address of this machine: 0.0.0.0 or [::] listens on all that it has")]
    AddressNotHere {
        /// As it was given.
        addr: SocketAddr,
    },
    /// Listening failed for another reason.
    #[error("cannot listen on {addr}")]
    Listen {
        /// As it was given.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The listening socket broke; trying again would not help.
    #[error("cannot accept connections on {addr} any more")]
    Accept {
        /// The address that was listened on.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl ServeError {
    pub(crate) fn from_dir(dir: &Path, source: io::Error) -> Self {
        let dir = dir.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::DirMissing { dir },
            io::ErrorKind::NotADirectory => Self::NotADirectory { dir },
            _ => Self::DirUnreadable { dir, source },
        }
    }

    pub(crate) fn from_listen(addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { addr },
            io::ErrorKind::PermissionDenied => Self::AddressForbidden { addr },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotHere { addr },
            _ => Self::Listen { addr, source },
        }
    }
}
