//! A run as a recording, in the form that `zonal record` makes on a real machine: what reads
//! recordings can be tried on machines whose truth is known.
//!
//! ```text
//!  Lab: each call ─► Tape: the call, its waits, the pages that moved ─► FILE.zonal + meta.json
//! ```
//! The recording begins when the machine has booted, with every list empty, and has the warm-up
//! too. Its `meta.json` says under `lab` which run it is of, with the machine's file and the
//! figures: the truth.
//!
//! # What differs from a kernel's recording
//! - Which pages a refill or a drain moves is not recorded by the lab: their events name the block
//!   of the call that caused them. Zone, CPU, time and number of pages are right.
//! - A drain's pages are blocks of the call's order where they divide by it, single pages else.
//! - The lab lets a CPU make a whole step at once, so that another one may have a page that was
//!   handed over some nanoseconds before its clock says so. Such calls are moved behind what they
//!   depend on: a page is freed after it was allocated, and allocated after it was freed.

mod files;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use zonal_core::alloc::Request;
use zonal_core::types::{CpuId, Order, Pfn};
use zonal_trace::{Event, EventKind, MachineDescription, Notice, Part, Parts};
use zonal_trace::{MachineFiles, TraceWriter, WriterOptions};

use self::files::Zones;
use crate::LabError;
use crate::recipe::{Machines, Recipe};
use crate::run::Figures;
use crate::sim::Lab;

