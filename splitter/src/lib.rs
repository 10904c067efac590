//! Cuts a program into an image: which pages are hot, how they are grouped, compressed and written.
//!
//! | phase | file |
//! |---|---|
//! | read the program and its traces, check that they belong together | `input.rs` |
//! | decide the order and the groups | `plan.rs`, `cold.rs` |
//! | compress | `pack.rs` |
//! | write the directory, all or nothing | `write.rs` |

mod cold;
mod error;
mod input;
mod pack;
mod plan;
mod write;

use std::ops::ControlFlow;
use std::path::PathBuf;

use pagein_elf::LinkPlan;
use pagein_image::{Digest, GroupSet, Linking, Manifest, NotLinked, object};

pub use error::SplitError;
pub use plan::Plan;

use crate::pack::{Groups, Packer};

/// How to cut.
#[derive(Debug, Clone)]
pub struct SplitConfig {
    /// The program.
    pub app: PathBuf,
    /// Traces of it.
    pub traces: Vec<PathBuf>,
    /// Directory to be made.
    pub output: PathBuf,
    /// Every group becomes a file of its own.
    pub page_files: bool,
    /// A page is hot if at least this share of the traces touched it.
    pub min_probability: f64,
    /// Pages in a group near what the traces touched, 1 to 4096 ([`pagein_image::MAX_FRAME_PAGES`]).
    pub group_pages: u32,
    /// zstd level, 1 to 22.
    pub level: i32,
    /// Also make the groups in file order.
    pub paged: bool,
    /// Prepare the pages for page-in linking, if the program is one for which it can be done.
    pub page_in_linking: bool,
}

impl SplitConfig {
    /// The defaults: a tenth of the traces, groups of 16 pages (64 KiB), level 19, groups in file order too, page-in linking.
    pub fn new(app: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            app: app.into(),
            traces: Vec::new(),
            output: output.into(),
            page_files: false,
            min_probability: 0.1,
            group_pages: 16,
            level: 19,
            paged: true,
            page_in_linking: true,
        }
    }
}

/// Work done so far and in all, bytes before compression. The callback that gets it may break off the work.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes compressed.
    pub done: u64,
    /// Bytes to compress.
    pub total: u64,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Report {
    /// The manifest.
    pub manifest: Manifest,
    /// Its digest, to be pinned.
    pub digest: Digest,
    /// Sizes of the objects `hot` and `whole`, of all groups and of all file-order groups, bytes.
    pub sizes: [u64; 4],
}

/// Cuts a program. Deterministic: the same input and configuration give the same bytes.
pub fn split(
    config: &SplitConfig,
    progress: &(dyn Fn(Progress) -> ControlFlow<()> + Sync),
) -> Result<Report, SplitError> {
    write::check_output(&config.output)?;
    let input = input::read(&config.app, &config.traces)?;
    let plan = Plan::new(&input, config.min_probability, config.group_pages);
    let paged_groups = if config.paged { &plan.paged[..] } else { &[] };
    let links = if config.page_in_linking {
        LinkPlan::new(&input.file, &input.program)
    } else {
        Err(NotLinked::NotWanted)
    };
    let packer = Packer::new(&input.file, config.level, progress, &plan, paged_groups, links.as_ref().ok());
    let (whole, sets) = rayon::join(
        || packer.frames(&[&plan.hot_frames[..], &plan.rest_frames].concat()),
        || Ok((packer.groups(&plan.groups)?, packer.groups(paged_groups)?)),
    );
    let mut hot = whole?;
    let rest = hot.split_off(plan.hot_frames.len());
    let (groups, paged) = sets?;

    let set = |packed: &Groups| GroupSet {
        index_len: packed.index.len() as u32,
        index_digest: Digest::of(&packed.index),
        data_len: packed.groups.len(),
    };
    let lengths = [hot.len(), hot.len() + rest.len(), groups.groups.len(), paged.groups.len()];
    let manifest = Manifest {
        name: input.name,
        file_size: input.file.len() as u64,
        file_digest: input.digest,
        machine: input.program.machine,
        reads_self: input.traces.iter().any(|trace| trace.reads_self),
        page_files: config.page_files,
        traces: input.traces.len() as u32,
        hot_pages: plan.hot_frames.concat(),
        hot_touched: plan.hot_touched,
        hot_frames: hot.frames,
        exec_frames: plan.exec_frames,
        rest_frames: rest.frames,
        groups: set(&groups),
        paged: config.paged.then(|| set(&paged)),
        linking: links.as_ref().map_or_else(|reason| Linking::Off(*reason), LinkPlan::linking),
    };
    let stored = manifest.encode();
    let digest = Digest::of(&stored);
    let mut output = write::Output::new(&config.output)?;
    output.object(object::HOT, std::iter::once(&stored).chain(&hot.data))?;
    output.object(object::WHOLE, std::iter::once(&stored).chain(&hot.data).chain(&rest.data))?;
    let sets = [
        (object::GROUPS, object::GROUPS_INDEX, Some(groups)),
        (object::PAGED, object::PAGED_INDEX, config.paged.then_some(paged)),
    ];
    for (name, index_name, packed) in sets {
        let Some(set) = packed else { continue };
        output.object(index_name, [&set.index])?;
        if config.page_files {
            output.page_files(&set.groups)?;
        } else {
            output.object(name, &set.groups.data)?;
        }
    }
    output.publish()?;
    let head = stored.len() as u64;
    let sizes = [head + lengths[0], head + lengths[1], lengths[2], lengths[3]];
    Ok(Report { manifest, digest, sizes })
}
