//! A storm over one pool: workers, signals that use the same pcps, a mover, a drainer, a trimmer.
//!
//! ```text
//!  worker 1..n   alloc, free, bulk, hand blocks to others, end and start anew
//!    ^ signal    50 microseconds after the last, on the worker's own thread: try_alloc/free_cached
//!  mover         sched_setaffinity on every worker
//!  drainer       drain_all, refresh of every CPU
//!  trimmer       free 2 MiB blocks back to the kernel
//! ```
//! What is checked while it blows: each page has one owner at a time ([`Owners`]); what an owner
//! wrote is there when it frees; order-0 requests are served while 5 % of the pages are free. The
//! workers keep to a budget to know that: pages are paid for before they are asked for, and given
//! back only after they were freed.

mod weather;

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zonal::{CpuId, Gfp, Mode, Order, PAGE_SIZE, Pool, ZoneStats};

use super::{Owners, Rng, Timer, exit_now, free, install, order, soon, thread_id};

/// Operations in the life of a worker; then it ends and another starts.
const LIFE: u64 = 20_000;
/// Blocks that a thread's signal handler keeps at most.
const STASH: usize = 16;
/// Operations that a signal handler tries. Most are refused: their list is not the active one.
const TRIES: usize = 4;
/// Allocations and frees of one block in a row.
const PAIRS: u64 = 256;
/// Pages of one bulk call at most.
const BULK: usize = 128;

/// Looks at a drain, a millisecond or more apart, after which it never ends. The drainer may have
/// to wait for a processor that long.
const STUCK: u32 = 30_000;

/// What kind of storm. The default is four workers, all orders, all weathers.
#[derive(Clone, Copy)]
pub struct Plan {
    pub workers: usize,
    /// How long it blows, at least: it goes on until each part of it has done something.
    pub time: Duration,
    /// Orders 0 to this one, small ones more often.
    pub order_max: u32,
    /// Only `order_max` itself.
    pub one_order: bool,
    /// Pages that the test itself has.
    pub outside: u64,
    /// Whether threads are moved, pcps drained from outside, memory given back.
    pub weather: bool,
    /// How long each worker runs from one interrupt to the next; without any if zero.
    pub signal_every: Duration,
    /// Whether the budget and the sysctls change all the time. Then nothing is said of refusals.
    pub settings: bool,
    /// Whether the storm goes on until lists served a signal handler and were drained: they are
    /// only where policy, settings and the size of the pool let them hold blocks.
    pub lists_served: bool,
    /// The first number of every draw.
    pub seed: u64,
    /// End the process with this code as soon as an error is seen, or the drainer is stuck.
    pub exit_on_error: Option<i32>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            workers: 4,
            time: Duration::from_secs(1),
            order_max: Order::MAX.get(),
            one_order: false,
            outside: 0,
            weather: true,
            signal_every: Duration::from_micros(50),
            settings: false,
            lists_served: true,
            seed: 0,
            exit_on_error: None,
        }
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    pub owner_errors: u64,
    pub overwritten: u64,
    pub refused: u64,
    /// Times the budget said no: the pool was full but for 5 %.
    pub full: u64,
    pub lives: u64,
    pub operations: u64,
    pub signals: u64,
    pub signal_operations: u64,
    pub moves: u64,
    pub drained: u64,
    pub trimmed: u64,
    pub settings: u64,
}

struct Site<'p> {
    pool: &'p Pool,
    plan: Plan,
    owners: Owners,
    /// Pages that may still be handed out.
    budget: AtomicI64,
    /// Blocks left by threads that ended, or handed over.
    estate: Mutex<Vec<(usize, Order)>>,
    threads: Mutex<Vec<i32>>,
    next_id: AtomicU64,
    stop: AtomicBool,
    overwritten: AtomicU64,
    refused: AtomicU64,
    full: AtomicU64,
    drains: AtomicU64,
    drained: AtomicU64,
    /// Workers that did something.
    begun: AtomicU64,
    lives: AtomicU64,
    operations: AtomicU64,
    signals: AtomicU64,
    signal_operations: AtomicU64,
}

/// What the signal handler of a thread works on.
struct Handler<'p> {
    site: &'p Site<'p>,
    me: u32,
    timer: Option<Timer>,
    random: AtomicU64,
    stash: [(AtomicUsize, AtomicUsize); STASH],
    stashed: AtomicUsize,
}

