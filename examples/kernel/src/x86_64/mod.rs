//! A PC: ports, the local APIC, interrupts, processors.

mod firmware;
pub mod step;

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

pub use firmware::find as find_firmware;
#[cfg(by_sections)]
use zonal_kernel::sections::fast::OwnCell;
use zonal_kernel::zones::Limits;

use crate::boot::MAX_CPUS;

core::arch::global_asm!(include_str!("boot.s"));

pub const LIMITS: Limits = Limits::X86_64;
pub const NAME: &str = "x86-64";

const FENCE_VECTOR: u32 = 0x40;
const TIMER_VECTOR: u32 = 0x41;
/// The trap behind each instruction.
const STEP_VECTOR: u32 = 1;

fn out8(port: u16, value: u8) {
    // SAFETY: (1) the ports written here are those of the serial line, of the interrupt controllers
    // that are turned off, and of QEMU's exit: none touches memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: (1) reading the serial line's status touches no memory.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

fn out32(port: u16, value: u32) {
    // SAFETY: (1) the ports written here are those that choose a slot for a DIMM, and say that its
    // coming was seen: neither touches memory.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) }
}

fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: (1) reading what a slot has touches no memory.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) };
    value
}

/// QEMU's registers of slots for DIMMs (its docs/specs/acpi_mem_hotplug.rst), which ACPI's methods
/// use: a kernel with an interpreter of those asks them.
const DIMMS: u16 = 0xa00;
const SLOTS: u32 = 4;

/// The bytes of a DIMM that came and that nobody has asked for.
pub fn new_dimm() -> Option<Range<u64>> {
    (0..SLOTS).find_map(|slot| {
        out32(DIMMS, slot);
        // There, and not looked at.
        if in8(DIMMS + 0x14) & 3 != 3 {
            return None;
        }
        let number = |at| u64::from(in32(DIMMS + at)) | u64::from(in32(DIMMS + at + 4)) << 32;
        let (start, bytes) = (number(0), number(8));
        out8(DIMMS + 0x14, 2);
        Some(start..start + bytes)
    })
}

/// Writes a byte to the serial line.
pub fn write_byte(byte: u8) {
    while in8(0x3fd) & 0x20 == 0 {}
    out8(0x3f8, byte);
}

/// Turns the machine off. `code` 0: all is well.
pub fn exit(code: u8) -> ! {
    // QEMU exits with 2 * value + 1.
    out8(0xf4, if code == 0 { 0x10 } else { code });
    stop()
}

