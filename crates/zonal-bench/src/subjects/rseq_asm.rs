//! The restartable sequences of `rseq-bare`, for x86-64 with glibc 2.35 or later.
//!
//! glibc registers an rseq area with the kernel for every thread, at `fs:[offset]`: `cpu_id` is at
//! +4 and `rseq_cs` at +8. A section stores the address of its descriptor into `rseq_cs`, reads
//! `cpu_id`, works, and commits with its *last* instruction. If the thread is preempted, migrated
//! or signalled before that store, the kernel continues it at the abort handler, which starts over.
//!
//! # Invariants
//! - **RSEQ-1** every section begins by storing its descriptor (newer kernels clear the field)
//! - **RSEQ-2** the store to `top` is the last instruction of a section and its only commit
//! - **RSEQ-3** what is written before it (slots above `top`, a private buffer, registers) means
//!   nothing until the commit, so starting over is harmless
//! - **RSEQ-4** the abort handler is preceded by the signature that glibc registered
//!
//! Layout of a stack, repeated every [`CPU_STRIDE`] bytes, one copy per CPU:
//! `+0 top, +8 capacity, +64 slots`, all of them 8 bytes.

use std::arch::asm;

/// Distance between the areas of two CPUs; a multiple of the page size. 1 MiB holds ten stacks.
pub(crate) const CPU_STRIDE: usize = 1 << 20;

/// The section's prologue: descriptor (`2`), re-arming (`6`, RSEQ-1), the stack's address into `t`.
macro_rules! enter {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "2: .long 0, 0\n",
            ".quad 3f, 4f-3f, 5f\n",
            ".popsection\n",
            "6: lea {t}, [rip+2b]\n",
            "mov fs:[{o}+8], {t}\n",
            "3: mov {t:e}, fs:[{o}+4]\n",
            "imul {t}, {t}, {stride}\n",
            "add {t}, {base}\n",
        )
    };
}

/// After the commit: the end of the section (`4`), and out of line the abort handler (`5`, RSEQ-4)
/// and the way out (`7`) that `$leave` spells.
macro_rules! exit {
    ($leave:literal) => {
        concat!(
            "4:\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "5: jmp 6b\n",
            $leave,
            ".popsection\n",
        )
    };
}

pub(crate) use enter;
pub(crate) use exit;

/// Pops a block from this CPU's stack; 0 if it is empty.
///
/// # Safety
/// 1. `offset` is glibc's `__rseq_offset`, and rseq is registered for this thread.
/// 2. `base + cpu * CPU_STRIDE` is a stack for every CPU, used by this module only.
#[inline(always)]
pub(super) unsafe fn pop(base: *mut u8, offset: isize) -> usize {
    let mut block: usize;
    // SAFETY: (1) the fs-relative accesses are to this thread's rseq area, of which only `rseq_cs`
    // is written. (2) reads and writes stay in the stack: `top` is at most its capacity. The
    // section follows RSEQ-1 to RSEQ-4. Flags are clobbered, as asm! assumes.
    unsafe {
        asm!(
            enter!(),
            "mov {top}, [{t}]",
            "test {top}, {top}",
            "je 7f",
            "dec {top}",
            "mov {block}, [{t}+{top}*8+64]",
            "mov [{t}], {top}",
            exit!("7: xor {block:e}, {block:e}\njmp 4b\n"),
            o = in(reg) offset,
            t = out(reg) _,
            top = out(reg) _,
            base = in(reg) base,
            block = out(reg) block,
            stride = const CPU_STRIDE,
            options(nostack),
        );
    }
    block
}

/// Pushes a block onto this CPU's stack; false if it is full.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(super) unsafe fn push(base: *mut u8, offset: isize, block: usize) -> bool {
    // SAFETY: as in `pop`; the slot written is below the capacity.
    unsafe {
        asm!(
            enter!(),
            "mov {top}, [{t}]",
            "cmp {top}, [{t}+8]",
            "jae 7f",
            "mov [{t}+{top}*8+64], {block}",
            "inc {top}",
            "mov [{t}], {top}",
            exit!("7: jmp {full}\n"),
            o = in(reg) offset,
            t = out(reg) _,
            top = out(reg) _,
            base = in(reg) base,
            block = in(reg) block,
            stride = const CPU_STRIDE,
            full = label { return false },
            options(nostack),
        );
    }
    true
}

