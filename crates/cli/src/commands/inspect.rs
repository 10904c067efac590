//! `pagein inspect`.

use std::process::ExitCode;

use pagein_elf::machine_name;
use pagein_image::Digest;
use pagein_loader::Failure;
use serde::Serialize;

use super::image::Image;
use super::{bytes, linking, print, print_json, runtime};
use crate::args;

#[derive(Serialize)]
struct Json {
    source: String,
    format_version: u8,
    digest: String,
    program: String,
    machine: String,
    file_bytes: u64,
    file_digest: String,
    reads_self: bool,
    page_in_linking: linking::Json,
    page_files: bool,
    traces: u32,
    pages_total: u32,
    manifest_bytes: usize,
    exec_frames: u32,
    exec_bytes: u64,
    hot_frames: usize,
    hot_bytes: u64,
    whole_frames: usize,
    whole_bytes: u64,
    /// Page, number of traces that touched it; in the order in which they travel.
    hot_pages: Vec<(u32, u32)>,
    groups: Vec<GroupsJson>,
}

#[derive(Serialize)]
struct GroupsJson {
    object: &'static str,
    groups: usize,
    bytes: u64,
    index_bytes: u32,
}

pub(crate) fn inspect(args: &args::Inspect) -> Result<ExitCode, Failure> {
    let json = runtime()?.block_on(async {
        let image = Image::open(&args.source).await?;
        let mut groups = Vec::new();
        for (object, index_name, set) in image.group_sets() {
            let index = image.index(index_name, &set).await?;
            let count = index.groups().len();
            groups.push(GroupsJson {
                object,
                groups: count,
                bytes: set.data_len,
                index_bytes: set.index_len,
            });
        }
        Ok::<_, Failure>(describe(args, image, groups))
    })?;
    if args.json {
        print_json(&json)?;
    } else {
        print(&text(&json))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(args: &args::Inspect, image: Image, groups: Vec<GroupsJson>) -> Json {
    let manifest = image.manifest;
    let sum = |frames: &[pagein_image::Frame]| frames.iter().map(|f| u64::from(f.stored_len)).sum::<u64>();
    let hot_bytes = sum(&manifest.hot_frames);
    Json {
        source: args.source.to_string(),
        format_version: pagein_image::VERSION,
        digest: Digest::of(&image.stored).to_string(),
        machine: machine_name(manifest.machine),
        file_bytes: manifest.file_size,
        file_digest: manifest.file_digest.to_string(),
        reads_self: manifest.reads_self,
        page_in_linking: linking::Json::of(&manifest.linking),
        page_files: manifest.page_files,
        traces: manifest.traces,
        pages_total: manifest.page_count(),
        manifest_bytes: image.stored.len(),
        exec_frames: manifest.exec_frames,
        exec_bytes: sum(&manifest.hot_frames[..manifest.exec_frames as usize]),
        hot_frames: manifest.hot_frames.len(),
        hot_bytes,
        whole_frames: manifest.whole_frames().count(),
        whole_bytes: hot_bytes + sum(&manifest.rest_frames),
        hot_pages: manifest.hot_pages.iter().zip(&manifest.hot_touched).map(|(p, &t)| (p.0, t)).collect(),
        program: manifest.name,
        groups,
    }
}

fn text(json: &Json) -> String {
    let mut lines = vec![
        format!("program      {} for {}, {}", json.program, json.machine, bytes(json.file_bytes)),
        format!("digest       {}", json.digest),
        format!("traces       {}", json.traces),
        format!("pages        {} of 4 KiB, {} hot", json.pages_total, json.hot_pages.len()),
        format!("linking      {}", json.page_in_linking),
        format!(
            "to start     {} (manifest {}, first frames {})",
            bytes(json.manifest_bytes as u64 + json.exec_bytes),
            bytes(json.manifest_bytes as u64),
            bytes(json.exec_bytes)
        ),
        format!("hot          {} in {} frames", bytes(json.hot_bytes), json.hot_frames),
        format!("whole        {} in {} frames", bytes(json.whole_bytes), json.whole_frames),
    ];
    for set in &json.groups {
        let place = if json.page_files { "page files" } else { "groups" };
        lines.push(format!(
            "{:<12} {} in {} {place}, index {}",
            set.object,
            bytes(set.bytes),
            set.groups,
            bytes(u64::from(set.index_bytes))
        ));
    }
    if json.reads_self {
        lines.push("reads itself: run with --policy auto fetches all of it first".to_owned());
    }
    lines.join("\n")
}
