//! A restartable sequence is aborted before each of its instructions in turn, and each time
//! something else happens to the pcps before it starts again. Whatever instruction it was, the
//! operation must then be done once or not at all.
//!
//! ```text
//!  a trap -> the handler begins to trace: a SIGTRAP in front of every instruction of a sequence
//!    from here on, and of the one behind its commit (how: `support/steps_*.rs`)
//!  first trap inside a sequence: the kernel has sent us to the abort handler and forgotten the
//!    section. The handler goes back to its first instruction: now it runs unprotected, step by
//!    step
//!  in front of instruction n - 1: the handler tells the kernel of the sequence again, so the trap
//!    behind that instruction aborts it for good. The handler stops tracing, and interferes.
//! ```
//! The way in is the kernel's own: nothing is simulated but where the interrupt falls. The same
//! machine without the last step, an unprotected section that is interfered with and goes on, is
//! the canary: it must be noticed.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod support;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use support::{cpus, install, move_thread, order, pool, pool_with, sequences, steps, thread_id};
use zonal::sys::rseq_abi::{FIELD_RSEQ_CS, RseqArea};
use zonal::{Gfp, MemoryRange, Mode, Order, OwnedPages, Policy, Pool};

const BYTES: usize = 32 << 20;
/// Of a pool whose blocks are owned.
const OWNED_BYTES: usize = 8 << 20;
/// Blocks handed out before each operation.
const HELD: usize = 6;

// What the handler does at the next trap.
const IDLE: u32 = 0;
const BEGIN: u32 = 1;
const WALK: u32 = 2;
const ARMED: u32 = 3;
const END: u32 = 4;

static PHASE: AtomicU32 = AtomicU32::new(IDLE);
/// Instructions of the sequence that were reached.
static REACHED: AtomicUsize = AtomicUsize::new(0);
/// In front of which instruction to abort; one more than there are: behind the commit.
static TARGET: AtomicUsize = AtomicUsize::new(0);
/// Whether the sequence goes on where it was interfered with.
static BROKEN: AtomicU32 = AtomicU32::new(0);
/// Whether the kernel had forgotten the sequence, so that the experiment was none.
static FORGOTTEN: AtomicU32 = AtomicU32::new(0);
/// How often an experiment is tried until the kernel remembers the sequence.
const TRIES: u32 = 10_000;
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
static INTERFERENCE: AtomicU32 = AtomicU32::new(0);
static ORDER: AtomicU32 = AtomicU32::new(0);
/// A block that the interference may free, or has got.
static BLOCK: AtomicUsize = AtomicUsize::new(0);
/// The only handle of a pool whose blocks are owned.
static HANDLE: Mutex<Option<Pool>> = Mutex::new(None);
/// One experiment at a time: all of the above is shared.
static ONE: Mutex<()> = Mutex::new(());

/// What happens between the abort and the new start.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Interference {
    Nothing,
    Pop,
    Push,
    Drain,
    OtherList,
    OtherCpu,
    /// Another thread drops the last handle of the pool.
    LastHandle,
}
use Interference::{Drain, LastHandle, Nothing, OtherCpu, OtherList, Pop, Push};
const INTERFERENCES: [Interference; 7] =
    [Nothing, Pop, Push, Drain, OtherList, OtherCpu, LastHandle];

/// The operation under test.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    Alloc,
    AllocFromEmpty,
    /// From a list that must first become the active one: the sequence of any list does it, and
    /// commits both at once.
    AllocSwitching,
    Free,
    FreeSwitching,
    /// Of a block that another CPU allocated.
    FreeOfOther,
}

