//! Replays a program on the recorded machine, rebuilt without memory, on one thread.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use indicatif::ProgressBar;
use zonal::text::State;
use zonal_core::alloc::{NumaEvents, Request, Sysctl};
use zonal_core::frame::{PageState, PageWord};
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, NodeId, Order, Pfn};
use zonal_trace::MachineDescription;

use super::explain;
use super::facts::{BlockTypes, Facts};
use super::fidelity::timeline::{Timeline, sample_of};
use super::judge::{BuddyJudge, BuddyVerdict, Judge, Judged, Told};
use super::kernel::{Moves, MovesByPlace};
use super::latency::Stopwatch;
use super::machine::{self, Plan, Rebuilt};
use super::outcome::{Outcome, Placement};
use super::program::{NO_SLOT, Op, OpKind, Program};
use super::recorded::Recorded;
use super::start::{self, Known};
use super::zones::ZoneMap;

/// A slot that has no block. Page frame 0 is in no zone of any PC.
const NO_BLOCK: u64 = 0;
/// Steps between two looks at the progress bar.
const TICK_STEPS: usize = 1 << 14;
/// Faults told in words; the rest is counted.
const FAULTS_TOLD: usize = 5;

/// How a program is run.
pub struct Setup<'s> {
    /// The rules.
    pub policy: Policy,
    /// What the model is told of what the kernel recorded of itself.
    pub recorded: Recorded,
    /// What no event says.
    pub told: &'s Told,
    /// Written before the start, over the recorded values.
    pub sysctls: &'s [(Sysctl, i64)],
    /// What is sampled at the end of each bin.
    pub timeline: Option<&'s mut Timeline>,
    /// The allocation to explain, from 1.
    pub explain: Option<u64>,
}

impl<'s> Setup<'s> {
    /// As recorded, without samples.
    pub fn new(policy: Policy, recorded: Recorded, told: &'s Told) -> Setup<'s> {
        Setup { policy, recorded, told, sysctls: &[], timeline: None, explain: None }
    }
}

/// Runs `program` on the machine that `description` tells about.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn replay(
    description: &MachineDescription,
    map: &ZoneMap,
    program: &Program,
    setup: Setup<'_>,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let Setup { policy, recorded, told, sysctls, timeline, explain } = setup;
    let plan = Plan::new(description, map, program.cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    let mut blocks = vec![NO_BLOCK; program.slots.len()];
    let types = recorded.blocktypes.then(|| BlockTypes::new(&program.facts));
    let known =
        Known { program, types: types.as_ref(), lists: recorded.lists.then_some(&told.lists) };
    let (report, warm) = start::bring_up(&rebuilt, description, map, &known, &mut blocks)?;
    let mut notes = Vec::new();
    notes.extend(machine::set_marks(&rebuilt.allocator, description, map)?);
    for (sysctl, value) in sysctls {
        rebuilt.allocator.set(*sysctl, *value)?;
    }
    start::warm_up(&rebuilt, &warm);
    notes.extend(validate(&rebuilt).map(|fault| format!("before the replay: {fault}")));
    let before = Snapshot::take(&rebuilt);
    let outcome = Outcome::default();
    let mut run = Run { rebuilt: &rebuilt, map, program, blocks, outcome, explain };
    let mut placement = Placement::default();
    run.all(&mut placement, timeline, bar);
    let Run { blocks, mut outcome, .. } = run;
    let after = Snapshot::take(&rebuilt);
    outcome.state = Some(State::of(&rebuilt.allocator));
    after.difference(&before, &mut outcome);
    check(&rebuilt, program, &blocks, &before, &mut outcome);
    outcome.threads = 1;
    outcome.moves_by_cpu = true;
    outcome.placement = Some(placement);
    outcome.start = Some(report);
    outcome.notes = notes;
    Ok(outcome)
}

/// Judges the core's choices one at a time, from where the kernel was each time; tells also what no
/// event says.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn judge(
    description: &MachineDescription,
    map: &ZoneMap,
    program: &Program,
    facts: &Facts,
    policy: Policy,
) -> anyhow::Result<(Judged, Told)> {
    let plan = Plan::new(description, map, program.cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    let types = BlockTypes::new(facts);
    Ok(Judge::new(facts, &types, map, &rebuilt).run())
}

/// Judges the choices of the buddies in the same way, with everything else told.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn judge_buddies(
    description: &MachineDescription,
    map: &ZoneMap,
    program: &Program,
    policy: Policy,
    told: &Told,
) -> anyhow::Result<BuddyVerdict> {
    let plan = Plan::new(description, map, program.cpus, policy)?;
    let mut records = plan.records()?;
    let rebuilt = plan.allocator(&mut records)?;
    let types = BlockTypes::new(&program.facts);
    let known = Known { program, types: Some(&types), lists: Some(&told.lists) };
    let mut blocks = vec![NO_BLOCK; program.slots.len()];
    start::bring_up(&rebuilt, description, map, &known, &mut blocks)?;
    let step_ns = description.clock.step_ns.into();
    Ok(BuddyJudge::new(&program.facts, map, &rebuilt, step_ns).run())
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
}

