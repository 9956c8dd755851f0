//! A program on a pool of this machine's memory.

use std::time::Duration;

use zonal::sys::affinity;
use zonal::{CpuMap, PAGE_SIZE, Policy, Pool};
use zonal_core::types::CpuId;

use super::counters::Counters;
use super::outcome::Outcome;
use super::real::{self, Stage};
use crate::build::follows_linux;
use crate::error::ReplayError;
use crate::moves::Moves;
use crate::program::Program;
use crate::progress::Watch;
use crate::zones::ZoneMap;

/// A pool, and which CPU of this machine plays which recorded one.
struct PoolMemory {
    pool: Pool,
    /// By recorded CPU.
    cpus: Vec<CpuId>,
    /// Remarks for people.
    notes: Vec<String>,
}

/// Memory that a pool gets beyond what the trace holds at a time, for what per-CPU lists hold and
/// for the reserve: under the Linux policies that is 67584 KiB and half of it again (LB C.1).
const SPARE_BYTES: usize = 32 << 20;
const SPARE_BYTES_LINUX: usize = 192 << 20;
/// How long the refresh thread may take to put down what it moves, on a machine that is busy.
const SETTLED: Duration = Duration::from_secs(30);
/// Most that a pool is made larger than the trace needs: it is faulted in before the clock starts.
const POOL_BYTES_MAX: u64 = 2 << 30;

impl PoolMemory {
    /// A pool for `pages` pages in use at a time, on as many nodes as were recorded where this
    /// machine has a CPU for each.
    ///
    /// # Errors
    /// If the machine does not grant the memory.
    fn new(
        policy: Policy,
        map: &ZoneMap,
        cpus: u32,
        pages: u64,
    ) -> Result<PoolMemory, ReplayError> {
        let allowed = affinity::allowed_cpus().map_err(ReplayError::Cpus)?;
        let wanted = map.zones().iter().map(|zone| zone.node_index + 1).max().unwrap_or(1);
        let mut notes = Vec::new();
        let nodes = match wanted {
            wanted if usize::from(wanted) <= allowed.len() => wanted,
            wanted => {
                notes.push(format!(
                    "{wanted} nodes were recorded, but {} CPUs can be used: all pages are on one \
                     node",
                    allowed.len()
                ));
                1
            }
        };
        let spare = if follows_linux(&policy) { SPARE_BYTES_LINUX } else { SPARE_BYTES };
        let used = usize::try_from(pages).ok().and_then(|pages| pages.checked_mul(PAGE_SIZE));
        // Each node alone may have to hold everything.
        let bytes = used
            .and_then(|bytes| bytes.checked_add(bytes / 8 + spare))
            .and_then(|bytes| bytes.checked_mul(usize::from(nodes)))
            .ok_or(ReplayError::TooMuchMemory)?;
        let recorded =
            map.zones().iter().map(|zone| (zone.end - zone.start) * PAGE_SIZE as u64).sum();
        // As a pool rounds it up, so that it has nothing to say of that.
        let bytes = bytes.max(comfortable(recorded));
        let block = zonal::Order::MAX.bytes() * usize::from(nodes);
        let bytes = bytes.checked_next_multiple_of(block).ok_or(ReplayError::TooMuchMemory)?;
        let mut builder = Pool::builder().size(bytes).policy(policy).prefault(true);
        if nodes > 1 {
            builder = builder.fake_nodes(nodes, CpuMap::Explicit(node_by_cpu(&allowed, nodes)));
        }
        let pool =
            builder.build().map_err(|source| ReplayError::Pool { mib: bytes >> 20, source })?;
        notes.extend(pool.notices().iter().map(ToString::to_string));
        let placed = (0..cpus).map(|cpu| play(&allowed, nodes, map, cpu)).collect();
        Ok(PoolMemory { pool, cpus: placed, notes })
    }
}

/// Bytes of a pool whose lists may hold about what those of the recorded machine may: its memory,
/// as far as this machine, or a container's limit, has that to spare.
fn comfortable(recorded_bytes: u64) -> usize {
    use zonal::sys::machine::{Machine, memory_bytes};
    let spare = Machine::read().mem_bytes.min(memory_bytes()) / 8;
    usize::try_from(recorded_bytes.min(spare).min(POOL_BYTES_MAX)).unwrap_or(0)
}

