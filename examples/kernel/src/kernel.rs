//! The kernel's side of `zonal-kernel`: the trait, the one allocator, `alloc` and `free`, what
//! handlers do.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use zonal_core::alloc::{AllocError, Allocator, FreeError, Request};
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};
use zonal_kernel::fence::{FenceCell, Fences, Patience};
use zonal_kernel::sections::{self, Section};
use zonal_kernel::{Kernel, KernelPlatform};

use crate::boot::MAX_CPUS;
use crate::{arch, programs, threads};

/// This kernel.
#[derive(Debug)]
pub struct Example;

impl Kernel for Example {
    #[inline(always)]
    fn cpu(&self) -> u32 {
        arch::this_cpu()
    }
    #[inline(always)]
    fn mask(&self) -> usize {
        arch::mask()
    }
    #[inline(always)]
    fn unmask(&self, was: usize) {
        arch::unmask(was);
    }
    fn interrupt(&self, cpu: u32) {
        count(&FENCES_SENT);
        arch::interrupt(cpu);
    }
    fn now_ns(&self) -> u64 {
        arch::now()
    }
    #[inline(always)]
    fn has_sections(&self) -> bool {
        cfg!(feature = "sections")
    }
}

/// The allocator.
pub type Core = Allocator<'static, KernelPlatform<'static, Example>>;

static CELLS: [FenceCell; MAX_CPUS] = [const { FenceCell::new() }; MAX_CPUS];

/// Emulated CPUs stand still for long while others have the host's.
const PATIENCE: Patience = Patience { ns: 60_000_000_000, looks: u64::MAX };

/// The kernel as the core's platform.
pub fn platform() -> KernelPlatform<'static, Example> {
    KernelPlatform::new(Example, Fences::new(&CELLS, PATIENCE))
}

/// The same cells, with less patience.
pub fn fences(patience: Patience) -> Fences<'static> {
    Fences::new(&CELLS, patience)
}

/// A value that is written once, by the first CPU, before the others start.
struct Once<T>(UnsafeCell<Option<T>>, AtomicBool);

// SAFETY: (1) `set` is called once, before other CPUs run; afterwards there are only reads.
unsafe impl<T: Sync> Sync for Once<T> {}

static CORE: Once<Core> = Once(UnsafeCell::new(None), AtomicBool::new(false));

/// Hands over the allocator. On the first CPU, once.
pub fn set_core(core: Core) {
    assert!(!CORE.1.swap(true, SeqCst), "the allocator is made once");
    // SAFETY: (1) nobody reads yet, and nobody else writes.
    unsafe { *CORE.0.get() = Some(core) };
}

/// The allocator.
#[inline(always)]
pub fn core() -> &'static Core {
    // SAFETY: (1) written before anything asks, and never again.
    let core = unsafe { &*CORE.0.get() };
    core.as_ref().expect("the allocator was made")
}

/// A block for the kernel.
pub fn alloc(order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
    core().alloc(Request::new(order).gfp(gfp))
}

/// Takes a block back.
pub fn free(pfn: Pfn, order: Order) -> Result<(), FreeError> {
    core().free(pfn, order)
}

/// What interrupts did.
pub static FENCES_SENT: AtomicU64 = AtomicU64::new(0);
pub static FENCES_SEEN: AtomicU64 = AtomicU64::new(0);
pub static STARTED_OVER: AtomicU64 = AtomicU64::new(0);
pub static TIMER: AtomicU64 = AtomicU64::new(0);
pub static NESTED: AtomicU64 = AtomicU64::new(0);
#[cfg(target_arch = "x86_64")]
pub static STEPPED: AtomicU64 = AtomicU64::new(0);
static ARRIVED: AtomicU64 = AtomicU64::new(1);

pub fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, SeqCst)
}

/// A CPU runs.
pub fn arrived(cpu: u32) {
    ARRIVED.fetch_or(1 << cpu, SeqCst);
}

/// A CPU was told to stop.
pub fn gone(cpu: u32) {
    ARRIVED.fetch_and(!(1 << cpu), SeqCst);
}

pub fn has_arrived(cpu: u32) -> bool {
    ARRIVED.load(SeqCst) & 1 << cpu != 0
}

/// CPUs that run.
pub fn running() -> impl Iterator<Item = u32> + Clone {
    (0..MAX_CPUS as u32).filter(|cpu| has_arrived(*cpu))
}

/// The interrupt that answers fences, and wakes CPUs that are told what to do.
pub fn on_fence() {
    // `on_interrupt`, which does not say whether there was anything to answer.
    if core().platform().fences().answer(arch::this_cpu()) {
        count(&FENCES_SEEN);
    }
}

/// How deep handlers of each CPU are in each other.
static DEPTH: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// The timer: allocates, lets itself be interrupted now and then, and switches threads.
pub fn on_timer() {
    let n = count(&TIMER);
    let depth = &DEPTH[arch::this_cpu() as usize];
    if depth.fetch_add(1, SeqCst) > 0 {
        count(&NESTED);
    }
    programs::in_interrupt(n);
    if n.is_multiple_of(5) && depth.load(SeqCst) == 1 {
        // Interrupts may come here, inside of a handler.
        arch::unmask_all();
        programs::in_interrupt(n + 1);
        arch::mask();
        programs::in_interrupt(n + 2);
    }
    let nested = depth.fetch_sub(1, SeqCst) > 1;
    if !nested {
        threads::switch();
    }
}

/// Where an interrupt returns to.
#[unsafe(no_mangle)]
pub extern "C" fn return_address(at: usize) -> usize {
    let to = sections::restart(table(), at);
    if to != at {
        count(&STARTED_OVER);
    }
    to
}

/// The table of sections that assembly wrote.
pub fn table() -> &'static [Section] {
    unsafe extern "C" {
        static sections_start: Section;
        static sections_end: Section;
    }
    let (start, end) = (&raw const sections_start, &raw const sections_end);
    let count = (end.addr() - start.addr()) / size_of::<Section>();
    // SAFETY: (1) the linker script puts whole records between the two, aligned.
    unsafe { core::slice::from_raw_parts(start, count) }
}
