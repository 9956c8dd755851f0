//! Threads that are moved to another CPU wherever interrupts are not masked, and fences without
//! CPUs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use zonal_core::platform::Platform;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::CpuId;
use zonal_kernel::fence::{FenceCell, FenceError, Fences, Patience, Signals};
use zonal_kernel::{Kernel, KernelPlatform};

/// One thread on two CPUs. As soon as interrupts are not masked it loses its CPU, where a section
/// begins and another CPU asks for an answer.
struct Moves<'a> {
    fences: Fences<'a>,
    on: AtomicU32,
    masks: AtomicU32,
    /// A number was read.
    reads: AtomicBool,
}

impl<'a> Moves<'a> {
    fn platform(cells: &'a [FenceCell]) -> KernelPlatform<'a, Moves<'a>> {
        let fences = Fences::new(cells, Patience { ns: u64::MAX, looks: 3 });
        (0..2).for_each(|cpu| fences.up(cpu).unwrap());
        let (on, masks, reads) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        KernelPlatform::new(Moves { fences, on, masks, reads }, fences)
    }

    /// The thread is moved, if it can be and knows a number.
    fn switch(&self) {
        if self.masks.load(SeqCst) == 0 && self.reads.swap(false, SeqCst) {
            let left = self.on.fetch_xor(1, SeqCst);
            ask(self.fences, left);
        }
    }
}

/// Another CPU asks for an answer and has no patience.
fn ask(fences: Fences<'_>, cpu: u32) {
    assert_eq!(fences.fence(9, cpu, &Nobody), Err(FenceError::Silent(cpu)));
}

struct Nobody;

impl Signals for Nobody {
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn relax(&self) {}
}

impl Kernel for Moves<'_> {
    fn cpu(&self) -> u32 {
        let cpu = self.on.load(SeqCst);
        self.reads.store(true, SeqCst);
        self.switch();
        cpu
    }
    fn mask(&self) -> usize {
        self.masks.fetch_add(1, SeqCst) as usize
    }
    fn unmask(&self, was: usize) {
        self.masks.store(was as u32, SeqCst);
        self.switch();
    }
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn has_sections(&self) -> bool {
        true
    }
}

#[test]
fn a_thread_that_waits_does_not_answer_for_a_cpu_that_it_has_left() {
    let waits: [fn(&KernelPlatform<'_, Moves<'_>>); 3] = [
        |platform| Platform::relax(platform),
        |platform| platform.wait(&LockWord::default(), 0),
        // Waits for the other CPU, and answers meanwhile.
        |platform| assert!(!platform.fence(CpuId(1))),
    ];
    for (at, wait) in waits.iter().enumerate() {
        let cells: [FenceCell; 2] = Default::default();
        let platform = Moves::platform(&cells);
        let fences = platform.fences();
        ask(*fences, 0);
        wait(&platform);
        assert_eq!(platform.kernel().on.load(SeqCst), 1, "{at}: moved when nothing is masked");
        assert!(fences.is_silent(0), "{at}: the request that came behind the move is open");
        assert!(fences.answer(0), "{at}");
        assert_eq!(platform.kernel().masks.load(SeqCst), 0, "{at}: a mask was not undone");
    }
}

#[test]
fn a_thread_that_waits_answers_what_its_cpu_was_asked() {
    let cells: [FenceCell; 2] = Default::default();
    let platform = Moves::platform(&cells);
    let was = platform.mask();
    ask(*platform.fences(), 0);
    Platform::relax(&platform);
    assert!(!platform.fences().is_silent(0));
    platform.unmask(was);
}

#[test]
fn fences_without_cpus_or_patience_say_so() {
    let none = Fences::new(&[], Patience::DEFAULT);
    let no_cpu = Err(FenceError::NoSuchCpu(0, 0));
    assert_eq!((none.up(0), none.down(0), none.fence(0, 0, &Nobody)), (no_cpu, no_cpu, no_cpu));
    assert!(none.cpus() == 0 && !none.is_up(0) && !none.is_silent(0) && !none.answer(0));
    let cells = [FenceCell::new(), FenceCell::new()];
    let hasty = Fences::new(&cells, Patience { ns: 0, looks: 0 });
    assert_eq!(hasty.fence(0, 1, &Nobody), Ok(()));
    hasty.up(1).unwrap();
    assert_eq!(hasty.fence(u32::MAX, 1, &Nobody), Err(FenceError::Silent(1)));
    assert!(!hasty.answer(u32::MAX));
}
