//! The kernel's side of `zonal-kernel`: the trait, the one allocator, `alloc` and `free`, what
//! handlers do.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use zonal_core::alloc::{AllocError, Allocator, FreeError};
#[cfg(not(by_sections))]
use zonal_core::alloc::{Request, hot};
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
pub struct Once<T>(UnsafeCell<Option<T>>, AtomicBool);

// SAFETY: (1) `set` is called once, before other CPUs run; afterwards there are only reads.
unsafe impl<T: Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Once<T> {
        Once(UnsafeCell::new(None), AtomicBool::new(false))
    }

    /// On the first CPU, once.
    pub fn set(&self, value: T) {
        assert!(!self.1.swap(true, SeqCst), "it is written once");
        // SAFETY: (1) nobody reads yet, and nobody else writes.
        unsafe { *self.0.get() = Some(value) };
    }

    #[inline(always)]
    pub fn get(&'static self) -> &'static T {
        // SAFETY: (1) written before anything asks, and never again.
        let value = unsafe { &*self.0.get() };
        debug_assert!(value.is_some(), "it was written");
        // SAFETY: (1) as above.
        unsafe { value.as_ref().unwrap_unchecked() }
    }
}

static CORE: Once<Core> = Once::new();

/// Hands over the allocator. On the first CPU, once.
pub fn set_core(core: Core) {
    CORE.set(core);
}

/// The allocator.
#[inline(always)]
pub fn core() -> &'static Core {
    CORE.get()
}

/// A block for the kernel.
#[inline]
pub fn alloc(order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
    match try_alloc(order, gfp) {
        Some(pfn) => Ok(pfn),
        None => alloc_missed(order, gfp),
    }
}

/// Takes a block back.
#[inline]
pub fn free(pfn: Pfn, order: Order) -> Result<(), FreeError> {
    match try_free(pfn, order) {
        Ok(()) => Ok(()),
        Err((pfn, order)) => free_missed(pfn, order),
    }
}

/// A page for the kernel itself, which cannot do without.
#[inline]
pub fn page() -> Pfn {
    match try_alloc(Order::ZERO, Gfp::KERNEL) {
        Some(pfn) => pfn,
        None => page_missed(),
    }
}

/// Takes it back.
#[inline]
pub fn free_page(pfn: Pfn) {
    if let Err((pfn, _)) = try_free(pfn, Order::ZERO) {
        free_page_missed(pfn);
    }
}

/// A block by the fast path alone.
#[inline(always)]
fn try_alloc(order: Order, gfp: Gfp) -> Option<Pfn> {
    #[cfg(by_sections)]
    return crate::fast::pages().alloc(order, gfp);
    #[cfg(not(by_sections))]
    hot::alloc(core(), Request::new(order).gfp(gfp))
}

#[inline(always)]
fn try_free(pfn: Pfn, order: Order) -> Result<(), (Pfn, Order)> {
    #[cfg(by_sections)]
    return crate::fast::pages().free(pfn, order);
    #[cfg(not(by_sections))]
    hot::free(core(), pfn, order)
}

#[cold]
#[inline(never)]
fn alloc_missed(order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
    #[cfg(by_sections)]
    return crate::fast::pages().alloc_missed(order, gfp);
    #[cfg(not(by_sections))]
    hot::alloc_missed(core(), Request::new(order).gfp(gfp))
}

#[cold]
#[inline(never)]
fn free_missed(pfn: Pfn, order: Order) -> Result<(), FreeError> {
    #[cfg(by_sections)]
    return crate::fast::pages().free_missed(pfn, order);
    #[cfg(not(by_sections))]
    hot::free_missed(core(), pfn, order)
}

#[cold]
#[inline(never)]
fn page_missed() -> Pfn {
    alloc_missed(Order::ZERO, Gfp::KERNEL).expect("a page")
}

#[cold]
#[inline(never)]
fn free_page_missed(pfn: Pfn) {
    free_missed(pfn, Order::ZERO).expect("its page");
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
