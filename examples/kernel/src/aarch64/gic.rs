//! The interrupt controller: versions 2 and 3 of Arm's GIC.
//!
//! | | version 2 | version 3 |
//! |--|--|--|
//! | one for all processors | distributor | distributor |
//! | one for each | registers that each sees as its own | a redistributor, found by affinity |
//! | taken and ended by | registers in memory | system registers |

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The interrupt that answers fences.
pub const FENCE: u32 = 0;
/// The virtual timer.
pub const TIMER: u32 = 27;

const ENABLED: u32 = 1 << FENCE | 1 << TIMER;
/// Bytes of a redistributor, and where its registers of a processor's own interrupts begin.
const FRAME: u64 = 0x2_0000;
const OWN: u64 = 0x1_0000;

static DISTRIBUTOR: AtomicU64 = AtomicU64::new(0);
/// Version 2: the registers of the running processor.
static CPU_SIDE: AtomicU64 = AtomicU64::new(0);
/// Version 3: the first redistributor.
static REDISTRIBUTORS: AtomicU64 = AtomicU64::new(0);

/// A controller as the device tree names it.
pub enum Gic {
    V2 { distributor: u64, cpu_side: u64 },
    V3 { distributor: u64, redistributors: u64 },
}

fn write(at: u64, value: u32) {
    // SAFETY: (1) registers of the controller, mapped as a device.
    unsafe { (at as *mut u32).write_volatile(value) }
}

fn read(at: u64) -> u32 {
    // SAFETY: (1) as above.
    unsafe { (at as *const u32).read_volatile() }
}

fn is_v3() -> bool {
    REDISTRIBUTORS.load(SeqCst) != 0
}

/// The first processor names the controller and turns the distributor on.
pub fn found(gic: &Gic) {
    match *gic {
        Gic::V2 { distributor, cpu_side } => {
            DISTRIBUTOR.store(distributor, SeqCst);
            CPU_SIDE.store(cpu_side, SeqCst);
            write(distributor, 1);
        }
        Gic::V3 { distributor, redistributors } => {
            DISTRIBUTOR.store(distributor, SeqCst);
            REDISTRIBUTORS.store(redistributors, SeqCst);
            // Affinity routing, and interrupts of group 1.
            write(distributor, 1 << 4 | 1 << 1);
        }
    }
}

/// Each processor turns its own side on.
pub fn start(affinity: u64) {
    if !is_v3() {
        let cpu_side = CPU_SIDE.load(SeqCst);
        write(DISTRIBUTOR.load(SeqCst) + 0x100, ENABLED);
        write(cpu_side + 4, 0xff);
        write(cpu_side, 1);
        return;
    }
    let Some(mine) = redistributor(affinity) else {
        crate::say!("no redistributor has affinity {affinity:#x}");
        super::exit(2)
    };
    // It wakes up: "asleep" of what hangs below it goes away.
    write(mine + 0x14, read(mine + 0x14) & !2);
    while read(mine + 0x14) & 4 != 0 {
        core::hint::spin_loop();
    }
    write(mine + OWN + 0x80, u32::MAX);
    write(mine + OWN + 0x100, ENABLED);
    // SAFETY: (1) system registers of the controller: all priorities, group 1 on.
    unsafe {
        asm!("msr icc_sre_el1, {0}", "isb", "msr icc_pmr_el1, {1}", "msr icc_igrpen1_el1, {0}",
            "isb", in(reg) 1_u64, in(reg) 0xff_u64);
    }
}

/// The redistributor of the processor with this affinity.
fn redistributor(affinity: u64) -> Option<u64> {
    let packed = affinity as u32 & 0xff_ffff | (affinity >> 8) as u32 & 0xff00_0000;
    let mut at = REDISTRIBUTORS.load(SeqCst);
    loop {
        if read(at + 12) == packed {
            return Some(at);
        }
        let is_last = read(at + 8) & 1 << 4 != 0;
        if is_last {
            return None;
        }
        at += FRAME;
    }
}

/// Sends a processor the interrupt that answers fences.
pub fn send(affinity: u64) {
    if !is_v3() {
        write(DISTRIBUTOR.load(SeqCst) + 0xf00, 1 << (16 + (affinity & 7)) | FENCE);
        return;
    }
    let to = (affinity >> 8 & 0xff) << 16 | 1 << (affinity & 15) | u64::from(FENCE) << 24;
    // SAFETY: (1) sends an interrupt.
    unsafe { asm!("dsb ishst", "msr icc_sgi1r_el1, {}", "isb", in(reg) to) };
}

/// Takes the interrupt that waits: what `end` takes back. Its low ten bits say which it is.
pub fn take() -> u32 {
    if !is_v3() {
        return read(CPU_SIDE.load(SeqCst) + 0xc);
    }
    let taken: u64;
    // SAFETY: (1) takes an interrupt.
    unsafe { asm!("mrs {}, icc_iar1_el1", "dsb sy", out(reg) taken) };
    taken as u32
}

/// The next interrupt may come.
pub fn end(taken: u32) {
    if !is_v3() {
        write(CPU_SIDE.load(SeqCst) + 0x10, taken);
        return;
    }
    // SAFETY: (1) ends the interrupt that was taken.
    unsafe { asm!("msr icc_eoir1_el1, {}", "isb", in(reg) u64::from(taken)) };
}