/// Most events of a recording.
pub const EVENTS_MAX: usize = 1 << 24;
/// Level of zstd: the files are many and small.
const LEVEL: i32 = 3;
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
    events: Vec<Event>,
    /// By CPU and zone.
    moved: Vec<Moved>,
    zones: Zones,
    /// By CPU, when its last event was, in nanoseconds.
    latest: Vec<u64>,
    /// By page, when it was last allocated or freed.
    pages: HashMap<u64, u64>,
    ghz: f64,
    /// There were more events than a recording holds.
    is_full: bool,
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
    fn new(lab: &Lab<'_>) -> Tape {
        let zones = Zones::of(lab);
        let moved = vec![Moved::default(); zones.len() * lab.allocator.cpus()];
        let latest = vec![0; lab.allocator.cpus()];
        let (events, pages, ghz) = (Vec::new(), HashMap::new(), lab.machine.ghz);
        Tape { events, moved, zones, latest, pages, ghz, is_full: false }
    }

    fn ns(&self, cycles: u64) -> u64 {
        (cycles as f64 / self.ghz) as u64
    }

    fn push(&mut self, time_ns: u64, cpu: u32, pid: i32, kind: EventKind) {
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

impl Lab<'_> {
    /// Records from now on.
    fn record(&mut self) {
        self.tape = Some(Box::new(Tape::new(self)));
    }

    /// Where the call begins that comes now, if the run is recorded.
    #[inline]
    pub(crate) fn call(&self) -> Option<Call> {
        self.tape.as_ref()?;
        let platform = self.allocator.platform();
        let (spent, happened) = platform.totals();
        let (waited, contended) = (spent.lock_waits, happened.lock_contended);
        Some(Call { clock: platform.clock(), waited, contended })
    }

    /// The call of `cpu` is over.
    pub(crate) fn called(&mut self, call: Option<Call>, cpu: u32, kind: Kind) {
        let (Some(call), Some(mut tape)) = (call, self.tape.take()) else { return };
        self.tell(&mut tape, call, cpu, kind);
        self.tape = Some(tape);
    }

    fn tell(&self, tape: &mut Tape, call: Call, cpu: u32, kind: Kind) {
        let platform = self.allocator.platform();
        let (spent, happened) = platform.totals();
        let waited = spent.lock_waits - call.waited;
        let contended = happened.lock_contended - call.contended;
        let pid = if matches!(kind, Kind::Refresh) { WORKER } else { PROGRAM } + cpu as i32;
        let begin = tape.ns(call.clock).max(tape.latest[cpu as usize]);
        let begin = match kind {
            Kind::Free(block, order) => {
                let begin = begin.max(tape.known(block, order));
                let free = EventKind::Free { pfn: block.0, order: order.get() as u8 };
                tape.push(begin, cpu, pid, free);
                tape.note(block, order, begin);
                begin
            }
            Kind::Refresh => {
                tape.push(begin, cpu, pid, EventKind::VmstatUpdate);
                begin
            }
            Kind::Alloc(..) => begin,
        };
        let moves = self.moves_since(tape, cpu);
        let (order, migratetype, block) = match kind {
            Kind::Alloc(request, block) => {
                (request.order, request.gfp.migratetype(true).map_or(0, |mt| mt as u8), block)
            }
            Kind::Free(block, order) => (order, 0, Some(block)),
            Kind::Refresh => (Order::ZERO, 0, None),
        };
        let of_block = block.and_then(|block| tape.zones.of_frame(block.0));
        let first = moves.first().map(|(zone, _)| *zone).or(of_block).unwrap_or(0);
        let notice = |notice| EventKind::Notice(notice);
        for number in 0..contended {
            let lock = FIRST_LOCK + first as u64 * LOCK_BYTES;
            let from = begin + tape.ns(waited * number / contended);
            let to = begin + tape.ns(waited * (number + 1) / contended);
            let waits = Notice::ContentionBegin { lock, flags: Notice::SPIN };
            tape.push(from, cpu, pid, notice(waits));
            tape.push(to, cpu, pid, notice(Notice::ContentionEnd { lock }));
        }
        let at = begin + tape.ns(waited);
        for (zone, moved) in moves {
            let named = block.filter(|_| of_block == Some(zone));
            let pfn = named.map_or(tape.zones.start(zone), |block| block.0);
            let (size, order) = match order.pages() {
                pages if moved.drained.is_multiple_of(pages) => (pages, order.get() as u8),
                _ => (1, 0),
            };
            let blocks = |pages: u64| 0..pages.div_ceil(order_pages(kind));
            for _ in blocks(moved.refilled) {
                let (order, percpu_refill) = (order_of(kind), true);
                let refilled = EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill };
                tape.push(at, cpu, pid, refilled);
            }
            for _ in blocks(moved.direct) {
                let (order, percpu_refill) = (order_of(kind), false);
                let direct = EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill };
                tape.push(at, cpu, pid, direct);
            }
            for _ in 0..moved.drained / size {
                tape.push(at, cpu, pid, EventKind::PcpuDrain { pfn, order, migratetype });
            }
        }
        if let Kind::Alloc(request, block) = kind {
            let (pfn, order) = (block.map(|block| block.0), request.order.get() as u8);
            let gfp = request.gfp.bits();
            let alloc = EventKind::Alloc { pfn, order, migratetype, gfp };
            let known = block.map_or(0, |block| tape.known(block, request.order));
            let end = (begin + tape.ns(platform.clock() - call.clock)).max(at).max(known);
            tape.push(end, cpu, pid, alloc);
            if let Some(block) = block {
                tape.note(block, request.order, end);
            }
        }
    }

    /// What the CPU's lists of each zone moved since this was asked last.
    fn moves_since(&self, tape: &mut Tape, cpu: u32) -> Vec<(usize, Moved)> {
        let zones = self.allocator.zones();
        let mut moves = Vec::new();
        for (number, zone) in zones.iter().enumerate() {
            let mut now = Moved::default();
            for pcp in self.allocator.tables().pcps(zone.id(), CpuId(cpu)) {
                let (totals, events) = (pcp.totals(), pcp.events());
                now.refilled += totals.refilled_pages;
                now.drained += totals.drained_pages;
                now.direct += events.direct_pages;
            }
            let before = &mut tape.moved[cpu as usize * zones.len() + number];
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

fn order_of(kind: Kind) -> u8 {
    match kind {
        Kind::Alloc(request, _) => request.order.get() as u8,
        Kind::Free(_, order) => order.get() as u8,
        Kind::Refresh => 0,
    }
}

fn order_pages(kind: Kind) -> u64 {
    1 << order_of(kind)
}

/// Makes the run and writes it as a recording. Returns its figures, which are those of the run
/// without one, and how many events there are.
///
/// # Errors
/// A run that cannot be, a policy that is no kernel's, a run of more than [`EVENTS_MAX`] events, or
/// a file that cannot be written.
pub fn record(
    recipe: &Recipe,
    machines: Machines<'_>,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Figures, u64), LabError> {
    let plan = recipe.plan(machines)?;
    let release = files::release(&recipe.policy)?;
    let (figures, tape) =
        plan.run_with(&mut |lab| lab.record(), progress, |lab| lab.tape.take())?;
    let tape = tape.ok_or_else(|| LabError::Plan("the run left no events".into()))?;
    if tape.is_full {
        let what = format!("more than {EVENTS_MAX} events; expected a shorter run, by --run-us");
        return Err(LabError::Plan(what));
    }
    let Tape { mut events, zones, .. } = *tape;
    // Each CPU's are in order; a call may last longer than others' next ones.
    events.sort_by_key(|event| event.time_ns);
    let files = files::files(recipe, &plan, &zones, &figures, (&release, &events))?;
    let fail = |error: &dyn std::fmt::Display| {
        let what = format!("{}: cannot be written: {error}", path.display());
        LabError::Plan(what + "; expected a file in an existing folder")
    };
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    write(part.as_ref(), &files, &events)
        .and_then(|()| std::fs::rename(&part, path).map_err(|error| error.to_string()))
        .map_err(|error| {
            // What is no recording is of no use.
            let _ = std::fs::remove_file(&part);
            fail(&error)
        })?;
    Ok((figures, events.len() as u64))
}

fn write(path: &Path, files: &MachineFiles, events: &[Event]) -> Result<(), String> {
    let parts = files.iter().map(|(name, bytes)| Part::new(name, bytes.to_vec())).collect();
    let described = MachineDescription::read(&Parts::new("lab", parts), "lab");
    let described = described.map_err(|error| error.to_string())?;
    let write = || -> std::io::Result<()> {
        let output = BufWriter::new(File::create(path)?);
        let options = WriterOptions { level: LEVEL, ..WriterOptions::default() };
        let mut writer = TraceWriter::new(output, &described, files, options)?;
        events.iter().try_for_each(|event| writer.push(event))?;
        writer.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    };
    write().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
