//! A program as the kernel's ELF loader sees it: segments, interpreter, entry point.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{self, Header};
use goblin::elf::program_header::{self as ph, ProgramHeader};
use pagein_image::{FileOffset, PAGE_SIZE, PageNo};

use crate::{ElfError, machine_name, supported};

/// An address as the file states it, before the load bias is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtAddr(pub u64);

impl Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Whether the kernel may choose where the program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `ET_EXEC`: at the addresses of the file.
    Fixed,
    /// `ET_DYN`: position-independent.
    PositionIndependent,
}

/// One `PT_LOAD` segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub vaddr: VirtAddr,
    /// File offset of the first byte; congruent to `vaddr` modulo the page size.
    pub offset: FileOffset,
    /// Bytes that come from the file.
    pub file_size: u64,
    /// Bytes in memory; those behind `file_size` are zero.
    pub mem_size: u64,
    /// May be read, written, executed.
    pub permissions: [bool; 3],
}

const PAGE: u64 = PAGE_SIZE as u64;

impl Segment {
    /// The whole pages of the address space into which the file is mapped; empty for a segment of zeros only.
    pub fn mapped(&self) -> Range<VirtAddr> {
        let start = self.vaddr.0 & !(PAGE - 1);
        let end =
            if self.file_size == 0 { start } else { (self.vaddr.0 + self.file_size).next_multiple_of(PAGE) };
        VirtAddr(start)..VirtAddr(end)
    }

    /// The file offset that is mapped at the start of [`Self::mapped`].
    pub fn mapped_offset(&self) -> FileOffset {
        FileOffset(self.offset.0 & !(PAGE - 1))
    }

    /// The bytes in the last mapped page that the kernel zeroes because the file ends before them: start of .bss.
    pub fn zeroed_tail(&self) -> Option<Range<VirtAddr>> {
        let file_end = self.vaddr.0 + self.file_size;
        let end = self.mapped().end.0.min(self.vaddr.0 + self.mem_size);
        // The kernel zeroes to the end of the page, whatever the memory size says (`padzero`), if there is any .bss.
        let has_tail = self.mem_size > self.file_size && self.file_size > 0 && end > file_end;
        has_tail.then(|| VirtAddr(file_end)..self.mapped().end)
    }
}

/// The program interpreter (dynamic linker) that the file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Its path.
    pub path: String,
    /// Where the path is in the file.
    pub at: Range<u64>,
}

/// What the kernel needs to know of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Fixed or position-independent.
    pub kind: Kind,
    /// ELF `e_machine`.
    pub machine: u16,
    /// Entry point.
    pub entry: VirtAddr,
    /// The loadable segments, in ascending order.
    pub segments: Vec<Segment>,
    /// The dynamic linker, if the program has one.
    pub interpreter: Option<Interpreter>,
    /// Address range of `PT_DYNAMIC`, if there is one.
    pub dynamic: Option<Range<VirtAddr>>,
    /// Where the program header table is in the file.
    pub headers: Range<u64>,
    /// Where the GNU property note is in the file, if there is one.
    property_note: Option<Range<u64>>,
}

/// Most program headers of a file; the kernel accepts what fits in 64 KiB (`fs/binfmt_elf.c`, `load_elf_phdrs`).
const MAX_HEADERS_LEN: u64 = 65536;
const HEADER_LEN: u64 = 64;

