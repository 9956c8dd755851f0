//! 64-bit Arm with PSCI firmware: exceptions, the generic timer, the GIC, processors.

mod firmware;
mod gic;

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub use firmware::find as find_firmware;
use zonal_kernel::zones::Limits;

use crate::boot::MAX_CPUS;

core::arch::global_asm!(include_str!("boot.s"));

pub const LIMITS: Limits = Limits::AARCH64;
pub const NAME: &str = "aarch64";

/// The bit of `daif` that masks interrupts.
const MASKED: usize = 1 << 7;
/// The serial port of QEMU's board.
const UART: usize = 0x900_0000;

/// Calls the firmware: function, three arguments.
fn psci(function: u32, arguments: [usize; 3]) -> isize {
    let result;
    // SAFETY: (1) the calls made here start and stop processors and turn the machine off; none
    // writes memory.
    unsafe {
        asm!("hvc #0", inlateout("x0") u64::from(function) => result,
            inlateout("x1") arguments[0] => _, inlateout("x2") arguments[1] => _,
            inlateout("x3") arguments[2] => _);
    }
    result
}

/// Writes a byte to the serial port.
pub fn write_byte(byte: u8) {
    // SAFETY: (1) registers of the serial port, mapped as a device.
    unsafe {
        while ((UART + 0x18) as *const u32).read_volatile() & 1 << 5 != 0 {}
        (UART as *mut u32).write_volatile(byte.into());
    }
}

/// Turns the machine off. What the last line says is how it went.
pub fn exit(_code: u8) -> ! {
    psci(0x8400_0008, [0; 3]);
    stop()
}

/// Halts this processor for good; it can be started again.
pub fn stop() -> ! {
    mask();
    loop {
        psci(0x8400_0002, [0; 3]);
        core::hint::spin_loop();
    }
}

static AFFINITIES: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Tells which hardware a processor's number stands for.
pub fn name_cpu(cpu: u32, hardware: u64) {
    AFFINITIES[cpu as usize].store(hardware, SeqCst);
}

/// What the hardware calls the running processor.
fn affinity() -> u64 {
    let mpidr: u64;
    // SAFETY: (1) reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack)) };
    mpidr & 0xff_00ff_ffff
}

/// Makes the running processor the one with this number: in `tpidr_el1`, which nothing else uses.
pub fn become_cpu(cpu: u32) {
    // SAFETY: (1) the register is the kernel's own; (2) the entries of exceptions stay.
    unsafe {
        asm!("msr tpidr_el1, {}", in(reg) u64::from(cpu));
        asm!("adrp {0}, vectors", "add {0}, {0}, :lo12:vectors", "msr vbar_el1, {0}", "isb",
            out(reg) _);
    }
    // The first one finds the controller later.
    if cpu != 0 {
        gic::start(affinity());
    }
}

#[inline(always)]
pub fn this_cpu() -> u32 {
    let id: u64;
    // SAFETY: (1) reads a register.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) id, options(nomem, nostack)) };
    id as u32
}

#[inline(always)]
pub fn mask() -> usize {
    let was: usize;
    // SAFETY: (1) masking interrupts breaks nothing; the compiler moves no access over it.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) was) };
    was
}

#[inline(always)]
pub fn unmask(was: usize) {
    if was & MASKED == 0 {
        unmask_all();
    }
}

#[inline(always)]
pub fn unmask_all() {
    // SAFETY: (1) exceptions have their entries; the compiler moves no access over it.
    unsafe { asm!("msr daifclr, #2") };
}

/// Sleeps until an interrupt comes, and takes it. Masked before, not behind.
pub fn idle() {
    // SAFETY: (1) an interrupt that is masked wakes it, too; (2) then as in `unmask_all`.
    unsafe { asm!("dsb sy", "wfi", "msr daifclr, #2") };
}

/// Nanoseconds of a tick of the counter.
fn tick() -> u64 {
    let frequency: u64;
    // SAFETY: (1) reads a register that the firmware has set.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack)) };
    (1_000_000_000 / frequency.max(1)).max(1)
}

/// Nanoseconds, 16 at a time on QEMU's board. With `-icount shift=0`, instructions.
#[inline(always)]
pub fn now() -> u64 {
    let count: u64;
    // SAFETY: (1) reads a counter.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    count * tick()
}

/// Sends the interrupt that answers fences.
pub fn interrupt(cpu: u32) {
    gic::send(AFFINITIES[cpu as usize].load(SeqCst));
}

static PERIODS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// An interrupt each `ticks`.
pub fn timer_on(ticks: u32) {
    PERIODS[this_cpu() as usize].store((u64::from(ticks) / tick()).max(1), SeqCst);
    next_timer();
    // SAFETY: (1) the handler is there.
    unsafe { asm!("msr cntv_ctl_el0, {}", "isb", in(reg) 1_u64) };
}

pub fn timer_off() {
    // SAFETY: (1) fewer interrupts break nothing.
    unsafe { asm!("msr cntv_ctl_el0, xzr", "isb") };
}

fn next_timer() {
    let period = PERIODS[this_cpu() as usize].load(SeqCst);
    // SAFETY: (1) sets when the timer interrupts.
    unsafe { asm!("msr cntv_tval_el0, {}", "isb", in(reg) period) };
}

/// Starts a processor in `cpu_main`, with this stack.
pub fn start_cpu(cpu: u32, stack_top: usize) {
    unsafe extern "C" {
        fn cpu_start();
    }
    // SAFETY: (1) the caller owns the bytes below the top.
    unsafe { ((stack_top - 8) as *mut u64).write_volatile(cpu.into()) };
    let affinity = AFFINITIES[cpu as usize].load(SeqCst) as usize;
    // A processor that is on its way out is refused until it is out.
    for _ in 0..1_000_000 {
        if psci(0xc400_0003, [affinity, cpu_start as *const () as usize, stack_top]) == 0 {
            return;
        }
        core::hint::spin_loop();
    }
}

#[unsafe(no_mangle)]
extern "C" fn on_interrupt() {
    let taken = gic::take();
    match taken & 0x3ff {
        gic::FENCE => {
            gic::end(taken);
            crate::kernel::on_fence();
        }
        gic::TIMER => {
            // The timer asks until it is set anew.
            next_timer();
            gic::end(taken);
            crate::kernel::on_timer();
            // A handler that took longer than a period leaves one to whom it interrupted.
            next_timer();
        }
        // 1020 and above: it is gone already.
        _ => {}
    }
}

#[unsafe(no_mangle)]
extern "C" fn on_fault(cause: usize, address: usize, at: usize) -> ! {
    crate::say!("FAULT on CPU {}: cause {cause:#x}, {address:#x} at {at:#x}", this_cpu());
    exit(3)
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
            "ldr {value}, [{at}]",
            ".rept 100",
            "nop",
            ".endr",
            "add {value}, {value}, #1",
            "str {value}, [{at}]",
            "4:",
            at = in(reg) counter.as_ptr(),
            value = out(reg) _,
            options(nostack),
        );
    }
}

/// A stack on which `switch_stacks` starts `entry`.
pub fn new_stack(top: usize, entry: extern "C" fn() -> !) -> usize {
    let at = top - 96;
    // SAFETY: (1) the caller owns the bytes below `top`; (2) `x30` lies behind eleven registers.
    unsafe { ((at + 88) as *mut usize).write(entry as *const () as usize) };
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
    unsafe { asm!("mov {0}, #1000", "2:", "subs {0}, {0}, #1", "b.ne 2b", out(reg) _) };
    crate::say!("calibration: 2000 instructions take {} ticks", now() - start);
}