impl Operation {
    fn frees(self) -> bool {
        matches!(self, Operation::Free | Operation::FreeSwitching | Operation::FreeOfOther)
    }
    fn switches(self) -> bool {
        matches!(self, Operation::AllocSwitching | Operation::FreeSwitching)
    }
}

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: (1) what the kernel hands to a handler with SA_SIGINFO.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let at = steps::at(context);
    let (next, interfering) = match PHASE.load(Relaxed) {
        BEGIN => {
            steps::begin(context);
            PHASE.store(WALK, Relaxed);
            return;
        }
        WALK => {
            let next = walk(at);
            (next, next.is_none())
        }
        ARMED => {
            // The kernel forgets a sequence that it finds us outside of, and that is where it finds
            // us if it takes the CPU away while the handler still runs.
            let forgotten = sequences::of(at).is_some();
            FORGOTTEN.store(forgotten.into(), Relaxed);
            (None, !forgotten)
        }
        _ => (None, false),
    };
    if let Some(next) = next {
        return steps::go_on(context, next);
    }
    steps::end(context);
    if interfering {
        interfere();
    }
    PHASE.store(END, Relaxed);
}

/// One step of the walk through a sequence. Where to go on; `None`: interfere, the walk is over.
fn walk(mut at: u64) -> Option<u64> {
    let target = TARGET.load(Relaxed);
    if let Some(sequence) = sequences::all().iter().find(|sequence| sequence.abort == at) {
        if target == 0 {
            return None;
        }
        tell_kernel(0);
        at = sequence.start;
    }
    let Some(sequence) = sequences::of(at) else { return Some(at) };
    let index = REACHED.fetch_add(1, Relaxed);
    if index + 1 == target {
        if BROKEN.load(Relaxed) != 0 {
            return None;
        }
        tell_kernel(std::ptr::from_ref(sequence) as u64);
        PHASE.store(ARMED, Relaxed);
    }
    Some(at)
}

/// Writes this thread's `rseq_cs`.
fn tell_kernel(descriptor: u64) {
    let area = RseqArea::find().expect("there are sequences, so there is an area").address();
    let field = area.wrapping_add_signed(FIELD_RSEQ_CS) as *mut u64;
    // SAFETY: (1) the field of this thread's registered area, which programs are there to write.
    unsafe { field.write_volatile(descriptor) };
}

/// An order whose list is another one.
fn other(o: Order) -> Order {
    order(if o == Order::ZERO { 1 } else { 0 })
}

/// The thread is inside a sequence, so it holds no lock: everything may be called.
fn interfere() {
    let interference = INTERFERENCES[INTERFERENCE.load(Relaxed) as usize];
    if interference == LastHandle {
        return std::thread::spawn(drop_last_handle).join().unwrap();
    }
    // SAFETY: (1) set by `experiment` to a pool that lives until it returns.
    let pool = unsafe { &*POOL.load(Relaxed) };
    let o = order(ORDER.load(Relaxed));
    let given = BLOCK.load(Relaxed);
    match interference {
        Nothing | LastHandle => {}
        Pop => {
            let got = pool.try_alloc_cached(o).map_or(0, |start| start.as_ptr() as usize);
            BLOCK.store(got, Relaxed);
        }
        Push => {
            let start = NonNull::new(given as *mut u8).expect("a block was given");
            // SAFETY: (1) the experiment gave the block away.
            if unsafe { pool.try_free_cached(start, o) } {
                BLOCK.store(0, Relaxed);
            }
        }
        Drain => drop(pool.drain_all()),
        OtherList => {
            drop(pool.alloc(other(o)).unwrap());
        }
        OtherCpu => {
            let cpus = cpus();
            assert!(move_thread(thread_id(), &cpus[cpus.len() - 1..]));
        }
    }
}

/// What `interfere` has not dropped yet.
fn drop_last_handle() {
    drop(HANDLE.lock().unwrap().take());
}

/// Says what the handler does in the next experiment.
fn arm(interference: Interference, target: usize, broken: bool) {
    let number = INTERFERENCES.iter().position(|other| *other == interference);
    INTERFERENCE.store(number.unwrap() as u32, Relaxed);
    TARGET.store(target, Relaxed);
    BROKEN.store(broken.into(), Relaxed);
    REACHED.store(0, Relaxed);
}

