//! The SOURCE argument: which image, where, and which version of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use reqwest::Url;

/// Where an image is: `http://host/x`, `https://host/x`, or a directory (`./img`, `/srv/img`,
/// `file:///srv/img`), each optionally followed by `#` and 64 hexadecimal digits: the BLAKE3 digest of its
/// manifest ("pinned").
///
/// A query (`https://host/x?token=...`) is kept and goes with every object. A password shows as `***` in
/// messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    place: Place,
    pin: Option<[u8; 32]>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Http(Url),
    Dir(PathBuf),
}

/// Why a SOURCE argument is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Nothing in front of the digest.
    #[error("the source is empty; give http://HOST/IMAGE, https://HOST/IMAGE or a directory")]
    Empty,
    /// A NUL or another control character.
    #[error("the source {0:?} has a control character in it")]
    Control(String),
    /// What follows the last `#` is no digest. It is never dropped silently: it would turn a pinned source
    /// into an unpinned one.
    #[error(
        "after '#' come the 64 hexadecimal digits of the manifest's digest, not {0:?} (a '#' in a directory's \
         name is written file:///...%23...)"
    )]
    BadPin(String),
    /// Another scheme.
    #[error(
        "{scheme}:// is not supported; give http://, https:// (most buckets have such an address) or a directory"
    )]
    Scheme {
        /// The scheme that was given.
        scheme: String,
    },
    /// Not a URL.
    #[error("{text:?} is not a URL: {reason}")]
    Url {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A `file:` URL that is not an absolute path on this machine.
    #[error("{0:?} is not a local path; write file:///path/of/the/directory")]
    NotLocal(String),
}

impl Location {
    /// Parses a SOURCE argument.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        if text.chars().any(char::is_control) {
            return Err(LocationError::Control(text.to_owned()));
        }
        let (place, pin) = match text.rsplit_once('#') {
            None => (text, None),
            Some((place, digits)) => {
                let pin = parse_pin(digits).ok_or_else(|| LocationError::BadPin(digits.to_owned()))?;
                (place, Some(pin))
            }
        };
        if place.is_empty() {
            return Err(LocationError::Empty);
        }
        Ok(Location { place: parse_place(place)?, pin })
    }

    /// The digest that the manifest must have, if the source names one.
    pub fn pinned(&self) -> Option<&[u8; 32]> {
        self.pin.as_ref()
    }

    /// The full URL or path of one of the image's objects, for messages (a password is masked).
    pub fn object(&self, name: &str) -> String {
        match &self.place {
            Place::Http(url) => masked(&object_url(url, name)),
            Place::Dir(path) => path.join(name).display().to_string(),
        }
    }

    /// Whether it is a directory of this machine.
    pub fn is_directory(&self) -> bool {
        matches!(self.place, Place::Dir(_))
    }

    /// The same place, independent of the working directory.
    pub fn absolute(self) -> std::io::Result<Location> {
        let place = match self.place {
            Place::Dir(path) => Place::Dir(std::path::absolute(path)?),
            http @ Place::Http(_) => http,
        };
        Ok(Location { place, ..self })
    }

    /// What to give as SOURCE to another pagein to get this very image, credentials and all: not for messages.
    pub fn argument(&self, digest: &[u8; 32]) -> String {
        use std::fmt::Write as _;
        let mut text = match &self.place {
            Place::Http(url) => url.to_string(),
            Place::Dir(path) => {
                Url::from_file_path(path).map_or_else(|()| path.display().to_string(), String::from)
            }
        };
        text.push('#');
        for byte in digest {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The URL to ask for an object, credentials and all. `None` for a directory.
    pub(crate) fn url(&self, name: &str) -> Option<Url> {
        match &self.place {
            Place::Http(url) => Some(object_url(url, name)),
            Place::Dir(_) => None,
        }
    }
}

fn parse_pin(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut pin = [0; 32];
    for (byte, pair) in pin.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(pin)
}

fn parse_place(text: &str) -> Result<Place, LocationError> {
    let Some(scheme) = scheme_of(text) else { return Ok(Place::Dir(PathBuf::from(text))) };
    if !matches!(scheme.as_str(), "http" | "https" | "file") {
        return Err(LocationError::Scheme { scheme });
    }
    let bad = |reason: String| LocationError::Url { text: text.to_owned(), reason };
    // The URL standard forgives `http:x` and `http:///x`; here the host must stand where it belongs.
    let Some(rest) = text[scheme.len()..].strip_prefix("://") else {
        return Err(bad(format!("write {scheme}:// with two slashes")));
    };
    if scheme == "file" {
        return parse_file(text);
    }
    if rest.starts_with(['/', '\\']) {
        return Err(bad("the host is missing".to_owned()));
    }
    let mut url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(Place::Http(url))
}

fn parse_file(text: &str) -> Result<Place, LocationError> {
    let url = Url::parse(text).map_err(|_| LocationError::NotLocal(text.to_owned()))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(LocationError::NotLocal(text.to_owned()));
    }
    match url.to_file_path() {
        Ok(path) if !path.as_os_str().as_encoded_bytes().contains(&0) => Ok(Place::Dir(path)),
        _ => Err(LocationError::NotLocal(text.to_owned())),
    }
}

