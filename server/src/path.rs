//! From the path of a request to an open file below the served directory, and to nothing else.
//!
//! The text of a request is split first and decoded then, segment by segment, so that no encoded `/` or `..` comes
//! back as a separator. What symbolic links in the directory do is for the kernel to judge: `openat2` with
//! `RESOLVE_BENEATH` refuses every resolution that leaves it, also while somebody renames directories (openat2(2)).

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Whether a call may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It may.
    Allowed,
    /// It may not: what is not in the kernel's caches is `ErrorKind::WouldBlock`.
    Never,
}

/// The path of a request, decoded: relative, without `.`, `..`, NUL or empty segments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestPath {
    relative: PathBuf,
    wants_directory: bool,
}

impl RequestPath {
    /// `None` if no file below the directory can have this path.
    pub(crate) fn parse(raw: &str) -> Option<Self> {
        let raw = raw.strip_prefix('/')?;
        let mut relative = PathBuf::new();
        if raw.is_empty() {
            return Some(Self { relative, wants_directory: true });
        }
        let (raw, wants_directory) = match raw.strip_suffix('/') {
            Some(directory) => (directory, true),
            None => (raw, false),
        };
        for segment in raw.split('/') {
            let name: Vec<u8> = percent_decode_str(segment).collect();
            if matches!(&name[..], b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
                return None;
            }
            relative.push(OsStr::from_bytes(&name));
        }
        Some(Self { relative, wants_directory })
    }

    /// Relative to the served directory; empty for the directory itself.
    pub(crate) fn relative(&self) -> &Path {
        &self.relative
    }

    /// The request ended in `/`.
    pub(crate) fn wants_directory(&self) -> bool {
        self.wants_directory
    }
}

/// The served directory.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    canonical: PathBuf,
    has_openat2: bool,
}

/// Opening a FIFO must not wait for a writer, and a terminal must not become ours; both are refused when they are open.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// A rename anywhere on the machine makes `RESOLVE_BENEATH` fail with EAGAIN now and then; openat2(2) says to try again.
const ATTEMPTS: usize = 16;

impl Root {
    /// Opens the served directory.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let canonical = dir.canonicalize()?;
        let fd =
            openat(CWD, &canonical, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
        // ENOSYS before Linux 5.6; EPERM under seccomp filters that do not know it.
        let has_openat2 = openat2(&fd, ".", FLAGS, Mode::empty(), BENEATH).is_ok();
        Ok(Self { dir: fd, canonical, has_openat2 })
    }

    /// Opens `relative` for reading, whatever it is.
    pub(crate) fn open_beneath(&self, relative: &Path, wait: Wait) -> io::Result<OwnedFd> {
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        if self.has_openat2 { self.by_openat2(relative, wait) } else { self.by_walk(relative, wait) }
    }

    fn by_openat2(&self, relative: &Path, wait: Wait) -> io::Result<OwnedFd> {
        if wait == Wait::Never {
            // EINVAL before Linux 5.12.
            return openat2(&self.dir, relative, FLAGS, Mode::empty(), BENEATH | ResolveFlags::CACHED)
                .map_err(|error| if error == Errno::INVAL { Errno::AGAIN.into() } else { error.into() });
        }
        for _ in 1..ATTEMPTS {
            match openat2(&self.dir, relative, FLAGS, Mode::empty(), BENEATH) {
                Err(Errno::AGAIN) => {}
                result => return Ok(result?),
            }
        }
        Ok(openat2(&self.dir, relative, FLAGS, Mode::empty(), BENEATH)?)
    }

    /// Without `openat2`: resolve all links first, check that the result is inside, then walk to it without following
    /// any link, so that a link put there in between is an error. Unlike `openat2` this lets an absolute link pass that
    /// ends inside.
    fn by_walk(&self, relative: &Path, wait: Wait) -> io::Result<OwnedFd> {
        if wait == Wait::Never {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let resolved = self.canonical.join(relative).canonicalize()?;
        let inside = resolved.strip_prefix(&self.canonical).map_err(|_| Errno::XDEV)?;
        let mut at = self.dir.try_clone()?;
        let mut names = inside.iter().peekable();
        if names.peek().is_none() {
            return Ok(openat(&at, ".", FLAGS, Mode::empty())?);
        }
        while let Some(name) = names.next() {
            let kind = if names.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
            at = openat(&at, name, FLAGS | OFlags::NOFOLLOW | kind, Mode::empty())?;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn parsed(raw: &str) -> Option<(String, bool)> {
        RequestPath::parse(raw).map(|path| (path.relative.to_str().unwrap().to_owned(), path.wants_directory))
    }

    #[test]
    fn paths_are_decoded_once_and_by_segment() {
        for (raw, want) in [
            ("/", Some(("", true))),
            ("/a", Some(("a", false))),
            ("/a/b", Some(("a/b", false))),
            ("/a/", Some(("a", true))),
            ("/a%20b", Some(("a b", false))),
            ("/%61", Some(("a", false))),
            ("/%2561", Some(("%61", false))),
            ("/%zz", Some(("%zz", false))),
            ("/...", Some(("...", false))),
            ("/a\\..\\b", Some(("a\\..\\b", false))),
            ("", None),
            ("a", None),
            ("*", None),
            ("//", None),
            ("//a", None),
            ("/a//b", None),
            ("/a//", None),
            ("/.", None),
            ("/..", None),
            ("/a/./b", None),
            ("/a/../b", None),
            ("/a/..", None),
            ("/../a", None),
            ("/%2e%2e/a", None),
            ("/.%2E/a", None),
            ("/%2e", None),
            ("/..%2fa", None),
            ("/a%2fb", None),
            ("/%2fetc", None),
            ("/a%00", None),
            ("/%00", None),
        ] {
            assert_eq!(parsed(raw), want.map(|(path, dir): (&str, bool)| (path.to_owned(), dir)), "{raw}");
        }
    }

    /// Both ways of resolution over the same directory.
    #[test]
    fn links_lead_nowhere_but_inside() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("served");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(outer.path().join("secret"), "secret").unwrap();
        fs::write(dir.join("sub/file"), "file").unwrap();
        symlink("sub/file", dir.join("in")).unwrap();
        symlink("sub", dir.join("in_dir")).unwrap();
        symlink("../file", dir.join("sub/out_of_sub")).unwrap();
        symlink("../secret", dir.join("out")).unwrap();
        symlink(outer.path().join("secret"), dir.join("out_absolute")).unwrap();
        symlink("..", dir.join("out_dir")).unwrap();
        symlink("/proc/self/root", dir.join("magic")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();

        let mut root = Root::open(&dir).unwrap();
        assert!(root.has_openat2, "no openat2 here: only the fallback would be tested");
        for has_openat2 in [true, false] {
            root.has_openat2 = has_openat2;
            for path in ["sub/file", "in", "in_dir/file", "in_dir", "sub", ""] {
                let result = root.open_beneath(Path::new(path), Wait::Allowed);
                assert!(result.is_ok(), "{path:?} by openat2={has_openat2}: {result:?}");
            }
            for path in [
                "out",
                "out_absolute",
                "out_dir",
                "out_dir/secret",
                "magic",
                "magic/etc/passwd",
                "loop",
                "sub/out_of_sub",
                "missing",
                "sub/file/x",
                "..",
                "../secret",
                "sub/../../secret",
                "/etc/passwd",
            ] {
                let result = root.open_beneath(Path::new(path), Wait::Allowed);
                assert!(result.is_err(), "{path:?} by openat2={has_openat2} was opened");
            }
        }
    }
}