/// Pops up to `count` blocks into `into` in one section and returns how many.
///
/// # Safety
/// As for [`pop`], and 3. `into` has room for `count` blocks.
pub(super) unsafe fn pop_many(
    base: *mut u8,
    offset: isize,
    into: *mut usize,
    count: usize,
) -> usize {
    let mut popped: usize;
    // SAFETY: as in `pop`; (3) at most `count` words are written to `into`, which nobody else
    // sees, so an abort between them is harmless (RSEQ-3).
    unsafe {
        asm!(
            enter!(),
            "mov {top}, [{t}]",
            "mov rcx, {count}",
            "cmp rcx, {top}",
            "cmova rcx, {top}",
            "sub {top}, rcx",
            "lea rsi, [{t}+{top}*8+64]",
            "mov rdi, {into}",
            "mov {popped}, rcx",
            "rep movsq",
            "mov [{t}], {top}",
            exit!(""),
            o = in(reg) offset,
            t = out(reg) _,
            top = out(reg) _,
            base = in(reg) base,
            count = in(reg) count,
            into = in(reg) into,
            popped = out(reg) popped,
            out("rcx") _,
            out("rsi") _,
            out("rdi") _,
            stride = const CPU_STRIDE,
            options(nostack),
        );
    }
    popped
}

/// Pushes up to `count` blocks from `from` in one section and returns how many fitted.
///
/// # Safety
/// As for [`pop`], and 3. `from` points to `count` blocks.
pub(super) unsafe fn push_many(
    base: *mut u8,
    offset: isize,
    from: *const usize,
    count: usize,
) -> usize {
    let mut pushed: usize;
    // SAFETY: as in `pop`; (3) at most `count` words are read from `from`. Those written lie above
    // `top` and below the capacity, and mean nothing before the commit (RSEQ-3).
    unsafe {
        asm!(
            enter!(),
            "mov {top}, [{t}]",
            "mov rcx, [{t}+8]",
            "sub rcx, {top}",
            "cmp rcx, {count}",
            "cmova rcx, {count}",
            "lea rdi, [{t}+{top}*8+64]",
            "mov rsi, {from}",
            "mov {pushed}, rcx",
            "add {top}, rcx",
            "rep movsq",
            "mov [{t}], {top}",
            exit!(""),
            o = in(reg) offset,
            t = out(reg) _,
            top = out(reg) _,
            base = in(reg) base,
            count = in(reg) count,
            from = in(reg) from,
            pushed = out(reg) pushed,
            out("rcx") _,
            out("rsi") _,
            out("rdi") _,
            stride = const CPU_STRIDE,
            options(nostack),
        );
    }
    pushed
}

/// What the kernel says of the CPU of this thread, in the area at glibc's `__rseq_offset`: negative
/// where it says nothing.
pub(crate) fn current_cpu(offset: isize) -> i32 {
    let cpu: i32;
    // SAFETY: one aligned load in this thread's static TLS block, where every thread has the area.
    unsafe {
        asm!("mov {c:e}, fs:[{o}+4]", c = out(reg) cpu, o = in(reg) offset,
            options(nostack, readonly, preserves_flags));
    }
    cpu
}

/// glibc's `__rseq_offset`, if this process's threads are registered; else why not.
///
/// Looked up at run time, so that the program also starts with an older glibc.
pub(crate) fn registered_offset() -> Result<isize, String> {
    // SAFETY: a NUL-terminated name; the default handle is always valid.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    // SAFETY: the same.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if size.is_null() || offset.is_null() {
        return Err("glibc 2.35 or later is needed: it has no __rseq_offset".into());
    }
    // SAFETY: glibc documents it as `const unsigned int`.
    let size = unsafe { size.cast::<u32>().read() };
    if size == 0 {
        return Err("rseq is not registered (GLIBC_TUNABLES or an old kernel)".into());
    }
    // SAFETY: glibc documents it as `const ptrdiff_t`.
    Ok(unsafe { offset.cast::<isize>().read() })
}

/// One more than the highest CPU number that this machine can ever have.
pub(crate) fn possible_cpus() -> Result<usize, String> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let highest = text.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    highest.map(|highest| highest + 1).ok_or_else(|| format!("{path} says {text:?}"))
}