/// The lower-case scheme of what looks like a URL: `scheme://`, or one of ours followed by a colon (`http:/x`
/// is a mistake and not a directory).
fn scheme_of(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.bytes();
    let is_scheme = letters.next()?.is_ascii_alphabetic()
        && letters.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let scheme = scheme.to_ascii_lowercase();
    let ours = matches!(scheme.as_str(), "http" | "https" | "file");
    (is_scheme && (ours || rest.starts_with("//"))).then_some(scheme)
}

fn object_url(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{name}", base.path().trim_end_matches('/')));
    url
}

pub(crate) fn masked(url: &Url) -> String {
    let mut url = url.clone();
    if url.password().is_some() {
        // Fails only for URLs that cannot have a password.
        let _ = url.set_password(Some("***"));
    }
    url.into()
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Http(url) => f.write_str(&masked(url))?,
            Place::Dir(path) => f.write_str(&dir_text(path, self.pin.is_some()))?,
        }
        if let Some(pin) = &self.pin {
            f.write_str("#")?;
            pin.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// A directory as it may be given again: as a `file:` URL where the bare path would be read as something
/// else.
fn dir_text(path: &Path, pinned: bool) -> String {
    let bare = path.display().to_string();
    let ambiguous = bare.contains('#') && !pinned || bare.contains(char::is_control);
    match Url::from_file_path(path) {
        Ok(url) if ambiguous || path.to_str().is_none() => url.into(),
        _ => bare,
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIN: &str = "00112233445566778899aabbccddeeff0123456789abcdef0123456789ABCDEF";

    #[test]
    fn urls() {
        for (text, hot) in [
            ("http://host/x", "http://host/x/hot"),
            ("https://host/x/", "https://host/x/hot"),
            ("HTTP://Host:8080", "http://host:8080/hot"),
            ("https://host/x?sig=a%2Fb", "https://host/x/hot?sig=a%2Fb"),
            ("http://u:secret@host/x", "http://u:***@host/x/hot"),
            ("http://[::1]:80/a/../b", "http://[::1]/b/hot"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!(location.object("hot"), hot);
            assert!(!format!("{location} {location:?}").contains("secret"));
            assert_eq!(location.pinned(), None);
        }
        let asked = Location::parse("http://u:secret@host/x").unwrap().url("pages/ab/abc?").unwrap();
        assert_eq!(asked.as_str(), "http://u:secret@host/x/pages/ab/abc%3F");
    }

    #[test]
    fn directories() {
        for (text, hot) in [
            ("./img", "./img/hot"),
            ("/srv/img/", "/srv/img/hot"),
            ("img", "img/hot"),
            ("file:///srv/my%20img", "/srv/my img/hot"),
            ("file://localhost/srv/a%23b", "/srv/a#b/hot"),
            ("a:b", "a:b/hot"),
            (".", "./hot"),
        ] {
            assert_eq!(Location::parse(text).unwrap().object("hot"), hot);
        }
    }

    #[test]
    fn pins() {
        for place in ["http://host/x", "./img", "/srv/a#b", "file:///srv/a"] {
            let location = Location::parse(&format!("{place}#{PIN}")).unwrap();
            let pin = location.pinned().unwrap();
            assert_eq!((pin[0], pin[1], pin[31]), (0, 0x11, 0xef));
            assert!(!location.object("hot").contains(&PIN[..9]));
            assert_eq!(Location::parse(&location.to_string()), Ok(location));
        }
    }

    #[test]
    fn mistakes() {
        let pin_plus_one = format!("http://host/x#{PIN}0");
        let only_pin = format!("#{PIN}");
        let multibyte = format!("http://host/x#{}", "é".repeat(32));
        for (text, part) in [
            ("", "empty"),
            (only_pin.as_str(), "empty"),
            ("http://host/x#", "64 hexadecimal"),
            ("./img#abc", "64 hexadecimal"),
            (pin_plus_one.as_str(), "64 hexadecimal"),
            (multibyte.as_str(), "64 hexadecimal"),
            ("s3://bucket/x", "s3:// is not supported"),
            ("ftp://host/x", "ftp:// is not supported"),
            ("http:/host/x", "two slashes"),
            ("http:///x", "host is missing"),
            ("http://", "URL"),
            ("http://ho st/x", "URL"),
            ("http://host:99999/", "URL"),
            ("file://elsewhere/x", "not a local path"),
            ("file:///x?y", "not a local path"),
            ("file:///x%00y", "not a local path"),
            ("./a\0b", "control character"),
        ] {
            let message = Location::parse(text).map(|l| l.to_string()).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(http|https|file|x)?:?/{0,3}[ -~é]{0,30}(#[0-9a-f]{62,65})?") {
            if let Ok(location) = Location::parse(&text) {
                prop_assert!(location.object("hot").contains("/hot"));
                prop_assert_eq!(location.pinned().is_some(), text.contains('#'));
            }
        }

        #[test]
        fn what_is_shown_can_be_given_again(
            prefix in "(https?://[a-z]{1,9}(:[1-9][0-9]{0,3})?|file://|\\.|)",
            path in "(/[a-zA-Z0-9 #._%-]{1,8}){1,3}",
            pin in proptest::option::of(proptest::array::uniform32(any::<u8>())),
        ) {
            let hex = pin.map_or(String::new(), |pin| pin.iter().fold("#".to_owned(), |s, b| format!("{s}{b:02x}")));
            if let Ok(location) = Location::parse(&format!("{prefix}{path}{hex}")) {
                prop_assert_eq!(location.pinned(), pin.as_ref());
                prop_assert_eq!(Location::parse(&location.to_string()), Ok(location));
            }
        }
    }
}
