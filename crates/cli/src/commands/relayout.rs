//! `pagein relayout`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pagein_loader::Failure;
use pagein_profile::linker::Linker;
use pagein_profile::order::{self, Graph, Order};
use pagein_profile::{Matched, Profile, Program};
use pagein_relayout::{Options, Report, Untreatable};

use super::{bytes, pagein, plain, print, profile, replace};
use crate::args;

pub(crate) fn relayout(args: &args::Relayout) -> Result<ExitCode, Failure> {
    let subject = Subject::open(&args.app, &args.profile)?;
    let order = order::by_name(&args.order).expect("clap knows the names");
    if let Some(linker) = args.linker {
        return ordering_file(args, &subject, order, linker);
    }
    let (file, report) = subject.relayout(order).map_err(|error| subject.untreatable(&error))?;
    let permissions =
        std::fs::metadata(&subject.path).map_err(|error| pagein(&subject.path, &error))?.permissions();
    replace(&args.output, &file, permissions)?;
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
}

impl Subject {
    /// Reads both, and warns of a profile that does not fit.
    pub(crate) fn open(app: &OsString, profile: &Path) -> Result<Self, Failure> {
        let path = pagein_loader::find_program(app)?;
        let profile = profile::read(profile)?;
        let bytes = std::fs::read(&path).map_err(|error| pagein(&path, &error))?;
        let program = Program::read(&bytes).map_err(|error| untreatable(&path, &error))?;
        let matched = Matched::new(&profile, &program);
        if let Some(warning) = matched.warning() {
            eprintln!("pagein: {}: {warning}", path.display());
        }
        let graph = Graph::of_matched(&matched, &program);
        Ok(Self { path, bytes, program, profile, matched, graph })
    }

    /// The program with its functions in that order.
    pub(crate) fn relayout(&self, order: &dyn Order) -> Result<(Vec<u8>, Report), Untreatable> {
        let arranged = order.arrange(&self.graph);
        let addresses = self.matched.addresses(&self.profile, &self.program, &arranged);
        pagein_relayout::relayout(&self.bytes, &addresses, &Options::default())
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
