//! The calls of a run as events.

use std::collections::HashMap;

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
    pub(super) events: Vec<Event>,
    /// By CPU and zone.
    moved: Vec<Moved>,
    pub(super) zones: Zones,
    /// By CPU, when its last event was, in nanoseconds.
    latest: Vec<u64>,
    /// By page, when it was last allocated or freed.
    pages: HashMap<u64, u64>,
    ghz: f64,
    /// There were more events than a recording holds.
    pub(super) is_full: bool,
}

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
        let latest = vec![0; allocator.cpus()];
        let (events, pages) = (Vec::new(), HashMap::new());
        Tape { events, moved, zones, latest, pages, ghz, is_full: false }
    }

    fn ns(&self, cycles: u64) -> u64 {
        (cycles as f64 / self.ghz) as u64
    }

    fn push(&mut self, time_ns: u64, (cpu, pid): (u32, i32), kind: EventKind) {
        if self.events.len() >= EVENTS_MAX {
            self.is_full = true;
            return;
        }
        let latest = &mut self.latest[cpu as usize];
        *latest = time_ns.max(*latest);
        self.events.push(Event { time_ns: *latest, cpu, pid, kind });
    }

    /// When all pages of a block have been allocated or freed before.
    fn known(&self, block: Pfn, order: Order) -> u64 {
        let pages = block.0..block.0 + order.pages();
        pages.filter_map(|page| self.pages.get(&page)).max().copied().unwrap_or(0)
    }

    fn note(&mut self, block: Pfn, order: Order, time_ns: u64) {
        self.pages.extend((block.0..block.0 + order.pages()).map(|page| (page, time_ns)));
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
        let begin = self.ns(call.clock).max(self.latest[cpu as usize]);
        let begin = match kind {
            Kind::Free(block, order) => {
                let begin = begin.max(self.known(block, order));
                let free = EventKind::Free { pfn: block.0, order: order.get() as u8 };
                self.push(begin, who, free);
                self.note(block, order, begin);
                begin
            }
            Kind::Refresh => {
                self.push(begin, who, EventKind::VmstatUpdate);
                begin
            }
            Kind::Alloc(..) => begin,
        };
        let moves = self.moves_since(allocator, cpu);
        let block = kind.block();
        let of_block = block.and_then(|block| self.zones.of_frame(block.0));
        let first = moves.first().map(|(zone, _)| *zone).or(of_block).unwrap_or(0);
        let waited = (end.waited - call.waited, end.contended - call.contended);
        let at = self.waits(begin, who, first, waited);
        for (zone, moved) in moves {
            let named = block.filter(|_| of_block == Some(zone));
            let pfn = named.map_or(self.zones.start(zone), |block| block.0);
            self.moves(at, who, kind, (pfn, moved));
        }
        if let Kind::Alloc(request, block) = kind {
            let (pfn, order) = (block.map(|block| block.0), kind.order());
            let (gfp, migratetype) = (request.gfp.bits(), kind.migratetype());
            let alloc = EventKind::Alloc { pfn, order, migratetype, gfp };
            let known = block.map_or(0, |block| self.known(block, request.order));
            let over = (begin + self.ns(end.clock - call.clock)).max(at).max(known);
            self.push(over, who, alloc);
            if let Some(block) = block {
                self.note(block, request.order, over);
            }
        }
    }

    /// Waits for a zone's lock: cycles, and how often. Returns when they are over.
    fn waits(&mut self, begin: u64, who: (u32, i32), zone: usize, waited: (u64, u64)) -> u64 {
        let (cycles, times) = waited;
        let lock = FIRST_LOCK + zone as u64 * LOCK_BYTES;
        for number in 0..times {
            let from = begin + self.ns(cycles * number / times);
            let to = begin + self.ns(cycles * (number + 1) / times);
            let waits = Notice::ContentionBegin { lock, flags: Notice::SPIN };
            self.push(from, who, EventKind::Notice(waits));
            self.push(to, who, EventKind::Notice(Notice::ContentionEnd { lock }));
        }
        begin + self.ns(cycles)
    }

    /// Pages that moved between a zone and the CPU's lists.
    fn moves(&mut self, at: u64, who: (u32, i32), kind: Kind, (pfn, moved): (u64, Moved)) {
        let (order, migratetype) = (kind.order(), kind.migratetype());
        for (pages, percpu_refill) in [(moved.refilled, true), (moved.direct, false)] {
            for _ in 0..pages.div_ceil(1 << order) {
                let taken = EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill };
                self.push(at, who, taken);
            }
        }
        let order = if moved.drained.is_multiple_of(1 << order) { order } else { 0 };
        for _ in 0..moved.drained >> order {
            self.push(at, who, EventKind::PcpuDrain { pfn, order, migratetype });
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
