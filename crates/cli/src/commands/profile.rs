//! `pagein profile`, `pagein profile merge` and `pagein profile import`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pagein_loader::{Failure, ProfileConfig};
use pagein_profile::{Profile, Program, import};

use super::{pagein, plain, print, replace};
use crate::args;

pub(crate) fn profile(args: args::Profile) -> Result<ExitCode, Failure> {
    match args.action {
        Some(args::ProfileAction::Merge(args)) => return merge(&args),
        Some(args::ProfileAction::Import(args)) => return import(&args),
        None => {}
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
    let merged = merged(&args.profiles)?;
    replace(&args.output, merged.to_string().as_bytes(), plain())?;
    print(&format!(
        "{}: {} functions; runs: {}",
        args.output.display(),
        merged.functions.len(),
        merged.runs
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn import(args: &args::Import) -> Result<ExitCode, Failure> {
    let app = pagein_loader::find_program(&args.app)?;
    let bytes = std::fs::read(&app).map_err(|error| pagein(&app, &error))?;
    let program = Program::read(&bytes).map_err(|error| Failure {
        code: Failure::CANNOT_RUN,
        text: format!("{}: {error}", app.display()),
    })?;
    let name = app.file_name().unwrap_or_default().to_string_lossy();
    let source = args.perf.as_ref().or(args.symbols.as_ref()).expect("clap requires one");
    let text = if source == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(source)
    };
    let text = text.map_err(|error| pagein(source, &error))?;
    let profile = if args.perf.is_some() {
        import::perf_script(&name, &program, &text)
    } else {
        import::symbols(&name, &program, &text)
    };
    let profile = profile.map_err(|error| pagein(source, &error))?;
    replace(&args.output, profile.to_string().as_bytes(), plain())?;
    print(&format!(
        "{}: {} functions, {} calls",
        args.output.display(),
        profile.functions.len(),
        profile.calls.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads profiles (one at least) and merges them.
pub(crate) fn merged(profiles: &[PathBuf]) -> Result<Profile, Failure> {
    let (first, rest) = profiles.split_first().expect("clap requires one");
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
    Ok(merged)
}

/// Reads a profile.
pub(crate) fn read(path: &Path) -> Result<Profile, Failure> {
    let bytes = std::fs::read(path).map_err(|error| pagein(path, &error))?;
    // A file that is no text is no profile, and that is what is said.
    Profile::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| pagein(path, &error))
}
