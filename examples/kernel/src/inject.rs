//! Interrupts at chosen instructions of calls: whatever instruction an interrupt comes at, nothing
//! is lost, and no page has two owners.
//!
//! Each call is run again and again, with an interrupt in front of its first instruction, of its
//! second, and so on to its last. The handler does one of [`Kind`]. Where interrupts are masked
//! none can come, and none does.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use zonal_core::alloc::range::RangeRequest;
use zonal_core::gfp::Gfp;
use zonal_core::types::Order;

use crate::arch::step::{Stepped, interrupted_at};
use crate::model::{get, put};
use crate::{arch, kernel, programs, say, threads};

/// What an interrupt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    /// Takes blocks, and gives some back.
    Allocates,
    /// The same, and another interrupt comes while it does.
    Nests,
    /// Takes what pages are left, until it is refused, and gives them back.
    Exhausts,
    /// Lets the other thread run, which takes and frees blocks, and runs a section.
    Switches,
}

const KINDS: [Kind; 4] = [Kind::Allocates, Kind::Nests, Kind::Exhausts, Kind::Switches];

/// The number of the kind in force.
static KIND: AtomicU64 = AtomicU64::new(0);
/// Ends the other thread.
static ENDS: AtomicBool = AtomicBool::new(false);
/// What sections added.
static ADDED: AtomicU64 = AtomicU64::new(0);
static ADDED_ELSEWHERE: AtomicU64 = AtomicU64::new(0);
/// Pages that handlers took until they were refused.
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn order(n: u32) -> Order {
    Order::new(n).expect("an order")
}

/// What the processor runs in front of the chosen instruction, with interrupts masked.
pub fn handle() {
    match KINDS[KIND.load(SeqCst) as usize] {
        Kind::Allocates => programs::in_interrupt(3),
        Kind::Nests => {
            arch::unmask_all();
            arch::interrupt_self();
            programs::in_interrupt(3);
            arch::interrupt_self();
            arch::mask();
        }
        Kind::Exhausts => {
            let (head, count) = programs::take_all(order(0), Gfp::ATOMIC);
            programs::give_all(head, order(0));
            TAKEN.fetch_add(count, SeqCst);
        }
        Kind::Switches => threads::switch(),
    }
    add_elsewhere();
}

fn add_elsewhere() {
    arch::add_one(&ADDED);
    kernel::count(&ADDED_ELSEWHERE);
}

/// The other thread: takes its turn when an interrupt lets it.
extern "C" fn other() -> ! {
    while !ENDS.load(SeqCst) {
        let block = get(order(0), Gfp::KERNEL);
        let more = get(order(3), Gfp::KERNEL);
        add_elsewhere();
        threads::switch();
        if let Some(pfn) = more {
            put(pfn, order(3));
        }
        if let Some(pfn) = block {
            put(pfn, order(0));
        }
    }
    threads::end()
}

/// A call that is interrupted at each instruction.
struct Call {
    /// How far apart the instructions are that are tried, and which is the last.
    stride: usize,
    most: u64,
    body: fn(),
    /// It adds one to `ADDED`.
    is_section: bool,
}

fn pair(size: Order) {
    if let Some(pfn) = get(size, Gfp::KERNEL) {
        put(pfn, size);
    }
}

fn range_of_three() {
    let ranges = kernel::core().ranges();
    if let Ok(pfn) = ranges.alloc(RangeRequest::new(3)) {
        ranges.free(pfn..zonal_core::types::Pfn(pfn.0 + 3)).expect("its pages");
    }
}

/// A page, 8 pages, 4 MiB, a range, a page behind a drain, a section.
const CALLS: [Call; 6] = [
    Call { stride: 1, most: 2_000, is_section: false, body: || pair(order(0)) },
    Call { stride: 1, most: 2_000, is_section: false, body: || pair(order(3)) },
    Call { stride: 3, most: 3_000, is_section: false, body: range_of_three },
    Call { stride: 17, most: 10_000, is_section: false, body: || pair(order(10)) },
    Call {
        stride: 97,
        most: 20_000,
        is_section: false,
        body: || {
            kernel::core().drain_all();
            pair(order(0));
        },
    },
    Call { stride: 1, most: 200, is_section: true, body: || arch::add_one(&ADDED) },
];

/// Every call, interrupted everywhere, by every kind.
pub fn run(before: u64) {
    let stack = get(order(4), Gfp::KERNEL).expect("a stack of 64 KiB");
    let top = ((stack.0 << 12) + (16 << 12)) as usize;
    for kind in KINDS {
        KIND.store(kind as u64, SeqCst);
        match kind {
            Kind::Exhausts => {
                // What is left is what calls and handlers fight for.
                let (head, _) = programs::take_all(order(10), Gfp::KERNEL);
                interrupt_all(kind);
                programs::give_all(head, order(10));
            }
            Kind::Switches => {
                ENDS.store(false, SeqCst);
                threads::start(top, other);
                interrupt_all(kind);
                end_other();
            }
            _ => interrupt_all(kind),
        }
    }
    put(stack, order(4));
    programs::check(before, "interrupts at every instruction");
}

fn end_other() {
    ENDS.store(true, SeqCst);
    let was = arch::mask();
    while threads::is_running() {
        threads::switch();
    }
    arch::unmask(was);
}

fn interrupt_all(kind: Kind) {
    let counts = || [&ADDED, &ADDED_ELSEWHERE, &TAKEN].map(|count| count.load(SeqCst));
    let start = counts();
    let (mut handled, mut masked, mut sections) = (0, 0, 0);
    for call in &CALLS {
        // All that is left is taken each time.
        let wider = if kind == Kind::Exhausts { 7 } else { 1 };
        for n in (0..call.most).step_by(call.stride * wider) {
            sections += u64::from(call.is_section);
            match interrupted_at(n, call.body) {
                Stepped::Handled => handled += 1,
                Stepped::Masked => masked += 1,
                Stepped::Behind => break,
            }
        }
    }
    programs::empty_mail();
    let end = counts();
    let [added, elsewhere, taken] = [0, 1, 2].map(|n| end[n] - start[n]);
    assert!(added == sections + elsewhere, "{added} added, {sections} and {elsewhere} sections");
    assert!(handled > 0, "no interrupt came");
    say!(
        "interrupts {kind:?}: {handled} came, {masked} could not; {elsewhere} sections in \
         handlers, {taken} pages until none was left"
    );
}
