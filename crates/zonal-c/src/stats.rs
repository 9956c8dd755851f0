//! Figures of pools, zones and nodes as structs that can grow. Begin with the struct's `_init`.

use std::ffi::c_void;

use zonal::{Mode, NumaEvents, ZoneId};

use crate::error::{Failure, border};
use crate::input::{Sized32, node_of, write_struct};
use crate::pool::{pool, zonal_pool};

/// Orders that a block has: 0 to 10.
pub const ZONAL_ORDERS: usize = 11;

const _: () = assert!(ZONAL_ORDERS == zonal_orders());
const fn zonal_orders() -> usize {
    zonal::Order::MAX.get() as usize + 1
}

/// A pool.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_pool_info {
    /// sizeof(zonal_pool_info).
    pub size: u32,
    /// 1: restartable sequences; 0: a lock per CPU (zonal_text(ZONAL_TEXT_MODE) says why).
    pub uses_rseq: u32,
    /// First byte. The place of a page is its address minus this.
    pub base: *const c_void,
    /// Bytes of memory.
    pub bytes: u64,
    /// Bytes of metadata, as reserved.
    pub metadata_bytes: u64,
    /// Bytes that may be in use at once.
    pub budget: u64,
    /// Pages not handed out: free ones and those on per-CPU lists.
    pub free_pages: u64,
    /// Bytes returned to the operating system so far.
    pub trimmed_bytes: u64,
    /// Writes to freed pages found so far (ZONAL_POISON).
    pub poison_hits: u64,
    /// Blocks that could not be freed where no call can report it.
    pub misuses: u64,
    /// Requests that could have failed on purpose, and those that did.
    pub fail_asked: u64,
    /// Those that did.
    pub failed: u64,
    /// Nodes.
    pub nodes: u32,
    /// Zones.
    pub zones: u32,
    /// CPUs that have lists.
    pub cpus: u32,
    /// 1: memory is still coming online (ZONAL_DEFERRED).
    pub is_growing: u32,
}

/// NUMA events.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_numa_events {
    /// Allocations from the preferred node.
    pub hit: u64,
    /// Allocations from another node than preferred.
    pub miss: u64,
    /// Allocations that preferred this node and were served by another.
    pub foreign: u64,
    /// Allocations by a CPU of the node.
    pub local: u64,
    /// Allocations by a CPU of another node.
    pub other: u64,
}

/// A node.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_node_stats {
    /// sizeof(zonal_node_stats).
    pub size: u32,
    /// CPUs of the node.
    pub cpus: u32,
    /// 1 if it has memory.
    pub has_memory: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages that its memory to come has.
    pub left_to_grow: u64,
    /// Events.
    pub numa: zonal_numa_events,
}

/// A zone.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_zone_stats {
    /// sizeof(zonal_zone_stats).
    pub size: u32,
    /// Node.
    pub node: u32,
    /// 0 DMA, 1 DMA32, 2 Normal, 3 Movable, 4 Device.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// Pages given to the allocator.
    pub managed_pages: u64,
    /// Watermarks, in pages.
    pub min: u64,
    /// Below it the background reclaimer is woken.
    pub low: u64,
    /// Above it the background reclaimer sleeps.
    pub high: u64,
    /// Free pages in the buddy, exact.
    pub free_pages: u64,
    /// Free blocks of each order.
    pub free_blocks: [u64; ZONAL_ORDERS],
    /// Pages on per-CPU lists and in depots.
    pub cached_pages: u64,
    /// Those in depots.
    pub depot_pages: u64,
    /// Allocations.
    pub allocs: u64,
    /// Pages allocated.
    pub allocated_pages: u64,
    /// Pages freed.
    pub freed_pages: u64,
    /// Pages moved to per-CPU lists.
    pub refilled_pages: u64,
    /// Pages moved from per-CPU lists.
    pub drained_pages: u64,
    /// Copies of blocks dropped because they were freed twice at the same time.
    pub double_frees: u64,
    /// Times the zone lock was taken.
    pub lock_holds: u64,
    /// Times the zone lock was found taken.
    pub lock_contended: u64,
    /// Events.
    pub numa: zonal_numa_events,
}

/// Where a pool's bytes are; each has exactly one line.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_held {
    /// sizeof(zonal_held).
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Handed out, to others than registered consumers.
    pub users: u64,
    /// Handed out to registered consumers, as they say.
    pub consumers: u64,
    /// On per-CPU lists.
    pub lists: u64,
    /// In depots.
    pub depots: u64,
    /// Free, and in memory.
    pub free_resident: u64,
    /// Free, and not in memory.
    pub free_absent: u64,
    /// Kept out of use by the budget.
    pub withheld: u64,
    /// Not online yet, or in transit between lists.
    pub elsewhere: u64,
    /// Metadata, as reserved.
    pub metadata: u64,
}

