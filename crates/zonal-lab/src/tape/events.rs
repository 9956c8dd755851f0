//! The calls of a run as events.

use zonal_core::alloc::{Allocator, Request};
use zonal_core::types::{CpuId, Order, Pfn};
use zonal_trace::{Event, EventKind, Notice};

use super::zones::Zones;
use crate::platform::VirtualPlatform;

/// The core, with the virtual machine as its platform.
type Core<'a> = Allocator<'a, VirtualPlatform>;

/// Most events of a recording.
pub const EVENTS_MAX: usize = 1 << 24;
/// Address of the first zone's lock, as a kernel would have one.
const FIRST_LOCK: u64 = 0xffff_8880_0000_0000;
/// From one lock's address to the next.
const LOCK_BYTES: u64 = 0x800;
/// Thread of the first CPU, and of the first CPU's statistics worker.
const PROGRAM: i32 = 1000;
const WORKER: i32 = 10_000;

/// Pages of one CPU's lists of a zone that moved so far.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    refilled: u64,
    drained: u64,
    direct: u64,
}

/// What a run's calls did, as events.
#[derive(Debug)]
pub(crate) struct Tape {
    /// In the order of the calls; the parts of a call by their times.
    pub(super) events: Vec<Event>,
    /// By CPU and zone.
    moved: Vec<Moved>,
    pub(super) zones: Zones,
    /// How often all CPUs' lists were emptied.
    whole_drains: u64,
    /// When the last allocation, free or refresh was told, in nanoseconds.
    turn: u64,
    ghz: f64,
    /// There were more events than a recording holds.
    pub(super) is_full: bool,
}

/// An event of a call: its time in nanoseconds, CPU and thread, and what it is.
type Told = (u64, (u32, i32), EventKind);

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    clock: u64,
    waited: u64,
    contended: u64,
}

/// What a call was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Alloc(Request, Option<Pfn>),
    Free(Pfn, Order),
    Refresh,
}

impl Tape {
    /// Of a machine that has booted.
    pub(super) fn new(allocator: &Core<'_>, ghz: f64) -> Tape {
        let zones = Zones::of(allocator);
        let moved = vec![Moved::default(); zones.len() * allocator.cpus()];
        let whole_drains = allocator.stats().whole_drains();
        let (events, turn) = (Vec::new(), 0);
        Tape { events, moved, zones, whole_drains, turn, ghz, is_full: false }
    }

    fn ns(&self, cycles: u64) -> u64 {
        (cycles as f64 / self.ghz) as u64
    }

    /// When an allocation, free or refresh is told that was at `time_ns` by its CPU's clock: not
    /// before those that the core had earlier, so that a replay has them in the same order.
    fn in_turn(&mut self, time_ns: u64) -> u64 {
        self.turn = self.turn.max(time_ns);
        self.turn
    }

    fn push(&mut self, mut told: Vec<Told>) {
        if self.events.len() + told.len() > EVENTS_MAX {
            self.is_full = true;
            return;
        }
        told.sort_by_key(|(time_ns, ..)| *time_ns);
        let event = |(time_ns, (cpu, pid), kind)| Event { time_ns, cpu, pid, kind };
        self.events.extend(told.into_iter().map(event));
    }
}

impl Call {
    /// The call that begins now.
    pub(crate) fn begin(platform: &VirtualPlatform) -> Call {
        let (spent, happened) = platform.totals();
        let (waited, contended) = (spent.lock_waits, happened.lock_contended);
        Call { clock: platform.clock(), waited, contended }
    }
}

impl Tape {
    /// The call of `cpu` is over.
    pub(crate) fn tell(&mut self, allocator: &Core<'_>, call: Call, cpu: u32, kind: Kind) {
        let end = Call::begin(allocator.platform());
        let pid = if matches!(kind, Kind::Refresh) { WORKER } else { PROGRAM } + cpu as i32;
        let who = (cpu, pid);
        let begin = self.ns(call.clock);
        let mut told = Vec::new();
        match kind {
            Kind::Free(block, order) => {
                let free = EventKind::Free { pfn: block.0, order: order.get() as u8 };
                told.push((self.in_turn(begin), who, free));
            }
            Kind::Refresh => told.push((self.in_turn(begin), who, EventKind::VmstatUpdate)),
            Kind::Alloc(..) => {}
        }
        let moves = self.moves_since(allocator, cpu);
        let block = kind.block();
        let of_block = block.and_then(|block| self.zones.of_frame(block.0));
        let first = moves.first().map(|(zone, _)| *zone).or(of_block).unwrap_or(0);
        let waited = (end.waited - call.waited, end.contended - call.contended);
        let at = self.waits(&mut told, begin, who, first, waited);
        for (zone, moved) in moves {
            let named = block.filter(|_| of_block == Some(zone));
            let pfn = named.map_or(self.zones.start(zone), |block| block.0);
            moved.tell(&mut told, (at, who), kind, pfn);
        }
        self.whole_drain(&mut told, allocator, at, cpu);
        if let Kind::Alloc(request, block) = kind {
            let (pfn, order) = (block.map(|block| block.0), kind.order());
            let (gfp, migratetype) = (request.gfp.bits(), kind.migratetype());
            let alloc = EventKind::Alloc { pfn, order, migratetype, gfp };
            let over = (begin + self.ns(end.clock - call.clock)).max(at);
            told.push((self.in_turn(over), who, alloc));
        }
        self.push(told);
    }

