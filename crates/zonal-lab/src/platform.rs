//! The lab's platform: virtual CPUs, and a clock that work and waiting advance.
//!
//! One thread plays all CPUs in turn. The core reports its steps through [`Platform::cost`]; the
//! platform charges them to the running CPU.

mod holds;
mod spent;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use zonal_core::platform::{Instruction, Line, Platform, Step};
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, Pfn, ZoneId};

use crate::cost::clock::Clock;
use crate::cost::contents::{Access, Contents};
use crate::cost::directory::{Directory, LineId};
use crate::cost::kernel::{ITEM_QUEUE_NS, ITEM_RUN_NS};
use crate::cost::lock::{LINES_PER_PCP, LockClock};
use crate::cost::shared_core::SharedCores;
use crate::machine::{Machine, WorkCosts};
use crate::mechanism::{Mechanism, Mechanisms};
use crate::one_thread::OneThread;
use crate::provenance::{Provenance, given};
use crate::variant::Variant;

pub(crate) use spent::Work;
pub use spent::{Happened, OwnerLocks, Spent, Waits};

given! {
    /// Lines of each zone in the directory: its counters and marks.
    LINES_PER_ZONE: u32 = 1,
        Provenance::estimated("a zone's items and the NUMA events beside them come in pairs");
    /// Lines of the whole machine: the sums over all zones.
    MACHINE_LINES: u32 = 1,
        Provenance::estimated("the sums of all items lie in a row");
    /// Exchanges of words on a depot's line for each batch: one for each of the two stacks, and the
    /// count of pages.
    EXCHANGES: u64 = 3,
        Provenance::sourced("zonal-core, pcp/depot.rs: two stacks and a count of pages");
    /// Numbers of blocks on a line of a batch's array.
    BLOCKS_PER_LINE: u32 = 16,
        Provenance::sourced("zonal-core, pcp/depot.rs: numbers of four bytes");
}

/// The virtual machine.
#[derive(Debug)]
pub struct VirtualPlatform {
    cpu: AtomicU32,
    /// Cycles of the CPU whose turn it is.
    clock: AtomicU64,
    charges: AtomicBool,
    /// The call frees.
    frees: AtomicBool,
    ghz: f64,
    meter: OneThread<Meter>,
}

/// Who has which line and lock, and where the cycles went.
#[derive(Debug)]
struct Meter {
    directory: Directory,
    contents: Contents,
    locks: Vec<LockClock>,
    /// Locks of CPUs' own pageblocks: by zone and CPU, made when first taken.
    owners: Vec<LockClock>,
    /// The core that used each depot last: by zone and last-level cache.
    depots: Vec<Option<u32>>,
    /// Last-level cache of each CPU.
    cache_of: Vec<u32>,
    caches: u32,
    shared: SharedCores,
    boost: Clock,
    core_of: Vec<u32>,
    /// By zone and CPU: the core that looked at this CPU's deltas since it last changed them.
    looked: Vec<Option<u32>>,
    /// What a block took in each CPU's last hold of a zone lock.
    block: Vec<u64>,
    /// Cycles that others took from each CPU, which it has not felt yet.
    owed: Vec<u64>,
    /// What a work item takes from the CPU that queues it, and from the one that runs it.
    item: (u64, u64),
    locked: u64,
    work: WorkCosts,
    variant: Variant,
    without: Mechanisms,
    /// No CPU's clock is behind this.
    reached: u64,
    spent: Spent,
    happened: Happened,
    waits: Waits,
    apart: Work,
}

