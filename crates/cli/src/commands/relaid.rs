//! `split --profile`: the program is relaid before it is cut, and traces of the original are carried over.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pagein_image::{Digest, PageNo};
use pagein_loader::Failure;
use pagein_model::{Access, FirstTouch, Trace};
use pagein_profile::order;
use pagein_relayout::{PageMap, Untreatable};
use tempfile::TempDir;

use super::relayout::Subject;
use super::{pagein, profile, replace};

/// A relaid program and traces of it, in files that go with this value.
pub(crate) struct Relaid {
    /// The program, under the original's name.
    pub(crate) app: PathBuf,
    /// Its traces.
    pub(crate) traces: Vec<PathBuf>,
    _directory: TempDir,
}

/// Relays a program. `None`, and a line on stderr, if it has to stay as it is.
pub(crate) fn prepare(
    app: &Path,
    profiles: &[PathBuf],
    traces: &[PathBuf],
) -> Result<Option<Relaid>, Failure> {
    let subject = Subject::open(&OsString::from(app), profile::merged(profiles)?)?;
    let (file, report) = match subject.relayout(order::all()[0]) {
        Ok(done) => done,
        Err(error @ Untreatable::Mismatch(_)) => return Err(subject.untreatable(&error)),
        Err(error) => {
            eprintln!("pagein: {}: cut as it was shipped, not reordered: {error}", app.display());
            return Ok(None);
        }
    };
    let touched = subject.touched()?;
    let map = PageMap::new(&file, &report.copies, &touched).map_err(|error| subject.untreatable(&error))?;
    let (before, after) = (Digest::of(&subject.bytes), Digest::of(&file));

    let directory = tempfile::tempdir().map_err(|error| pagein(app, &error))?;
    let name = app.file_name().unwrap_or_default();
    let relaid = directory.path().join(name);
    let permissions = std::fs::metadata(app).map_err(|error| pagein(app, &error))?.permissions();
    replace(&relaid, &file, permissions)?;
    let mut written = Vec::new();
    let mut add = |number: usize, mut trace: Trace| -> Result<(), Failure> {
        (trace.digest, trace.size) = (after, file.len() as u64);
        let path = directory.path().join(format!("{number}.trace"));
        std::fs::write(&path, trace.to_string()).map_err(|error| pagein(&path, &error))?;
        written.push(path);
        Ok(())
    };
    for (number, path) in traces.iter().enumerate() {
        let text = std::fs::read_to_string(path).map_err(|error| pagein(path, &error))?;
        let trace: Trace = text.parse().map_err(|error| pagein(path, &error))?;
        let trace = match trace.digest {
            digest if digest == after => trace,
            digest if digest == before => carry_over(trace, &map),
            _ => {
                let why = format!(
                    "a trace of another {}: neither of the program nor of what `relayout` makes of it; record it again",
                    trace.program
                );
                return Err(pagein(path, &why));
            }
        };
        add(number, trace)?;
    }
    if traces.is_empty() {
        add(0, code_only(app, &map))?;
    }
    Ok(Some(Relaid { app: relaid, traces: written, _directory: directory }))
}

/// A trace of the original as one of the relaid program.
fn carry_over(trace: Trace, map: &PageMap) -> Trace {
    let mut seen = std::collections::HashSet::new();
    let mut touches = Vec::with_capacity(trace.touches.len());
    for touch in &trace.touches {
        for page in map.replacing(u64::from(touch.page.0)) {
            // File sizes are limited so that page numbers have 32 bits.
            let page = PageNo(page as u32);
            if seen.insert(page) {
                touches.push(FirstTouch { page, ..*touch });
            }
        }
    }
    Trace { touches, ..trace }
}

/// What is known without a trace: the code that the profile saw run.
fn code_only(app: &Path, map: &PageMap) -> Trace {
    let touch = |page: &u64| FirstTouch {
        time_us: 0,
        page: PageNo(*page as u32),
        access: Access::Read,
        process: 1,
        thread: 1,
    };
    Trace {
        program: app.display().to_string(),
        touches: map.code().iter().map(touch).collect(),
        ..Trace::default()
    }
}
