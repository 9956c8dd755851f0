//! What a replay on real memory asks of the memory, and the pool of this machine that gives it.

use std::ptr::NonNull;

use anyhow::Context;
use zonal::sys::affinity;
use zonal::{CpuMap, Gfp, NumaEvents, Order, PAGE_SIZE, Policy, Pool};
use zonal_core::types::CpuId;

use super::kernel::{Moves, MovesByPlace};
use super::machine::follows_linux;
use super::none::numa_minus;
use super::outcome::Outcome;
use super::zones::ZoneMap;

/// Memory that threads allocate blocks of.
pub trait Memory: Sync {
    /// A block of `order`, aligned and writable, or why there is none.
    ///
    /// # Errors
    /// The refusal, in words.
    fn alloc(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, String>;

    /// Takes a block back.
    ///
    /// # Safety
    /// 1. The block came from [`alloc`](Self::alloc) with this order and nobody uses it any more.
    ///
    /// # Errors
    /// The refusal, in words.
    unsafe fn free(&self, start: NonNull<u8>, order: Order) -> Result<(), String>;

    /// Lets the thread for a recorded CPU run where it should.
    ///
    /// # Errors
    /// The refusal, in words.
    fn enter(&self, _cpu: u32) -> Result<(), String> {
        Ok(())
    }
}

/// A pool, and which CPU of this machine plays which recorded one.
#[derive(Debug)]
pub struct PoolMemory {
    pool: Pool,
    /// By recorded CPU.
    cpus: Vec<CpuId>,
    /// Remarks for people.
    pub notes: Vec<String>,
}

/// Memory that a pool gets beyond what the trace holds at a time, for what per-CPU lists hold and
/// for the reserve: under the Linux policies that is 67584 KiB and half of it again (LB C.1).
const SPARE_BYTES: usize = 32 << 20;
const SPARE_BYTES_LINUX: usize = 192 << 20;
/// Most that a pool is made larger than the trace needs: it is faulted in before the clock starts.
const POOL_BYTES_MAX: u64 = 2 << 30;

impl PoolMemory {
    /// A pool for `pages` pages in use at a time, on as many nodes as were recorded where this
    /// machine has a CPU for each.
    ///
    /// # Errors
    /// If the machine does not grant the memory.
    pub fn new(policy: Policy, map: &ZoneMap, cpus: u32, pages: u64) -> anyhow::Result<PoolMemory> {
        let allowed = affinity::allowed_cpus().context("cannot tell which CPUs may be used")?;
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
            .context("the trace holds more memory at a time than this machine can address")?;
        let recorded =
            map.zones().iter().map(|zone| (zone.end - zone.start) * PAGE_SIZE as u64).sum();
        let bytes = bytes.max(comfortable(recorded));
        let mut builder = Pool::builder().size(bytes).policy(policy).prefault(true);
        if nodes > 1 {
            builder = builder.fake_nodes(nodes, CpuMap::Explicit(node_by_cpu(&allowed, nodes)));
        }
        let pool = builder
            .build()
            .with_context(|| format!("cannot make a pool of {} MiB for this trace", bytes >> 20))?;
        notes.extend(pool.notices().iter().map(ToString::to_string));
        let placed = (0..cpus).map(|cpu| play(&allowed, nodes, map, cpu)).collect();
        Ok(PoolMemory { pool, cpus: placed, notes })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The CPUs of this machine, by recorded CPU.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }
}

/// Bytes of a pool whose lists may hold about what those of the recorded machine may: its memory,
/// as far as this machine has that to spare.
fn comfortable(recorded_bytes: u64) -> usize {
    let spare = zonal::sys::machine::Machine::read().mem_bytes / 8;
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

impl Memory for PoolMemory {
    #[inline]
    fn alloc(&self, order: Order, gfp: Gfp) -> Result<NonNull<u8>, String> {
        self.pool.alloc_pages(order, gfp).map_err(|error| error.to_string())
    }

    #[inline]
    unsafe fn free(&self, start: NonNull<u8>, order: Order) -> Result<(), String> {
        // SAFETY: (1) nobody uses the block: this function's own contract (1).
        unsafe { self.pool.free_pages(start, order) }.map_err(|error| error.to_string())
    }

    fn enter(&self, cpu: u32) -> Result<(), String> {
        affinity::pin(self.cpus[cpu as usize]).map_err(|error| error.to_string())
    }
}

/// A pool's counters at one moment.
#[derive(Debug)]
pub struct Reading {
    zones: Vec<zonal::ZoneStats>,
    numa: Vec<NumaEvents>,
    slow_paths: u64,
    fallbacks: (u64, u64),
}

impl Reading {
    /// Reads the counters. Exact while nothing runs.
    pub fn take(pool: &Pool) -> Reading {
        let view = pool.view();
        Reading {
            zones: view.zones().map(|zone| zone.stats()).collect(),
            numa: view.nodes().map(|node| node.numa_events()).collect(),
            slow_paths: view.slow_paths().0,
            fallbacks: view.fallbacks(),
        }
    }

    /// Writes what happened since `before` into `outcome`.
    pub fn difference(&self, before: &Reading, outcome: &mut Outcome) {
        let mut moves = MovesByPlace::new();
        for (zone, (after, before)) in self.zones.iter().zip(&before.zones).enumerate() {
            let one = Moves {
                refill_pages: after.refilled_pages - before.refilled_pages,
                refill_holds: after.refills - before.refills,
                drain_pages: after.drained_pages - before.drained_pages,
                drain_holds: after.drains - before.drains,
                drain_bursts: 0,
                direct_pages: after.direct_pages - before.direct_pages,
            };
            moves.insert((Some(zone), 0), one);
            outcome.lock.0 += after.lock_holds - before.lock_holds;
            outcome.lock.1 += after.lock_contended - before.lock_contended;
        }
        outcome.moves = moves;
        let pairs = self.numa.iter().zip(&before.numa);
        outcome.numa = pairs.map(|(after, before)| numa_minus(after, before)).collect();
        outcome.slow_paths = self.slow_paths - before.slow_paths;
        outcome.fallbacks =
            (self.fallbacks.0 - before.fallbacks.0, self.fallbacks.1 - before.fallbacks.1);
    }
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
