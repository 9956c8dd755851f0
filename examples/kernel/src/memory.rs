//! Memory that comes late or leaves: sections that workers bring online, and sections that go and
//! come back while programs run.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use zonal_core::gfp::Gfp;
use zonal_core::types::{NodeId, Order, Pfn};
use zonal_kernel::memory;

use crate::boot::Boot;
use crate::model::{self, get, put};
use crate::programs::{self, GROW};
use crate::{arch, kernel, say};

/// 32 MiB: what goes and comes back at once.
const SECTION: u64 = 1 << 13;
/// How often memory leaves and comes back beside the programs.
const TIMES: u32 = 20;

/// Sections that workers brought online.
static GROWN: AtomicU64 = AtomicU64::new(0);

/// A worker: brings all memory of its node online.
pub fn grow(node: NodeId) {
    while kernel::core().grow(node, |_| {}).expect("memory that nobody used") > 0 {
        GROWN.fetch_add(1, SeqCst);
    }
}

/// All memory comes online, by a worker on each node where the command line does not say another
/// number, while the first CPU allocates.
pub fn finish_growth(boot: &Boot, online: u64) {
    let core = kernel::core();
    let mut nodes = [false; crate::boot::MAX_NODES];
    let most = boot.command.number("workers", u64::MAX);
    let mut workers = 0;
    let start = arch::now();
    for cpu in kernel::running().skip(1) {
        let is_first = !core::mem::replace(&mut nodes[boot.node_of(cpu)], true);
        if is_first && workers < most {
            programs::tell(cpu, GROW);
            workers += 1;
        }
    }
    let mut calls = 0_u64;
    while !kernel::running().skip(1).all(programs::is_done) {
        for order in [0, 3, 9].map(|n| Order::new(n).expect("an order")) {
            let block = get(order, Gfp::KERNEL).expect("a block, while memory comes");
            put(block, order);
            calls += 2;
        }
    }
    let took = arch::now() - start;
    core.finish_growth().expect("memory that nobody used");
    say!(
        "growth: {} sections by {workers} workers in {took} ticks, beside {calls} calls; {} ticks \
         with what they left and the limits",
        GROWN.load(SeqCst),
        arch::now() - start
    );
    assert!(!core.is_growing(), "memory is missing");
    // Stacks of the CPUs.
    let stacks = 16 * (kernel::running().count() as u64 - 1);
    programs::check(online - stacks, "memory that came while requests were served");
}

/// The first word of each page of a section.
fn mark(pages: &Range<Pfn>, check: bool) {
    for pfn in (pages.start.0..pages.end.0).map(Pfn) {
        match check {
            false => model::write(pfn, !pfn.0),
            true => assert!(model::read(pfn) == !pfn.0, "{pfn:?} was written to, and had left"),
        }
    }
}

/// A section of a zone that can leave now, the highest first.
fn leave() -> Option<Range<Pfn>> {
    let core = kernel::core();
    core.zones().iter().rev().find_map(|zone| {
        let end = (zone.start_pfn().0 + zone.spanned()) / SECTION;
        let numbers = zone.start_pfn().0.div_ceil(SECTION)..end;
        let section = |number: u64| Pfn(number * SECTION)..Pfn((number + 1) * SECTION);
        let mut sections = numbers.rev().map(section);
        sections.find(|section| memory::remove(core, section.clone()).is_ok())
    })
}

/// A section leaves, is used by nobody, and comes back, while programs run on all CPUs.
pub fn run(before: u64, rounds: u64) {
    let core = kernel::core();
    let Some(gone) = leave() else {
        say!("no section of 32 MiB is free");
        return;
    };
    mark(&gone, false);
    programs::storm(4, rounds);
    programs::check(before - SECTION, "memory that left");
    mark(&gone, true);
    memory::add(core, gone).expect("it left");
    programs::check(before, "memory that came back");
    kernel::running().skip(1).for_each(|cpu| programs::tell(cpu, programs::RUN));
    let (mut left, mut refused) = (0, 0);
    programs::with_timer(|| {
        for _ in 0..TIMES {
            match leave() {
                Some(gone) => {
                    left += 1;
                    mark(&gone, false);
                    mark(&gone, true);
                    memory::add(core, gone).expect("it left");
                }
                None => refused += 1,
            }
        }
    });
    kernel::running().skip(1).for_each(programs::wait_for);
    programs::empty_mail();
    say!("memory: left and came back {left} times beside programs, {refused} times none was free");
    programs::check(before, "memory that goes and comes beside programs");
}

/// A DIMM comes while programs run on all CPUs, is used, leaves, and comes back.
#[cfg(target_arch = "x86_64")]
pub fn dimm(boot: &Boot, rounds: u64) {
    const PATIENCE: u64 = 60_000_000_000;
    let core = kernel::core();
    let before = programs::free_pages();
    programs::storm(4, rounds);
    programs::check(before, "programs before a DIMM");
    // Whoever has the machine's monitor reads this.
    say!("dimm: waiting");
    let start = arch::now();
    let bytes = loop {
        if let Some(bytes) = arch::new_dimm() {
            break bytes;
        }
        assert!(arch::now() - start < PATIENCE, "no DIMM came");
        let idle = kernel::running().skip(1).filter(|cpu| programs::is_done(*cpu));
        idle.for_each(|cpu| programs::tell(cpu, programs::RUN));
    };
    let pages = Pfn(bytes.start >> 12)..Pfn(bytes.end >> 12);
    let count = pages.end.0 - pages.start.0;
    memory::add(core, pages.clone()).expect("a zone has room for it");
    kernel::running().skip(1).for_each(programs::wait_for);
    programs::empty_mail();
    say!("dimm: {count} pages at {:#x}, beside {} of the boot", bytes.start, boot.online);
    programs::check(before + count, "a DIMM that came while programs ran");
    programs::storm(5, rounds);
    programs::check(before + count, "programs on a DIMM");
    // Every page of it is there, and can be had.
    let request = Gfp::KERNEL | Gfp::MEMALLOC;
    core.ranges().alloc_at(pages.clone(), request).expect("nobody has a page of it");
    mark(&pages, false);
    mark(&pages, true);
    core.ranges().free(pages.clone()).expect("they are ours");
    memory::remove(core, pages.clone()).expect("nobody has a page of it");
    programs::check(before, "a DIMM that left");
    memory::add(core, pages).expect("it left");
    programs::check(before + count, "a DIMM that came back");
}