impl Run<'_, '_> {
    fn all(
        &mut self,
        placement: &mut Placement,
        mut timeline: Option<&mut Timeline>,
        bar: &ProgressBar,
    ) {
        let rebuilt = self.rebuilt;
        let sample = |zone, cpu| sample_of(rebuilt, zone, cpu);
        if let Some(timeline) = &mut timeline {
            timeline.begin(sample);
        }
        let (mut allocs, mut frees) = (Stopwatch::default(), Stopwatch::default());
        let start = Instant::now();
        for (index, op) in self.program.ops.iter().enumerate() {
            if index % TICK_STEPS == 0 {
                bar.set_position(index as u64);
            }
            if let Some(timeline) = &mut timeline {
                timeline.reach(op.time_ns, sample);
            }
            let platform = self.rebuilt.allocator.platform();
            platform.turn(op.cpu.into(), op.time_ns, op.kind != OpKind::Alloc);
            match op.kind {
                OpKind::Alloc => self.alloc(op, placement, &mut allocs),
                OpKind::Free => self.free(op, &mut frees),
                OpKind::Refresh => {
                    self.rebuilt.allocator.refresh(CpuId(op.cpu.into()));
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
    }

    fn alloc(&mut self, op: &Op, placement: &mut Placement, watch: &mut Stopwatch) {
        let order = Order::new(op.order.into()).unwrap_or(Order::MAX);
        let gfp = Gfp::from_bits(op.gfp);
        let node = match gfp.contains(Gfp::THISNODE) {
            true => self.map.node_of(op.pfn).map(NodeId),
            false => None,
        };
        let request = Request { order, gfp, node };
        let expected = self.expected(op, placement);
        let allocator = &self.rebuilt.allocator;
        let outcome = &mut self.outcome;
        let number = outcome.allocs + outcome.failed + 1;
        if self.explain == Some(number) {
            outcome.explained = Some(explain::explain(self.rebuilt, number, op, &request));
        }
        match watch.time(|| allocator.alloc(request)) {
            Ok(pfn) => {
                self.blocks[op.slot as usize] = pfn.0;
                outcome.allocs += 1;
                outcome.alloc_pages += order.pages();
                placement.same_pfn += u64::from(expected.0 && pfn.0 == op.pfn);
                placement.same_block += u64::from(expected.1 == Some(pfn.0));
            }
            Err(error) => {
                outcome.failed += 1;
                outcome.first_failure.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// Whether the allocation is judged, and by which block of ours.
    fn expected(&self, op: &Op, placement: &mut Placement) -> (bool, Option<u64>) {
        let seen = self.program.slots[op.slot as usize].origin != super::program::Origin::Fresh;
        if !seen {
            placement.unseen += 1;
            return (false, None);
        }
        let judged = self.is_available(op.pfn);
        placement.judged += u64::from(judged);
        placement.held_in_model += u64::from(!judged);
        let ours = match op.before {
            NO_SLOT => NO_BLOCK,
            slot => self.blocks[slot as usize],
        };
        let block = (ours != NO_BLOCK && self.is_available(ours)).then_some(ours);
        placement.judged_block += u64::from(block.is_some());
        (judged, block)
    }

    /// Whether the page is free or on a list: as a block of its own or inside a larger one.
    fn is_available(&self, pfn: u64) -> bool {
        let Some(index) = self.map.of(pfn) else { return false };
        let zone = &self.rebuilt.allocator.zones()[index];
        let start = zone.start_pfn().0;
        for order in Order::all() {
            let head = pfn & !(order.pages() - 1);
            let Some(offset) = head.checked_sub(start) else { return false };
            let word = &self.rebuilt.words[zone.frame_base() + offset as usize];
            // Relaxed: one thread.
            match PageWord(word.load(Relaxed)).state() {
                PageState::Free { order: of, .. } | PageState::Cached { order: of, .. } => {
                    return of >= order;
                }
                PageState::Allocated { .. } => return false,
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
        let order = Order::new(op.order.into()).unwrap_or(Order::MAX);
        let allocator = &self.rebuilt.allocator;
        match watch.time(|| allocator.free(Pfn(ours), order)) {
            Ok(()) => {
                outcome.frees += 1;
                outcome.free_pages += order.pages();
            }
            Err(error) if outcome.faults.len() < FAULTS_TOLD => {
                outcome.faults.push(format!("a free was refused: {error}"));
            }
            Err(_) => {}
        }
    }
}

fn validate(rebuilt: &Rebuilt<'_>) -> Option<String> {
    rebuilt.allocator.validate().err().map(|fault| fault.to_string())
}

/// After the last event: everything is consistent, and with all blocks back no page is lost.
fn check(
    rebuilt: &Rebuilt<'_>,
    program: &Program,
    blocks: &[u64],
    before: &Snapshot,
    outcome: &mut Outcome,
) {
    outcome.faults.extend(validate(rebuilt).map(|fault| format!("after the replay: {fault}")));
    let allocator = &rebuilt.allocator;
    let mut freed = vec![false; blocks.len()];
    for op in program.ops.iter().filter(|op| op.kind == OpKind::Free) {
        freed[op.slot as usize] = true;
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
        let order = Order::new(record.order.into()).unwrap_or(Order::MAX);
        if let Err(error) = allocator.free(Pfn(blocks[slot]), order) {
            outcome.faults.push(format!("a block still in use could not be freed: {error}"));
            return;
        }
    }
    allocator.drain_all();
    outcome.faults.extend(validate(rebuilt).map(|fault| format!("with all blocks back: {fault}")));
    let (free, expected) = (allocator.free_pages(), before.free_pages + held_before);
    if free != expected {
        let fault = format!("{free} pages are free with all blocks back, {expected} should be");
        outcome.faults.push(fault);
    }
}

/// Counters at one moment.
struct Snapshot {
    moves: MovesByPlace,
    numa: Vec<NumaEvents>,
    lock: (u64, u64),
    slow_paths: u64,
    fallbacks: (u64, u64),
    free_pages: u64,
}

impl Snapshot {
    fn take(rebuilt: &Rebuilt<'_>) -> Snapshot {
        let allocator = &rebuilt.allocator;
        let zones = allocator.zones().len();
        let mut moves = MovesByPlace::new();
        let mut lock = (0, 0);
        for zone in 0..zones {
            let (holds, contended) = allocator.zones()[zone].lock_holds();
            lock = (lock.0 + holds, lock.1 + contended);
            for cpu in 0..allocator.cpus() as u32 {
                let one = sample_of(rebuilt, zone, cpu).moves;
                moves.insert((Some(zone), cpu), one);
            }
        }
        let nodes = allocator.nodes().len() as u16;
        Snapshot {
            moves,
            numa: (0..nodes).map(|node| allocator.numa_events(NodeId(node))).collect(),
            lock,
            slow_paths: allocator.slow_paths().0,
            fallbacks: allocator.fallbacks(),
            free_pages: allocator.free_pages(),
        }
    }

    fn difference(self, before: &Snapshot, outcome: &mut Outcome) {
        for (place, mut moves) in self.moves {
            moves.subtract(&before.moves[&place]);
            if moves != Moves::default() {
                outcome.moves.insert(place, moves);
            }
        }
        let pairs = self.numa.iter().zip(&before.numa);
        outcome.numa = pairs.map(|(after, before)| numa_minus(after, before)).collect();
        outcome.lock = (self.lock.0 - before.lock.0, self.lock.1 - before.lock.1);
        outcome.slow_paths = self.slow_paths - before.slow_paths;
        let (claims, steals) = self.fallbacks;
        outcome.fallbacks = (claims - before.fallbacks.0, steals - before.fallbacks.1);
    }
}

/// The difference of two readings.
pub fn numa_minus(after: &NumaEvents, before: &NumaEvents) -> NumaEvents {
    NumaEvents {
        hit: after.hit - before.hit,
        miss: after.miss - before.miss,
        foreign: after.foreign - before.foreign,
        local: after.local - before.local,
        other: after.other - before.other,
    }
}
