//! Random programs on all CPUs, against the model, while timers interrupt them and allocate.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{CpuId, Order, Pfn};
use zonal_kernel::hotplug;

use crate::boot::{Command, MAX_CPUS};
use crate::model::{get, put};
use crate::{arch, boot, kernel, memory, model, say, threads};

/// Blocks on their way from one CPU to another: pfn << 8 | order. Behind them one for each CPU's
/// handler.
const LETTERS: usize = 32;
static MAIL: [AtomicU64; LETTERS + MAX_CPUS] = [const { AtomicU64::new(0) }; LETTERS + MAX_CPUS];
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// What a CPU is to do: 0 nothing; below, orders of the first CPU.
static ORDERS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
pub const RUN: u64 = 1;
pub const LEAVE: u64 = 2;
pub const BE_SILENT: u64 = 3;
pub const DRAIN_MASKED: u64 = 4;
pub const GROW: u64 = 5;
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static PERIOD: AtomicU64 = AtomicU64::new(0);
/// How often CPUs drain all lists masked: each time they fence each other, and emulated CPUs wait
/// for the host to come to them.
pub const FENCING: u64 = 8;
/// Ends a silence.
pub static SPEAK: AtomicU64 = AtomicU64::new(0);

/// Tells a CPU what to do, and wakes it.
pub fn tell(cpu: u32, order: u64) {
    ORDERS[cpu as usize].store(order, SeqCst);
    arch::interrupt(cpu);
}

/// Whether a CPU has done what it was told.
pub fn is_done(cpu: u32) -> bool {
    ORDERS[cpu as usize].load(SeqCst) == 0
}

pub fn wait_for(cpu: u32) {
    while !is_done(cpu) {
        core::hint::spin_loop();
    }
}

fn order(n: u32) -> Order {
    Order::new(n).expect("an order")
}

/// A counter of the first CPU that sections add to, and how often handlers did.
static ADDED: AtomicU64 = AtomicU64::new(0);
static ADDED_BY_HANDLERS: AtomicU64 = AtomicU64::new(0);

/// Sections that handlers interrupt, and run themselves, lose nothing.
fn sections() {
    const TIMES: u64 = 20_000;
    let (added, by_handlers) = (ADDED.load(SeqCst), ADDED_BY_HANDLERS.load(SeqCst));
    let started_over = kernel::STARTED_OVER.load(SeqCst);
    with_timer(|| (0..TIMES).for_each(|_| arch::add_one(&ADDED)));
    let by_handlers = ADDED_BY_HANDLERS.load(SeqCst) - by_handlers;
    let added = ADDED.load(SeqCst) - added;
    assert!(added == TIMES + by_handlers, "{added} of {TIMES} and {by_handlers}");
    let started_over = kernel::STARTED_OVER.load(SeqCst) - started_over;
    say!(
        "passed: sections: {TIMES} and {by_handlers} in handlers, {started_over} started over, \
         none lost"
    );
}

/// Handlers take what they can get.
static HOARDS: AtomicBool = AtomicBool::new(false);
/// What the handlers of each CPU hold, linked.
static HOARD: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static HOARD_REFUSED: AtomicU64 = AtomicU64::new(0);
static HOARD_TAKEN: AtomicU64 = AtomicU64::new(0);
/// Rounds of random programs that each CPU has begun, and what its handlers saw last of them.
static ROUNDS_BEGUN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static SEEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Random programs on all CPUs while handlers take pages until they are refused, and then give all
/// back. Returns how often they were refused, and how many pages they took.
pub fn hoard(seed: u64, rounds: u64) -> (u64, u64) {
    ROUNDS.store(rounds, SeqCst);
    HOARDS.store(true, SeqCst);
    kernel::running().skip(1).for_each(|cpu| tell(cpu, RUN));
    with_timer(|| random_program(seed, rounds));
    kernel::running().skip(1).for_each(wait_for);
    HOARDS.store(false, SeqCst);
    for held in &HOARD {
        give_all(held.swap(0, SeqCst), Order::ZERO);
    }
    empty_mail();
    (HOARD_REFUSED.load(SeqCst), HOARD_TAKEN.load(SeqCst))
}

/// A handler's turn: 64 pages more, or all back.
fn take_more() {
    let was = arch::mask();
    let held = &HOARD[arch::this_cpu() as usize];
    for _ in 0..64 {
        let Some(pfn) = get(Order::ZERO, Gfp::ATOMIC) else {
            kernel::count(&HOARD_REFUSED);
            give_all(held.swap(0, SeqCst), Order::ZERO);
            break;
        };
        model::write(pfn, held.swap(pfn.0, SeqCst));
        kernel::count(&HOARD_TAKEN);
    }
    arch::unmask(was);
}

/// Whether the program that this CPU runs has begun a round since this was asked last. A handler's
/// turn may take longer than the time between two interrupts, since a request that is refused has
/// drained all lists; where every interrupt had one, programs would stand still.
fn has_gone_on() -> bool {
    let rounds = ROUNDS_BEGUN[arch::this_cpu() as usize].load(SeqCst);
    SEEN[arch::this_cpu() as usize].swap(rounds, SeqCst) != rounds
}