impl VirtualPlatform {
    /// A machine whose core has `zones` zones.
    pub fn new(machine: &Machine, zones: usize) -> VirtualPlatform {
        let cache_of: Vec<u32> =
            (0..machine.cpus()).map(|cpu| machine.llc_of_core(machine.core_of(cpu))).collect();
        let caches = cache_of.iter().max().map_or(1, |last| last + 1);
        let depots = zones as u32 * caches;
        let lines = zones as u32 * LINES_PER_ZONE + MACHINE_LINES + depots;
        let cycles = |ns: u64| (ns as f64 * machine.ghz) as u64;
        VirtualPlatform {
            cpu: AtomicU32::new(0),
            clock: AtomicU64::new(0),
            charges: AtomicBool::new(true),
            frees: AtomicBool::new(false),
            ghz: machine.ghz,
            meter: OneThread::new(Meter {
                directory: Directory::new(machine, lines),
                contents: Contents::new(machine),
                locks: vec![LockClock::default(); zones],
                owners: Vec::new(),
                depots: vec![None; depots as usize],
                cache_of,
                caches,
                boost: Clock::new(machine),
                shared: SharedCores::new(machine.cpus(), machine.cores()),
                core_of: (0..machine.cpus()).map(|cpu| machine.core_of(cpu)).collect(),
                looked: vec![None; zones * machine.cpus() as usize],
                block: vec![machine.work.page; machine.cpus() as usize],
                owed: vec![0; machine.cpus() as usize],
                item: (cycles(ITEM_QUEUE_NS), cycles(ITEM_RUN_NS)),
                locked: machine.line.locked,
                work: machine.work,
                variant: Variant::default(),
                without: machine.without,
                reached: 0,
                spent: Spent::default(),
                happened: Happened::default(),
                waits: Waits::default(),
                apart: Work::default(),
            }),
        }
    }

    /// It is this CPU's turn, and its clock stands at `cycles`. All atomics here are Relaxed: one
    /// thread uses them.
    #[inline]
    pub fn turn(&self, cpu: u32, cycles: u64) {
        self.cpu.store(cpu, Relaxed);
        self.clock.store(cycles, Relaxed);
    }

    /// It is this CPU's turn at `cycles`, and no CPU's clock is behind that any more. It feels what
    /// others took from it.
    #[inline]
    pub(crate) fn next_turn(&self, cpu: u32, cycles: u64) {
        let charges = self.charges.load(Relaxed);
        let owed = self.meter.with(|meter| {
            meter.reached = cycles;
            meter.directory.reach(cycles);
            let owed = std::mem::take(&mut meter.owed[cpu as usize]);
            let felt = if charges { owed } else { 0 };
            meter.apart.sent += felt;
            felt
        });
        self.turn(cpu, cycles + owed);
    }

    /// The CPU was idle when others took time from it.
    pub fn forgive(&self, cpu: u32) {
        self.meter.with(|meter| meter.owed[cpu as usize] = 0);
    }