// SAFETY: (1) numbers and a raw pointer.
unsafe impl Sized32 for zonal_pool_info {
    const NAME: &'static str = "zonal_pool_info";
    const FIRST: usize = 104;
}
// SAFETY: (1) numbers.
unsafe impl Sized32 for zonal_node_stats {
    const NAME: &'static str = "zonal_node_stats";
    const FIRST: usize = 64;
}
// SAFETY: (1) numbers.
unsafe impl Sized32 for zonal_zone_stats {
    const NAME: &'static str = "zonal_zone_stats";
    const FIRST: usize = 264;
}
// SAFETY: (1) numbers.
unsafe impl Sized32 for zonal_held {
    const NAME: &'static str = "zonal_held";
    const FIRST: usize = 80;
}

const _: () = {
    assert!(size_of::<zonal_pool_info>() >= <zonal_pool_info as Sized32>::FIRST);
    assert!(size_of::<zonal_node_stats>() >= <zonal_node_stats as Sized32>::FIRST);
    assert!(size_of::<zonal_zone_stats>() >= <zonal_zone_stats as Sized32>::FIRST);
    assert!(size_of::<zonal_held>() >= <zonal_held as Sized32>::FIRST);
};

fn numa(events: NumaEvents) -> zonal_numa_events {
    let NumaEvents { hit, miss, foreign, local, other } = events;
    zonal_numa_events { hit, miss, foreign, local, other }
}

/// Figures of the pool. Fields that this library does not know become zero.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_pool_get_info(
    pool: *mut zonal_pool,
    info: *mut zonal_pool_info,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let fail = pool.fail_counts();
        let view = pool.view();
        let figures = zonal_pool_info {
            size: 0,
            uses_rseq: u32::from(*pool.mode() == Mode::Rseq),
            base: pool.base().cast(),
            bytes: pool.bytes() as u64,
            metadata_bytes: pool.metadata_bytes() as u64,
            budget: pool.budget() as u64,
            free_pages: pool.free_page_count(),
            trimmed_bytes: pool.trimmed_bytes(),
            poison_hits: pool.poison_hits(),
            misuses: pool.misuses(),
            fail_asked: fail.asked,
            failed: fail.failed,
            nodes: pool.nodes() as u32,
            zones: view.zones().len() as u32,
            cpus: view.cpus() as u32,
            is_growing: u32::from(pool.is_growing()),
        };
        // SAFETY: (1) C-2.
        unsafe { write_struct(info, &figures) }?;
        Ok(0)
    })
}

/// Figures of a node.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_node_get_stats(
    pool: *mut zonal_pool,
    node: i32,
    stats: *mut zonal_node_stats,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let id = node_of(node, pool.nodes())?;
        let view = pool.view();
        let node = view.node(id);
        let figures = zonal_node_stats {
            size: 0,
            cpus: node.map_or(0, |node| node.cpus()),
            has_memory: u32::from(node.is_some_and(|node| node.has_memory())),
            reserved: 0,
            left_to_grow: node.map_or(0, |node| node.left_to_grow()),
            numa: numa(pool.numa_events(id)),
        };
        // SAFETY: (1) C-2.
        unsafe { write_struct(stats, &figures) }?;
        Ok(0)
    })
}

/// Figures of a zone, 0 to zones - 1.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_zone_get_stats(
    pool: *mut zonal_pool,
    zone: u32,
    stats: *mut zonal_zone_stats,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let id = u16::try_from(zone).ok();
        let view = id.and_then(|id| pool.view().zone(ZoneId(id))).ok_or_else(|| {
            let last = pool.view().zones().len().saturating_sub(1);
            Failure::argument(format!("zone {zone}: this pool has zones 0 to {last}"))
        })?;
        let (watermarks, from) = (view.watermarks(), view.stats());
        let figures = zonal_zone_stats {
            size: 0,
            node: u32::from(view.node().0),
            kind: view.kind().index() as u32,
            reserved: 0,
            managed_pages: view.managed(),
            min: watermarks.min,
            low: watermarks.low,
            high: watermarks.high,
            free_pages: from.free_pages,
            free_blocks: from.nr_free.map(u64::from),
            cached_pages: from.cached_pages,
            depot_pages: from.depot_pages,
            allocs: from.allocs,
            allocated_pages: from.allocated_pages,
            freed_pages: from.freed_pages,
            refilled_pages: from.refilled_pages,
            drained_pages: from.drained_pages,
            double_frees: from.double_frees,
            lock_holds: from.lock_holds,
            lock_contended: from.lock_contended,
            numa: numa(from.numa),
        };
        // SAFETY: (1) C-2.
        unsafe { write_struct(stats, &figures) }?;
        Ok(0)
    })
}

/// Where the pool's bytes are now. Some milliseconds for each GiB.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_get_held(pool: *mut zonal_pool, held: *mut zonal_held) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let report = unsafe { self::pool(pool) }?.held();
        let figures = zonal_held {
            size: 0,
            reserved: 0,
            users: report.users,
            consumers: report.consumers,
            lists: report.lists,
            depots: report.depots,
            free_resident: report.free_resident,
            free_absent: report.free_absent,
            withheld: report.withheld,
            elsewhere: report.elsewhere,
            metadata: report.metadata,
        };
        // SAFETY: (1) C-2.
        unsafe { write_struct(held, &figures) }?;
        Ok(0)
    })
}
