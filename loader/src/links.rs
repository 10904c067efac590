//! What was found out about the way to a host, remembered in the cache: the next run decides by it before it has measured anything.
//!
//! A small text file for each host, replaced in one step. What cannot be read, or says something impossible, is as good as none.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagein_image::Digest;
use pagein_model::Link;

use crate::publish::Unnamed;

/// First line of the file; another version is not read.
const HEADER: &str = "pagein-link 1";
/// More is no file of ours.
const LEN_MAX: u64 = 256;
/// Bytes per second that links have, from a modem to the fastest networks.
const BANDWIDTH: std::ops::RangeInclusive<u64> = 100..=1_000_000_000_000;
/// Longest round trip that is believed, microseconds: to Mars it is more, but not over TCP.
const ROUND_TRIP_MAX: u64 = 60_000_000;

/// Host and port of an address; `None` for a directory.
pub(crate) fn host(source: &str) -> Option<&str> {
    let (_, rest) = source.split_once("://")?;
    rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())
}

fn path(cache: &Path, host: &str) -> PathBuf {
    cache.join("links").join(&Digest::of(host.as_bytes()).to_string()[..16])
}

/// What is known of the way to `host`.
pub(crate) fn recall(cache: &Path, host: &str) -> Option<Link> {
    let path = path(cache, host);
    if fs::metadata(&path).ok()?.len() > LEN_MAX {
        return None;
    }
    parse(&fs::read_to_string(&path).ok()?)
}

/// Remembers it; where that is not possible, it is not.
pub(crate) fn remember(cache: &Path, host: &str, link: &Link) {
    let store = || {
        let path = path(cache, host);
        let directory = path.parent()?;
        let unnamed = Unnamed::new(directory).ok()?;
        unnamed.file().write_all(format(link).as_bytes()).ok()?;
        unnamed.publish(&path).ok()
    };
    let _ = store();
}

fn format(link: &Link) -> String {
    let (bandwidth, round_trip) = (link.bandwidth as u64, link.round_trip.as_micros());
    format!("{HEADER}\nbandwidth {bandwidth}\nround-trip-us {round_trip}\n")
}

fn parse(text: &str) -> Option<Link> {
    let mut lines = text.lines();
    if lines.next()? != HEADER {
        return None;
    }
    let mut number = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ')?.parse::<u64>().ok();
    let (bandwidth, round_trip) = (number("bandwidth")?, number("round-trip-us")?);
    let sane = BANDWIDTH.contains(&bandwidth) && round_trip <= ROUND_TRIP_MAX;
    sane.then(|| Link { bandwidth: bandwidth as f64, round_trip: Duration::from_micros(round_trip) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINK: Link = Link { bandwidth: 1_250_000.0, round_trip: Duration::from_millis(20) };

    #[test]
    fn what_is_remembered_is_recalled_for_that_host_only() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(recall(cache.path(), "a:80"), None);
        remember(cache.path(), "a:80", &LINK);
        remember(cache.path(), "a:80", &Link { bandwidth: 5000.0, ..LINK });
        assert_eq!(recall(cache.path(), "a:80"), Some(Link { bandwidth: 5000.0, ..LINK }));
        assert_eq!(recall(cache.path(), "a:81"), None);
        assert_eq!(fs::read_dir(cache.path().join("links")).unwrap().count(), 1, "nothing else is left");
        remember(Path::new("/proc/no/such/place"), "a", &LINK);
    }

    #[test]
    fn garbage_is_as_good_as_nothing() {
        let cache = tempfile::tempdir().unwrap();
        remember(cache.path(), "a", &LINK);
        let path = path(cache.path(), "a");
        let huge = "x".repeat(1 << 20);
        for text in [
            "",
            "pagein-link 2\nbandwidth 1000\nround-trip-us 5\n",
            "pagein-link 1\nbandwidth 1e5\nround-trip-us 5\n",
            "pagein-link 1\nbandwidth 5\nround-trip-us 5\n",
            "pagein-link 1\nbandwidth 1000\nround-trip-us 99999999999\n",
            "pagein-link 1\nbandwidth 1000",
            &huge,
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(recall(cache.path(), "a"), None, "{text:.60}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(recall(cache.path(), "a"), None);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(recall(cache.path(), "a"), None);
        remember(cache.path(), "a", &LINK);
    }

    #[test]
    fn hosts_of_addresses() {
        assert_eq!(host("http://h:8080/a/b#c"), Some("h:8080"));
        assert_eq!(host("https://h?x"), Some("h"));
        assert_eq!(host("/srv/images/git"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_link_or_none(text in ".{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn a_link_is_read_back(bandwidth in 100u64..1_000_000_000_000, us in 0u64..60_000_000) {
            let link = Link { bandwidth: bandwidth as f64, round_trip: Duration::from_micros(us) };
            prop_assert_eq!(parse(&format(&link)), Some(link));
        }
    }
}
