//! Replays a program on the recorded machine, rebuilt without memory, on one thread.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use zonal::text::State;
use zonal_core::alloc::{AllocError, Request, Sysctl};
use zonal_core::frame::{PageState, PageWord};
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId};
use zonal_trace::MachineDescription;

use super::changes::Changes;
use super::counters::Counters;
use super::explain;
use super::holds::Holds;
use super::latency::Stopwatch;
use super::outcome::{Outcome, Placement};
use super::timeline::{Sample, Timeline};
use crate::build::{self, Plan, Rebuilt};
use crate::error::ReplayError;
use crate::facts::Shown;
use crate::moves::{Moves, MovesByPlace};
use crate::program::{NO_SLOT, Op, OpKind, Origin, Program, Slot, order};
use crate::progress::{Phase, Progress, Watch};
use crate::settings::Settings;
use crate::start::{self, Known, NO_BLOCK};
use crate::told::{Recorded, Told};
use crate::world::{Change, is_set};
use crate::zones::ZoneMap;

/// Steps between two calls of the [`Watch`].
const TICK_STEPS: usize = 1 << 14;
/// Faults told in words; the rest is counted.
const FAULTS_TOLD: usize = 5;

/// How a program is run.
pub struct Setup<'s> {
    /// The rules.
    pub policy: Policy,
    /// CPUs of the machine: those of the program, or more that do nothing.
    pub cpus: u32,
    /// Recorded actions of the kernel that the model uses.
    pub recorded: Recorded,
    /// Allocations without an event.
    pub told: &'s Told,
    /// What the recorded machine was set to.
    pub settings: &'s Settings,
    /// Written before the start, over the recorded values.
    pub sysctls: &'s [(Sysctl, i64)],
    /// What the events show together: the types of pageblocks, which may be told.
    pub shown: &'s Shown,
    /// Samples at the end of each bin.
    pub timeline: Option<&'s mut Timeline>,
    /// Holds of zone locks at their times.
    pub holds: Option<&'s mut Holds>,
    /// The allocation to explain, from 1.
    pub explain: Option<u64>,
}

impl<'s> Setup<'s> {
    /// As recorded, without samples.
    pub fn new(
        policy: Policy,
        recorded: Recorded,
        program: &Program,
        (told, shown, settings): (&'s Told, &'s Shown, &'s Settings),
    ) -> Setup<'s> {
        let (cpus, sysctls, explain) = (program.cpus, &[][..], None);
        let (timeline, holds) = (None, None);
        Setup { policy, cpus, recorded, told, settings, sysctls, shown, timeline, holds, explain }
    }
}

