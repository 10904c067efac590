//! Traces: which pages of a program were touched first, when and how. Text, one line a touch; `docs/trace.md` states it.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use pagein_image::{Digest, PageNo, page_count};

/// Version of the format that this crate writes and reads.
pub const VERSION: u32 = 1;

/// What the first touch of a page was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The kernel read it at exec.
    Exec,
    /// A read or an instruction fetch.
    Read,
    /// A write.
    Write,
}

impl Access {
    fn letter(self) -> char {
        match self {
            Self::Exec => 'x',
            Self::Read => 'r',
            Self::Write => 'w',
        }
    }
}

/// One page's first touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstTouch {
    /// Microseconds since the first instruction.
    pub time_us: u64,
    /// The page.
    pub page: PageNo,
    /// What it was.
    pub access: Access,
    /// The process: 1 is the program, 2 its first forked descendant, and so on.
    pub process: u32,
    /// The thread, numbered from 1 in the order of their first touches.
    pub thread: u32,
}

/// One run of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Path of the program that ran.
    pub program: String,
    /// Its size, bytes.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// Its arguments, the first of them the name it was called by.
    pub command: Vec<String>,
    /// The program opened its own file while it ran.
    pub reads_self: bool,
    /// Microseconds from the first instruction to the program's end; `None` if it is not known.
    pub ended_us: Option<u64>,
    /// The first touches in order.
    pub touches: Vec<FirstTouch>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            program: String::new(),
            size: 0,
            digest: Digest::of(b""),
            command: Vec::new(),
            reads_self: false,
            ended_us: None,
            touches: Vec::new(),
        }
    }
}

/// A text that is not a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong and what is expected.
    pub why: String,
}

impl Trace {
    /// The pages in the order of their first touch.
    pub fn pages(&self) -> impl Iterator<Item = PageNo> {
        self.touches.iter().map(|touch| touch.page)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = |text: &str| serde_json::to_string(text).map_err(|_| fmt::Error);
        writeln!(f, "pagein-trace {VERSION}")?;
        writeln!(f, "program {}", json(&self.program)?)?;
        writeln!(f, "size {}", self.size)?;
        writeln!(f, "digest {}", self.digest)?;
        writeln!(f, "command {}", serde_json::to_string(&self.command).map_err(|_| fmt::Error)?)?;
        writeln!(f, "reads-self {}", if self.reads_self { "yes" } else { "no" })?;
        if let Some(ended_us) = self.ended_us {
            writeln!(f, "ended {ended_us}")?;
        }
        writeln!(f, "touches {}", self.touches.len())?;
        writeln!(f, "# microseconds page access process thread")?;
        let mut lines = String::new();
        for t in &self.touches {
            let letter = t.access.letter();
            writeln!(lines, "{} {} {letter} {} {}", t.time_us, t.page, t.process, t.thread)?;
        }
        f.write_str(&lines)
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut lines = Lines { lines: text.lines().enumerate(), line: 0 };
        let version = lines.field("pagein-trace")?;
        if version != VERSION.to_string() {
            let why = format!("this is a trace of version {version}, this pagein reads version {VERSION}");
            return Err(lines.error(&format!("{why}: record it again")));
        }
        let program = lines.json("program")?;
        let size = lines.number("size")?;
        let digest = lines.field("digest")?;
        let digest = digest.parse().map_err(|_| lines.error("a digest is 64 hex digits"))?;
        let command = lines.json("command")?;
        let reads_self = match lines.field("reads-self")? {
            "yes" => true,
            "no" => false,
            _ => return Err(lines.error("reads-self is yes or no")),
        };
        let ended_us = lines.optional_number("ended")?;
        let announced: usize = lines.number("touches")?;
        let mut touches = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(line) = lines.next() {
            let touch = parse_touch(line)
                .ok_or_else(|| lines.error("expected five fields: microseconds page r|w|x process thread"))?;
            if touch.page.0 >= page_count(size) {
                return Err(lines.error(&format!("page {} is beyond the file's {size} bytes", touch.page)));
            }
            if !seen.insert(touch.page) {
                return Err(lines.error(&format!("page {} is touched first a second time", touch.page)));
            }
            touches.push(touch);
        }
        if touches.len() != announced {
            let why =
                format!("{announced} touches are announced, {} are there: the file is cut", touches.len());
            return Err(lines.error(&why));
        }
        Ok(Self { program, size, digest, command, reads_self, ended_us, touches })
    }
}

fn parse_touch(line: &str) -> Option<FirstTouch> {
    let mut fields = line.split(' ');
    let touch = FirstTouch {
        time_us: fields.next()?.parse().ok()?,
        page: PageNo(fields.next()?.parse().ok()?),
        access: match fields.next()? {
            "x" => Access::Exec,
            "r" => Access::Read,
            "w" => Access::Write,
            _ => return None,
        },
        process: fields.next()?.parse().ok()?,
        thread: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(touch)
}

/// The lines that are neither empty nor comments.
#[derive(Clone)]
struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (index, line) = self.lines.find(|(_, line)| !line.is_empty() && !line.starts_with('#'))?;
        self.line = index + 1;
        Some(line)
    }

    fn error(&self, why: &str) -> TraceError {
        TraceError { line: self.line, why: why.to_owned() }
    }

    fn field(&mut self, key: &str) -> Result<&'a str, TraceError> {
        let line = self.next().unwrap_or("");
        let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' '));
        value.ok_or_else(|| self.error(&format!("expected \"{key} ...\", as `pagein record` writes it")))
    }

    fn number<T: FromStr>(&mut self, key: &str) -> Result<T, TraceError> {
        let value = self.field(key)?;
        value.parse().map_err(|_| self.error(&format!("{key} is a number, not {value:?}")))
    }

    /// The number of a line that need not be there.
    fn optional_number<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, TraceError> {
        let before = (self.lines.clone(), self.line);
        let is_there = self.next().is_some_and(|line| line.split(' ').next() == Some(key));
        (self.lines, self.line) = before;
        if is_there { self.number(key).map(Some) } else { Ok(None) }
    }

    fn json<T: serde::de::DeserializeOwned>(&mut self, key: &str) -> Result<T, TraceError> {
        let value = self.field(key)?;
        serde_json::from_str(value).map_err(|error| self.error(&format!("{key} is not JSON: {error}")))
    }
}