impl Program {
    /// Reads the headers of a program file of `file_size` bytes. `read(offset, len)` gives bytes of the file, `None` if
    /// they are not there.
    pub fn parse(
        file_size: u64,
        mut read: impl FnMut(u64, usize) -> Option<Vec<u8>>,
    ) -> Result<Self, ElfError> {
        let start = read(0, file_size.min(256) as usize).unwrap_or_default();
        check_kind_of_file(&start)?;
        let mut need = |what: &str, range: Range<u64>| {
            let error = || ElfError::Truncated { what: what.to_owned(), needed: range.end, have: file_size };
            if range.end > file_size {
                return Err(error());
            }
            read(range.start, (range.end - range.start) as usize).ok_or_else(error)
        };
        let bytes = need("the ELF header", 0..HEADER_LEN)?;
        let header = Elf::parse_header(&bytes).map_err(malformed)?;
        check_header(&header)?;
        let headers_len = u64::from(header.e_phnum) * u64::from(header.e_phentsize);
        if headers_len > MAX_HEADERS_LEN {
            return Err(ElfError::Malformed { why: format!("{} program headers", header.e_phnum) });
        }
        let headers_end = header.e_phoff.checked_add(headers_len);
        let headers_end = headers_end.ok_or_else(|| malformed("the program headers are out of bounds"))?;
        let headers = header.e_phoff..headers_end;
        let table = need("the program header table", headers.clone())?;
        let context = Ctx::new(Container::Big, Endian::Little);
        let count = usize::from(header.e_phnum);
        let parsed = ProgramHeader::parse(&table, 0, count, context).map_err(malformed)?;

        let mut program = Self {
            kind: if header.e_type == header::ET_EXEC { Kind::Fixed } else { Kind::PositionIndependent },
            machine: header.e_machine,
            entry: VirtAddr(header.e_entry),
            segments: Vec::new(),
            interpreter: None,
            dynamic: None,
            headers,
            property_note: None,
        };
        for (index, header) in parsed.iter().enumerate() {
            let file_range = header.p_offset..header.p_offset.saturating_add(header.p_filesz);
            match header.p_type {
                ph::PT_LOAD => {
                    let previous_end = program.segments.last().map_or(0, |s| s.vaddr.0 + s.mem_size);
                    program.segments.push(segment(index, header, previous_end, file_size)?);
                }
                ph::PT_INTERP => {
                    if header.p_filesz > 4096 {
                        let why = "the interpreter's path is over 4096 bytes".to_owned();
                        return Err(ElfError::Segment { index, why });
                    }
                    let path = need("the interpreter's path", file_range.clone())?;
                    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
                    let path = String::from_utf8_lossy(path).into_owned();
                    program.interpreter = Some(Interpreter { path, at: file_range });
                }
                ph::PT_DYNAMIC => {
                    let end = header.p_vaddr.saturating_add(header.p_memsz);
                    program.dynamic = Some(VirtAddr(header.p_vaddr)..VirtAddr(end));
                }
                ph::PT_GNU_PROPERTY => {
                    need("the GNU property note", file_range.clone())?;
                    program.property_note = Some(file_range);
                }
                _ => {}
            }
        }
        program.check()?;
        Ok(program)
    }

    /// Reads the headers of a program of which the whole file is in memory.
    pub fn parse_file(file: &[u8]) -> Result<Self, ElfError> {
        Self::parse(file.len() as u64, |offset, len| {
            let start = usize::try_from(offset).ok()?;
            file.get(start..start.checked_add(len)?).map(<[u8]>::to_vec)
        })
    }

    fn check(&self) -> Result<(), ElfError> {
        if self.segments.is_empty() {
            return Err(malformed("there is no PT_LOAD segment"));
        }
        let holds_entry = |s: &Segment| (s.vaddr.0..s.vaddr.0 + s.file_size).contains(&self.entry.0);
        if self.entry.0 == 0 && self.kind == Kind::PositionIndependent {
            return Err(ElfError::NotExecutable { kind: "shared library" });
        }
        if !self.segments.iter().any(holds_entry) {
            return Err(malformed(format!("the entry point {} is in no segment", self.entry)));
        }
        Ok(())
    }

    /// The file page that is mapped at `address`, with the address of its first byte.
    pub fn page_at(&self, address: VirtAddr) -> Option<PageNo> {
        let segment = self.segments.iter().find(|segment| segment.mapped().contains(&address))?;
        let offset = address.0 - segment.mapped().start.0 + segment.mapped_offset().0;
        Some(FileOffset(offset).page())
    }

