//! What depends on the machine when a system call is made in another process: x86-64 (psABI, section A.2.1).

use libc::user_regs_struct;

/// Encoding of the instruction that enters the kernel.
pub(crate) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];

/// Changes `regs` so that the next instruction makes system call `number`; `instruction` is the address of a
/// [`SYSCALL_INSTRUCTION`].
pub(crate) fn set_call(regs: &mut user_regs_struct, instruction: u64, number: i64, args: [u64; 6]) {
    regs.rip = instruction;
    regs.rax = number as u64;
    // Not inside a system call: the kernel must not try to restart one.
    regs.orig_rax = u64::MAX;
    [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
}

/// Whether the instruction at `instruction` has been executed.
pub(crate) fn has_returned(regs: &user_regs_struct, instruction: u64) -> bool {
    regs.rip == instruction + SYSCALL_INSTRUCTION.len() as u64
}

/// The system call's result: a value, or a negated errno.
pub(crate) fn result(regs: &user_regs_struct) -> i64 {
    regs.rax as i64
}
