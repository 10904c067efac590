//! The text format: see the crate's documentation.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Call, Entry, Profile};

const MAGIC: &str = "pagein-profile";
const VERSION: &str = "1";

/// Why a text is not a profile; lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The first line is something else.
    #[error("not a profile: the first line has to be \"{MAGIC} {VERSION}\"")]
    NotAProfile,
    /// A profile of another version of the format.
    #[error(
        "the profile has format version {0}; this pagein reads version {VERSION}: record the profile again"
    )]
    Version(String),
    /// A line that does not follow the format.
    #[error("line {line} of the profile: {what}")]
    Line {
        /// Which line.
        line: usize,
        /// What is expected there.
        what: &'static str,
    },
}

impl Profile {
    /// Reads a profile.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().enumerate().map(|(n, l)| (n + 1, l.trim_end()));
        match lines.next().and_then(|(_, first)| first.split_once(' ')) {
            Some((MAGIC, VERSION)) => {}
            Some((MAGIC, other)) => return Err(ParseError::Version(other.to_owned())),
            _ => return Err(ParseError::NotAProfile),
        }
        let mut out = Self::default();
        for (line, text) in lines {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (key, rest) = text.split_once(' ').unwrap_or((text, ""));
            let parsed = match key {
                "program" => {
                    rest.clone_into(&mut out.program);
                    Ok(())
                }
                "build-id" => {
                    out.build_id = Some(rest.to_owned());
                    Ok(())
                }
                "runs" => decimal(rest).map(|runs| out.runs = runs),
                "f" => function(rest).map(|f| out.functions.push(f)),
                "b" => blocks(rest, out.functions.last_mut()),
                "c" => call(rest).map(|c| out.calls.push(c)),
                _ => Err("expected program, build-id, runs, f, b or c"),
            };
            parsed.map_err(|what| ParseError::Line { line, what })?;
            if let ("c", Some(c)) = (key, out.calls.last())
                && c.caller.max(c.callee) >= out.functions.len()
            {
                return Err(ParseError::Line { line, what: "a call's functions have to stand before it" });
            }
        }
        out.calls.sort_unstable();
        out.calls.dedup();
        Ok(out)
    }
}

fn decimal<T: FromStr>(word: &str) -> Result<T, &'static str> {
    word.parse().map_err(|_| "expected a decimal number")
}

fn hexadecimal(word: &str) -> Result<u64, &'static str> {
    u64::from_str_radix(word, 16).map_err(|_| "expected a hexadecimal number")
}

fn function(rest: &str) -> Result<Entry, &'static str> {
    let mut words = rest.splitn(5, ' ');
    let mut word = || words.next().ok_or("expected f ADDRESS SIZE HASH RUNS NAME");
    let (address, size) = (hexadecimal(word()?)?, hexadecimal(word()?)?);
    address.checked_add(size).ok_or("the function goes beyond the address space")?;
    let hash = match word()? {
        "-" => None,
        hash => Some(hexadecimal(hash)?),
    };
    let runs = decimal(word()?)?;
    let name = Some(word()?).filter(|n| *n != "-").map(str::to_owned);
    Ok(Entry { address, size, hash, runs, name, blocks: Vec::new() })
}

fn blocks(rest: &str, function: Option<&mut Entry>) -> Result<(), &'static str> {
    let function = function.ok_or("blocks have to follow their function")?;
    for word in rest.split(' ') {
        let offset = hexadecimal(word)?;
        if offset >= function.size || function.blocks.last().is_some_and(|last| offset <= u64::from(*last)) {
            return Err("blocks have to ascend and to lie in the function");
        }
        function.blocks.push(u32::try_from(offset).map_err(|_| "a block lies beyond 4 GB")?);
    }
    Ok(())
}

fn call(rest: &str) -> Result<Call, &'static str> {
    let mut words = rest.split(' ');
    let mut word = || words.next().ok_or("expected c CALLER CALLEE WEIGHT");
    Ok(Call { caller: decimal(word()?)?, callee: decimal(word()?)?, weight: decimal(word()?)? })
}

impl fmt::Display for Profile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{MAGIC} {VERSION}")?;
        writeln!(out, "program {}", self.program)?;
        if let Some(id) = &self.build_id {
            writeln!(out, "build-id {id}")?;
        }
        writeln!(out, "runs {}", self.runs)?;
        for f in &self.functions {
            let hash = f.hash.map_or_else(|| "-".to_owned(), |h| format!("{h:016x}"));
            let name = f.name.as_deref().unwrap_or("-");
            writeln!(out, "f {:x} {:x} {hash} {} {name}", f.address, f.size, f.runs)?;
            if !f.blocks.is_empty() {
                write!(out, "b")?;
                f.blocks.iter().try_for_each(|offset| write!(out, " {offset:x}"))?;
                writeln!(out)?;
            }
        }
        for c in &self.calls {
            writeln!(out, "c {} {} {}", c.caller, c.callee, c.weight)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pagein-profile 1\nprogram git\nbuild-id a911\nruns 2\n\
        f 1000 2f a8f1c2d3e4f50617 2 main\nb 0 1c 2a\nf 2000 113 - 1 -\nf 3000 5 - 1 type:.eq.struct { F int }\nc 0 1 1\n";

    #[test]
    fn what_is_read_is_written_again() {
        let profile = Profile::parse(TEXT).unwrap();
        assert_eq!(profile.functions[2].name.as_deref(), Some("type:.eq.struct { F int }"));
        assert_eq!(profile.functions[1].hash, None);
        assert_eq!(profile.to_string(), TEXT);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| Profile::parse(text).unwrap_err();
        assert_eq!(error("hello"), ParseError::NotAProfile);
        assert_eq!(error("pagein-profile 2\n"), ParseError::Version("2".into()));
        assert!(matches!(error("pagein-profile 1\n\n# x\nf 1 2"), ParseError::Line { line: 4, .. }));
        assert!(matches!(
            error("pagein-profile 1\nf 1 2 - 1 a\nc 0 1 1\n"),
            ParseError::Line { line: 3, .. }
        ));
        assert!(matches!(
            error("pagein-profile 1\nf ffffffffffffffff 2 - 1 a"),
            ParseError::Line { line: 2, .. }
        ));
        assert!(matches!(error("pagein-profile 1\nb 0"), ParseError::Line { line: 2, .. }));
        assert!(matches!(error("pagein-profile 1\nf 1 8 - 1 a\nb 4 4"), ParseError::Line { line: 3, .. }));
        assert!(matches!(error("pagein-profile 1\nf 1 8 - 1 a\nb 8"), ParseError::Line { line: 3, .. }));
        assert!(matches!(error("pagein-profile 1\nzzz"), ParseError::Line { line: 2, .. }));
    }
}
