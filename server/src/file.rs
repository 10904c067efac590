//! One state of one file: what was opened is what is sent, or the response breaks off.

use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::HeaderValue;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use crate::conditional::Validators;
use crate::path::Wait;
use crate::range::ByteRange;

/// A regular file, open, and its state when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    state: State,
    modified: SystemTime,
}

/// What changes when the content does. The inode is in it because a file may be replaced by a rename within the
/// granularity of the clock. The time of the last status change is not: unlinking or renaming the file keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size: u64,
    modified: (i64, i64),
    inode: u64,
}

/// What a request path may lead to.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A regular file.
    File(OpenFile),
    /// A directory.
    Directory(OwnedFd),
    /// A device, FIFO or socket.
    Special,
}

impl Opened {
    /// Looks at what was opened.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let metadata = file.metadata()?;
        Ok(if metadata.is_file() {
            let modified = metadata.modified()?;
            Self::File(OpenFile { file, state: State::of(&metadata), modified })
        } else if metadata.is_dir() {
            Self::Directory(file.into())
        } else {
            Self::Special
        })
    }
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            inode: metadata.ino(),
        }
    }
}

impl OpenFile {
    /// Size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.state.size
    }

    /// Tag and date of this state.
    pub(crate) fn validators(&self, now: SystemTime) -> io::Result<Validators> {
        let State { size, modified: (seconds, nanos), inode } = self.state;
        let etag = format!("\"{size:x}-{seconds:x}.{nanos:x}-{inode:x}\"");
        let etag = HeaderValue::try_from(etag).map_err(io::Error::other)?;
        Ok(Validators::new(etag, self.modified, now))
    }

    /// Reads all of `range`, then checks that the file is still in the state in which it was opened. A writer updates
    /// the time before the data, so what passes the check was not mixed.
    pub(crate) fn read(&self, range: ByteRange, wait: Wait) -> io::Result<Bytes> {
        let len = usize::try_from(range.len()).map_err(io::Error::other)?;
        let bytes = match wait {
            Wait::Allowed => self.read_waiting(range.start(), len)?,
            Wait::Never => self.read_cached(range.start(), len)?,
        };
        let state = State::of(&self.file.metadata()?);
        if bytes.len() < len || state != self.state {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the file changed while it was sent: from {:?} to {state:?}", self.state),
            ));
        }
        Ok(bytes.into())
    }

    fn read_waiting(&self, start: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = start + bytes.len() as u64;
            match pread(&self.file, spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // An allocator may have given more than was asked for.
        bytes.truncate(len);
        Ok(bytes)
    }

    /// All or nothing: a part that is in the page cache is read again by the call that may wait.
    fn read_cached(&self, start: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        match preadv2(&self.file, &mut [IoSliceMut::new(&mut bytes)], start, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == len => Ok(bytes),
            // Short, not cached, interrupted, or a file system that knows no RWF_NOWAIT.
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}