/// The node of each CPU id: CPUs that may be used are dealt out to the nodes in turn.
fn node_by_cpu(allowed: &[CpuId], nodes: u16) -> Vec<u16> {
    let mut map = vec![0; affinity::possible_cpus_max() as usize];
    for (position, cpu) in allowed.iter().enumerate() {
        if let Some(node) = map.get_mut(cpu.0 as usize) {
            *node = (position % usize::from(nodes)) as u16;
        }
    }
    map
}

/// The CPU of this machine that plays a recorded one: of the same node, in turn.
fn play(allowed: &[CpuId], nodes: u16, map: &ZoneMap, cpu: u32) -> CpuId {
    let node = if nodes > 1 { map.node_of_cpu(cpu) } else { 0 };
    let of_node: Vec<CpuId> =
        allowed.iter().skip(node.into()).step_by(nodes.into()).copied().collect();
    let before = match nodes > 1 {
        true => (0..cpu).filter(|other| map.node_of_cpu(*other) == node).count(),
        false => cpu as usize,
    };
    of_node.get(before % of_node.len().max(1)).copied().unwrap_or(CpuId(0))
}

/// Runs `program` on a pool of this machine's memory, in the recording's pace if `paced`.
///
/// # Errors
/// Memory that is not available, or [`ReplayError::Stopped`].
pub fn run(
    program: &Program,
    map: &ZoneMap,
    policy: Policy,
    paced: bool,
    watch: &mut Watch<'_>,
) -> Result<Outcome, ReplayError> {
    // Threads that are ahead hold what others have not freed yet.
    let pages = program.counts.peak_pages + program.burst_pages(real::ahead_max(program.cpus));
    let PoolMemory { pool, cpus, notes } = PoolMemory::new(policy, map, program.cpus, pages)?;
    let stage = Stage::new(program, &pool, &cpus);
    let before = count(&pool);
    let mut outcome = stage.run(paced, watch)?;
    outcome.counted = count(&pool).since(&before);
    let fault = pool.validate().err();
    outcome.faults.extend(fault.map(|fault| format!("after the replay: {fault}")));
    stage.finish(&mut outcome);
    pool.drain_all();
    if let Err(fault) = pool.validate() {
        outcome.faults.push(format!("with all blocks back: {fault}"));
    }
    if !pool.view().all_free_within(SETTLED) {
        let (free, expected) = (pool.free_page_count(), pool.bytes() / PAGE_SIZE);
        let fault = format!("{free} pages are free with all blocks back, {expected} should be");
        outcome.faults.push(fault);
    }
    let cpus: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    outcome.notes.push(format!(
        "pool of {} MiB, metadata {:.3} % of it, stores: {}; recorded CPUs run on CPUs {cpus:?}",
        pool.bytes() >> 20,
        pool.metadata_bytes() as f64 * 100.0 / pool.bytes() as f64,
        pool.mode()
    ));
    outcome.notes.extend(notes);
    Ok(outcome)
}

/// A pool's counters. It tells moves by zone only.
fn count(pool: &Pool) -> Counters {
    let view = pool.view();
    let mut counters = Counters {
        numa: view.nodes().map(|node| node.numa_events()).collect(),
        slow_paths: view.slow_paths().0,
        fallbacks: view.fallbacks(),
        ..Counters::default()
    };
    for (zone, stats) in view.zones().map(|zone| zone.stats()).enumerate() {
        let moves = Moves {
            refill_pages: stats.refilled_pages,
            refill_holds: stats.refills,
            drain_pages: stats.drained_pages,
            drain_holds: stats.drains,
            drain_bursts: 0,
            direct_pages: stats.direct_pages,
        };
        counters.moves.insert((Some(zone), 0), moves);
        counters.lock.0 += stats.lock_holds;
        counters.lock.1 += stats.lock_contended;
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_cpus_go_round_the_ones_there_are() {
        let map = ZoneMap::default();
        let allowed = [CpuId(3), CpuId(5)];
        let played: Vec<u32> = (0..4).map(|cpu| play(&allowed, 1, &map, cpu).0).collect();
        assert_eq!(played, [3, 5, 3, 5]);
    }
}
