//! RISC-V with SBI firmware: harts, traps, timers; no page tables.

mod firmware;

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub use firmware::find as find_firmware;
use zonal_kernel::zones::Limits;

use crate::boot::MAX_CPUS;

core::arch::global_asm!(include_str!("boot.s"));

pub const LIMITS: Limits = Limits::RISCV64;
pub const NAME: &str = "riscv64";

/// `sstatus`: interrupts are taken.
const SIE: usize = 1 << 1;
/// `sie`, `sip`: software and timer interrupts.
const SOFTWARE: usize = 1 << 1;
const TIMER: usize = 1 << 5;

/// Calls the firmware: extension, function, three arguments.
fn sbi(extension: usize, function: usize, arguments: [usize; 3]) -> isize {
    let error;
    // SAFETY: (1) the calls made here print, set a timer, send interrupts, start harts and turn the
    // machine off; none writes memory.
    unsafe {
        asm!("ecall", inlateout("a0") arguments[0] => error, inlateout("a1") arguments[1] => _,
            in("a2") arguments[2], in("a6") function, in("a7") extension)
    };
    error
}

/// Writes a byte to the console.
pub fn write_byte(byte: u8) {
    sbi(1, 0, [byte.into(), 0, 0]);
}

/// Turns the machine off. What the last line says is how it went.
pub fn exit(_code: u8) -> ! {
    sbi(0x5352_5354, 0, [0, 0, 0]);
    stop()
}

/// Halts this processor for good.
pub fn stop() -> ! {
    mask();
    // SAFETY: (1) nothing wakes it that it would take.
    unsafe { asm!("csrw sie, zero") };
    loop {
        // The firmware's "stop this hart", so that it can be started again.
        sbi(0x48_534d, 1, [0, 0, 0]);
        core::hint::spin_loop();
    }
}

static HARTS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Tells which hart a processor's number stands for.
pub fn name_cpu(cpu: u32, hardware: u64) {
    HARTS[cpu as usize].store(hardware, SeqCst);
}

/// Makes the running processor the one with this number: in `tp`, which nothing else uses.
pub fn become_cpu(cpu: u32) {
    // SAFETY: (1) `tp` is for thread-local storage, which there is none of; (2) the entry of traps
    // stays.
    unsafe {
        asm!("mv tp, {}", in(reg) cpu as usize);
        asm!("la {0}, trap_entry", "csrw stvec, {0}", out(reg) _);
        asm!("csrw sie, {}", in(reg) SOFTWARE);
    }
}

#[inline(always)]
pub fn this_cpu() -> u32 {
    let id: usize;
    // SAFETY: (1) reads a register.
    unsafe { asm!("mv {}, tp", out(reg) id, options(nomem, nostack)) };
    id as u32
}

#[inline(always)]
pub fn mask() -> usize {
    let was: usize;
    // SAFETY: (1) masking interrupts breaks nothing; the compiler moves no access over it.
    unsafe { asm!("csrrci {}, sstatus, 2", out(reg) was) };
    was
}

#[inline(always)]
pub fn unmask(was: usize) {
    if was & SIE != 0 {
        unmask_all();
    }
}

#[inline(always)]
pub fn unmask_all() {
    // SAFETY: (1) traps have their entry; the compiler moves no access over it.
    unsafe { asm!("csrsi sstatus, 2") };
}

/// Sleeps until an interrupt comes, and takes it. Masked before, not behind.
pub fn idle() {
    // SAFETY: (1) an interrupt that is masked wakes it, too; (2) then as in `unmask_all`.
    unsafe { asm!("wfi", "csrsi sstatus, 2") };
}

/// Nanoseconds: the counter of QEMU's board has 10 MHz. With `-icount shift=0`, instructions.
#[inline(always)]
pub fn now() -> u64 {
    let time: u64;
    // SAFETY: (1) reads a counter.
    unsafe { asm!("rdtime {}", out(reg) time, options(nomem, nostack)) };
    time * 100
}

