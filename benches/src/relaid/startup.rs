//! What a startup takes: the pages of a recording, and their compressed bytes.

use std::path::Path;

use anyhow::Context as _;
use pagein_elf::Program;
use pagein_image::{PageNo, StreamEncoder};
use pagein_model::Trace;
use serde::Serialize;

/// zstd level of `pagein split`.
const LEVEL: i32 = 19;
/// Bytes in a page.
const PAGE: usize = 4096;

/// What a recorded run touches.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Startup {
    /// Pages of executable segments.
    pub text_pages: usize,
    /// Their compressed bytes, in frames as `split` makes them.
    pub text_bytes: usize,
    /// All pages.
    pub pages: usize,
    /// Compressed bytes of all pages.
    pub bytes: usize,
}

impl Startup {
    /// Of a trace of a program.
    pub fn read(program: &Path, trace: &Path) -> anyhow::Result<Self> {
        let file = std::fs::read(program)?;
        let trace: Trace = std::fs::read_to_string(trace).context("no trace was written")?.parse()?;
        let elf = Program::parse_file(&file)?;
        let is_text = |page: &PageNo| {
            let at = page.offset().0;
            let code = elf.segments.iter().filter(|s| s.permissions[2]);
            code.into_iter().any(|s| at + PAGE as u64 > s.offset.0 && at < s.offset.0 + s.file_size)
        };
        let all: Vec<PageNo> = trace.pages().collect();
        let text: Vec<PageNo> = all.iter().copied().filter(is_text).collect();
        Ok(Self {
            text_pages: text.len(),
            text_bytes: compressed(&file, &text),
            pages: all.len(),
            bytes: compressed(&file, &all),
        })
    }
}

/// Bytes of pages in frames as the splitter's (`splitter/src/plan.rs`): an eighth of what came before, 8 to 64 pages, in
/// file order within a frame.
fn compressed(file: &[u8], pages: &[PageNo]) -> usize {
    let mut encoder = StreamEncoder::new(LEVEL);
    let mut start = 0;
    let mut bytes = 0;
    while start < pages.len() {
        let mut frame = pages[start..pages.len().min(start + (start / 8).clamp(8, 64))].to_vec();
        frame.sort();
        start += frame.len();
        let raw: Vec<u8> = frame.iter().flat_map(|page| page_bytes(file, *page)).collect();
        bytes += encoder.encode(&frame, &raw, &[], start == pages.len()).len();
    }
    bytes
}

/// A page; the last one is filled up with zeros.
fn page_bytes(file: &[u8], page: PageNo) -> Vec<u8> {
    let start = page.index() * PAGE;
    let mut bytes = file[start.min(file.len())..file.len().min(start + PAGE)].to_vec();
    bytes.resize(PAGE, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_each_page_once() {
        let file: Vec<u8> = (0..40 * PAGE).map(|n| (n / PAGE) as u8).collect();
        let pages: Vec<PageNo> = (0..40).map(PageNo).collect();
        let some = compressed(&file, &pages);
        assert!(some > 0 && some < 5 * 100, "five frames of pages of one value: {some}");
        assert_eq!(compressed(&file, &[]), 0);
    }
}
