//! Hot text: the functions that a program touches, next to each other and in the order in which they are touched, in the file as it
//! was shipped. Nothing is relinked, and symbols are not needed.
//!
//! Functions are *cloned, not moved*. The touched ones are copied, byte for byte, into a new segment; the originals stay where
//! they are. Only PC-relative operands of a copy change. Calls and jumps to cloned functions are redirected to the clones
//! wherever they are understood, in the clones and in the originals. A reference that is missed leads to the original, which is the
//! same code. Original and clone can be exchanged at any instruction, because offsets inside them are the same; that is why the
//! language-specific unwind data of a function holds for its clone too.
//!
//! How a file is treated, and where:
//!
//! | step | module |
//! |---|---|
//! | the file is read, bounds checked | `elf` |
//! | where functions start and end | [`functions`](Functions), `gopclntab` |
//! | their code is decoded; what cannot be copied is refused | `arch`, `text` |
//! | clones get their places; what gains nothing stays | `layout`, `anchors`, `forecast` |
//! | function pointers: all references to an address, or none | `pointers`; without position independence `pointers/absolute` |
//! | jump tables | `tables` |
//! | the copies, and the way back from the originals | `emit` |
//! | large functions are cut to what was touched | `clip` |
//! | unwind tables | `unwind`, `encoding`; of fragments: `rows`, `lsda` |
//! | one more program header, the new file, its build ID | `headers`, `write`, `build_id` |
//! | the new file is read again and compared | `verify` |
//! | where a trace of the original touches the new file | `pages` |
//!
//! Pure functions over bytes: no I/O, no unsafe code. Any input gives an error or a valid file.

mod anchors;
mod arch;
mod build_id;
mod bytes;
mod clip;
mod elf;
mod emit;
mod encoding;
mod forecast;
mod functions;
mod gopclntab;
mod headers;
mod layout;
mod lsda;
mod pages;
mod patch;
mod pointers;
mod report;
mod rows;
mod tables;
mod text;
mod touched;
mod unwind;
mod verify;
mod write;

pub use build_id::build_id;
pub use functions::{Bounds, Function, Functions};
pub use pages::PageMap;
pub use report::{Copied, Refusal, Refusals, Report, Untreatable};
pub use touched::{Points, Touched, points};
pub use verify::Mismatch;

use std::collections::HashSet;
use std::ops::Range;

use elf::Program;
use layout::Layout;
use patch::Patches;
use pointers::Pointers;
use text::Text;

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Functions up to this are copied whole: below it, cutting saves little and costs an unwind entry for each fragment (measured on git, gdb
/// and cmake, with the job's own profile: 1024 bytes 48, 184 and 111 pages, 512 45, 171 and 106, 256 43, 166 and 104, 0 the same).
pub const CLIP_OVER: u64 = 256;
/// [`Options::unseen`] where nothing is known: half of the programs measured are below it, half above.
pub const UNSEEN: u32 = 25;
/// The section that holds the clones.
const CLONES: &str = ".text.pagein";
/// Tenths of the pages that may be left: the count is of whole functions, and runs touch parts of them, so that a gain below a tenth
/// may turn out to be a loss.
const LEAST_GAIN: usize = 9;
/// Clones start at a cache line.
const LINE: u64 = 64;

/// What to do; the default is everything that is safe, which is everything there is. The switches are for measuring what each
/// part brings, and for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Redirect function pointers where all of them are known.
    pub pointers: bool,
    /// Redirect the entries of jump tables.
    pub jump_tables: bool,
    /// Cut functions with more bytes than this to the blocks that the order names (see [`points`]); one that only a single address
    /// is named of is copied whole. `None` copies every function whole.
    pub clip_over: Option<u64>,
    /// What share of another job's functions is none of those in the order, in percent: if that job would touch more pages than before,
    /// the program is left alone.
    pub unseen: u32,
    /// Clone every function that can be, even where the pages say that it is better left, or that nothing is gained.
    pub even_without_gain: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pointers: true,
            jump_tables: true,
            clip_over: Some(CLIP_OVER),
            unseen: UNSEEN,
            even_without_gain: false,
        }
    }
}

