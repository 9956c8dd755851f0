//! Sections in front of the core: the fast path of a kernel whose interrupts' entry starts them
//! over (`kernel::return_address`).

use zonal_core::types::CpuId;
use zonal_kernel::sections::fast::{FastPages, RunsSections};

use crate::kernel::{Example, Once};
use crate::{arch, kernel};

// SAFETY: (1) GS points to a `PerCpu` since `become_cpu`, before the first call, and nothing
// changes it; (2) every entry of an interrupt in `boot.s` asks `return_address`, which looks into
// the table of all rows, and so does the trap that runs a handler; a fault ends the kernel; (3)
// `mask` masks interrupts, and the image is one with sections; (4) `cpu` reads the number in that
// `PerCpu`.
unsafe impl RunsSections for Example {
    const OWN: i32 = arch::OWN;
}

static FAST: Once<FastPages<'static, Example>> = Once::new();

/// Puts sections in front of the allocator. On the first CPU, once, before the others start.
pub fn start() {
    let fast = FastPages::new(kernel::core());
    FAST.set(fast.expect("the policy leaves pages to lists"));
    tell();
}

/// The allocator.
#[inline(always)]
pub fn pages() -> &'static FastPages<'static, Example> {
    FAST.get()
}

/// Tells the running CPU what its sections work on. Before its first request, masked.
pub fn tell() {
    let cpu = CpuId(arch::this_cpu());
    // SAFETY: (1) the cell is that of the running CPU; (2) there is one `FAST`; (3) a CPU says by
    // `hotplug::starts` that it is up, with its first interrupts, `KernelPlatform::on_interrupt`
    // answers in the handler, and a CPU leaves or is lost when it runs nothing any more.
    let told = unsafe { pages().tell(cpu, arch::own_cell()) };
    told.expect("the CPU is known");
}
