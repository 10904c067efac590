//! `pagein profile` and `pagein profile merge`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pagein_loader::{Failure, ProfileConfig};
use pagein_profile::Profile;

use super::{pagein, plain, print, replace};
use crate::args;

pub(crate) fn profile(args: args::Profile) -> Result<ExitCode, Failure> {
    if let Some(args::ProfileAction::Merge(args)) = args.action {
        return merge(&args);
    }
    let (program, rest) = args.command.split_first().expect("clap requires one");
    let default_output = || {
        let mut name = Path::new(program).file_name().unwrap_or(program).to_owned();
        name.push(".profile");
        PathBuf::from(name)
    };
    pagein_loader::profile(&ProfileConfig {
        program: program.clone(),
        args: rest.to_vec(),
        output: args.output.unwrap_or_else(default_output),
        functions_only: args.functions_only,
    })
}

fn merge(args: &args::Merge) -> Result<ExitCode, Failure> {
    let (first, rest) = args.profiles.split_first().expect("clap requires one");
    let mut merged = read(first)?;
    for path in rest {
        let profile = read(path)?;
        if profile.program != merged.program {
            eprintln!(
                "pagein: {} is a profile of {}, the first one of {}; only functions with the same name or code are taken \
                 for the same",
                path.display(),
                profile.program,
                merged.program
            );
        }
        merged = merged.merge(&profile);
    }
    replace(&args.output, merged.to_string().as_bytes(), plain())?;
    print(&format!(
        "{}: {} functions; runs: {}",
        args.output.display(),
        merged.functions.len(),
        merged.runs
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a profile.
pub(crate) fn read(path: &Path) -> Result<Profile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| pagein(path, &error))?;
    Profile::parse(&text).map_err(|error| pagein(path, &error))
}
