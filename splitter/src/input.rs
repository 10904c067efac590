//! The program and its traces.

use std::fs;
use std::path::{Path, PathBuf};

use pagein_elf::Program;
use pagein_image::{Digest, MAX_FILE_SIZE, check_name};
use pagein_model::Trace;

use crate::SplitError;

/// What is cut.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) file: Vec<u8>,
    pub(crate) digest: Digest,
    pub(crate) program: Program,
    pub(crate) traces: Vec<Trace>,
}

pub(crate) fn read(app: &Path, traces: &[PathBuf]) -> Result<Input, SplitError> {
    let size = fs::metadata(app).map_err(SplitError::file(app))?.len();
    if size > MAX_FILE_SIZE {
        return Err(SplitError::TooLarge { path: app.into(), size, limit: MAX_FILE_SIZE });
    }
    let file = fs::read(app).map_err(SplitError::file(app))?;
    let program = Program::parse_file(&file).map_err(|error| SplitError::Elf { path: app.into(), error })?;
    let name = app.file_name().unwrap_or_default().to_string_lossy().into_owned();
    check_name(&name).map_err(|why| SplitError::Name { path: app.into(), why })?;
    let digest = Digest::of(&file);
    let traces = traces.iter().map(|path| read_trace(path, &digest)).collect::<Result<_, _>>()?;
    Ok(Input { name, file, digest, program, traces })
}

fn read_trace(path: &Path, digest: &Digest) -> Result<Trace, SplitError> {
    let text = fs::read_to_string(path).map_err(SplitError::file(path))?;
    let trace: Trace = text.parse().map_err(|error| SplitError::Trace { path: path.into(), error })?;
    if trace.digest != *digest {
        return Err(SplitError::StaleTrace { path: path.into(), program: trace.program });
    }
    Ok(trace)
}
