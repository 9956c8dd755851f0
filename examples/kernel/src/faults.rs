//! What goes wrong on purpose: each fault has a defined result, and nothing else is lost.

use core::sync::atomic::Ordering::SeqCst;

use zonal_core::alloc::Raw;
use zonal_core::gfp::Gfp;
use zonal_core::types::{CpuId, Order, Pfn};
use zonal_kernel::fence::{FenceError, Patience};
use zonal_kernel::hotplug;

use crate::boot::Boot;
use crate::model::{get, put};
use crate::programs::{self, BE_SILENT, DRAIN_MASKED, SPEAK};
use crate::{arch, kernel, say};

/// All of them, the last ones those that leave something behind.
pub fn run(boot: &mut Boot) {
    let before = programs::free_pages();
    refused_frees(before);
    spoiled_while_held(boot, before);
    #[cfg(target_arch = "x86_64")]
    crate::inject::run(before);
    out_of_memory_in_handlers(before);
    if kernel::running().count() > 1 {
        all_fence_each_other(before);
        silent(before);
    }
    let before = late_memory(boot, before);
    let before = match kernel::running().count() {
        1 => before,
        _ => crashed(before),
    };
    let before = spoiled_while_cached(boot, before);
    spoiled_while_free(boot, before);
}

fn page() -> Pfn {
    get(Order::ZERO, Gfp::KERNEL).expect("a page")
}

/// Frees of what is not handed out, in every form that a confused driver may try.
fn refused_frees(before: u64) {
    let core = kernel::core();
    let three = Order::new(3).expect("an order");
    let held = page();
    let block = get(three, Gfp::KERNEL).expect("8 pages");
    assert!(kernel::free(held, three).is_err(), "a page as a block");
    assert!(kernel::free(block, Order::ZERO).is_err(), "the first page of a block");
    assert!(kernel::free(Pfn(block.0 + 1), three).is_err(), "the middle of a block");
    put(held, Order::ZERO);
    assert!(kernel::free(held, Order::ZERO).is_err(), "a page twice");
    put(block, three);
    assert!(kernel::free(block, three).is_err(), "a block twice");
    for pfn in [0, 1 << 51, u64::MAX, core.zones()[0].start_pfn().0.wrapping_sub(1)] {
        assert!(kernel::free(Pfn(pfn), Order::ZERO).is_err(), "no page of a zone: {pfn:#x}");
    }
    programs::check(before, "frees that are wrong are refused");
}

/// The word of a page.
fn word(boot: &Boot, pfn: Pfn) -> &'static zonal_core::sync::AtomicU64 {
    let mut base = 0;
    for zone in boot.machine.zones {
        let at = pfn.0.wrapping_sub(zone.start_pfn);
        if at < zone.spanned {
            // SAFETY: (1), (2) not kept, on purpose: a word that is wrong for a while is what is
            // tried. The kernel uses no page that it got meanwhile.
            let raw = unsafe { Raw::new(kernel::core()) };
            return &raw.words()[(base + at) as usize];
        }
        base += zone.spanned;
    }
    panic!("{pfn:?} is in no zone")
}

/// Somebody writes over the word of a page that is handed out: its free is refused, and works once
/// the word is right again.
fn spoiled_while_held(boot: &Boot, before: u64) {
    let held = page();
    let word = word(boot, held);
    let right = word.load(SeqCst);
    let mut accepted = 0;
    for bit in 0..64 {
        word.store(right ^ 1 << bit, SeqCst);
        if kernel::free(held, Order::ZERO).is_ok() {
            // A word that is right by itself, such as "handed out from the list of another CPU".
            accepted += 1;
            let other = kernel::alloc(Order::ZERO, Gfp::KERNEL);
            assert!(other == Ok(held), "the page that was freed last comes first: {other:?}");
        }
        word.store(right, SeqCst);
    }
    put(held, Order::ZERO);
    say!("spoiled words of a held page: {} of 64 refused", 64 - accepted);
    programs::check(before, "a spoiled word of a held page");
}