/// Clones the functions at the addresses in `order` (link-time addresses anywhere in them; the first mention counts) into a new
/// segment of the program, in that order. The result is an ordinary ELF file.
///
/// The addresses should be ones that were seen to run: in a program that is not position-independent it is part of the proof that a word
/// is a pointer to a function that its first instruction ran (see `pointers::absolute`).
///
/// # Errors
/// [`Untreatable`] says in one line why the program has to stay as it is; its text is meant for the person who runs pagein.
pub fn relayout(bytes: &[u8], order: &[u64], options: &Options) -> Result<(Vec<u8>, Report), Untreatable> {
    let program = Program::parse(bytes)?;
    if program.section(CLONES).is_some() {
        return Err(Untreatable::AlreadyDone);
    }
    if gopclntab::is_go(&program) {
        return Err(Untreatable::Go);
    }
    if program.has_text_relocations() || program.relative_words().is_none() {
        return Err(Untreatable::TextRelocations);
    }
    let functions = Functions::of(&program)?;
    if functions.bounds() != Bounds::UnwindTables {
        return Err(Untreatable::NoBounds);
    }
    if !program.segments.iter().any(|s| s.kind == functions::PT_GNU_EH_FRAME) {
        return Err(Untreatable::NoUnwindHeader);
    }
    let text = Text::read(&program, functions);
    let mut report = Report::default();
    let tables = unwind::Tables::read(&program)?;
    let clippable = |f: &Function, r: &Range<u32>| {
        tables.can_split(f.start, f.len, u64::from(r.start), u64::from(r.end - r.start))
    };
    let wanted = layout::select(&program, &text, order, options.clip_over, clippable, &mut report.refused);
    if wanted.is_empty() {
        return Err(Untreatable::NothingToClone);
    }
    let room = headers::Room::find(&program, &text);
    let place = write::Place::choose(&program, &room)?;
    let start = bytes::align_up(place.addr + room.size(&program), LINE);
    let started: HashSet<usize> = order.iter().filter_map(|addr| text.functions.starting_at(*addr)).collect();
    let redirect = |layout: &Layout, patches: &mut Patches| {
        if options.pointers {
            Pointers::redirect(&program, &text, layout, &started, patches)
        } else {
            Ok(Pointers::default())
        }
    };
    let everything = Layout::place(&program, &text, &wanted, start);
    let pointers = redirect(&everything, &mut Patches::default())?;
    let anchored = if options.even_without_gain {
        HashSet::new()
    } else {
        anchors::find(&program, &text, &everything, &pointers)
    };
    let cloned: Vec<_> = wanted.iter().filter(|w| !anchored.contains(&w.function)).cloned().collect();
    let layout = Layout::place(&program, &text, &cloned, start);
    (report.pages_before, report.pages_after) = anchors::pages(&text, order, &wanted, &layout);
    if !options.even_without_gain && report.pages_after * 10 > report.pages_before * LEAST_GAIN {
        return Err(Untreatable::NoGain { before: report.pages_before, after: report.pages_after });
    }

    if !options.even_without_gain {
        let (before, after) = forecast::another_job(&text, &wanted, &layout, options.unseen);
        if after > before {
            return Err(Untreatable::LossElsewhere { before, after });
        }
    }
    let mut patches = Patches::default();
    let pointers = redirect(&layout, &mut patches)?;
    let entries = if options.jump_tables {
        tables::redirect(&program, &text, &layout, &mut patches)
    } else {
        Vec::new()
    };
    let code = emit::clones(&program, &text, &layout, &pointers)?;
    (report.calls_redirected, report.addresses_redirected) =
        emit::way_back(&program, &text, &layout, &pointers, &mut patches)?;

    let moved: Vec<_> = layout
        .clones
        .iter()
        .map(|c| unwind::Moved {
            from: text.function(c.function).start,
            from_len: text.function(c.function).len,
            part: (!c.whole).then_some((c.from, c.copied)),
            to: c.start,
            to_len: c.len,
        })
        .collect();
    let unwind = tables.extend(&moved, bytes::align_up(layout.end, 16))?;
    let entry = layout.map(&text, program.entry).unwrap_or(program.entry);
    let parts = write::Parts {
        room: &room,
        place,
        layout: &layout,
        code: &code,
        unwind: &unwind,
        entry,
        exported: &pointers.exported,
    };
    let out = write::write(&program, &text, &parts, &mut patches)?;
    verify::verify(
        &program,
        &out,
        &verify::Expected {
            text: &text,
            layout: &layout,
            pointers: &pointers,
            patches: &patches,
            entries: &entries,
            kept: place.kept,
        },
    )?;

    report.anchored = anchored.len();
    report.cloned = cloned.len();
    report.clipped = cloned.iter().filter(|w| !w.parts.is_empty()).count();
    report.cloned_bytes = layout.clones.iter().map(|c| c.copied).sum();
    report.copies = layout
        .clones
        .iter()
        .map(|c| Copied { from: text.function(c.function).start + c.from, to: c.start, len: c.copied })
        .collect();
    report.clones_start = layout.start;
    report.clones_end = layout.end;
    report.pointers_moved = pointers.moved.len();
    report.table_entries = entries.len();
    report.headers_in_place = room != headers::Room::Moved;
    Ok((out, report))
}