/// Runs `program` on the machine that `description` tells about; returns also the state after the
/// last step, before anything is cleaned up.
///
/// # Errors
/// If the machine cannot be rebuilt, or [`ReplayError::Stopped`].
pub fn replay(
    description: &MachineDescription,
    map: &ZoneMap,
    program: &Program,
    setup: Setup<'_>,
    watch: &mut Watch<'_>,
) -> Result<(Outcome, State), ReplayError> {
    let Setup { policy, cpus, recorded, told, settings, sysctls, .. } = setup;
    let Setup { shown, timeline, holds, explain, .. } = setup;
    let plan = Plan::new(description, map, cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    let shown = recorded.blocktypes.then_some(shown);
    let known = Known { program, shown, told: recorded.lists.then_some(told) };
    let started = start::bring_up(&rebuilt, description, map, &known)?;
    let mut notes = build::set_watermarks(&rebuilt.allocator, description, map, settings)?;
    if build::follows_linux(&policy) {
        notes.extend(start::keep_boosted(&rebuilt, description, map));
    }
    let as_recorded = start::bounds(&rebuilt);
    for (sysctl, value) in sysctls {
        rebuilt.allocator.set(*sysctl, *value)?;
    }
    notes.extend(start::warm_up(&rebuilt, started.warm, &as_recorded));
    notes.extend(settings.altered_unseen(|sysctl| is_set(&program.changes, sysctl)));
    notes.extend(validate(&rebuilt).map(|fault| format!("before the replay: {fault}")));
    let (before, free_before) = (count(&rebuilt), rebuilt.allocator.free_pages());
    let (blocks, outcome) = (started.blocks, Outcome::default());
    let is_given = |sysctl: Sysctl| {
        Settings::is_given(&policy, sysctl) || sysctls.iter().any(|(own, _)| *own == sysctl)
    };
    let told = program.changes.iter().filter_map(|changed| match changed.change {
        Change::Set(sysctl, _) => Some(sysctl),
        _ => None,
    });
    let changes = Changes::new(description, told.filter(|sysctl| is_given(*sysctl)).collect());
    let (rebuilt, splits) = (&rebuilt, 0);
    let mut run = Run { rebuilt, map, program, blocks, outcome, explain, changes, splits };
    let mut placement = Placement::default();
    run.all(&mut placement, (timeline, holds), watch)?;
    let Run { blocks, mut outcome, changes, splits, .. } = run;
    outcome.written = changes.written;
    outcome.counted = count(rebuilt).since(&before);
    outcome.counted.lock.0 -= splits;
    outcome.counted.moves.retain(|_, moves| *moves != Moves::default());
    let state = State::of(&rebuilt.allocator);
    check(rebuilt, program, &blocks, free_before, &mut outcome);
    outcome.threads = 1;
    outcome.moves_by_cpu = true;
    outcome.placement = Some(placement);
    outcome.start = Some(started.report);
    outcome.notes = notes;
    Ok((outcome, state))
}

struct Run<'r, 'a> {
    rebuilt: &'r Rebuilt<'a>,
    map: &'r ZoneMap,
    program: &'r Program,
    /// Our frame of each slot.
    blocks: Vec<u64>,
    outcome: Outcome,
    /// The allocation to explain, from 1.
    explain: Option<u64>,
    changes: Changes,
    /// Blocks that were split, each in a hold of a zone lock that no kernel takes.
    splits: u64,
}

impl Run<'_, '_> {
    fn all(
        &mut self,
        placement: &mut Placement,
        (mut timeline, mut holds): (Option<&mut Timeline>, Option<&mut Holds>),
        watch: &mut Watch<'_>,
    ) -> Result<(), ReplayError> {
        let rebuilt = self.rebuilt;
        let sample = |zone, cpu| sample_of(rebuilt, zone, cpu);
        if let Some(timeline) = &mut timeline {
            timeline.begin(sample);
        }
        if let Some(holds) = &mut holds {
            begin(holds, rebuilt);
        }
        let (mut allocs, mut frees) = (Stopwatch::default(), Stopwatch::default());
        // Steps up to here were played by one call.
        let mut in_bulk = 0;
        let start = Instant::now();
        for (index, op) in self.program.ops.iter().enumerate() {
            if index % TICK_STEPS == 0 {
                let (done, of) = (index as u64, Some(self.program.ops.len() as u64));
                if watch(Progress { phase: Phase::Replaying, done, of }).is_break() {
                    return Err(ReplayError::Stopped);
                }
            }
            if let Some(timeline) = &mut timeline {
                timeline.reach(op.time_ns, sample);
            }
            let platform = self.rebuilt.allocator.platform();
            platform.turn(op.cpu.into(), op.time_ns, !op.kind.is_alloc());
            match op.kind {
                OpKind::Alloc | OpKind::Direct => self.alloc(op, placement, &mut allocs),
                OpKind::Bulk if index < in_bulk => {}
                OpKind::Bulk => {
                    let many = together(&self.program.ops[index..], &self.program.slots);
                    in_bulk = index + many.len();
                    self.alloc_bulk(many, placement, &mut allocs);
                }
                OpKind::Free => self.free(op, &mut frees),
                OpKind::Split => {
                    let locked = self.split(op);
                    holds.iter_mut().zip(locked).for_each(|(holds, zone)| holds.skip_one(zone));
                }
                OpKind::Refresh => {
                    self.rebuilt.allocator.refresh(CpuId(op.cpu.into()));
                }
                OpKind::Change => {
                    let changed = &self.program.changes[op.slot as usize];
                    self.changes.play(rebuilt, self.map, changed);
                }
            }
            if let Some(holds) = &mut holds {
                for (zone, record) in rebuilt.allocator.zones().iter().enumerate() {
                    let at = (op.time_ns, u32::from(op.cpu));
                    let moved = || sample_of(rebuilt, zone, at.1).moves;
                    holds.see((zone, record.lock_holds().0), at, moved);
                }
            }
        }
        if let Some(timeline) = timeline {
            timeline.finish(sample);
        }
        let outcome = &mut self.outcome;
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.steps = outcome.allocs + outcome.frees + outcome.failed + outcome.skipped_frees;
        outcome.alloc_latency = allocs.latency();
        outcome.free_latency = frees.latency();
        Ok(())
    }

    fn alloc(&mut self, op: &Op, placement: &mut Placement, watch: &mut Stopwatch) {
        let slot = &self.program.slots[op.slot as usize];
        let order = order(slot.order);
        let gfp = Gfp::from_bits(slot.gfp);
        let node = match gfp.contains(Gfp::THISNODE) {
            true => self.map.node_of(slot.pfn).map(NodeId),
            false => None,
        };
        let request = Request { order, gfp, node };
        let expected = self.expected(slot, placement);
        let allocator = &self.rebuilt.allocator;
        let outcome = &mut self.outcome;
        let number = outcome.allocs + outcome.failed + 1;
        if self.explain == Some(number) {
            outcome.explained = Some(explain::explain(self.rebuilt, number, op, &request));
        }
        let zone = self.map.of(slot.pfn).filter(|_| op.kind == OpKind::Direct);
        let found = match zone {
            Some(zone) => watch.time(|| past_lists(self.rebuilt, (zone, op.cpu), request)),
            None => watch.time(|| allocator.alloc(request)),
        };
        match found {
            Ok(pfn) => self.allocated(op.slot, pfn, expected, placement),
            Err(error) => self.refused(&error),
        }
    }

    /// Steps that are one call of the bulk allocator; it stops where a list runs empty, and its
    /// callers call again.
    fn alloc_bulk(&mut self, many: &[Op], placement: &mut Placement, watch: &mut Stopwatch) {
        let slots = &self.program.slots;
        let gfp = Gfp::from_bits(slots[many[0].slot as usize].gfp);
        let request = Request { order: Order::ZERO, gfp, node: None };
        let expected: Vec<_> =
            many.iter().map(|op| self.expected(&slots[op.slot as usize], placement)).collect();
        let mut pages = vec![Pfn(0); many.len()];
        let mut got = 0;
        while got < many.len() {
            let wanted = &mut pages[got..];
            match watch.time(|| self.rebuilt.allocator.alloc_bulk(request, wanted)) {
                Ok(some) => got += some,
                Err(error) => {
                    (got..many.len()).for_each(|_| self.refused(&error));
                    break;
                }
            }
        }
        for ((op, pfn), expected) in many.iter().zip(pages).zip(expected).take(got) {
            self.allocated(op.slot, pfn, expected, placement);
        }
    }

    fn allocated(
        &mut self,
        slot: u32,
        pfn: Pfn,
        expected: (bool, Option<u64>),
        placement: &mut Placement,
    ) {
        let kernel = &self.program.slots[slot as usize];
        self.blocks[slot as usize] = pfn.0;
        self.outcome.allocs += 1;
        self.outcome.alloc_pages += 1 << kernel.order;
        placement.same_pfn += u64::from(expected.0 && pfn.0 == kernel.pfn);
        placement.same_block += u64::from(expected.1 == Some(pfn.0));
    }

    fn refused(&mut self, error: &AllocError) {
        self.outcome.failed += 1;
        self.outcome.first_failure.get_or_insert_with(|| error.to_string());
    }

    /// A block becomes several, as by the kernel's `split_page`, which takes no lock; the core
    /// takes that of the zone, which is returned.
    fn split(&mut self, op: &Op) -> Option<usize> {
        let slots = &self.program.slots;
        let part = &slots[op.slot as usize];
        let whole = part.before as usize;
        let ours = self.blocks[whole];
        if ours == NO_BLOCK {
            return None;
        }
        let (of, into) = (order(slots[whole].order), order(part.order));
        if let Err(error) = self.rebuilt.allocator.ranges().split_block(Pfn(ours), of, into) {
            self.fault(format!("a block could not be split: {error}"));
            return None;
        }
        for (part, slot) in (0..).zip(self.program.parts(op)) {
            self.blocks[slot as usize] = ours + (part << into.get());
        }
        self.splits += 1;
        self.map.of(ours)
    }

    fn fault(&mut self, fault: String) {
        if self.outcome.faults.len() < FAULTS_TOLD {
            self.outcome.faults.push(fault);
        }
    }

    /// Whether the allocation is judged, and by which block of ours.
    fn expected(&self, slot: &Slot, placement: &mut Placement) -> (bool, Option<u64>) {
        if slot.origin == Origin::Fresh {
            placement.unseen += 1;
            return (false, None);
        }
        let judged = self.is_available(slot.pfn);
        placement.judged += u64::from(judged);
        placement.held_in_model += u64::from(!judged);
        let ours = match slot.before {
            NO_SLOT => NO_BLOCK,
            slot => self.blocks[slot as usize],
        };
        let block = (ours != NO_BLOCK && self.is_available(ours)).then_some(ours);
        placement.judged_block += u64::from(block.is_some());
        (judged, block)
    }

    /// Whether the page is free or on a list, as a block or inside a larger one.
    fn is_available(&self, pfn: u64) -> bool {
        let Some(index) = self.map.of(pfn) else { return false };
        let zone = &self.rebuilt.allocator.zones()[index];
        let start = zone.start_pfn().0;
        for order in Order::all() {
            let head = pfn & !(order.pages() - 1);
            let Some(offset) = head.checked_sub(start) else { return false };
            let word = &self.rebuilt.raw().words()[zone.frame_base() + offset as usize];
            // Relaxed: one thread.
            match PageWord::from_bits(word.load(Relaxed)).state() {
                PageState::Free { order: of, .. } | PageState::Cached { order: of, .. } => {
                    return of >= order;
                }
                PageState::Allocated { .. } | PageState::Range { .. } => return false,
                _ => {}
            }
        }
        false
    }

    fn free(&mut self, op: &Op, watch: &mut Stopwatch) {
        let ours = self.blocks[op.slot as usize];
        let outcome = &mut self.outcome;
        if ours == NO_BLOCK {
            outcome.skipped_frees += 1;
            return;
        }
        let slot = &self.program.slots[op.slot as usize];
        let order = order(slot.order);
        let allocator = &self.rebuilt.allocator;
        let zone = self.map.of(ours).filter(|_| slot.past_lists);
        let _closed = closed(self.rebuilt, zone, op.cpu);
        match watch.time(|| allocator.free(Pfn(ours), order)) {
            Ok(()) => {
                outcome.frees += 1;
                outcome.free_pages += order.pages();
            }
            Err(error) => self.fault(format!("a free was refused: {error}")),
        }
    }
}

/// A block for a call that finds the lists of its CPU in use. Where it would have to wait for
/// memory, which empties all lists, whoever is at these leaves them first.
fn past_lists(
    rebuilt: &Rebuilt<'_>,
    (zone, cpu): (usize, u16),
    request: Request,
) -> Result<Pfn, AllocError> {
    let in_use = closed(rebuilt, Some(zone), cpu);
    let waits = request.gfp.contains(Gfp::DIRECT_RECLAIM);
    let gfp = match waits {
        // With no more rights than one that waits: not those of one that cannot.
        true => request.gfp.without(Gfp::DIRECT_RECLAIM) | Gfp::NOMEMALLOC,
        false => request.gfp,
    };
    let found = rebuilt.allocator.alloc(Request { gfp, ..request });
    drop(in_use);
    if found.is_ok() || !waits { found } else { rebuilt.allocator.alloc(request) }
}

/// Who was interrupted by this call, or lost its CPU to it, is at the lists of this zone.
fn closed<'r, 'a>(
    rebuilt: &'r Rebuilt<'a>,
    zone: Option<usize>,
    cpu: u16,
) -> Option<impl Sized + use<'r, 'a>> {
    rebuilt.raw().close(ZoneId(zone? as u16), CpuId(cpu.into()))
}

/// Begins with what was before the first step.
fn begin(holds: &mut Holds, rebuilt: &Rebuilt<'_>) {
    let cpus = 0..rebuilt.allocator.cpus() as u32;
    let moves = |zone| cpus.clone().map(|cpu| sample_of(rebuilt, zone, cpu).moves).collect();
    let zones = rebuilt.allocator.zones().iter().enumerate();
    holds.begin(zones.map(|(zone, record)| (record.lock_holds().0, moves(zone))));
}

/// The first of these steps, and those of the same call.
fn together<'p>(ops: &'p [Op], slots: &[Slot]) -> &'p [Op] {
    let call = |op: &Op| (op.kind, op.cpu, op.time_ns, slots[op.slot as usize].gfp);
    let first = call(&ops[0]);
    let more = ops.iter().take_while(|op| op.kind == OpKind::Bulk && call(op) == first);
    &ops[..more.count()]
}

