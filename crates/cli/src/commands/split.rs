//! `pagein split`.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagein_loader::Failure;
use pagein_splitter::{Progress, Report, SplitConfig, SplitError};
use serde::Serialize;

use super::{bytes, failed, linking, print, print_json, relaid, runtime};
use crate::args;

#[derive(Serialize)]
struct Json<'a> {
    image: String,
    digest: String,
    program: &'a str,
    file_bytes: u64,
    traces: u32,
    pages_total: u32,
    hot_pages: usize,
    hot_bytes: u64,
    whole_bytes: u64,
    groups_bytes: u64,
    paged_bytes: u64,
    reads_self: bool,
    page_in_linking: linking::Json,
}

pub(crate) fn split(args: args::Split) -> Result<ExitCode, Failure> {
    let app = pagein_loader::find_named(&args.app)?;
    let relaid =
        if args.profiles.is_empty() { None } else { relaid::prepare(&app, &args.profiles, &args.traces)? };
    let (app, traces) = match &relaid {
        Some(relaid) => (relaid.app.clone(), relaid.traces.clone()),
        None => (app, args.traces),
    };
    let config = SplitConfig {
        app,
        traces,
        output: args.output,
        page_files: args.page_files,
        min_probability: args.min_probability,
        group_pages: args.group_pages,
        level: args.level,
        paged: !args.no_paged,
        page_in_linking: !args.no_page_in_linking,
    };
    let report = split_with_progress(&config)?;
    let manifest = &report.manifest;
    let [hot, whole, groups, paged] = report.sizes;
    let image = config.output.display().to_string();
    if args.json {
        print_json(&Json {
            image,
            digest: report.digest.to_string(),
            program: &manifest.name,
            file_bytes: manifest.file_size,
            traces: manifest.traces,
            pages_total: manifest.page_count(),
            hot_pages: manifest.hot_pages.len(),
            hot_bytes: hot,
            whole_bytes: whole,
            groups_bytes: groups,
            paged_bytes: paged,
            reads_self: manifest.reads_self,
            page_in_linking: linking::Json::of(&manifest.linking),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!(
        "{image}: {} of {} in {} pages; hot {} in {} pages, whole {}, in groups {}, by file order {}",
        manifest.name,
        bytes(manifest.file_size),
        manifest.page_count(),
        bytes(hot),
        manifest.hot_pages.len(),
        bytes(whole),
        bytes(groups),
        bytes(paged),
    ))?;
    print(&format!("page-in linking: {}", linking::Json::of(&manifest.linking)))?;
    if manifest.traces == 0 {
        eprintln!(
            "pagein: no trace given, so no page is hot and `run` fetches all of it first; record one with\n  \
             pagein record -o {name}.trace -- {name} ARGS...",
            name = manifest.name
        );
    }
    if manifest.reads_self {
        eprintln!(
            "pagein: {} opened its own file while it was recorded, so `run` fetches all of it first unless a policy is \
             given",
            manifest.name
        );
    }
    print(&format!("run it with: pagein run {image}#{} -- ARGS...", report.digest))?;
    Ok(ExitCode::SUCCESS)
}

/// Cuts with a progress bar on a terminal; Ctrl-C leaves nothing behind.
pub(crate) fn split_with_progress(config: &SplitConfig) -> Result<Report, Failure> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(
        ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {eta}")
            .expect("a valid template"),
    );
    bar.set_message("compressing");
    let interrupted = AtomicBool::new(false);
    let runtime = runtime()?;
    let cut = || {
        pagein_splitter::split(config, &|Progress { done, total }| {
            bar.set_length(total);
            bar.set_position(done);
            if interrupted.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    };
    let outcome = std::thread::scope(|scope| {
        let work = scope.spawn(cut);
        runtime.block_on(async {
            while !work.is_finished() {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                    _ = tokio::signal::ctrl_c() => interrupted.store(true, Ordering::Relaxed),
                }
            }
        });
        work.join().expect("the splitter does not panic")
    });
    bar.finish_and_clear();
    outcome.map_err(|error| {
        let code = match &error {
            SplitError::Interrupted => 128 + 2,
            SplitError::Elf { .. } => Failure::CANNOT_RUN,
            SplitError::File { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                Failure::NOT_FOUND
            }
            _ => Failure::PAGEIN,
        };
        Failure { code, ..failed(error) }
    })
}
