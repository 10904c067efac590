//! Objects as files below a directory, on a local disk or NFS.
//!
//! Files are read with `pread` on the blocking pool: a page cache hit costs some 20 µs more than a direct
//! read, but a slow NFS server cannot hold up the faults that other objects would answer. A file that is
//! replaced meanwhile is read on from the opened one; the digests tell if it is another. On a hard-mounted
//! NFS the read itself cannot be abandoned: the request ends as `Stalled`, its thread stays until the server
//! is back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, future::BoxFuture, stream};

use crate::{Body, ByteRange, Meter, Options, Source, SourceError, UnderWay, WireStats, name};

/// Bytes per read: some ms of a slow link's worth, and few enough round trips to the blocking pool at memory
/// speed.
const CHUNK: u64 = 256 << 10;

pub(crate) struct DirSource {
    root: PathBuf,
    options: Options,
    meter: Arc<Meter>,
}

impl DirSource {
    pub(crate) fn new(root: PathBuf, options: Options) -> Self {
        Self { root, options, meter: Arc::default() }
    }

    async fn open(&self, object: &str, range: Option<ByteRange>) -> Result<Body, SourceError> {
        let place = self.describe(object);
        if let Some(reason) = name::fault(object) {
            return Err(SourceError::BadName { place, reason });
        }
        if range.as_ref().is_some_and(ByteRange::is_empty) {
            return Ok(Body::from_bytes(place, Bytes::new()));
        }
        self.meter.request();
        let start = Instant::now();
        let path = self.root.join(object);
        let under_way = self.meter.response();
        let reader = Reader {
            place,
            options: self.options.clone(),
            meter: self.meter.clone(),
            got: 0,
            _under_way: under_way,
        };
        let (file, size) = reader.blocking(move || open_file(&path)).await?;
        self.meter.head_after(start.elapsed());
        let range = range.unwrap_or(0..size);
        if size < range.end {
            let (expected, got) = (range.end - range.start, size.saturating_sub(range.start));
            return Err(SourceError::Truncated { place: reader.place, expected, got });
        }
        let len = range.end - range.start;
        Ok(Body::new(reader.place.clone(), Some(len), reader.chunks(Arc::new(file), range)))
    }
}

impl Source for DirSource {
    fn get<'a>(
        &'a self,
        object: &'a str,
        range: Option<ByteRange>,
    ) -> BoxFuture<'a, Result<Body, SourceError>> {
        self.open(object, range).boxed()
    }

    fn describe(&self, object: &str) -> String {
        self.root.join(object.trim_start_matches('/')).display().to_string()
    }

    fn wire(&self) -> WireStats {
        self.meter.stats()
    }
}

fn open_file(path: &std::path::Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, metadata.len()))
}

/// One request's reads.
struct Reader {
    place: String,
    options: Options,
    meter: Arc<Meter>,
    got: u64,
    /// For the rate.
    _under_way: UnderWay,
}

impl Reader {
    fn chunks(
        self,
        file: Arc<File>,
        range: ByteRange,
    ) -> impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static {
        stream::try_unfold((self, file, range), |(mut reader, file, range)| async move {
            if range.is_empty() {
                return Ok(None);
            }
            let (from, want) = (range.start, (range.end - range.start).min(CHUNK) as usize);
            let handle = file.clone();
            let bytes = reader.blocking(move || read_at(&handle, from, want)).await?;
            if bytes.is_empty() {
                // The file shrank; the body says how much is missing.
                return Ok(None);
            }
            reader.got += bytes.len() as u64;
            reader.meter.received(bytes.len() as u64);
            let rest = from + bytes.len() as u64..range.end;
            Ok(Some((bytes, (reader, file, rest))))
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, SourceError> {
        let task = tokio::task::spawn_blocking(work);
        match tokio::time::timeout(self.options.stall, task).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(error))) => Err(self.io_error(&error)),
            Ok(Err(join)) => Err(self.io_error(&io::Error::other(join))),
            Err(_) => Err(SourceError::Stalled {
                place: self.place.clone(),
                waited: self.options.stall,
                got: self.got,
            }),
        }
    }

    fn io_error(&self, error: &io::Error) -> SourceError {
        let place = self.place.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => SourceError::NotFound { place },
            kind => SourceError::Io { place, reason: error.to_string(), kind },
        }
    }
}

fn read_at(file: &File, offset: u64, want: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; want];
    loop {
        match file.read_at(&mut buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(read) => {
                buffer.truncate(read);
                return Ok(buffer.into());
            }
        }
    }
}
