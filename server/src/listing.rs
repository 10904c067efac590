//! What a directory answers: a list of the images at the root, one line about an image, nothing else.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{Dir, FileType};

use crate::file::Opened;
use crate::path::{Root, Wait};

/// The file that makes a directory an image.
const HOT: &str = "hot";
/// Images may be grouped, as in `/tools/1.2/git`; below that nobody looks.
const MAX_DEPTH: usize = 4;
/// A listing is for people. It also bounds the work of a request for it.
const MAX_LISTED: usize = 1000;
/// Directories that are read for one listing, images or not.
const MAX_VISITED: usize = 10_000;
/// All that a path segment may hold as it is (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Whether the directory `relative` holds an image.
pub(crate) fn is_image(root: &Root, relative: &Path) -> bool {
    root.open_beneath(&relative.join(HOT), Wait::Allowed)
        .and_then(Opened::new)
        .is_ok_and(|opened| matches!(opened, Opened::File(_)))
}

/// The URL paths of all images, one a line, sorted.
pub(crate) fn images(root: &Root, dir: OwnedFd) -> io::Result<String> {
    let mut found = Vec::new();
    if is_image(root, Path::new("")) {
        found.push(PathBuf::new());
    }
    let mut visited = 0;
    let mut pending = vec![(PathBuf::new(), dir, 1)];
    while let Some((relative, dir, depth)) = pending.pop() {
        visited += 1;
        if visited > MAX_VISITED || found.len() >= MAX_LISTED {
            break;
        }
        for entry in Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..")
                || !matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown)
            {
                continue;
            }
            let path = relative.join(OsStr::from_bytes(name));
            if is_image(root, &path) {
                found.push(path);
            } else if entry.file_type() == FileType::Directory
                && depth < MAX_DEPTH
                && pending.len() < MAX_LISTED
                && let Ok(child) = root.open_beneath(&path, Wait::Allowed)
            {
                pending.push((path, child, depth + 1));
            }
        }
    }
    found.sort_unstable();
    found.truncate(MAX_LISTED);
    let mut text = String::new();
    for path in &found {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", url_path(path));
    }
    if text.is_empty() {
        text.push_str("no images here: `pagein split APP -o DIR/NAME` makes one\n");
    }
    Ok(text)
}

/// `/` and the segments, escaped.
fn url_path(relative: &Path) -> String {
    if relative.as_os_str().is_empty() {
        return "/".to_owned();
    }
    relative
        .iter()
        .fold(String::new(), |text, name| text + "/" + &percent_encode(name.as_bytes(), ESCAPED).to_string())
}

/// One line for a person who opened the URL of an image in a browser.
pub(crate) fn about(relative: &Path, authority: Option<&str>) -> String {
    let authority = authority.unwrap_or("HOST");
    format!("a pagein image. To run it: pagein run http://{authority}{}\n", url_path(relative))
}