fn validate(rebuilt: &Rebuilt<'_>) -> Option<String> {
    rebuilt.allocator.validate().err().map(|fault| fault.to_string())
}

/// After the last event: everything is consistent, and with all blocks back no page is lost.
fn check(
    rebuilt: &Rebuilt<'_>,
    program: &Program,
    blocks: &[u64],
    free_before: u64,
    outcome: &mut Outcome,
) {
    outcome.faults.extend(validate(rebuilt).map(|fault| format!("after the replay: {fault}")));
    let allocator = &rebuilt.allocator;
    let mut freed = vec![false; blocks.len()];
    for op in &program.ops {
        match op.kind {
            OpKind::Free => freed[op.slot as usize] = true,
            // Its parts are there instead.
            OpKind::Split => freed[program.slots[op.slot as usize].before as usize] = true,
            _ => {}
        }
    }
    let held_before: u64 = program
        .held()
        .filter(|(slot, _)| blocks[*slot as usize] != NO_BLOCK)
        .map(|(_, slot)| 1 << slot.order)
        .sum();
    for (slot, record) in program.slots.iter().enumerate() {
        if blocks[slot] == NO_BLOCK || freed[slot] {
            continue;
        }
        if let Err(error) = allocator.free(Pfn(blocks[slot]), order(record.order)) {
            outcome.faults.push(format!("a block still in use could not be freed: {error}"));
            return;
        }
    }
    allocator.drain_all();
    outcome.faults.extend(validate(rebuilt).map(|fault| format!("with all blocks back: {fault}")));
    let (free, expected) = (allocator.free_pages(), free_before + held_before);
    if free != expected {
        let fault = format!("{free} pages are free with all blocks back, {expected} should be");
        outcome.faults.push(fault);
    }
}