/// Sends the interrupt that answers fences.
pub fn interrupt(cpu: u32) {
    let hart = HARTS[cpu as usize].load(SeqCst);
    sbi(0x73_5049, 0, [1, hart as usize, 0]);
}

static PERIODS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// An interrupt each `ticks`.
pub fn timer_on(ticks: u32) {
    PERIODS[this_cpu() as usize].store(ticks.into(), SeqCst);
    next_timer();
    // SAFETY: (1) the handler is there.
    unsafe { asm!("csrs sie, {}", in(reg) TIMER) };
}

pub fn timer_off() {
    // SAFETY: (1) fewer interrupts break nothing.
    unsafe { asm!("csrc sie, {}", in(reg) TIMER) };
}

fn next_timer() {
    let period = PERIODS[this_cpu() as usize].load(SeqCst);
    sbi(0x5449_4d45, 0, [((now() + period) / 100) as usize, 0, 0]);
}

/// Starts a processor in `cpu_main`, with this stack.
pub fn start_cpu(cpu: u32, stack_top: usize) {
    unsafe extern "C" {
        fn hart_start();
    }
    // SAFETY: (1) the caller owns the bytes below the top.
    unsafe { ((stack_top - 8) as *mut u64).write_volatile(cpu.into()) };
    let hart = HARTS[cpu as usize].load(SeqCst) as usize;
    // A hart that is on its way out is refused until it is out.
    for _ in 0..1_000_000 {
        if sbi(0x48_534d, 0, [hart, hart_start as *const () as usize, stack_top]) == 0 {
            return;
        }
        core::hint::spin_loop();
    }
}

#[unsafe(no_mangle)]
extern "C" fn on_trap(cause: usize, value: usize, at: usize) {
    const INTERRUPT: usize = 1 << 63;
    const SOFTWARE_CAUSE: usize = INTERRUPT | 1;
    const TIMER_CAUSE: usize = INTERRUPT | 5;
    match cause {
        SOFTWARE_CAUSE => {
            // SAFETY: (1) the handler has seen it.
            unsafe { asm!("csrc sip, {}", in(reg) SOFTWARE) };
            crate::kernel::on_fence();
        }
        TIMER_CAUSE => {
            next_timer();
            crate::kernel::on_timer();
            // A handler that took longer than a period leaves one to whom it interrupted.
            next_timer();
        }
        _ => {
            crate::say!("FAULT on CPU {}: cause {cause:#x}, {value:#x} at {at:#x}", this_cpu());
            exit(3)
        }
    }
}

/// Adds one to a counter that only this processor writes, by a section: a read and a write with
/// much room for an interrupt between them, which starts it over.
pub fn add_one(counter: &AtomicU64) {
    // SAFETY: (1) the counter lives; (2) the section writes nothing before its last instruction,
    // and every interrupt's entry looks into the table (`return_address`).
    unsafe {
        asm!(
            ".pushsection .zonal_sections, \"aw\"",
            ".quad 3f, 4f - 3f, 3f",
            ".popsection",
            "3:",
            "ld {value}, 0({at})",
            ".rept 100",
            "nop",
            ".endr",
            "addi {value}, {value}, 1",
            "sd {value}, 0({at})",
            "4:",
            at = in(reg) counter.as_ptr(),
            value = out(reg) _,
            options(nostack),
        );
    }
}

/// A stack on which `switch_stacks` starts `entry`.
pub fn new_stack(top: usize, entry: extern "C" fn() -> !) -> usize {
    let at = top - 112;
    // SAFETY: (1) the caller owns the bytes below `top`.
    unsafe { (at as *mut usize).write(entry as *const () as usize) };
    at
}

/// Memory that `firmware::find` reserves without need.
pub fn late_memory() -> Option<Range<u64>> {
    Some(firmware::LATE)
}

/// Says how many ticks 2000 instructions take.
pub fn calibrate() {
    let start = now();
    // SAFETY: (1) a loop of two instructions.
    unsafe { asm!("li {0}, 1000", "2:", "addi {0}, {0}, -1", "bnez {0}, 2b", out(reg) _) };
    crate::say!("calibration: 2000 instructions take {} ticks", now() - start);
}
