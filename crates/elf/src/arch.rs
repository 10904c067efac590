//! The machines that pagein runs on: the one place to add to (with `crates/uffd/src/arch.rs` and `loader/src/stub.rs`).

use goblin::elf::header;

/// ELF `e_machine` of x86-64.
pub const EM_X86_64: u16 = header::EM_X86_64;

/// Whether programs for `e_machine` can be cut and run.
pub fn supported(machine: u16) -> bool {
    machine == EM_X86_64
}

/// The usual name of an `e_machine`.
pub fn machine_name(machine: u16) -> String {
    match machine {
        header::EM_X86_64 => "x86-64".to_owned(),
        header::EM_386 => "i386".to_owned(),
        header::EM_AARCH64 => "aarch64".to_owned(),
        header::EM_ARM => "arm".to_owned(),
        header::EM_RISCV => "riscv".to_owned(),
        header::EM_PPC64 => "ppc64".to_owned(),
        header::EM_S390 => "s390x".to_owned(),
        other => format!("machine {other}"),
    }
}
