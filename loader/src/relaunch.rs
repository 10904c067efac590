//! What makes the exec'ed file a program of its own: code for its entry point that starts `pagein run` again.
//!
//! The dynamic linker runs before the entry point, so a program that has one also gets a dynamic section with nothing in
//! it. Machine-dependent: x86-64 (psABI, section 3.4.1, "Initial Stack and Register State").

use pagein_elf::{Program, Segment};

/// Bytes to put over the exec'ed file, with their file offsets; none if the entry point's segment has no room.
pub(crate) fn patches(program: &Program, command: &[Option<Vec<u8>>]) -> Vec<(u64, Vec<u8>)> {
    let code = x86_64(command);
    let segment = program
        .segments
        .iter()
        .find(|segment| (segment.vaddr.0..segment.vaddr.0 + segment.file_size).contains(&program.entry.0));
    let Some(segment) = segment else { return Vec::new() };
    let within = program.entry.0 - segment.vaddr.0;
    if within + code.len() as u64 > segment.file_size {
        return Vec::new();
    }
    let mut patches = vec![(segment.offset.0 + within, code)];
    patches.extend(empty_dynamic(program));
    // What the kernel reads must stay.
    let kept =
        [Some(0..64), Some(program.headers.clone()), program.interpreter.as_ref().map(|i| i.at.clone())];
    let overlaps = |(offset, bytes): &(u64, Vec<u8>)| {
        let end = offset + bytes.len() as u64;
        kept.iter().flatten().any(|range| *offset < range.end && range.start < end)
    };
    if patches.iter().any(overlaps) { Vec::new() } else { patches }
}

/// A dynamic section without dependencies and relocations. A string and a symbol table must exist; the zeros behind the
/// section serve as both (an empty string, an undefined symbol).
fn empty_dynamic(program: &Program) -> Option<(u64, Vec<u8>)> {
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const DT_SYMENT: u64 = 11;
    let dynamic = program.dynamic.as_ref()?;
    let within = |s: &&Segment| (s.vaddr.0..s.vaddr.0 + s.file_size).contains(&dynamic.start.0);
    let segment = program.segments.iter().find(within)?;
    if dynamic.end.0 - dynamic.start.0 < 7 * 16 {
        return None;
    }
    let zeros = dynamic.start.0 + 5 * 16;
    let entries =
        [(DT_STRTAB, zeros), (DT_SYMTAB, zeros), (DT_STRSZ, 1), (DT_SYMENT, 24), (0, 0), (0, 0), (0, 0)];
    let bytes =
        entries.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()]).flatten().collect();
    Some((segment.offset.0 + (dynamic.start.0 - segment.vaddr.0), bytes))
}

/// Position-independent code: `execve(command[0], [command..., argv[1..]], envp)`.
fn x86_64(command: &[Option<Vec<u8>>]) -> Vec<u8> {
    let count = command.len() as u32;
    let mut code = Code::default();
    code.bytes(&[0x4c, 0x8b, 0x24, 0x24]); // mov r12, [rsp]            argc
    code.bytes(&[0x4c, 0x8d, 0x6c, 0x24, 0x08]); // lea r13, [rsp+8]          argv
    code.bytes(&[0x4f, 0x8d, 0x74, 0xe5, 0x08]); // lea r14, [r13+r12*8+8]    envp
    code.bytes(&[0x4a, 0x8d, 0x3c, 0xe5]); // lea rdi, [r12*8+disp32]   room for the new argv
    code.bytes(&((count + 2) * 8 + 16).to_le_bytes());
    code.bytes(&[0x48, 0x83, 0xe7, 0xf0]); // and rdi, -16
    code.bytes(&[0x48, 0x29, 0xfc]); // sub rsp, rdi
    for (index, word) in command.iter().enumerate() {
        match word {
            Some(word) => code.load_address([0x48, 0x8d, 0x05], word), // lea rax, [rip+word]
            None => code.bytes(&[0x49, 0x8b, 0x45, 0x00]),             // mov rax, [r13]    argv[0]
        }
        code.bytes(&[0x48, 0x89, 0x84, 0x24]); // mov [rsp+index*8], rax
        code.bytes(&(index as u32 * 8).to_le_bytes());
    }
    code.bytes(&[0x49, 0x8d, 0x75, 0x08]); // lea rsi, [r13+8]          argv[1]
    code.bytes(&[0x48, 0x8d, 0xbc, 0x24]); // lea rdi, [rsp+count*8]
    code.bytes(&(count * 8).to_le_bytes());
    code.bytes(&[0x4c, 0x89, 0xe1]); // mov rcx, r12              argv[1..] and its NULL
    code.bytes(&[0xfc, 0xf3, 0x48, 0xa5]); // cld; rep movsq
    let path = command.first().cloned().flatten().unwrap_or_default();
    code.load_address([0x48, 0x8d, 0x3d], &path); // lea rdi, [rip+path]
    code.bytes(&[0x48, 0x89, 0xe6]); // mov rsi, rsp
    code.bytes(&[0x4c, 0x89, 0xf2]); // mov rdx, r14
    code.system_call(number::EXECVE);
    // execve returned: pagein is not where it was.
    let message = [b"pagein: cannot start ", &path[..], b": it was moved or deleted\n"].concat();
    code.bytes(&[0xbf, 2, 0, 0, 0]); // mov edi, 2
    code.load_address([0x48, 0x8d, 0x35], &message); // lea rsi, [rip+message]
    code.byte_and_word(0xba, message.len() as u32); // mov edx, len
    code.system_call(number::WRITE);
    code.byte_and_word(0xbf, u32::from(crate::Failure::PAGEIN)); // mov edi, status
    code.system_call(number::EXIT_GROUP);
    code.finish()
}

/// Numbers of x86-64 Linux system calls (`arch/x86/entry/syscalls/syscall_64.tbl`).
mod number {
    pub(super) const WRITE: u32 = 1;
    pub(super) const EXECVE: u32 = 59;
    pub(super) const EXIT_GROUP: u32 = 231;
}

/// Instructions, and behind them the strings that they address relative to themselves.
#[derive(Default)]
struct Code {
    text: Vec<u8>,
    /// Where a 32-bit distance is to be put, and the offset in `strings` that it leads to.
    references: Vec<(usize, usize)>,
    strings: Vec<u8>,
}

impl Code {
    fn bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    fn byte_and_word(&mut self, byte: u8, word: u32) {
        self.text.push(byte);
        self.bytes(&word.to_le_bytes());
    }

    fn load_address(&mut self, instruction: [u8; 3], string: &[u8]) {
        self.bytes(&instruction);
        self.references.push((self.text.len(), self.strings.len()));
        self.bytes(&[0; 4]);
        self.strings.extend_from_slice(string);
        self.strings.push(0);
    }

    fn system_call(&mut self, number: u32) {
        self.byte_and_word(0xb8, number); // mov eax, number
        self.bytes(&[0x0f, 0x05]); // syscall
    }

    fn finish(mut self) -> Vec<u8> {
        let strings_at = self.text.len();
        for (at, string) in self.references {
            // Relative to the end of the instruction, which ends with the distance.
            let distance = (strings_at + string - (at + 4)) as u32;
            self.text[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.text.extend_from_slice(&self.strings);
        self.text
    }
}