    /// The clock of the CPU whose turn it is, in cycles.
    pub fn clock(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Whether what follows takes time. `false` suspends the counts too: for setup and inspection
    /// of the core.
    pub fn charge(&self, charges: bool) {
        self.charges.store(charges, Relaxed);
    }

    /// The running CPU works on its own lines for a number of cycles.
    #[inline]
    pub fn work(&self, cycles: u64) {
        if !self.charges.load(Relaxed) {
            return;
        }
        self.clock.store(self.clock.load(Relaxed) + cycles, Relaxed);
    }

    /// The running CPU works for `cycles`, longer if another thread of the core works. `user`: for
    /// a program, not for the kernel.
    pub fn shared_work(&self, cycles: u64, user: bool) {
        self.stretched(cycles, |meter, took| match user {
            true => {
                meter.spent.user += took;
                meter.apart.programs += took;
            }
            false => meter.apart.kernel += took,
        });
    }

    /// The same for a call of the allocator.
    pub(crate) fn call_work(&self, cycles: u64) {
        self.stretched(cycles, |meter, took| meter.apart.calls += took);
    }

    /// Works for `cycles` or longer; `note` has what it took.
    fn stretched(&self, cycles: u64, note: impl FnOnce(&mut Meter, u64)) {
        let (cpu, now) = (self.cpu.load(Relaxed), self.clock());
        let charges = self.charges.load(Relaxed);
        let took = self.meter.with(|meter| {
            let cycles = meter.boost.stretch(now, cycles);
            let core = meter.core_of[cpu as usize];
            let took = match meter.without.has(Mechanism::SharedCores) {
                true => cycles,
                false => meter.shared.stretch((cpu, core), now, cycles),
            };
            if charges {
                note(meter, took);
            }
            took
        });
        self.work(took);
    }

    /// The running CPU touches the first `lines` lines of the memory at `first`: the cost depends
    /// on where they are. `user`: for a program, not for the kernel. Threads of a core do not slow
    /// each other down here, because both wait for lines most of the time.
    pub fn touch(&self, first: Pfn, lines: u64, access: Access, user: bool) {
        if lines == 0 || !self.charges.load(Relaxed) {
            return;
        }
        let (cpu, now) = (self.cpu.load(Relaxed), self.clock());
        let took = self.meter.with(|meter| {
            let who = (meter.core_of[cpu as usize], now, meter.reached);
            let took = meter.contents.touch(who, first.0, lines, access);
            let took = if meter.without.has(Mechanism::Contents) { 0 } else { took };
            meter.spent.contents += took;
            if user {
                meter.spent.user += took;
            }
            took
        });
        self.work(took);
    }

    /// The running CPU takes a lock that is no zone's, waits for `lines` lines from who held it
    /// last, works for `cycles` and releases it.
    pub fn hold(&self, lock: &mut LockClock, lines: u64, cycles: u64) {
        if !self.charges.load(Relaxed) {
            return;
        }
        let (cpu, now) = (self.cpu.load(Relaxed), self.clock());
        let took = self.meter.with(|meter| meter.hold(lock, (cpu, now), (lines, cycles)));
        self.work(took);
    }

    /// The running CPU changes a line by a locked instruction, as many others do: one at a time has
    /// it.
    pub fn change(&self, line: &mut LockClock) {
        if !self.charges.load(Relaxed) {
            return;
        }
        let (cpu, now) = (self.cpu.load(Relaxed), self.clock());
        let took = self.meter.with(|meter| meter.change(line, (cpu, now)));
        self.work(took);
    }

    /// Whether calls from now on free.
    pub fn set_frees(&self, frees: bool) {
        self.frees.store(frees, Relaxed);
    }

    /// What the kernel does that no policy says.
    pub fn set_variant(&self, variant: Variant) {
        self.meter.with(|meter| meter.variant = variant);
    }

    /// Cycles waited for locks so far.
    pub fn waits(&self) -> Waits {
        self.meter.with(|meter| meter.waits)
    }

    /// Cycles of work apart from the allocator's so far.
    pub(crate) fn apart(&self) -> Work {
        self.meter.with(|meter| meter.apart)
    }

    /// What happened to the locks of CPUs' own pageblocks so far.
    pub fn owner_locks(&self) -> OwnerLocks {
        self.meter.with(|meter| {
            let sum = |part: fn(&LockClock) -> u64| meter.owners.iter().map(part).sum();
            OwnerLocks {
                holds: sum(|lock| lock.holds),
                contended: sum(|lock| lock.contended),
                waited: sum(|lock| lock.waited),
            }
        })
    }

    /// The CPU has something to do, or nothing: what other threads of its core feel.
    pub fn set_idle(&self, cpu: u32, idle: bool) {
        self.meter.with(|meter| {
            if meter.shared.set_idle(cpu, idle) {
                meter.boost.set_idle(idle);
            }
        });
    }

    /// Where the cycles went so far, and what happened.
    pub fn totals(&self) -> (Spent, Happened) {
        self.meter.with(|meter| {
            let sum = |part: fn(&LockClock) -> u64| meter.locks.iter().map(part).sum();
            let happened = Happened {
                fetches: meter.directory.fetches(),
                lock_holds: sum(|lock| lock.holds),
                lock_contended: sum(|lock| lock.contended),
                lines: meter.contents.lines(),
                ..meter.happened
            };
            (Spent { lock_waits: sum(|lock| lock.waited), ..meter.spent }, happened)
        })
    }
}

impl Meter {
    /// Cycles that a step takes at `now` on `cpu`. `frees`: in a call that frees.
    fn charge(&mut self, step: Step, (cpu, now): (u32, u64), frees: bool) -> u64 {
        let core = self.core_of[cpu as usize];
        match step {
            Step::ZoneUnlock { zone, pages, blocks, orders } => {
                self.zone_hold(zone, (cpu, now), (pages, blocks, orders), frees)
            }
            Step::OwnerUnlock { zone, owner, pages, blocks } => {
                self.owner_hold((zone, owner), (cpu, now), (pages, blocks), frees)
            }
            Step::Depot { zone, group, blocks } => {
                let depot = u32::from(zone.0) * self.caches + self.cache_of[group.0 as usize];
                let took = self.exchange(depot, blocks, core, now);
                self.spent.pages += took;
                took
            }
            // The same as under the lock before it, for each block.
            Step::Split { blocks } => {
                let took = u64::from(blocks) * self.block[cpu as usize];
                self.spent.pages += took;
                took
            }
            Step::Scan(_) if self.without.has(Mechanism::Reads) => 0,
            Step::Scan(zone) => {
                let took = self.directory.read(self.line(Line::Zone(zone)), core, now);
                self.spent.reads += took;
                took
            }
            Step::Update { zone, by, times } => {
                let looked = self.looked_at(zone, cpu).take();
                let comes = looked.map_or(0, |by| self.comes(by, core));
                let took = u64::from(times) * self.update(by) + comes;
                self.spent.updates += took;
                took
            }
            Step::Collect { zone, cpu: of, taken } => {
                let owner = self.core_of[of.0 as usize];
                let exchange = if taken { self.locked } else { 0 };
                let took = self.comes(owner, core) + self.work.update + exchange;
                if owner != core {
                    *self.looked_at(zone, of.0) = Some(core);
                }
                self.spent.updates += took;
                took
            }
            Step::DrainWork(of) => {
                let (queue, run) = self.item;
                self.send(of, run);
                self.spent.pages += queue;
                queue
            }
            Step::DrainRemote(_, of) => {
                let owner = self.core_of[of.0 as usize];
                let lines = LINES_PER_PCP * self.contents.transfer(owner, core);
                self.send(of, lines);
                self.spent.pages += lines + self.locked;
                lines + self.locked
            }
            Step::Fold(_) if self.without.has(Mechanism::Folds) => {
                self.happened.folds += 1;
                0
            }
            Step::Fold(line) => {
                let took = self.directory.update(self.line(line), core, now);
                self.happened.folds += 1;
                self.spent.folds += took;
                took
            }
            // Part of `ZoneUnlock`, which knows how long the hold was.
            Step::ZoneLock(_) | Step::ZoneLocked(_) | Step::Moved { .. } => 0,
        }
    }

