//! Object names: relative, slash-separated, and never able to leave the prefix, because some of them come out
//! of an image.

/// Says what is wrong with `object` as a name below an image's prefix, if anything is.
pub(crate) fn fault(object: &str) -> Option<&'static str> {
    if object.is_empty() {
        return Some("it is empty");
    }
    if object.starts_with('/') {
        return Some("it is absolute");
    }
    if object.chars().any(|c| c.is_control() || c == '\\') {
        return Some("it has a control character or a backslash");
    }
    object.split('/').find_map(|part| match part {
        "" => Some("it has an empty component"),
        "." | ".." => Some("it has a '.' or '..' component"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn accepts_what_images_use() {
        for name in ["hot", "groups.index", "pages/ab/abcdef0123", "..data", "a..b/c."] {
            assert_eq!(fault(name), None, "{name}");
        }
    }

    #[test]
    fn refuses_what_could_leave_the_prefix() {
        for name in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\\..\\b", "a\0b", "a\nb"] {
            assert!(fault(name).is_some(), "{name:?}");
        }
    }
}