/// One operation, aborted in front of instruction `target` of its sequence.
struct Experiment {
    operation: Operation,
    order: Order,
    interference: Interference,
    target: usize,
    broken: bool,
}

impl Experiment {
    /// What is wrong afterwards, and how many instructions of the sequence were reached.
    fn run(&self, pool: &Pool) -> (Result<(), String>, usize) {
        for _ in 0..TRIES {
            FORGOTTEN.store(0, Relaxed);
            let outcome = self.once(pool);
            if FORGOTTEN.load(Relaxed) == 0 {
                return outcome;
            }
            outcome.0.unwrap();
        }
        panic!("the kernel forgot the sequence {TRIES} times");
    }

    fn once(&self, pool: &Pool) -> (Result<(), String>, usize) {
        assert!(move_thread(thread_id(), &cpus()[..1]));
        let mut held: Vec<usize> = (0..HELD).map(|_| self.get(pool)).collect();
        // Leaves the list active, with blocks on it, and room for more.
        let left = if self.order.get() < 9 { HELD / 2 } else { 1 };
        held.drain(..left).for_each(|block| support::free(pool, block, self.order).unwrap());
        if self.operation == Operation::AllocFromEmpty {
            pool.drain_all();
        }
        if self.operation.switches() {
            drop(pool.alloc(other(self.order)).unwrap());
        }
        if self.operation == Operation::FreeOfOther {
            let cpus = cpus();
            assert!(move_thread(thread_id(), &cpus[cpus.len() - 1..]));
            held.push(self.get(pool));
            assert!(move_thread(thread_id(), &cpus[..1]));
        }
        let mine = held.pop().unwrap();
        let given = if self.interference == Push { held.pop().unwrap() } else { 0 };
        let got = self.traced(pool, mine, given);
        assert_eq!(PHASE.load(Relaxed), END, "{:?} was not traced", self.operation);
        held.extend(got);
        held.extend(Some(BLOCK.load(Relaxed)).filter(|block| *block != 0));
        if !self.operation.frees() {
            held.push(mine);
        }
        held.sort_unstable();
        let result = self.judge(pool, &held);
        if result.is_ok() {
            held.iter().for_each(|block| support::free(pool, *block, self.order).unwrap());
            pool.drain_all();
        }
        (result, REACHED.load(Relaxed))
    }

    fn get(&self, pool: &Pool) -> usize {
        pool.alloc_pages(self.order, Gfp::KERNEL).unwrap().as_ptr() as usize
    }

    /// The operation itself, with the handler in charge. Returns the block that is ours after it.
    fn traced(&self, pool: &Pool, mine: usize, given: usize) -> Option<usize> {
        arm(self.interference, self.target, self.broken);
        POOL.store(std::ptr::from_ref(pool).cast_mut(), Relaxed);
        ORDER.store(self.order.get(), Relaxed);
        BLOCK.store(given, Relaxed);
        let first = &cpus()[..1];
        assert!(move_thread(thread_id(), first));
        let block = NonNull::new(mine as *mut u8).unwrap();
        PHASE.store(BEGIN, SeqCst);
        steps::trap();
        let got = match self.operation.frees() {
            true => {
                // SAFETY: (1) the block is not used.
                let freed = unsafe { pool.try_free_cached(block, self.order) };
                (!freed).then_some(mine)
            }
            false => pool.try_alloc_cached(self.order).map(|start| start.as_ptr() as usize),
        };
        // If it is still tracing, the next trap ends it.
        PHASE.store(END, SeqCst);
        assert!(move_thread(thread_id(), first));
        got
    }

    /// Exactly the blocks we think we have are handed out, and the pool is whole.
    fn judge(&self, pool: &Pool, held: &[usize]) -> Result<(), String> {
        pool.validate().map_err(|fault| fault.to_string())?;
        let mut out: Vec<_> = pool.view().blocks().map(|(block, _)| block as usize).collect();
        out.sort_unstable();
        if out != held {
            return Err(format!("handed out are {out:x?}, expected {held:x?}"));
        }
        let stats = pool.zone_stats().next().expect("a pool has a zone");
        if stats.double_frees > 0 {
            return Err("a block was on two lists".to_owned());
        }
        let in_use = stats.allocated_pages - stats.freed_pages;
        match in_use == held.len() as u64 * self.order.pages() {
            true => Ok(()),
            false => Err(format!("the counters say {in_use} pages are in use")),
        }
    }
}

