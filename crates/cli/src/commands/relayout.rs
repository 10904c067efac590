//! `pagein relayout`.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pagein_loader::Failure;
use pagein_profile::linker::Linker;
use pagein_profile::order::{self, Graph, Order};
use pagein_profile::{Matched, Profile, Program};
use pagein_relayout::{Options, Report, Untreatable, points};

use super::{bytes, pagein, plain, print, profile, replace, verify_run};
use crate::args;

pub(crate) fn relayout(args: &args::Relayout) -> Result<ExitCode, Failure> {
    let subject = Subject { unseen: args.unseen, ..Subject::open(&args.app, profile::read(&args.profile)?)? };
    let order = order::by_name(&args.order).expect("clap knows the names");
    if let Some(linker) = args.linker {
        return ordering_file(args, &subject, order, linker);
    }
    let (file, report) = subject.relayout(order).map_err(|error| subject.untreatable(&error))?;
    let permissions =
        std::fs::metadata(&subject.path).map_err(|error| pagein(&subject.path, &error))?.permissions();
    match &args.verify_run[..] {
        [] => replace(&args.output, &file, permissions)?,
        lines => keep_if_alike(&subject.path, &args.output, &file, permissions, lines)?,
    }
    print(&format!(
        "{}: {} functions ({}) lie together now, {} of them cut to what ran; pages of code: {} before, {} now",
        args.output.display(),
        report.cloned,
        bytes(report.cloned_bytes),
        report.clipped,
        report.pages_before,
        report.pages_after,
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Puts the file in place if every command line does the same with it.
fn keep_if_alike(
    original: &Path,
    output: &Path,
    file: &[u8],
    permissions: Permissions,
    lines: &[String],
) -> Result<(), Failure> {
    let directory = output.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let candidate = tempfile::NamedTempFile::new_in(directory).map_err(|error| pagein(output, &error))?;
    let write = |error| pagein(output, &error);
    candidate.as_file().write_all(file).map_err(write)?;
    candidate.as_file().set_permissions(permissions).map_err(write)?;
    // Closed: a file that is open for writing cannot be executed.
    let candidate = candidate.into_temp_path();
    verify_run::verify_run(original, &candidate, lines)?;
    candidate.persist(output).map_err(|error| pagein(output, &error.error))
}

fn ordering_file(
    args: &args::Relayout,
    subject: &Subject,
    order: &dyn Order,
    linker: Linker,
) -> Result<ExitCode, Failure> {
    let arranged = order.arrange(&subject.graph);
    let (text, nameless) = linker.file(&subject.graph, &arranged);
    if nameless == arranged.len() {
        let text = format!(
            "{}: none of the profile's {nameless} functions has a name here, and a linker knows them by name: profile a \
             build with symbols",
            subject.path.display()
        );
        return Err(Failure { code: Failure::CANNOT_RUN, text });
    }
    if nameless > 0 {
        eprintln!("pagein: {nameless} of {} functions have no name and are left out", arranged.len());
    }
    replace(&args.output, text.as_bytes(), plain())?;
    let output = args.output.display().to_string();
    print(&format!(
        "{output}: {} functions; build with {}",
        arranged.len() - nameless,
        linker.flags(&output)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A program and the profile that is applied to it.
pub(crate) struct Subject {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) program: Program,
    pub(crate) profile: Profile,
    pub(crate) matched: Matched,
    pub(crate) graph: Graph,
    /// Percent of another job's functions that the profile does not name; `None`: as its runs tell.
    pub(crate) unseen: Option<u32>,
}

impl Subject {
    /// Reads both, and warns of a profile that does not fit.
    pub(crate) fn open(app: &OsString, profile: Profile) -> Result<Self, Failure> {
        let path = pagein_loader::find_program(app)?;
        let bytes = std::fs::read(&path).map_err(|error| pagein(&path, &error))?;
        let program = Program::read(&bytes).map_err(|error| untreatable(&path, &error))?;
        let matched = Matched::new(&profile, &program);
        if let Some(warning) = matched.warning() {
            eprintln!("pagein: {}: {warning}", path.display());
        }
        let graph = Graph::of_matched(&matched, &program);
        Ok(Self { path, bytes, program, profile, matched, graph, unseen: None })
    }

    /// The program with its functions in that order.
    pub(crate) fn relayout(&self, order: &dyn Order) -> Result<(Vec<u8>, Report), Untreatable> {
        let mut arranged = order.arrange(&self.graph);
        if order.name() == order::all()[0].name() {
            // What more of the runs share is likelier to run again: first, so that the rest fills pages of its own.
            let runs = |n: &usize| self.profile.functions[self.matched.entries[*n]].runs;
            arranged.sort_by_key(|n| std::cmp::Reverse(runs(n)));
        }
        let addresses = self.matched.addresses(&self.profile, &self.program, &arranged);
        let mut options = Options::default();
        if let Some(unseen) = self.unseen.or_else(|| self.profile.unseen()) {
            options.unseen = unseen;
        }
        pagein_relayout::relayout(&self.bytes, &addresses, &options)
    }

    /// What the profile saw, as ranges (start, length) of the program: the blocks that ran, else whole functions.
    pub(crate) fn touched(&self) -> Result<Vec<(u64, u64)>, Failure> {
        let points = points(&self.bytes, true).map_err(|error| self.untreatable(&error))?;
        let mut out = Vec::new();
        for n in 0..self.matched.functions.len() {
            let f = &self.program.functions.as_slice()[self.matched.functions[n]];
            let addresses = self.matched.addresses(&self.profile, &self.program, &[n]);
            if addresses == [f.start] {
                // Entries alone were watched.
                out.push((f.start, f.len));
                continue;
            }
            let length = |address: &u64| {
                let place = points.addresses.binary_search(address).ok()?;
                Some((*address, points.lengths[place]))
            };
            out.extend(addresses.iter().filter_map(length));
        }
        Ok(out)
    }

    pub(crate) fn untreatable(&self, error: &Untreatable) -> Failure {
        untreatable(&self.path, error)
    }
}

fn untreatable(path: &Path, error: &Untreatable) -> Failure {
    let code = match error {
        // Not the program's fault.
        Untreatable::Mismatch(_) => Failure::PAGEIN,
        _ => Failure::CANNOT_RUN,
    };
    Failure { code, text: format!("{}: {error}", path.display()) }
}