    /// A CPU is sent work that it feels when its turn comes.
    fn send(&mut self, cpu: CpuId, cycles: u64) {
        if !self.without.has(Mechanism::SentWork) {
            self.owed[cpu.0 as usize] += cycles;
        }
    }

    fn looked_at(&mut self, zone: ZoneId, cpu: u32) -> &mut Option<u32> {
        let cpus = self.core_of.len();
        &mut self.looked[usize::from(zone.0) * cpus + cpu as usize]
    }

    /// Cycles of putting or taking a batch: the depot's line comes and is changed, the lines of the
    /// array come one after the other from who used the depot last, and the word of each block is
    /// rewritten, which is the work of a counter update: load, compare, store.
    fn exchange(&mut self, depot: u32, blocks: u32, core: u32, now: u64) -> u64 {
        let line = LineId(self.locks.len() as u32 * LINES_PER_ZONE + MACHINE_LINES + depot);
        let first = self.directory.update(line, core, now);
        let rest = (EXCHANGES - 1) * self.directory.locked();
        let last = self.depots[depot as usize].replace(core);
        let far = last.map_or(0, |last| self.directory.transfer(last, core));
        let array = u64::from((blocks + 1).div_ceil(BLOCKS_PER_LINE)) * far;
        first + rest + array + u64::from(blocks) * self.work.update
    }

    fn update(&self, by: Instruction) -> u64 {
        let work = &self.work;
        match by {
            Instruction::Plain | Instruction::PreemptOff => work.update,
            Instruction::Masked => work.mask + work.update,
            Instruction::Cmpxchg => work.update + work.cmpxchg,
            Instruction::LocalInc => work.update,
            Instruction::Add => work.add,
        }
    }

    /// Processors fetch lines in pairs, so a zone's NUMA events come and go with its other items,
    /// which lie beside them.
    fn line(&self, line: Line) -> LineId {
        LineId(match line {
            Line::Zone(zone) | Line::ZoneNuma(zone) => u32::from(zone.0) * LINES_PER_ZONE,
            Line::Machine | Line::MachineNuma => self.locks.len() as u32 * LINES_PER_ZONE,
        })
    }
}

impl Wait for VirtualPlatform {
    fn wait(&self, _word: &LockWord, _value: u32) {}
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for VirtualPlatform {
    const CHARGES: bool = true;

    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        (self.clock() as f64 / self.ghz) as u64
    }
    #[inline]
    fn cost(&self, step: Step) {
        if !self.charges.load(Relaxed) {
            return;
        }
        let (cpu, now) = (self.cpu.load(Relaxed), self.clock());
        let frees = self.frees.load(Relaxed);
        let took = self.meter.with(|meter| meter.charge(step, (cpu, now), frees));
        self.work(took);
    }
}