/// A pool whose lists hold some blocks of the order, and which groups pages by mobility or does
/// not. What lists may hold grows by use and begins at less than one of 2 MiB, so for those it is
/// given.
fn pool_for(order: Order, groups: bool) -> Pool {
    let mut policy = Policy::ZONAL;
    policy.set("mobility_grouping", if groups { "on" } else { "off" }).unwrap();
    if order.get() < 9 {
        return pool_with(BYTES, true, policy);
    }
    policy.set("pcp.high_fraction", "8").unwrap();
    policy.set("pcp.budget_fraction", "0").unwrap();
    pool_with(8 * BYTES, true, policy)
}

/// Whether there is anything to abort here; if so, the handler is in place.
fn sequences_exist() -> bool {
    install(libc::SIGTRAP, on_trap);
    *pool(4 << 20, true).mode() == Mode::Rseq
}

/// Instructions in the operation's section, on the way that it takes without interference.
fn length(operation: Operation, order: Order, groups: bool) -> usize {
    let (interference, target, broken) = (Nothing, usize::MAX, false);
    let walk = Experiment { operation, order, interference, target, broken };
    let (result, length) = walk.run(&pool_for(order, groups));
    result.unwrap();
    assert!(length > 3, "{operation:?}, {order:?}: the sequence has {length} instructions");
    length
}