/// Handlers take pages until they are refused, on all CPUs at once, while programs take blocks too.
fn out_of_memory_in_handlers(before: u64) {
    // What is left: reserves, and little more.
    let sizes = [Order::MAX, Order::ZERO];
    let heads = sizes.map(|size| programs::take_all(size, Gfp::KERNEL).0);
    let (was, start) = (arch::mask(), arch::now());
    let refused = kernel::alloc(Order::MAX, Gfp::KERNEL).is_err();
    let took = arch::now() - start;
    arch::unmask(was);
    assert!(refused, "4 MiB came after the last 4 MiB");
    say!("a request for 4 MiB was refused after {took} ticks");
    let mut counts = (0, 0);
    // Longer each time: on a fast host a short one ends before the first interrupt.
    for seed in 5..100 {
        counts = programs::hoard(seed, 400 * (seed - 4));
        if counts.0 > 0 {
            break;
        }
    }
    let (refused, taken) = counts;
    heads.iter().zip(sizes).for_each(|(head, size)| programs::give_all(*head, size));
    assert!(refused > 0, "no handler was refused");
    say!("handlers were refused {refused} times, and took {taken} pages");
    programs::check(before, "handlers that find no memory");
}

/// All CPUs drain all lists at once, with interrupts masked.
fn all_fence_each_other(before: u64) {
    let others = || kernel::running().skip(1);
    let (sent, seen) = (kernel::FENCES_SENT.load(SeqCst), kernel::FENCES_SEEN.load(SeqCst));
    others().for_each(|cpu| programs::tell(cpu, DRAIN_MASKED));
    programs::drain_masked(programs::FENCING);
    // And fences alone, which are what could wait for each other.
    let was = arch::mask();
    let fences = kernel::core().platform().fences();
    for cpu in others().cycle().take(20) {
        fences.fence(0, cpu, kernel::core().platform()).expect("everybody answers");
    }
    arch::unmask(was);
    others().for_each(programs::wait_for);
    let (sent, seen) =
        (kernel::FENCES_SENT.load(SeqCst) - sent, kernel::FENCES_SEEN.load(SeqCst) - seen);
    say!("fences: {sent} sent, {seen} answered by interrupt, the others by looking or at once");
    programs::check(before, "all CPUs fence each other, masked");
}

/// The last CPU says nothing for a while: the wait ends, its lists stay, requests go on.
fn silent(before: u64) {
    let core = kernel::core();
    let cpu = kernel::running().last().expect("a CPU");
    programs::tell(cpu, BE_SILENT);
    while SPEAK.load(SeqCst) != 1 {
        core::hint::spin_loop();
    }
    let patience = Patience { ns: 50_000_000, looks: u64::MAX };
    let fences = kernel::fences(patience);
    let start = arch::now();
    let error = fences.fence(0, cpu, core.platform());
    assert!(error == Err(FenceError::Silent(cpu)), "{error:?}");
    let waited = arch::now() - start;
    assert!(waited < 100 * patience.ns, "the wait took {waited} ticks");
    let start = arch::now();
    core.drain_all();
    let again = arch::now() - start;
    assert!(fences.is_silent(cpu) && again < patience.ns, "{again} ticks for a CPU known silent");
    put(page(), Order::ZERO);
    assert!(core.free_pages() == before, "pages of the silent CPU are counted");
    // The others go on for as long as it says nothing, also where memory runs out.
    kernel::gone(cpu);
    programs::storm(6, 2_000);
    let (head, count) = programs::take_all(Order::MAX, Gfp::KERNEL);
    programs::give_all(head, Order::MAX);
    assert!(count > 0 && programs::free_pages() == before, "pages are lost beside a silent CPU");
    kernel::arrived(cpu);
    SPEAK.store(2, SeqCst);
    programs::wait_for(cpu);
    SPEAK.store(0, SeqCst);
    assert!(
        kernel::core().platform().fences().fence(0, cpu, core.platform()).is_ok()
            || !fences.is_silent(cpu)
    );
    say!("silent CPU: given up after {waited} ticks, afterwards {again}");
    programs::check(before, "a CPU that does not answer");
}