/// Halts this processor for good.
pub fn stop() -> ! {
    loop {
        // SAFETY: (1) stops until an interrupt; masked, for good.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// What GS points to on each processor.
#[repr(C, align(64))]
struct PerCpu {
    id: u32,
    #[cfg(by_sections)]
    own: OwnCell,
}
impl PerCpu {
    const fn new(id: u32) -> PerCpu {
        PerCpu {
            id,
            #[cfg(by_sections)]
            own: OwnCell::new(),
        }
    }
}
static PER_CPU: [PerCpu; MAX_CPUS] = {
    let mut all = [const { PerCpu::new(0) }; MAX_CPUS];
    let mut cpu = 0;
    while cpu < MAX_CPUS {
        all[cpu].id = cpu as u32;
        cpu += 1;
    }
    all
};

/// Where GS has what sections work on.
#[cfg(by_sections)]
pub const OWN: i32 = core::mem::offset_of!(PerCpu, own) as i32;

/// That of the running processor.
#[cfg(by_sections)]
pub fn own_cell() -> &'static OwnCell {
    &PER_CPU[this_cpu() as usize].own
}

static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// Tells which hardware a processor's number stands for.
pub fn name_cpu(cpu: u32, hardware: u64) {
    APIC_IDS[cpu as usize].store(hardware as u32, SeqCst);
}

/// Makes the running processor the one with this number.
pub fn become_cpu(cpu: u32) {
    let at = &raw const PER_CPU[cpu as usize] as u64;
    write_msr(0xc000_0101, at);
    load_interrupt_table();
    apic_write(0xf0, 0x1ff);
    // The old controllers stay silent.
    out8(0x21, 0xff);
    out8(0xa1, 0xff);
}

fn write_msr(msr: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: (1) only the base of GS is written, with the address of a static.
    unsafe { asm!("wrmsr", in("ecx") msr, in("eax") low, in("edx") high, options(nostack)) }
}

#[inline(always)]
pub fn this_cpu() -> u32 {
    let id: u32;
    // SAFETY: (1) GS points to a `PerCpu` since `become_cpu`.
    unsafe { asm!("mov {:e}, gs:[0]", out(reg) id, options(nostack, readonly, preserves_flags)) };
    id
}

#[inline(always)]
pub fn mask() -> usize {
    let flags: usize;
    // SAFETY: (1) masking interrupts breaks nothing; the compiler moves no access over it.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags
}

#[inline(always)]
pub fn unmask(was: usize) {
    if was & 0x200 != 0 {
        unmask_all();
    }
}

#[inline(always)]
pub fn unmask_all() {
    // SAFETY: (1) the table of interrupts is loaded; the compiler moves no access over it.
    unsafe { asm!("sti") };
}

/// Sleeps until an interrupt comes, and takes it. Masked before, not behind.
pub fn idle() {
    // SAFETY: (1) as in `unmask_all`; no interrupt comes between the two instructions.
    unsafe { asm!("sti", "hlt") };
}

/// Ticks of a clock; one is counted as a nanosecond. With QEMU's `-icount shift=0`, instructions.
#[inline(always)]
pub fn now() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: (1) reads a counter.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

const APIC: usize = 0xfee0_0000;

fn apic_write(register: usize, value: u32) {
    // SAFETY: (1) the local APIC is there on every PC, and mapped by the boot's page tables.
    unsafe { ((APIC + register) as *mut u32).write_volatile(value) }
}

fn apic_read(register: usize) -> u32 {
    // SAFETY: (1) as above; (2) the registers read here have no side effects.
    unsafe { ((APIC + register) as *const u32).read_volatile() }
}

/// Sends a command to another processor. Masked: a command takes two writes.
fn send(cpu: u32, command: u32) {
    let was = mask();
    apic_write(0x310, APIC_IDS[cpu as usize].load(SeqCst) << 24);
    apic_write(0x300, command);
    while apic_read(0x300) & 0x1000 != 0 {
        core::hint::spin_loop();
    }
    unmask(was);
}

/// Sends the interrupt that answers fences.
pub fn interrupt(cpu: u32) {
    send(cpu, 0x4000 | FENCE_VECTOR);
}

/// The timer's interrupt, now.
pub fn interrupt_self() {
    // SAFETY: (1) the table has this vector, whose entry puts back all that it uses.
    unsafe { asm!("int 0x41") };
}

/// An interrupt each `ticks`.
pub fn timer_on(ticks: u32) {
    apic_write(0x3e0, 0xb);
    apic_write(0x320, 0x2_0000 | TIMER_VECTOR);
    apic_write(0x380, ticks);
}

pub fn timer_off() {
    apic_write(0x380, 0);
    apic_write(0x320, 0x1_0000 | TIMER_VECTOR);
}

/// The handler has seen the interrupt.
fn end_interrupt() {
    apic_write(0xb0, 0);
}

/// Starts a processor in `cpu_main`, with this stack. It may take a while, or not be there.
pub fn start_cpu(cpu: u32, stack_top: usize) {
    unsafe extern "C" {
        static ap_start: u8;
        static ap_start_end: u8;
    }
    let (from, end) = (&raw const ap_start, &raw const ap_start_end);
    // SAFETY: (1) the first MiB is reserved for this (`firmware::find`) and mapped.
    unsafe {
        let bytes = end.addr() - from.addr();
        core::ptr::copy_nonoverlapping(from, 0x8000 as *mut u8, bytes);
        (0x7ff8 as *mut u64).write_volatile(stack_top as u64);
        (0x7ff0 as *mut u64).write_volatile(u64::from(cpu));
    }
    send(cpu, 0x4500);
    let start = now();
    while now() - start < 100_000 {
        core::hint::spin_loop();
    }
    send(cpu, 0x4608);
}

static INTERRUPTS: [[AtomicU64; 2]; 256] = [const { [const { AtomicU64::new(0) }; 2] }; 256];

#[repr(C, packed)]
struct TablePointer(u16, u64);

fn load_interrupt_table() {
    unsafe extern "C" {
        fn ipi_entry();
        fn timer_entry();
        fn fault_entry();
        fn step_entry();
    }
    for (vector, gate) in INTERRUPTS.iter().enumerate() {
        let to = match vector as u32 {
            FENCE_VECTOR => ipi_entry as *const () as u64,
            TIMER_VECTOR => timer_entry as *const () as u64,
            STEP_VECTOR => step_entry as *const () as u64,
            _ => fault_entry as *const () as u64,
        };
        gate[0].store(to & 0xffff | 8 << 16 | 0x8e00 << 32 | (to >> 16 & 0xffff) << 48, SeqCst);
        gate[1].store(to >> 32, SeqCst);
    }
    let pointer = TablePointer(4095, &raw const INTERRUPTS as u64);
    // SAFETY: (1) the table is whole and stays.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack)) }
}

#[unsafe(no_mangle)]
extern "C" fn on_fence_interrupt() {
    end_interrupt();
    crate::kernel::on_fence();
}

#[unsafe(no_mangle)]
extern "C" fn on_timer_interrupt() {
    end_interrupt();
    crate::kernel::on_timer();
}

#[unsafe(no_mangle)]
extern "C" fn on_fault(frame: *const [u64; 6]) -> ! {
    // SAFETY: (1) the processor pushed that much at least.
    let frame = unsafe { &*frame };
    crate::say!("FAULT on CPU {}: {frame:x?}", this_cpu());
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
            "mov {value}, [{at}]",
            ".rept 100",
            "nop",
            ".endr",
            "inc {value}",
            "mov [{at}], {value}",
            "4:",
            at = in(reg) counter.as_ptr(),
            value = out(reg) _,
            options(nostack),
        );
    }
}

/// A stack on which `switch_stacks` starts `entry`.
pub fn new_stack(top: usize, entry: extern "C" fn() -> !) -> usize {
    // `ret` takes the entry, behind six registers; the entry finds the stack as behind a call.
    let at = top - 64;
    // SAFETY: (1) the caller owns the bytes below `top`.
    unsafe { ((at + 48) as *mut usize).write(entry as *const () as usize) };
    at
}

/// Memory that `firmware::find` reserves and that nobody needs once all CPUs run: between the page
/// where they start and the firmware's data.
pub fn late_memory() -> Option<Range<u64>> {
    Some(0x1_0000..0x8_0000)
}

/// Says how many ticks 2000 instructions take.
pub fn calibrate() {
    let start = now();
    // SAFETY: (1) a loop of two instructions.
    unsafe { asm!("mov ecx, 1000", "2:", "dec ecx", "jnz 2b", out("ecx") _) };
    crate::say!("calibration: 2000 instructions take {} ticks", now() - start);
}
