//! The trait that a kernel implements, and what makes it the core's platform.

use zonal_core::platform::reclaimer::Reclaimer;
use zonal_core::platform::{FixedPolicy, Platform};
use zonal_core::sync::{LockWord, Masked, Wait};
use zonal_core::types::{CpuId, NodeId, ZoneId};

use crate::fence::{Fences, Signals};

/// A kernel, as the allocator needs it: its CPUs, its interrupts, a clock. Five functions have no
/// default; the others say what they do unless a kernel has something better.
pub trait Kernel: Sync {
    /// The policy, where it is fixed when compiled
    /// ([`Policy::fix`](zonal_core::policy::Policy::fix)).
    const POLICY: Option<FixedPolicy> = None;

    /// The running CPU: below the number of CPUs in the machine's description. May be out of date
    /// when it returns, if the caller can be moved. Asked by every call, also before
    /// [`hotplug::starts`](crate::hotplug::starts): a variable of each CPU must be set up by then.
    fn cpu(&self) -> u32;
    /// Masks interrupts on the running CPU, and with them everything that may call the allocator
    /// there, preemption too. Returns what [`unmask`](Self::unmask) restores; the calls nest.
    fn mask(&self) -> usize;
    /// Restores what [`mask`](Self::mask) returned.
    fn unmask(&self, was: usize);
    /// Sends another CPU the interrupt whose handler calls [`KernelPlatform::on_interrupt`]. Only
    /// asked for where sections run ([`has_sections`](Self::has_sections)): in another kernel its
    /// body is empty.
    fn interrupt(&self, cpu: u32);
    /// Nanoseconds of a clock that never goes back. It should go on while interrupts are masked. A
    /// kernel without a clock yet says 0.
    fn now_ns(&self) -> u64;
    /// Whether the kernel runs sections of its own ([`sections`](crate::sections)) in front of the
    /// core. The core then has no fast path of its own, and fences a CPU before it touches its pcp.
    /// Never changes. Unless implemented: `false`.
    fn has_sections(&self) -> bool {
        false
    }
    /// Called between two looks of a wait, with interrupts masked or not. Must not call the
    /// allocator. Unless implemented: the processor's hint for a loop that waits.
    fn relax(&self) {
        core::hint::spin_loop();
    }
    /// The node wants background reclaim. Must not call the allocator. Unless implemented: nothing,
    /// and requests reclaim by themselves, if there is a [`reclaimer`](Self::reclaimer).
    fn wake_reclaim(&self, _node: u16) {}
    /// A request that must not be refused (`__GFP_NOFAIL`) found nothing: lets others run for a
    /// moment. `false`: no one else could free memory, and the request is refused. Unless
    /// implemented: `false`.
    fn wait_for_memory(&self) -> bool {
        false
    }
    /// What frees memory that its users can do without, if anything. Unless implemented: nothing
    /// does, and a request for which there is no memory is refused.
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        None
    }
}

/// A kernel as the core's platform.
#[derive(Debug)]
pub struct KernelPlatform<'a, K> {
    kernel: K,
    fences: Fences<'a>,
}

impl<'a, K: Kernel> KernelPlatform<'a, K> {
    /// A kernel whose CPUs fence each other by `fences`: a cell for each CPU that may ever come.
    pub const fn new(kernel: K, fences: Fences<'a>) -> KernelPlatform<'a, K> {
        KernelPlatform { kernel, fences }
    }

    /// The kernel.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Which CPUs are up, and what they were asked.
    pub fn fences(&self) -> &Fences<'a> {
        &self.fences
    }

    /// The handler of the interrupt that [`Kernel::interrupt`] sends. With interrupts masked, after
    /// the entry has started an interrupted section over.
    pub fn on_interrupt(&self) {
        self.fences.answer(self.kernel.cpu());
    }

    /// A look at what others ask, from a place that waits, with interrupts masked or not.
    fn pause(&self) {
        self.pinned(|me| self.fences.answer(me));
        self.kernel.relax();
    }

    /// Runs `body` with the number of the CPU, which the caller does not leave meanwhile
    /// (KFENCE-1).
    fn pinned<R>(&self, body: impl FnOnce(u32) -> R) -> R {
        let _masked = Masked::new(self);
        body(self.kernel.cpu())
    }
}

impl<K: Kernel> Signals for KernelPlatform<'_, K> {
    fn interrupt(&self, cpu: u32) {
        self.kernel.interrupt(cpu);
    }
    fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }
    fn relax(&self) {
        self.kernel.relax();
    }
}

impl<K: Kernel> Wait for KernelPlatform<'_, K> {
    fn wait(&self, _word: &LockWord, _value: u32) {
        self.pause();
    }
    fn wake_one(&self, _word: &LockWord) {}
    #[inline(always)]
    fn mask(&self) -> usize {
        self.kernel.mask()
    }
    #[inline(always)]
    fn unmask(&self, was: usize) {
        self.kernel.unmask(was);
    }
}

impl<K: Kernel> Platform for KernelPlatform<'_, K> {
    const POLICY: Option<FixedPolicy> = K::POLICY;

    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(self.kernel.cpu())
    }
    fn fence(&self, cpu: CpuId) -> bool {
        self.pinned(|me| self.fences.fence(me, cpu.0, self).is_ok())
    }
    #[inline(always)]
    fn has_sequences(&self) -> bool {
        self.kernel.has_sections()
    }
    fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }
    fn relax(&self) {
        self.pause();
    }
    fn wake_reclaim(&self, node: NodeId, _zone: ZoneId, _order: u32) {
        self.kernel.wake_reclaim(node.0);
    }
    fn wait_for_memory(&self) -> bool {
        self.kernel.wait_for_memory()
    }
    fn reclaimer(&self) -> Option<&dyn Reclaimer> {
        self.kernel.reclaimer()
    }
}