/// What every handler does: a block, and one that stays until the next time.
pub fn in_interrupt(n: u64) {
    if HOARDS.load(SeqCst) {
        if !has_gone_on() {
            return;
        }
        take_more();
    }
    if arch::this_cpu() == 0 {
        arch::add_one(&ADDED);
        ADDED_BY_HANDLERS.fetch_add(1, SeqCst);
    }
    let big = order(if n % 4 == 3 { 2 } else { 0 });
    if let Some(pfn) = get(big, Gfp::ATOMIC) {
        put(pfn, big);
    }
    let mail = &MAIL[LETTERS + arch::this_cpu() as usize];
    match mail.swap(0, SeqCst) {
        0 => {
            if let Some(pfn) = get(Order::ZERO, Gfp::ATOMIC) {
                let old = mail.swap(pfn.0 << 8, SeqCst);
                open(old);
            }
        }
        letter => open(letter),
    }
}

fn open(letter: u64) {
    if letter != 0 {
        put(Pfn(letter >> 8), order(letter as u32 & 255));
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

const HELD: usize = 512;

/// Takes and frees blocks at random; at the end none is held.
fn random_program(seed: u64, rounds: u64) {
    let core = kernel::core();
    let mut held = [(Pfn(0), Order::ZERO); HELD];
    let mut n = 0;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ ((seed + 1) * 0x1234_5677));
    for _ in 0..rounds {
        kernel::count(&ROUNDS_BEGUN[arch::this_cpu() as usize]);
        let r = random.next();
        if r.is_multiple_of(97) {
            let letter = match n {
                0 => 0,
                _ => {
                    n -= 1;
                    held[n].0.0 << 8 | u64::from(held[n].1.get())
                }
            };
            open(MAIL[r as usize / 97 % LETTERS].swap(letter, SeqCst));
        } else if r & 1 == 0 && n < HELD || n == 0 {
            let size = match r >> 8 & 63 {
                0 => 9,
                1 => 10,
                2..=5 => 3,
                6..=12 => 1,
                13 => 7,
                _ => 0,
            };
            let gfp = match r >> 20 & 15 {
                0 => Gfp::DMA32,
                1 => Gfp::ATOMIC,
                2 => Gfp::HIGHUSER_MOVABLE,
                _ => Gfp::KERNEL,
            };
            match get(order(size), gfp) {
                Some(pfn) => {
                    held[n] = (pfn, order(size));
                    n += 1;
                }
                None => {
                    kernel::count(&REFUSED);
                }
            }
        } else {
            n -= 1;
            held.swap((r >> 32) as usize % (n + 1), n);
            put(held[n].0, held[n].1);
        }
        if r.is_multiple_of(20_021) {
            core.drain_all();
        }
        if r.is_multiple_of(4_001) {
            core.refresh(CpuId((r >> 40) as u32 % core.cpus() as u32));
        }
    }
    held[..n].iter().for_each(|(pfn, order)| put(*pfn, *order));
}

pub fn with_timer(body: impl FnOnce()) {
    arch::timer_on(PERIOD.load(SeqCst) as u32 + 500 * arch::this_cpu());
    body();
    arch::timer_off();
}

extern "C" fn second_thread() -> ! {
    arch::unmask_all();
    random_program(77, ROUNDS.load(SeqCst));
    threads::end()
}

/// The other CPUs: do what they are told.
pub fn follow(cpu: u32) -> ! {
    let mine = &ORDERS[cpu as usize];
    loop {
        match mine.load(SeqCst) {
            RUN => with_timer(|| random_program(cpu.into(), ROUNDS.load(SeqCst))),
            DRAIN_MASKED => drain_masked(FENCING),
            GROW => memory::grow(kernel::core().node_of(CpuId(cpu))),
            BE_SILENT => be_silent(),
            LEAVE => {
                arch::mask();
                hotplug::leaves(kernel::core()).expect("the CPU is known");
                kernel::gone(cpu);
                mine.store(0, SeqCst);
                arch::stop();
            }
            _ => {
                sleep(cpu);
                continue;
            }
        }
        mine.store(0, SeqCst);
    }
}

/// Until somebody tells the CPU what to do, or for no reason. A CPU that spins instead takes the
/// emulator's time from those that work: where CPUs take turns, 100 ms each, and one that works
/// loses its turn at each interrupt, it comes to nothing.
fn sleep(cpu: u32) {
    arch::mask();
    // Masked since before the look: an order that comes behind it wakes `idle`.
    if is_done(cpu) { arch::idle() } else { arch::unmask_all() }
}

/// Drains all lists with interrupts masked, again and again: CPUs fence each other.
pub fn drain_masked(times: u64) {
    let was = arch::mask();
    for _ in 0..times {
        let page = get(Order::ZERO, Gfp::KERNEL);
        kernel::core().drain_all();
        if let Some(page) = page {
            put(page, Order::ZERO);
        }
    }
    arch::unmask(was);
}

/// Says nothing until told: with interrupts masked, outside of the allocator.
fn be_silent() {
    let was = arch::mask();
    SPEAK.store(1, SeqCst);
    while SPEAK.load(SeqCst) != 2 {
        core::hint::spin_loop();
    }
    arch::unmask(was);
}

/// Pages that are free when every list is empty.
pub fn free_pages() -> u64 {
    kernel::core().drain_all();
    kernel::core().free_pages()
}

/// Everything is back and right.
pub fn check(before: u64, what: &str) {
    if let Err(fault) = kernel::core().validate() {
        panic!("{what}: {fault}");
    }
    let after = free_pages();
    assert!(after == before, "{what}: {before} pages before, {after} after");
    say!("passed: {what}: all {after} pages back");
}

/// Runs a program on every CPU, two on the first.
pub fn storm(seed: u64, rounds: u64) {
    ROUNDS.store(rounds, SeqCst);
    let stack = get(order(4), Gfp::KERNEL).expect("a stack of 64 KiB");
    kernel::running().skip(1).for_each(|cpu| tell(cpu, RUN));
    threads::start(((stack.0 << 12) + (16 << 12)) as usize, second_thread);
    with_timer(|| {
        random_program(seed, rounds);
        while threads::is_running() {
            core::hint::spin_loop();
        }
    });
    kernel::running().skip(1).for_each(wait_for);
    put(stack, order(4));
    empty_mail();
}

/// Takes blocks until there are none, linked through themselves. Returns the last one, or 0, and
/// how many there were.
pub fn take_all(size: Order, gfp: Gfp) -> (u64, u64) {
    let (mut head, mut count) = (0, 0);
    while let Some(pfn) = get(size, gfp) {
        model::write(pfn, head);
        head = pfn.0;
        count += 1;
    }
    (head, count)
}

/// Gives back what `take_all` took.
pub fn give_all(mut head: u64, size: Order) {
    while head != 0 {
        let pfn = Pfn(head);
        head = model::read(pfn);
        put(pfn, size);
    }
}

/// How often timers interrupt.
pub fn set_period(command: &Command) {
    PERIOD.store(command.number("period", 200_000), SeqCst);
}

/// Every page of the command's programs comes back.
pub fn run(command: &Command) {
    let rounds = command.number("rounds", 20_000);
    let before = free_pages();
    sections();
    storm(1, rounds);
    say!(
        "programs: {} calls, {} refused; {} timer interrupts, {} nested; {} thread switches; {} \
         fences sent, {} answered by interrupt, {} sections started over",
        model::CALLS.load(SeqCst),
        REFUSED.load(SeqCst),
        kernel::TIMER.load(SeqCst),
        kernel::NESTED.load(SeqCst),
        threads::SWITCHES.load(SeqCst),
        kernel::FENCES_SENT.load(SeqCst),
        kernel::FENCES_SEEN.load(SeqCst),
        kernel::STARTED_OVER.load(SeqCst)
    );
    check(before, "random programs");
    // Small machines page by page, which touches every page.
    let size = order(if before < 1 << 17 { 0 } else { 9 });
    with_timer(|| {
        let (head, count) = take_all(size, Gfp::KERNEL);
        give_all(head, size);
        say!("exhausted: {count} blocks of {size:?} of {before} pages");
    });
    empty_mail();
    check(before, "out of memory and back");
    if command.has("memory") {
        memory::run(before, rounds / 4);
    }
    if kernel::running().count() > 1 {
        unplug(before, rounds);
    }
}

/// The last CPU leaves and comes back, with programs on the others and then on all.
fn unplug(before: u64, rounds: u64) {
    let core = kernel::core();
    let cpu = kernel::running().last().expect("a CPU");
    assert!(hotplug::dead(core, cpu).is_err(), "a CPU that runs is not dead");
    tell(cpu, LEAVE);
    wait_for(cpu);
    hotplug::dead(core, cpu).expect("the CPU left");
    let held: u32 = core.zones().iter().map(|zone| core.pcp(zone.id(), CpuId(cpu)).count()).sum();
    assert!(held == 0, "{held} pages are left on the lists of CPU {cpu}");
    storm(2, rounds / 4);
    check(before, "without the last CPU");
    assert!(boot::start_cpu(cpu), "CPU {cpu} does not come back");
    hotplug::online(core, cpu).expect("the CPU is up");
    // Its stack is a block of its own.
    let before = before - 16;
    storm(3, rounds / 4);
    check(before, "with the last CPU back");
    let one = core.alloc(Request::new(Order::ZERO)).expect("a page");
    core.free(one, Order::ZERO).expect("its page");
}

/// Opens every letter.
pub fn empty_mail() {
    MAIL.iter().for_each(|mail| open(mail.swap(0, SeqCst)));
}
