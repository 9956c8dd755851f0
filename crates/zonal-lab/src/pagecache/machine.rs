//! Threads on virtual CPUs: a load, the flusher, a background reclaimer for each node, interrupts.
//! The one whose clock is behind all others makes its next step.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sha2::{Digest, Sha256};
use zonal_core::alloc::{BackgroundReclaimer, Next, Request};
use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform;
use zonal_core::platform::reclaimer::Shrunk;
use zonal_core::types::{NodeId, Order, Pfn};
use zonal_core::zone::reclaim::Reclaiming;

use super::model::{Model, Traffic};
use super::platform::{CONGESTION_WAIT_NS, CacheAllocator, DIRTY_PERMILLE};
use crate::LabError;
use crate::cost::kernel::UNMAP_NS;
use crate::machine::Machine;
use crate::mechanism::Mechanism;
use crate::provenance::{Provenance, cells, given};
use crate::stop;
use crate::units::hex;

given! {
    /// Who makes all of them waits an eighth earlier, others by their part of it
    /// (`task_dirty_limit`).
    DIRTY_TASK_PERMILLE: u64 = DIRTY_PERMILLE / 8,
        Provenance::sourced("task_dirty_limit: an eighth");
    /// A thread that would make more dirty than that sleeps for one tick, and for twice as long
    /// each time it finds nothing better, up to [`CONGESTION_WAIT_NS`] (`balance_dirty_pages` up to
    /// 3.1). No event wakes it. 250 Hz is an estimate; the announcement does not name them.
    NAP_NS: u64 = 4_000_000,
        Provenance::seen(
            "one tick of 250 Hz (balance_dirty_pages up to 3.1); the announcement does not name \
             the rate",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
    /// The same before the flusher begins (`vm.dirty_background_ratio`).
    BACKGROUND_PERMILLE: u64 = 100,
        Provenance::seen(
            "the default of vm.dirty_background_ratio",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
    /// The flusher looks so often for pages that are dirty for so long
    /// (`dirty_writeback_centisecs`, `dirty_expire_centisecs`).
    FLUSH_EVERY_NS: u64 = 5_000_000_000,
        Provenance::sourced("the default of vm.dirty_writeback_centisecs");
    EXPIRED_NS: u64 = 30_000_000_000,
        Provenance::sourced("the default of vm.dirty_expire_centisecs");
    /// Pages of one file that it writes before the next one's turn (`MAX_WRITEBACK_PAGES`).
    WRITE_CHUNK: u64 = 1024,
        Provenance::sourced("MAX_WRITEBACK_PAGES");
    /// Percent of the memory that kernel and daemons hold permanently, struct pages included: an
    /// estimate.
    RESIDENT_PERCENT: u64 = 4,
        Provenance::estimated("kernel and daemons, struct pages included");
    /// Thousandths of the memory with pages of programs' files, used more than once since boot: an
    /// estimate, about 60 MB on a machine of 12 GiB. What programs have mapped is in the other
    /// part.
    PROGRAMS_PERMILLE: u64 = 5,
        Provenance::seen(
            "about 60 MB on a machine of 12 GiB",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
    /// Pause of a refused request before the next try.
    REFUSED_NS: u64 = 10_000_000,
        Provenance::estimated("the shortest sleep of programs that try again");
    /// Requests for each page that is taken for them: a request to a disk is an object of about 400
    /// bytes (`struct request`, its list of pages beside it), so a page holds ten. An estimate.
    INTERRUPTS_PER_PAGE: u64 = 10,
        Provenance::seen(
            "a request to a disk is an object of about 400 bytes",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
    /// A nap of one that makes too much dirty, without [`Mechanism::DirtyNaps`].
    SHORT_NAP_NS: u64 = 1_000_000,
        Provenance::estimated("so short that it holds nobody up, for ablations");
    /// From one step of a background reclaimer to its next.
    AGAIN_NS: u64 = 1_000,
        Provenance::estimated(
            "so that time goes on; a step's own work is charged where it is done",
        );
}
/// Order of a huge page.
const HUGE_ORDER: u32 = 9;

/// The next action of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It goes on.
    More,
    /// It waits.
    Wait(Until),
    /// It has nothing more to do.
    Done,
}

/// Event that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// A time on the clock, in nanoseconds.
    Time(u64),
    /// A read.
    Read(u64),
    /// Nothing dirty.
    Written,
    /// The disk's queue, or a time.
    Uncongested(u64),
    /// Something to write, or a time.
    Work(u64),
    /// A request for background reclaim, or a time.
    Woken(NodeId, u64),
    /// A request to the disk.
    Disk,
}

/// A load: threads that use files.
pub trait Load {
    /// How many.
    fn threads(&self) -> u32;
    /// How often some process of the machine asks for a huge page, in nanoseconds; 0 never.
    fn huge_every_ns(&self) -> u64;
    /// The next step of one of them, which is at most a page.
    fn step(&mut self, machine: &mut CacheMachine<'_, '_>, thread: u32) -> Turn;
    /// Its figures, when it is done.
    fn figures(&self) -> Vec<(&'static str, f64)>;
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// By the names of the published tables, at the size of the machine.
    pub values: Vec<(&'static str, f64)>,
    /// Hash of all of it.
    pub hash: String,
}

impl Figures {
    /// A figure.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Load(u32),
    Flusher,
    Background(usize),
    Interrupts,
    /// Asks for a huge page so often.
    Daemon(u64),
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    role: Role,
    cpu: u32,
    /// Event that it waits for.
    until: Option<Until>,
    /// Turns before this one were cancelled.
    turn: u64,
    clock_ns: u64,
    /// How long it slept last because too much was dirty.
    nap_ns: u64,
}

/// The machine at work.
#[derive(Debug)]
pub struct CacheMachine<'w, 'a> {
    pub(super) allocator: &'w CacheAllocator<'a>,
    machine: &'w Machine,
    pub(super) scale: u64,
    threads: Vec<Thread>,
    /// The thread whose step it is.
    current: usize,
    turns: BinaryHeap<Reverse<(u64, usize, u64)>>,
    background: Vec<BackgroundReclaimer>,
    pub(super) syncing: bool,
    /// A huge page that a process holds.
    huge: Option<Pfn>,
    resident: Vec<Pfn>,
    refused: u64,
    /// Node reclaim runs until then: no other begins there.
    tries: Vec<(u64, Reclaiming<'a>)>,
    /// Threads of the load.
    writers: u64,
}

impl<'w, 'a> CacheMachine<'w, 'a> {
    /// A machine about to start.
    pub fn new(
        allocator: &'w CacheAllocator<'a>,
        machine: &'w Machine,
        scale: u64,
    ) -> CacheMachine<'w, 'a> {
        CacheMachine {
            allocator,
            machine,
            scale,
            threads: Vec::new(),
            current: 0,
            turns: BinaryHeap::new(),
            background: Vec::new(),
            syncing: false,
            huge: None,
            resident: Vec::new(),
            refused: 0,
            tries: Vec::new(),
            writers: 0,
        }
    }

    /// Pages of the machine that one of the model stands for.
    pub fn scale(&self) -> u64 {
        self.scale
    }

    /// The clock of the thread whose step it is.
    pub fn now_ns(&self) -> u64 {
        self.allocator.platform().now_ns()
    }

    /// The thread whose step it is spends time on something else.
    pub fn spend_us(&self, us: u64) {
        self.allocator.platform().pass_ns(us * 1000);
    }

    /// Event that a thread waits for before it makes pages dirty. Each sleeps separately: threads
    /// that woke together would request pages at one moment, and all but one would find the zone
    /// busy.
    pub fn throttle(&mut self) -> Option<Until> {
        let throttled = self.is_throttled(&self.allocator.platform().model());
        let now_ns = self.now_ns();
        let nap_ns = &mut self.threads[self.current].nap_ns;
        *nap_ns = match throttled {
            true if self.machine.without.has(Mechanism::DirtyNaps) => SHORT_NAP_NS,
            true => longer_nap(*nap_ns),
            false => 0,
        };
        throttled.then_some(Until::Time(now_ns + *nap_ns))
    }

    pub(super) fn take_page(&mut self, gfp: Gfp) -> Option<u32> {
        let platform = self.allocator.platform();
        platform.work_on_pages(1, (self.machine.work.alloc as f64 / self.machine.ghz) as u64);
        let page = self.allocator.alloc(Request { order: Order::ZERO, gfp, node: None }).ok();
        self.refused += u64::from(page.is_none());
        page.map(|pfn| pfn.0 as u32)
    }

    pub(super) fn refused(&self) -> Until {
        Until::Time(self.now_ns() + REFUSED_NS)
    }

    pub(super) fn give(&self, block: Pfn, order: Order) {
        self.allocator.free(block, order).expect("the machine frees its own block");
    }

    /// Whether too many pages are dirty, so that the load's threads, which dirty equal parts, wait.
    fn is_throttled(&self, model: &Model) -> bool {
        let own = DIRTY_TASK_PERMILLE / self.writers.max(1);
        model.dirty + model.writeback() > self.may_be_dirty(model, DIRTY_PERMILLE - own)
    }

    /// Pages that may be dirty: a part of what files use or could use.
    fn may_be_dirty(&self, model: &Model, permille: u64) -> u64 {
        (self.allocator.stats().free_counter() + model.cached()) * permille / 1000
    }

    /// Plays a load to its end.
    ///
    /// # Errors
    /// A load that never ends, and an allocator that lost a page or broke an invariant.
    pub fn play(mut self, load: &mut dyn Load) -> Result<Figures, LabError> {
        self.boot();
        self.start(load);
        let (mut running, mut elapsed_ns) = (load.threads(), 0);
        while running > 0 {
            stop::check();
            let Some(Reverse((now_ns, id, turn))) = self.turns.pop() else {
                return Err(LabError::Plan("the load waits for what never comes".into()));
            };
            if self.threads[id].turn != turn {
                continue;
            }
            let Thread { role, cpu, .. } = self.threads[id];
            self.threads[id].until = None;
            self.current = id;
            let platform = self.allocator.platform();
            platform.turn_ns(cpu, now_ns);
            platform.model().advance(now_ns);
            self.tries.retain(|(until_ns, _)| *until_ns > now_ns);
            let next = match role {
                Role::Load(thread) => load.step(&mut self, thread),
                Role::Flusher => self.flush(),
                Role::Background(node) => self.reclaim(node),
                Role::Interrupts => self.interrupt(),
                Role::Daemon(every_ns) => self.take_huge(every_ns),
            };
            for (unit, until_ns) in platform.tries() {
                self.tries.extend(self.allocator.hold_reclaim(unit).map(|held| (until_ns, held)));
            }
            let now_ns = self.now_ns();
            self.threads[id].clock_ns = now_ns;
            match next {
                Turn::More => self.schedule(id, now_ns),
                Turn::Wait(until) => self.wait(id, now_ns, until),
                Turn::Done => {
                    running -= 1;
                    elapsed_ns = elapsed_ns.max(now_ns);
                }
            }
            self.wake_ready(now_ns);
        }
        self.figures(load, elapsed_ns)
    }

    fn schedule(&mut self, id: usize, at_ns: u64) {
        self.threads[id].turn += 1;
        self.turns.push(Reverse((at_ns, id, self.threads[id].turn)));
    }

    fn wait(&mut self, id: usize, now_ns: u64, until: Until) {
        let model = self.allocator.platform().model();
        let ready = self.is_ready(&model, until);
        drop(model);
        if ready {
            return self.schedule(id, now_ns);
        }
        self.threads[id].until = Some(until);
        match until {
            Until::Time(at) | Until::Uncongested(at) | Until::Work(at) | Until::Woken(_, at)
                if at != u64::MAX =>
            {
                self.schedule(id, at.max(now_ns));
            }
            _ => self.threads[id].turn += 1,
        }
    }

    /// Wakes the threads whose event has come.
    fn wake_ready(&mut self, now_ns: u64) {
        let platform = self.allocator.platform();
        let mut model = platform.model();
        let progress = std::mem::take(&mut model.progress);
        let disk_at = model.disk.done_at_ns();
        let mut ready = Vec::new();
        for (id, thread) in self.threads.iter().enumerate() {
            match thread.until {
                Some(Until::Disk) => ready.extend(disk_at.map(|at| (id, at))),
                Some(Until::Woken(node, _)) if platform.was_woken(node) => ready.push((id, now_ns)),
                Some(until) if progress && self.is_ready(&model, until) => {
                    ready.push((id, now_ns));
                }
                _ => {}
            }
        }
        drop(model);
        for (id, at_ns) in ready {
            let at_ns = at_ns.max(self.threads[id].clock_ns);
            self.threads[id].until = None;
            self.schedule(id, at_ns);
        }
    }

    fn is_ready(&self, model: &Model, until: Until) -> bool {
        match until {
            Until::Time(_) | Until::Woken(..) | Until::Disk => false,
            Until::Read(read) => !model.is_reading(read),
            Until::Written => model.dirty + model.writeback() == 0,
            Until::Uncongested(_) => !model.disk.is_congested(),
            Until::Work(_) => self.has_work(model, 0),
        }
    }

    /// Whether the flusher has something to write now.
    fn has_work(&self, model: &Model, now_ns: u64) -> bool {
        let expired = |since: u64| since + EXPIRED_NS <= now_ns;
        model.dirty > 0
            && (self.syncing
                || model.kicked > 0
                || model.dirty > self.may_be_dirty(model, BACKGROUND_PERMILLE)
                || model.oldest_dirty_ns().is_some_and(expired))
    }

    fn flush(&mut self) -> Turn {
        let platform = self.allocator.platform();
        let now_ns = platform.now_ns();
        let mut model = platform.model();
        if !self.has_work(&model, now_ns) {
            model.kicked = 0;
            if model.dirty + model.writeback() == 0 {
                self.syncing = false;
            }
            return Turn::Wait(Until::Work(now_ns + FLUSH_EVERY_NS));
        }
        if model.disk.is_congested() {
            return Turn::Wait(Until::Uncongested(now_ns + CONGESTION_WAIT_NS));
        }
        let sent = model.write_oldest((WRITE_CHUNK / self.scale).max(1), now_ns);
        drop(model);
        platform.work_on_pages(sent.max(1), UNMAP_NS);
        Turn::More
    }

    fn reclaim(&mut self, at: usize) -> Turn {
        let platform = self.allocator.platform();
        let reclaimer = &mut self.background[at];
        let node = reclaimer.node();
        // Takes its request now.
        platform.was_woken(node);
        platform.takes_nap();
        let next = self.allocator.background_step(reclaimer);
        let now_ns = platform.now_ns();
        match next {
            Next::Again if platform.takes_nap() => {
                Turn::Wait(Until::Uncongested(now_ns + CONGESTION_WAIT_NS))
            }
            Next::Again => {
                platform.pass_ns(AGAIN_NS);
                Turn::More
            }
            Next::Nap(ns) => Turn::Wait(Until::Woken(node, now_ns + ns)),
            Next::Sleep => Turn::Wait(Until::Woken(node, u64::MAX)),
        }
    }

    /// The disk has done something. Its driver and the block layer take objects, which must not
    /// wait for memory; now and then they need a page for more of them.
    fn interrupt(&mut self) -> Turn {
        let mut model = self.allocator.platform().model();
        let needs = !self.machine.without.has(Mechanism::Interrupts);
        let pages = u64::from(needs) * (model.interrupts / INTERRUPTS_PER_PAGE);
        model.interrupts %= INTERRUPTS_PER_PAGE;
        drop(model);
        for _ in 0..pages {
            let request = Request { order: Order::ZERO, gfp: Gfp::ATOMIC, node: None };
            if let Ok(page) = self.allocator.alloc(request) {
                self.give(page, Order::ZERO);
            }
        }
        Turn::Wait(Until::Disk)
    }

    fn take_huge(&mut self, every_ns: u64) -> Turn {
        let order = Order::new(HUGE_ORDER - self.scale.ilog2().min(HUGE_ORDER));
        let order = order.unwrap_or(Order::ZERO);
        if let Some(old) = self.huge.take() {
            self.give(old, order);
        }
        self.huge = self.allocator.alloc(Request { order, gfp: Gfp::TRANSHUGE, node: None }).ok();
        Turn::Wait(Until::Time(self.now_ns() + every_ns))
    }

    /// Memory in use before the load: the kernel, daemons, and files that programs use.
    fn boot(&mut self) {
        let platform = self.allocator.platform();
        platform.charge(false);
        platform.model().create(0);
        let mut index = 0;
        for (node, cpu) in self.first_cpus() {
            platform.turn_ns(cpu, 0);
            let zones = self.allocator.zones().iter().filter(|zone| zone.node() == node);
            let pages: u64 = zones.map(|zone| zone.managed()).sum();
            for _ in 0..pages * RESIDENT_PERCENT / 100 {
                let page = self.take_page(Gfp::KERNEL);
                self.resident.extend(page.map(|at| Pfn(u64::from(at))));
            }
            for _ in 0..pages * PROGRAMS_PERMILLE / 1000 {
                let Some(at) = self.take_page(Gfp::HIGHUSER_MOVABLE) else { break };
                let mut model = platform.model();
                model.insert(at, 0, index);
                model.touch(at);
                model.touch(at);
                index += 1;
            }
        }
        platform.charge(true);
    }

    /// Each node's first CPU.
    fn first_cpus(&self) -> Vec<(NodeId, u32)> {
        let cpus = self.allocator.tables().cpu_nodes();
        let first = |node| cpus.iter().position(|of| *of == node).unwrap_or(0) as u32;
        (0..self.allocator.nodes().len() as u16).map(|n| (NodeId(n), first(NodeId(n)))).collect()
    }

    /// All threads begin: the load on the CPUs of the first node, in turn.
    fn start(&mut self, load: &dyn Load) {
        self.writers = u64::from(load.threads());
        let nodes = self.allocator.tables().cpu_nodes();
        let own: Vec<u32> =
            (0..nodes.len() as u32).filter(|cpu| nodes[*cpu as usize] == NodeId(0)).collect();
        let last = *own.last().unwrap_or(&0);
        let mut roles: Vec<(Role, u32)> = (0..load.threads())
            .map(|thread| (Role::Load(thread), own[thread as usize % own.len()]))
            .collect();
        roles.push((Role::Flusher, last));
        roles.push((Role::Interrupts, last));
        for (node, cpu) in self.first_cpus() {
            roles.push((Role::Background(self.background.len()), cpu));
            self.background.push(self.allocator.background_start(node));
        }
        let huge = !self.machine.without.has(Mechanism::HugePages);
        if huge && load.huge_every_ns() > 0 {
            roles.push((Role::Daemon(load.huge_every_ns()), last));
        }
        for (id, (role, cpu)) in roles.into_iter().enumerate() {
            self.threads.push(Thread { role, cpu, until: None, turn: 0, clock_ns: 0, nap_ns: 0 });
            self.schedule(id, 0);
        }
    }

    fn figures(mut self, load: &dyn Load, elapsed_ns: u64) -> Result<Figures, LabError> {
        let (mut background, mut direct) = (Shrunk::default(), Shrunk::default());
        for node in self.allocator.nodes() {
            let scans = node.scans();
            background = background.plus(scans.background);
            direct = direct.plus(scans.direct).plus(scans.node);
        }
        let model = self.allocator.platform().model();
        let Traffic { read, written } = model.traffic;
        // As the published reports: nothing scanned is done with full efficiency.
        let percent = |part: u64, of: u64| (part * 100).checked_div(of).unwrap_or(100) as f64;
        let pages = |pages: u64| (pages * self.scale) as f64;
        let kib = |pages: u64| (pages * 4) as f64;
        let mut values = load.figures();
        values.extend([
            ("elapsed_s", elapsed_ns as f64 / 1e9),
            ("pages_in", kib(read)),
            ("pages_out", kib(written)),
            ("direct_pages_scanned", pages(direct.scanned)),
            ("kswapd_pages_scanned", pages(background.scanned)),
            ("kswapd_pages_reclaimed", pages(background.reclaimed)),
            ("direct_pages_reclaimed", pages(direct.reclaimed)),
            ("kswapd_efficiency_percent", percent(background.reclaimed, background.scanned)),
            ("direct_efficiency_percent", percent(direct.reclaimed, direct.scanned)),
            ("percent_direct_scans", percent(direct.scanned, direct.scanned + background.scanned)),
            ("slabs_scanned", model.slab.scanned as f64),
            ("disk_busy_percent", percent(model.disk.busy_ns, elapsed_ns)),
            ("seeks", model.disk.seeks as f64),
            ("inode_steals", pages(model.stolen)),
            ("vmscan_writes", pages(model.vmscan_writes)),
            ("refused", self.refused as f64),
        ]);
        let held = model.validate() + model.slab.pages();
        drop(model);
        let stats = self.allocator.reclaim_stats();
        for reclaimer in self.background.drain(..) {
            self.allocator.background_stop(reclaimer);
        }
        let huge = self.huge.map_or(0, |_| 1 << (HUGE_ORDER - self.scale.ilog2().min(HUGE_ORDER)));
        let managed: u64 = self.allocator.zones().iter().map(|zone| zone.managed()).sum();
        let free: u64 = self.allocator.free_pages();
        let known = free + held + self.resident.len() as u64 + huge;
        let broken = self.allocator.validate().err().map(|fault| format!("{fault:?}"));
        if let Some(what) =
            broken.or((known != managed).then(|| format!("of {managed} pages {known} are known")))
        {
            return Err(LabError::Plan(format!("the allocator broke under this load: {what}")));
        }
        let mut hash = Sha256::new();
        hash.update(format!("{values:?} {stats:?} {free}"));
        for thread in &self.threads {
            hash.update(thread.clock_ns.to_le_bytes());
        }
        Ok(Figures { values, hash: hex(&hash.finalize()) })
    }
}

/// How long a thread sleeps that has slept so long already.
fn longer_nap(nap_ns: u64) -> u64 {
    (2 * nap_ns).clamp(NAP_NS, CONGESTION_WAIT_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_from_a_tick_to_a_tenth_of_a_second() {
        let naps = std::iter::successors(Some(longer_nap(0)), |nap| Some(longer_nap(*nap)));
        let ms: Vec<u64> = naps.take(7).map(|ns| ns / 1_000_000).collect();
        assert_eq!(ms, [4, 8, 16, 32, 64, 100, 100]);
    }
}