    /// The pages that the kernel itself reads at exec, before a pager can be registered: headers, interpreter path,
    /// GNU property note, and the pages whose tail it zeroes because .bss begins there.
    pub fn exec_pages(&self) -> BTreeSet<PageNo> {
        let tail =
            |s: &Segment| s.zeroed_tail().map(|_| s.offset.0 + s.file_size - 1..s.offset.0 + s.file_size);
        let ranges = [0..HEADER_LEN, self.headers.clone()]
            .into_iter()
            .chain(self.interpreter.as_ref().map(|i| i.at.clone()))
            .chain(self.property_note.clone())
            .chain(self.segments.iter().filter_map(tail));
        ranges
            .flat_map(|r| FileOffset(r.start).page().0..=FileOffset(r.end.max(r.start + 1) - 1).page().0)
            .map(PageNo)
            .collect()
    }
}

fn malformed(why: impl Display) -> ElfError {
    ElfError::Malformed { why: format!("{why}") }
}

fn check_kind_of_file(start: &[u8]) -> Result<(), ElfError> {
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        return Err(ElfError::Script { interpreter: String::from_utf8_lossy(line).trim().to_owned() });
    }
    if !start.starts_with(header::ELFMAG) {
        return Err(ElfError::NotElf { start: start[..start.len().min(8)].to_vec() });
    }
    match start.get(header::EI_CLASS) {
        Some(&header::ELFCLASS64) | None => Ok(()),
        _ => Err(ElfError::Machine { found: "a 32-bit machine".to_owned() }),
    }
}

fn check_header(header: &Header) -> Result<(), ElfError> {
    if !supported(header.e_machine) {
        return Err(ElfError::Machine { found: machine_name(header.e_machine) });
    }
    match header.e_type {
        header::ET_EXEC | header::ET_DYN => {}
        header::ET_REL => return Err(ElfError::NotExecutable { kind: "object file" }),
        header::ET_CORE => return Err(ElfError::NotExecutable { kind: "core dump" }),
        other => return Err(malformed(format!("unknown file type {other}"))),
    }
    if usize::from(header.e_phentsize) != ph::program_header64::SIZEOF_PHDR {
        return Err(malformed(format!("a program header has {} bytes", header.e_phentsize)));
    }
    Ok(())
}

/// User addresses end here on x86-64 with four-level page tables.
const ADDRESS_LIMIT: u64 = 1 << 47;

fn segment(
    index: usize,
    header: &ProgramHeader,
    previous_end: u64,
    file_size: u64,
) -> Result<Segment, ElfError> {
    let error = |why: &str| ElfError::Segment { index, why: why.to_owned() };
    if header.p_filesz > header.p_memsz {
        return Err(error("its file size exceeds its memory size"));
    }
    if header.p_vaddr % PAGE != header.p_offset % PAGE {
        return Err(error("its address and its file offset differ modulo the page size"));
    }
    if header.p_vaddr.checked_add(header.p_memsz).is_none_or(|end| end > ADDRESS_LIMIT) {
        return Err(error("it ends outside the address space"));
    }
    if header.p_vaddr < previous_end {
        return Err(error("it overlaps its predecessor or is not in ascending order"));
    }
    let file_end =
        header.p_offset.checked_add(header.p_filesz).ok_or_else(|| error("its file range overflows"))?;
    if file_end > file_size {
        let what = format!("segment {index}");
        return Err(ElfError::Truncated { what, needed: file_end, have: file_size });
    }
    Ok(Segment {
        vaddr: VirtAddr(header.p_vaddr),
        offset: FileOffset(header.p_offset),
        file_size: header.p_filesz,
        mem_size: header.p_memsz,
        permissions: [ph::PF_R, ph::PF_W, ph::PF_X].map(|bit| header.p_flags & bit != 0),
    })
}