/// Each operation, at each instruction of its sequence, with each interference.
fn every_operation(groups: bool) {
    for operation in [
        Operation::Alloc,
        Operation::AllocFromEmpty,
        Operation::AllocSwitching,
        Operation::Free,
        Operation::FreeSwitching,
        Operation::FreeOfOther,
    ] {
        for order in [0, 3, 9].map(order) {
            // An empty list is one at every order.
            if operation == Operation::AllocFromEmpty && order != Order::ZERO {
                continue;
            }
            let length = length(operation, order, groups);
            if operation == Operation::FreeOfOther && cpus().len() > 1 {
                let own = self::length(Operation::Free, order, groups);
                assert!(length > own, "it was not another CPU's block: {length} instructions");
            }
            let pool = pool_for(order, groups);
            eprintln!("{operation:?}, {order:?}: {length} instructions");
            for target in 0..=length + 1 {
                for interference in INTERFERENCES.into_iter().filter(|i| *i != LastHandle) {
                    let broken = false;
                    let what = Experiment { operation, order, interference, target, broken };
                    if let Err(why) = what.run(&pool).0 {
                        panic!("{operation:?} {order:?}, {interference:?} at {target}: {why}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_operation_aborted_at_any_instruction_is_done_once_or_not_at_all() {
    let _one = ONE.lock().unwrap();
    if sequences_exist() {
        every_operation(false);
    }
}

#[test]
fn so_is_one_of_a_pool_that_groups_pages_by_mobility() {
    let _one = ONE.lock().unwrap();
    if sequences_exist() {
        every_operation(true);
    }
}

/// A pool of memory that is unmapped when the pool lets go of it, and how often that was.
fn pool_that_unmaps() -> (Pool, Arc<AtomicUsize>) {
    let align = Order::MAX.bytes();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: (1) a new mapping, wherever there is room.
    let room =
        unsafe { libc::mmap(std::ptr::null_mut(), OWNED_BYTES + align, access, flags, -1, 0) };
    assert_ne!(room, libc::MAP_FAILED);
    let skip = (room as usize).wrapping_neg() % align;
    let start = NonNull::new(room.wrapping_byte_add(skip).cast::<u8>()).unwrap();
    let room = room as usize;
    let released = Arc::new(AtomicUsize::new(0));
    let log = Arc::clone(&released);
    let release = move || {
        log.fetch_add(1, SeqCst);
        // SAFETY: (1) mapped above; the pool has let go of it, and nobody else has a part.
        let rc = unsafe { libc::munmap(room as *mut _, OWNED_BYTES + align) };
        assert_eq!(rc, 0, "munmap: {}", std::io::Error::last_os_error());
    };
    let range = MemoryRange { node: 0, start, bytes: OWNED_BYTES };
    // SAFETY: (1) mapped above, and nobody's; (2) it stays until the pool has let go of it.
    let builder = unsafe { Pool::builder().memory(&[range]) };
    let pool = builder.on_release(release).refresh_every(None).build().unwrap();
    assert_eq!(*pool.mode(), Mode::Rseq);
    (pool, released)
}

/// Drops an owned block and, in front of instruction `target` of its free, the last handle, while
/// `others` blocks are out. `false`: the kernel forgot the sequence, so the handle went later.
fn orphan_at(target: usize, order: Order, others: usize) -> bool {
    let first = &cpus()[..1];
    assert!(move_thread(thread_id(), first));
    let (pool, released) = pool_that_unmaps();
    let take = || pool.alloc(order).unwrap().into_owned();
    let mut others: Vec<OwnedPages> = (0..others).map(|_| take()).collect();
    let block = take();
    // Leaves the list active, with room for more.
    drop([take(), take()]);
    others.iter_mut().for_each(|other| other.fill(0x5a));
    *HANDLE.lock().unwrap() = Some(pool);
    arm(LastHandle, target, false);
    PHASE.store(BEGIN, SeqCst);
    steps::trap();
    drop(block);
    // If it is still tracing, the next trap ends it.
    PHASE.store(END, SeqCst);
    assert!(move_thread(thread_id(), first));
    let dropped = HANDLE.lock().unwrap().is_none();
    drop_last_handle();
    while let Some(mut other) = others.pop() {
        assert_eq!(released.load(SeqCst), 0, "{} blocks are out", others.len() + 1);
        assert!(other.iter().all(|byte| *byte == 0x5a));
        other.fill(0xa5);
        assert!(other.iter().all(|byte| *byte == 0xa5));
    }
    assert_eq!(released.load(SeqCst), 1, "nothing is out");
    dropped
}

/// A free that was marked and not committed is not done: its block still keeps the pool.
#[test]
fn a_pool_whose_last_handle_goes_at_any_instruction_of_a_free_goes_with_the_last_block() {
    let _one = ONE.lock().unwrap();
    if !sequences_exist() {
        return;
    }
    for order in [0, 3].map(order) {
        let length = length(Operation::Free, order, false);
        for (target, others) in (0..=length).flat_map(|target| [0, 1, 2].map(|n| (target, n))) {
            eprintln!("{order:?}, {others} others, at {target} of {length}");
            let done = (0..TRIES).any(|_| orphan_at(target, order, others));
            assert!(done, "the kernel forgot the sequence {TRIES} times");
        }
    }
}

#[test]
fn a_section_that_goes_on_after_an_interference_is_noticed() {
    let _one = ONE.lock().unwrap();
    if !sequences_exist() {
        return;
    }
    for (operation, interference) in [
        (Operation::Alloc, Pop),
        (Operation::Alloc, Push),
        (Operation::Free, Pop),
        (Operation::FreeOfOther, Pop),
    ] {
        let order = Order::ZERO;
        let broken = |target: &usize| {
            let (target, broken, pool) = (*target, true, pool(BYTES, true));
            Experiment { operation, order, interference, target, broken }.run(&pool).0.is_err()
        };
        let noticed = (1..=length(operation, order, false)).filter(broken).count();
        eprintln!("{operation:?}, {interference:?}: noticed at {noticed} instructions");
        assert!(noticed > 2, "{operation:?}, {interference:?}: noticed at {noticed} instructions");
    }
}
