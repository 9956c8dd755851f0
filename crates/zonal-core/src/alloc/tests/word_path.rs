//! The fast path as the userspace platform runs it, in plain Rust: the same tests on the same
//! fields, and the commits of `pcp::word`. One step at a time, so that a test can put another CPU's
//! steps between.

use super::platform::Script;
use crate::alloc::Allocator;
use crate::frame::{PageState, PageWord};
use crate::pcp::state::{Pcp, PcpList};
use crate::pcp::word::PcpWord;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Migratetype, Order, Pfn, ZoneId};

/// Pops and marks a page of the CPU's preferred zone, unless the core must do it.
pub fn alloc(pool: &Allocator<'_, Script>, cpu: CpuId, order: Order) -> Option<Pfn> {
    let zone = pool.tables().preferred_zone(cpu);
    let list = pool.tables().lists().get(order, Migratetype::Unmovable)?;
    let frame = pop(pool, zone, cpu, list)?;
    hand_out(pool, zone, cpu, list, frame)
}

/// The commit of an allocation alone.
pub fn pop(pool: &Allocator<'_, Script>, zone: ZoneId, cpu: CpuId, list: usize) -> Option<u32> {
    let pcp = pool.pcp(zone, cpu);
    let record = &pcp.lists[list];
    let passes = pool.zones()[zone.0 as usize].fast.load(Relaxed);
    let word = PcpWord(pcp.word.load(Relaxed));
    // For order 0 the word itself says whether the zone lets requests pass.
    let refused = list != 0 && passes & (1 << record.order().get()) == 0;
    if refused
        || word.is_slow()
        || word.active() != list
        || word.popped().must_fold()
        || word.len() == 0
    {
        return None;
    }
    let frame = slot(pool, record, word.len() - 1).load(Relaxed);
    pcp.word.store(word.popped().0, Relaxed);
    Some(frame)
}

/// Marks a popped frame; `None` if it was a stray copy.
pub fn hand_out(
    pool: &Allocator<'_, Script>,
    zone: ZoneId,
    cpu: CpuId,
    list: usize,
    frame: u32,
) -> Option<Pfn> {
    let record = &pool.pcp(zone, cpu).lists[list];
    let word = &pool.words()[frame as usize];
    if word.load(Relaxed) != record.cached {
        pool.pcp(zone, cpu).events.double_frees.fetch_add(1, Relaxed);
        return None;
    }
    word.store(record.allocated, Relaxed);
    let zone = &pool.zones()[zone.0 as usize];
    Some(Pfn(zone.start_pfn().0 + u64::from(frame) - zone.frame_base() as u64))
}

/// A whole free on one CPU. `false`: nothing was done, go through the core.
pub fn free(
    pool: &Allocator<'_, Script>,
    zone: ZoneId,
    cpu: CpuId,
    (pfn, order): (Pfn, Order),
) -> bool {
    let Some(list) = pool.tables().lists().get(order, Migratetype::Unmovable) else { return false };
    if !looks_mine(pool, zone, cpu, list, pfn) {
        if !looks_held(pool, zone, list, pfn) {
            return false;
        }
        tag(pool, zone, cpu, list, pfn);
    }
    let word = &pool.words()[frame(pool, zone, pfn) as usize];
    word.store(pool.pcp(zone, cpu).lists[list].cached, Relaxed);
    let done = push(pool, zone, cpu, list, pfn);
    if !done {
        word.store(pool.pcp(zone, cpu).lists[list].allocated, Relaxed);
    }
    done
}

/// Whether the word says that the block is handed out from such a list of any CPU's pcp.
pub fn looks_held(pool: &Allocator<'_, Script>, zone: ZoneId, list: usize, pfn: Pfn) -> bool {
    let word = PageWord(pool.words()[frame(pool, zone, pfn) as usize].load(Relaxed));
    let (order, _) = pool.tables().lists().of(list);
    matches!(word.state(), PageState::Allocated { order: held, .. } if held == order)
}

/// Makes a block that came from another CPU's pcp one that came from this one.
pub fn tag(pool: &Allocator<'_, Script>, zone: ZoneId, cpu: CpuId, list: usize, pfn: Pfn) {
    let word = &pool.words()[frame(pool, zone, pfn) as usize];
    word.store(pool.pcp(zone, cpu).lists[list].allocated, Relaxed);
}

/// First step of a commit: whether the word says that the block came from this list.
pub fn looks_mine(
    pool: &Allocator<'_, Script>,
    zone: ZoneId,
    cpu: CpuId,
    list: usize,
    pfn: Pfn,
) -> bool {
    let word = &pool.words()[frame(pool, zone, pfn) as usize];
    word.load(Relaxed) == pool.pcp(zone, cpu).lists[list].allocated
}

/// Last step of a free: the commit.
pub fn push(pool: &Allocator<'_, Script>, zone: ZoneId, cpu: CpuId, list: usize, pfn: Pfn) -> bool {
    let pcp: &Pcp = pool.pcp(zone, cpu);
    let record = &pcp.lists[list];
    let word = PcpWord(pcp.word.load(Relaxed));
    let order = record.order();
    let high_order = order > Order::ZERO && order <= Order::COSTLY;
    let stream = high_order
        && word.prev_high_order()
        && word.free_count() >= pcp.free_high_threshold.load(Relaxed);
    let full = word.len() >= record.hi.load(Relaxed);
    if stream || word.is_slow() || word.active() != list || full {
        return false;
    }
    slot(pool, record, word.len()).store(frame(pool, zone, pfn), Relaxed);
    let cap = pcp.free_count_cap.load(Relaxed);
    pcp.word.store(word.pushed(order.pages() as u32, cap, high_order).0, Relaxed);
    true
}

/// The frame number of a page.
pub fn frame(pool: &Allocator<'_, Script>, zone: ZoneId, pfn: Pfn) -> u32 {
    let zone = &pool.zones()[zone.0 as usize];
    (zone.frame_base() as u64 + pfn.0 - zone.start_pfn().0) as u32
}

pub fn slot<'a>(
    pool: &Allocator<'a, Script>,
    record: &PcpList,
    index: u32,
) -> &'a crate::sync::AtomicU32 {
    &pool.tables.slots[(record.base + record.lo.load(Relaxed) + index) as usize]
}