thread_local! {
    static HANDLER: Cell<*const Handler<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Lets a storm blow over the pool and leaves every page free.
pub fn storm(pool: &Pool, plan: Plan) -> Report {
    install(super::timer_signal(), on_signal);
    let site = Site::new(pool, plan);
    let end = Instant::now() + plan.time;
    let (mut moves, mut trimmed, mut settings) = (0, 0, 0);
    std::thread::scope(|scope| {
        let crew: Vec<_> = (0..plan.workers).map(|_| scope.spawn(|| site.shift())).collect();
        let changer = plan.settings.then(|| scope.spawn(|| site.change_settings()));
        if plan.weather {
            let mover = scope.spawn(|| site.move_everybody());
            let drainer = scope.spawn(|| site.drain());
            let trimmer = scope.spawn(|| site.trim());
            site.watch(end);
            drainer.join().unwrap();
            (moves, trimmed) = (mover.join().unwrap(), trimmer.join().unwrap());
        } else {
            site.watch(end);
        }
        crew.into_iter().for_each(|worker| worker.join().unwrap());
        settings = changer.map_or(0, |changer| changer.join().unwrap());
    });
    site.settle_estate();
    Report {
        owner_errors: site.owners.errors() + site.owners.held() as u64,
        overwritten: site.overwritten.load(Relaxed),
        refused: site.refused.load(Relaxed),
        full: site.full.load(Relaxed),
        lives: site.lives.load(Relaxed),
        operations: site.operations.load(Relaxed),
        signals: site.signals.load(Relaxed),
        signal_operations: site.signal_operations.load(Relaxed),
        moves,
        drained: site.drained.load(Relaxed),
        trimmed,
        settings,
    }
}

/// Asserts that a storm left nothing behind: no page lost, none freed twice, every count in line.
pub fn assert_calm(pool: &Pool, report: &Report) {
    eprintln!("{report:?}");
    assert_eq!(report.owner_errors, 0, "pages in two hands");
    assert_eq!(report.overwritten, 0, "pages that lost what their owner wrote");
    assert_eq!(report.refused, 0, "order-0 requests refused with 5 % of the pages free");
    pool.validate().unwrap();
    // A refresh thread holds pages while it moves them.
    let all = |pages: u64| pages as usize * PAGE_SIZE == pool.bytes();
    assert!(soon(|| all(pool.free_page_count())), "{} free", pool.free_page_count());
    pool.drain_all();
    pool.validate().unwrap();
    let sum = |field: fn(&ZoneStats) -> u64| pool.zone_stats().map(|s| field(&s)).sum::<u64>();
    let free = || sum(|stats| stats.free_pages);
    assert!(soon(|| all(free())), "all in the buddies: {}", free());
    let double_frees: u64 = sum(|stats| stats.double_frees);
    assert_eq!(double_frees, 0, "copies of blocks on two lists");
    let allocated: u64 = sum(|stats| stats.allocated_pages);
    let freed: u64 = sum(|stats| stats.freed_pages);
    assert_eq!(allocated, freed);
}

impl<'p> Site<'p> {
    fn new(pool: &'p Pool, plan: Plan) -> Site<'p> {
        let zones = pool.view().zones();
        let usable: u64 = zones.map(|zone| zone.managed() - zone.watermarks().min).sum();
        Site {
            pool,
            plan,
            owners: Owners::new(pool),
            budget: AtomicI64::new(usable as i64 * 95 / 100 - plan.outside as i64),
            estate: Mutex::default(),
            threads: Mutex::default(),
            next_id: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            overwritten: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            full: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            signal_operations: AtomicU64::new(0),
        }
    }

    /// Pays for pages. `false`, and nothing paid, if that would leave less than 5 %.
    fn pay(&self, pages: u64) -> bool {
        let paid = self.budget.fetch_sub(pages as i64, Relaxed) >= pages as i64;
        if !paid {
            self.budget.fetch_add(pages as i64, Relaxed);
            self.full.fetch_add(1, Relaxed);
        }
        paid
    }

    fn refund(&self, pages: u64) {
        self.budget.fetch_add(pages as i64, Relaxed);
    }

    /// A block that `me` got: nobody else may have it. Its first and last page are signed.
    fn got(&self, block: usize, order: Order, me: u32) {
        self.owners.claim(block, order, me);
        for address in signed(block, order) {
            // SAFETY: (1) the block was handed out to this thread; (2) its pages are aligned.
            unsafe { (address as *mut usize).write_volatile(address) };
        }
    }

    /// A block that `me` is about to free: what was signed must still be there.
    fn leaving(&self, block: usize, order: Order, me: u32) {
        for address in signed(block, order) {
            // SAFETY: (1) the block is this thread's; (2) its pages are aligned.
            if unsafe { (address as *const usize).read_volatile() } != address {
                self.overwritten.fetch_add(1, Relaxed);
            }
        }
        self.owners.release(block, order, me);
    }

    fn alloc(&self, order: Order, me: u32) -> Option<usize> {
        if !self.pay(order.pages()) {
            return None;
        }
        match self.pool.alloc_pages(order, Gfp::KERNEL) {
            Ok(start) => {
                let block = start.as_ptr() as usize;
                self.got(block, order, me);
                Some(block)
            }
            Err(error) => {
                let told = order == Order::ZERO && !self.plan.settings;
                if told && self.refused.fetch_add(1, Relaxed) < 3 {
                    eprintln!("refused: {error}; budget {}", self.budget.load(Relaxed));
                }
                self.refund(order.pages());
                None
            }
        }
    }

    fn free(&self, (block, order): (usize, Order), me: u32) {
        self.leaving(block, order, me);
        if let Err(error) = free(self.pool, block, order) {
            eprintln!("a free was refused: {error}");
            self.overwritten.fetch_add(1, Relaxed);
        }
        self.refund(order.pages());
    }

    /// Workers, one behind the other, until the storm is over.
    fn shift(&self) {
        while !self.stop.load(Relaxed) {
            let id = self.next_id.fetch_add(1, Relaxed) as u32;
            std::thread::scope(|scope| {
                scope.spawn(|| self.work(id));
            });
            self.lives.fetch_add(1, Relaxed);
        }
    }

    fn work(&self, me: u32) {
        let thread = thread_id();
        self.threads.lock().unwrap().push(thread);
        let handler = Handler::new(self, me);
        HANDLER.set(std::ptr::from_ref(&handler).cast());
        handler.set_timer();
        let mut held = Vec::new();
        let mut rng = Rng::new(self.plan.seed << 32 | u64::from(me));
        let mut operations = 0;
        while operations < LIFE && !self.stop.load(Relaxed) {
            self.step(&mut held, &mut rng, me);
            operations += 1;
            if operations == 1 {
                self.begun.fetch_add(1, Relaxed);
            }
        }
        HANDLER.set(std::ptr::null());
        handler.give_up(&mut held);
        self.operations.fetch_add(operations, Relaxed);
        self.threads.lock().unwrap().retain(|other| *other != thread);
        self.hand_over(&mut held, usize::MAX, me);
    }

    fn step(&self, held: &mut Vec<(usize, Order)>, rng: &mut Rng, me: u32) {
        match rng.below(32) {
            0..=15 => {
                let order = self.plan.draw(rng.next());
                held.extend(self.alloc(order, me).map(|block| (block, order)));
            }
            16..=27 if !held.is_empty() => {
                let block = held.swap_remove(rng.below(held.len()));
                self.free(block, me);
            }
            28 if self.plan.order_max == 0 || !self.plan.one_order => {
                self.bulk_alloc(held, rng.below(BULK) + 1, me);
            }
            29 => self.bulk_free(held, rng.below(BULK) + 1, me),
            30 if rng.below(8) == 0 => self.hand_over(held, rng.below(BULK), me),
            31 if rng.below(4) == 0 => self.inherit(held, rng.below(BULK), me),
            31 => self.hot_pairs(me),
            _ => {}
        }
        // Now and then the pool is almost empty, mostly it is filled until the budget says no.
        if rng.below(1 << 12) == 0 {
            let keep = held.len() / 4;
            held.drain(keep..).for_each(|block| self.free(block, me));
        }
    }

    /// The pcps' hottest use: most signals now hit right inside a sequence.
    fn hot_pairs(&self, me: u32) {
        let order = self.plan.hot_order();
        if !self.pay(order.pages()) {
            return;
        }
        for pair in 0..PAIRS {
            let Some(start) = self.pool.try_alloc_cached(order) else { break };
            let block = start.as_ptr() as usize;
            if pair % 8 == 0 {
                self.got(block, order, me);
                self.leaving(block, order, me);
            }
            if let Err(error) = free(self.pool, block, order) {
                eprintln!("a free was refused: {error}");
                self.overwritten.fetch_add(1, Relaxed);
            }
        }
        self.refund(order.pages());
    }

    fn bulk_alloc(&self, held: &mut Vec<(usize, Order)>, want: usize, me: u32) {
        if !self.pay(want as u64) {
            return;
        }
        let mut pages = [std::ptr::null_mut(); BULK];
        let got = self.pool.alloc_bulk(Gfp::KERNEL, &mut pages[..want]).unwrap_or(0);
        for page in &pages[..got] {
            self.got(*page as usize, Order::ZERO, me);
            held.push((*page as usize, Order::ZERO));
        }
        if got < want {
            self.refused.fetch_add(u64::from(!self.plan.settings), Relaxed);
            self.refund((want - got) as u64);
        }
    }

    fn bulk_free(&self, held: &mut Vec<(usize, Order)>, want: usize, me: u32) {
        let mut pages = Vec::new();
        held.retain(|(block, order)| {
            let take = *order == Order::ZERO && pages.len() < want;
            if take {
                self.leaving(*block, *order, me);
                pages.push(*block as *mut u8);
            }
            !take
        });
        // SAFETY: (1) the pages were this thread's and are not used any more.
        if let Err(error) = unsafe { self.pool.free_bulk(&pages, Order::ZERO) } {
            eprintln!("a bulk free was refused: {error:?}");
            self.overwritten.fetch_add(1, Relaxed);
        }
        self.refund(pages.len() as u64);
    }

    /// Leaves blocks for others to free.
    fn hand_over(&self, held: &mut Vec<(usize, Order)>, most: usize, me: u32) {
        let keep = held.len().saturating_sub(most);
        for (block, order) in &held[keep..] {
            self.owners.release(*block, *order, me);
            self.owners.claim(*block, *order, u32::MAX);
        }
        self.estate.lock().unwrap().extend(held.drain(keep..));
    }

    fn inherit(&self, held: &mut Vec<(usize, Order)>, most: usize, me: u32) {
        let mut estate = self.estate.lock().unwrap();
        let keep = estate.len().saturating_sub(most);
        for (block, order) in estate.drain(keep..) {
            self.owners.release(block, order, u32::MAX);
            self.owners.claim(block, order, me);
            held.push((block, order));
        }
    }

    fn settle_estate(&self) {
        let mut left = Vec::new();
        self.inherit(&mut left, usize::MAX, 1);
        left.into_iter().for_each(|block| self.free(block, 1));
    }

    /// Waits for the end; with `exit_on_error`, for the first error.
    fn watch(&self, end: Instant) {
        let (mut seen, mut looks) = (0, 0);
        while Instant::now() < end || !self.has_blown() {
            std::thread::sleep(Duration::from_millis(1));
            let Some(code) = self.plan.exit_on_error else { continue };
            let now = self.drains.load(Relaxed);
            if now != seen {
                (seen, looks) = (now, 0);
            }
            looks += 1;
            // A pcp that says it holds pages which it has not is drained for ever.
            if self.is_bad() || looks > STUCK {
                exit_now(code);
            }
        }
        self.stop.store(true, Relaxed);
    }

    /// Whether each part has done something: how soon a thread gets its turn proves nothing.
    fn has_blown(&self) -> bool {
        let some = |counter: &AtomicU64| counter.load(Relaxed) > 0;
        let served = || {
            let signals = *self.pool.mode() != Mode::Rseq || some(&self.signal_operations);
            signals && some(&self.drained)
        };
        let weather = || some(&self.drains) && (!self.plan.lists_served || served());
        let is_full = self.plan.outside == 0 || some(&self.full);
        some(&self.begun) && is_full && (!self.plan.weather || weather())
    }

    /// Whether an error was seen so far. Takes no lock: a broken pool may never let go of one.
    fn is_bad(&self) -> bool {
        let view = self.pool.view();
        let cpus = (0..view.cpus() as u32).map(CpuId);
        let pcps = view
            .zones()
            .flat_map(|zone| cpus.clone().filter_map(move |cpu| view.lists(zone.id(), cpu)));
        let double_frees: u64 = pcps.map(|lists| lists.events.double_frees).sum();
        self.owners.errors() + self.overwritten.load(Relaxed) + double_frees > 0
    }
}

impl Plan {
    fn hot_order(&self) -> Order {
        order(if self.one_order { self.order_max } else { 0 })
    }

    /// An order for these random bits: each half as likely as the one below.
    fn draw(&self, bits: u64) -> Order {
        let largest = self.order_max;
        if self.one_order {
            return order(largest);
        }
        order((bits as u32 | 1 << largest).trailing_zeros().min(largest))
    }
}

impl<'p> Handler<'p> {
    fn new(site: &'p Site<'p>, me: u32) -> Handler<'p> {
        let stash = Default::default();
        let random = AtomicU64::new(u64::from(me) << 20 | 1);
        let timer = (!site.plan.signal_every.is_zero()).then(Timer::new);
        Handler { site, me, timer, random, stash, stashed: AtomicUsize::new(0) }
    }

    fn set_timer(&self) {
        if let Some(timer) = &self.timer {
            timer.set(self.site.plan.signal_every);
        }
    }

    /// Some operations, in the signal handler: at any instruction of the thread it interrupts.
    fn interrupt(&self) {
        let site = self.site;
        let mut rng = Rng(self.random.load(Relaxed));
        site.signals.fetch_add(1, Relaxed);
        for _ in 0..TRIES {
            let bits = rng.next();
            let stashed = self.stashed.load(Relaxed);
            let done = if bits & 1 == 0 && stashed < STASH {
                self.take(site.plan.draw(bits >> 8), stashed)
            } else {
                stashed > 0 && self.put_back(stashed - 1)
            };
            site.signal_operations.fetch_add(u64::from(done), Relaxed);
        }
        self.random.store(rng.0, Relaxed);
    }

    fn take(&self, order: Order, stashed: usize) -> bool {
        let site = self.site;
        if !site.pay(order.pages()) {
            return false;
        }
        let Some(start) = site.pool.try_alloc_cached(order) else {
            site.refund(order.pages());
            return false;
        };
        site.got(start.as_ptr() as usize, order, self.me);
        self.stash[stashed].0.store(start.as_ptr() as usize, Relaxed);
        self.stash[stashed].1.store(order.index(), Relaxed);
        self.stashed.store(stashed + 1, Relaxed);
        true
    }

    fn put_back(&self, last: usize) -> bool {
        let site = self.site;
        let (block, order) = self.stashed_block(last);
        site.leaving(block, order, self.me);
        let start = NonNull::new(block as *mut u8).expect("stashed blocks are real");
        // SAFETY: (1) the block is this handler's, and not used if the call takes it.
        if !unsafe { site.pool.try_free_cached(start, order) } {
            site.got(block, order, self.me);
            return false;
        }
        site.refund(order.pages());
        self.stashed.store(last, Relaxed);
        true
    }

    fn stashed_block(&self, index: usize) -> (usize, Order) {
        let (block, number) = &self.stash[index];
        (block.load(Relaxed), order(number.load(Relaxed) as u32))
    }

    /// What the handler still has goes to the thread, whose signals it no longer serves.
    fn give_up(&self, held: &mut Vec<(usize, Order)>) {
        held.extend((0..self.stashed.load(Relaxed)).map(|index| self.stashed_block(index)));
    }
}

extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let handler = HANDLER.get();
    if handler.is_null() {
        return;
    }
    // SAFETY: (1) set by `work` on this thread to a value that lives until it is set back to null.
    let handler = unsafe { &*handler };
    handler.interrupt();
    handler.set_timer();
}

/// The words that the owner of a block signs: in its first and in its last page, where no other
/// page has them, so that not all fall into one set of the cache.
fn signed(block: usize, order: Order) -> [usize; 2] {
    let page = block / PAGE_SIZE % 60 * 64 + 64;
    [block + page, block + order.bytes() - PAGE_SIZE + page]
}