/// Memory that was reserved comes back: the second quarter of the first MiB, on a PC; what this
/// machine keeps reserved, elsewhere.
fn late_memory(boot: &mut Boot, before: u64) -> u64 {
    let core = kernel::core();
    let Some(range) = arch::late_memory() else { return before };
    let back = boot.early.release_to(core, range.clone()).expect("it is reserved");
    core.setup();
    assert!(boot.early.release_to(core, range).is_err(), "twice");
    let before = before + back.online;
    say!("late memory: {} pages", back.online);
    programs::check(before, "memory that comes back late");
    before
}

/// The last CPU is lost with pages on its lists: they come back, and nobody waits for it.
fn crashed(before: u64) -> u64 {
    let core = kernel::core();
    let cpu = kernel::running().last().expect("a CPU");
    programs::tell(cpu, programs::RUN);
    programs::wait_for(cpu);
    programs::empty_mail();
    programs::tell(cpu, BE_SILENT);
    while SPEAK.load(SeqCst) != 1 {
        core::hint::spin_loop();
    }
    let held: u32 = core.zones().iter().map(|zone| core.pcp(zone.id(), CpuId(cpu)).count()).sum();
    hotplug::lost(core, cpu).expect("the CPU is known");
    kernel::gone(cpu);
    say!("lost CPU: {held} pages were on its lists");
    programs::check(before, "a CPU that is lost");
    programs::storm(7, 2_000);
    programs::check(before, "programs without a CPU that was lost");
    before
}

/// Somebody writes over the word of a page that lies on a list: the page is not handed out any
/// more, the check of everything says so, and nothing else is lost.
fn spoiled_while_cached(boot: &Boot, before: u64) -> u64 {
    let held = page();
    put(held, Order::ZERO);
    word(boot, held).fetch_xor(1 << 40, SeqCst);
    let other = page();
    assert!(other != held, "a page whose word is wrong was handed out");
    put(other, Order::ZERO);
    let fault = kernel::core().validate();
    assert!(fault.is_err(), "the check of everything finds nothing");
    if let Err(fault) = fault {
        say!("spoiled word of a cached page: {fault}");
    }
    word(boot, held).fetch_xor(1 << 40, SeqCst);
    let after = programs::free_pages();
    assert!(after + 1 >= before, "{before} pages before, {after} after");
    say!(
        "passed: a spoiled word of a cached page: {} of {before} pages are out of use",
        before - after
    );
    after
}

/// Somebody writes over the word of a free block: the list that it is on is given up. Its pages are
/// out of use, which the check of everything says; no page has two owners, and requests go on.
fn spoiled_while_free(boot: &Boot, before: u64) {
    let core = kernel::core();
    let block = get(Order::MAX, Gfp::KERNEL).expect("4 MiB");
    put(block, Order::MAX);
    core.drain_all();
    let bit = boot.command.number("bit", 1);
    word(boot, block).fetch_xor(1 << bit, SeqCst);
    let fault = core.validate().expect_err("the check of everything finds nothing");
    say!("spoiled word of a free block, bit {bit}: {fault}");
    // All that is left, in all sizes: the model finds a page that comes twice.
    let sizes = || Order::all().rev();
    let mut heads = [0; 11];
    let mut found = 0;
    for size in sizes() {
        let (head, count) = programs::take_all(size, Gfp::KERNEL);
        heads[size.get() as usize] = head;
        found += count << size.get();
    }
    sizes().for_each(|size| programs::give_all(heads[size.get() as usize], size));
    programs::storm(8, 2_000);
    put(page(), Order::ZERO);
    say!("passed: a spoiled word of a free block: {found} of {before} pages were there to take");
}