    /// Waits for a zone's lock: cycles, and how often. Returns when they are over.
    fn waits(
        &self,
        told: &mut Vec<Told>,
        begin: u64,
        who: (u32, i32),
        zone: usize,
        waited: (u64, u64),
    ) -> u64 {
        let (cycles, times) = waited;
        let lock = FIRST_LOCK + zone as u64 * LOCK_BYTES;
        for number in 0..times {
            let from = begin + self.ns(cycles * number / times);
            let to = begin + self.ns(cycles * (number + 1) / times);
            let waits = Notice::ContentionBegin { lock, flags: Notice::SPIN };
            told.push((from, who, EventKind::Notice(waits)));
            told.push((to, who, EventKind::Notice(Notice::ContentionEnd { lock })));
        }
        begin + self.ns(cycles)
    }

    /// Pages of other CPUs' lists that the call of `cpu` gave back, told as by the worker of each.
    fn whole_drain(&mut self, told: &mut Vec<Told>, allocator: &Core<'_>, at: u64, cpu: u32) {
        let drains = allocator.stats().whole_drains();
        if drains == self.whole_drains {
            return;
        }
        self.whole_drains = drains;
        for other in (0..allocator.cpus() as u32).filter(|other| *other != cpu) {
            for (zone, moved) in self.moves_since(allocator, other) {
                let who = (other, WORKER + other as i32);
                moved.tell(told, (at, who), Kind::Refresh, self.zones.start(zone));
            }
        }
    }

    /// What the CPU's lists of each zone moved since this was asked last.
    fn moves_since(&mut self, allocator: &Core<'_>, cpu: u32) -> Vec<(usize, Moved)> {
        let zones = allocator.zones();
        let mut moves = Vec::new();
        for (number, zone) in zones.iter().enumerate() {
            let mut now = Moved::default();
            for pcp in allocator.tables().pcps(zone.id(), CpuId(cpu)) {
                let (totals, events) = (pcp.totals(), pcp.events());
                now.refilled += totals.refilled_pages;
                now.drained += totals.drained_pages;
                now.direct += events.direct_pages;
            }
            let before = &mut self.moved[cpu as usize * zones.len() + number];
            let moved = Moved {
                refilled: now.refilled - before.refilled,
                drained: now.drained - before.drained,
                direct: now.direct - before.direct,
            };
            *before = now;
            if moved.refilled + moved.drained + moved.direct > 0 {
                moves.push((number, moved));
            }
        }
        moves
    }
}

impl Moved {
    /// Pages that moved between a zone and a CPU's lists.
    fn tell(self, told: &mut Vec<Told>, (at, who): (u64, (u32, i32)), kind: Kind, pfn: u64) {
        let (order, migratetype) = (kind.order(), kind.migratetype());
        for (pages, percpu_refill) in [(self.refilled, true), (self.direct, false)] {
            for _ in 0..pages.div_ceil(1 << order) {
                let taken = EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill };
                told.push((at, who, taken));
            }
        }
        let order = if self.drained.is_multiple_of(1 << order) { order } else { 0 };
        for _ in 0..self.drained >> order {
            told.push((at, who, EventKind::PcpuDrain { pfn, order, migratetype }));
        }
    }
}

impl Kind {
    fn order(self) -> u8 {
        match self {
            Kind::Alloc(request, _) => request.order.get() as u8,
            Kind::Free(_, order) => order.get() as u8,
            Kind::Refresh => 0,
        }
    }

    fn migratetype(self) -> u8 {
        match self {
            Kind::Alloc(request, _) => request.gfp.migratetype(true).map_or(0, |mt| mt as u8),
            Kind::Free(..) | Kind::Refresh => 0,
        }
    }

    fn block(self) -> Option<Pfn> {
        match self {
            Kind::Alloc(_, block) => block,
            Kind::Free(block, _) => Some(block),
            Kind::Refresh => None,
        }
    }
}
