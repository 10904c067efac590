//! Path patterns.

/// Whether `text` matches `pattern`, in which `*` stands for any number of any characters (slashes too) and
/// `?` for one.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // matches[j]: the pattern so far matches text[..j].
    let mut matches = vec![false; text.len() + 1];
    matches[0] = true;
    for &p in &pattern {
        if p == '*' {
            (1..=text.len()).for_each(|j| matches[j] |= matches[j - 1]);
        } else {
            for j in (1..=text.len()).rev() {
                matches[j] = matches[j - 1] && (p == '?' || p == text[j - 1]);
            }
            matches[0] = false;
        }
    }
    matches[text.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::glob;

    #[test]
    fn patterns() {
        for (pattern, text) in [
            ("hot", "hot"),
            ("*", ""),
            ("*", "a/b"),
            ("img/pages/*", "img/pages/ab/abc"),
            ("*.inde?", "groups.index"),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("hot", "hot2"), ("hot", "ho"), ("", "a"), ("?", ""), ("*/hot", "hot"), ("a*b", "ac")]
        {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_star_for_any_part_matches(a in "[a-c/]{0,6}", b in "[a-c/]{0,6}", c in "[a-c/]{0,6}") {
            let pattern = format!("{a}*{c}");
            let text = format!("{a}{b}{c}");
            prop_assert!(glob(&pattern, &text));
        }
    }
}