/// The rebuilt machine's counters.
fn count(rebuilt: &Rebuilt<'_>) -> Counters {
    let allocator = &rebuilt.allocator;
    let mut moves = MovesByPlace::new();
    let mut lock = (0, 0);
    for (zone, record) in allocator.zones().iter().enumerate() {
        let (holds, contended) = record.lock_holds();
        lock = (lock.0 + holds, lock.1 + contended);
        for cpu in 0..allocator.cpus() as u32 {
            moves.insert((Some(zone), cpu), sample_of(rebuilt, zone, cpu).moves);
        }
    }
    let nodes = 0..allocator.nodes().len() as u16;
    Counters {
        moves,
        numa: nodes.map(|node| allocator.numa_events(NodeId(node))).collect(),
        lock,
        slow_paths: allocator.stats().slow_paths().0,
        fallbacks: allocator.stats().fallbacks(),
    }
}

/// A store of the model now.
fn sample_of(rebuilt: &Rebuilt<'_>, zone: usize, cpu: u32) -> Sample {
    let allocator = &rebuilt.allocator;
    let pcp = allocator.pcp(ZoneId(zone as u16), CpuId(cpu));
    let (totals, events) = (pcp.totals(), pcp.events());
    let moves = Moves {
        refill_pages: totals.refilled_pages,
        refill_holds: events.refills,
        drain_pages: totals.drained_pages,
        drain_holds: events.drains,
        drain_bursts: allocator.platform().bursts(zone, cpu),
        direct_pages: events.direct_pages,
    };
    Sample { moves, count: Some(pcp.count().into()), high: Some(pcp.high().into()) }
}

#[cfg(test)]
#[path = "none_tests.rs"]
mod tests;
