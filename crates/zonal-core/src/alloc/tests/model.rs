//! Who owns which page, what was counted, and when a refusal is true: from LB alone, with a set of
//! pages and no lists.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::platform::{Script, Shape};
use crate::alloc::{AllocError, Allocator, NumaEvents, Refusal, Request};
use crate::buddy::{HighAtomicCount, HighAtomicLimit};
use crate::gfp::{AllocFlags, Gfp};
use crate::machine::ZoneSpec;
use crate::pcp::word::PcpWord;
use crate::sync::Ordering::Relaxed;
use crate::types::{
    CpuId, Migratetype, NodeId, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, ZoneId, ZoneKind,
};
use crate::zone::state::{BELOW_HIGH, Zone};
use crate::zone::watermark::{ReserveRights, Watermark};

pub struct Model {
    zones: Vec<ZoneSpec>,
    cpus: Vec<NodeId>,
    nodes: u16,
    /// For each zone, for each page: whether it is in somebody's hands.
    owned: Vec<Vec<bool>>,
    blocks: BTreeMap<Pfn, Order>,
    counts: Vec<Counts>,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Counts {
    allocs: u64,
    allocated_pages: u64,
    freed_pages: u64,
    numa: NumaEvents,
}

impl Model {
    pub fn new(shape: &Shape) -> Model {
        Model {
            zones: shape.zones.clone(),
            cpus: shape.cpus.clone(),
            nodes: shape.distances.len().isqrt() as u16,
            owned: shape.zones.iter().map(|z| std::vec![false; z.spanned as usize]).collect(),
            blocks: BTreeMap::new(),
            counts: std::vec![Counts::default(); shape.zones.len()],
        }
    }

    pub fn zone_of(&self, pfn: Pfn) -> ZoneId {
        let has = |z: &ZoneSpec| (z.start_pfn..z.start_pfn + z.spanned).contains(&pfn.0);
        ZoneId(self.zones.iter().position(has).expect("a page of the machine") as u16)
    }

    /// One of the blocks in somebody's hands.
    pub fn pick(&self, which: usize) -> Option<(Pfn, Order)> {
        let nth = which.checked_rem(self.blocks.len())?;
        self.blocks.iter().nth(nth).map(|(pfn, order)| (*pfn, *order))
    }

    pub fn some_of(&self, order: Order, at_most: usize) -> Vec<Pfn> {
        let of_order = self.blocks.iter().filter(|(_, o)| **o == order);
        of_order.map(|(pfn, _)| *pfn).take(at_most).collect()
    }

    /// A page without an owner, or no page at all.
    pub fn a_free_page(&self, which: usize) -> Pfn {
        let zone = which % self.zones.len();
        let free = self.owned[zone].iter().position(|owned| !owned);
        free.map_or(Pfn(1 << 45), |page| Pfn(self.zones[zone].start_pfn + page as u64))
    }

    /// LB A.6.
    fn highest(&self, gfp: Gfp) -> Option<ZoneKind> {
        let exists = |kind| self.zones.iter().any(|z| z.kind == kind);
        let or_normal = |kind| if exists(kind) { kind } else { ZoneKind::Normal };
        Some(match gfp.bits() & 15 {
            0 | 2 | 8 => ZoneKind::Normal,
            1 | 9 => or_normal(ZoneKind::Dma),
            4 | 12 => or_normal(ZoneKind::Dma32),
            10 => ZoneKind::Movable,
            _ => return None,
        })
    }

    /// The zones a request may use, in order (LB A.4): on machines of two nodes, own node first.
    fn zonelist(&self, cpu: CpuId, request: Request) -> Vec<usize> {
        let Some(highest) = self.highest(request.gfp) else { return Vec::new() };
        let node = request.node.unwrap_or(self.cpus[cpu.0 as usize]);
        let mut list: Vec<usize> = (0..self.zones.len()).rev().collect();
        list.retain(|z| {
            let ZoneSpec { node: of, kind, .. } = self.zones[*z];
            kind <= highest && (of == node || !request.gfp.contains(Gfp::THISNODE))
        });
        list.sort_by_key(|z| {
            (self.zones[*z].node != node, core::cmp::Reverse(self.zones[*z].kind))
        });
        if node.0 < self.nodes { list } else { Vec::new() }
    }

    pub fn allocated(&mut self, cpu: CpuId, request: Request, pfn: Pfn) {
        let pages = request.order.pages();
        assert_eq!(pfn.0 % pages, 0, "{pfn:?} is not aligned to {:?}", request.order);
        let zone = self.zone_of(pfn).0 as usize;
        let list = self.zonelist(cpu, request);
        assert!(list.contains(&zone), "{request:?} may not have zone {zone}");
        let first = (pfn.0 - self.zones[zone].start_pfn) as usize;
        for owned in &mut self.owned[zone][first..first + pages as usize] {
            assert!(!*owned, "{pfn:?} handed out twice");
            *owned = true;
        }
        self.blocks.insert(pfn, request.order);
        self.counts[zone].allocs += 1;
        self.counts[zone].allocated_pages += pages;
        // LB F.6.
        let node = |z: usize| self.zones[z].node;
        let (preferred, of_cpu) = (list[0], self.cpus[cpu.0 as usize]);
        let (local, hit) = (node(zone) == of_cpu, node(zone) == node(preferred));
        if hit {
            self.counts[zone].numa.hit += 1;
        } else {
            self.counts[zone].numa.miss += 1;
            self.counts[preferred].numa.foreign += 1;
        }
        match local {
            true => self.counts[zone].numa.local += 1,
            false => self.counts[zone].numa.other += 1,
        }
    }

    pub fn freed(&mut self, pfn: Pfn) {
        let order = self.blocks.remove(&pfn).expect("a block in somebody's hands");
        let zone = self.zone_of(pfn).0 as usize;
        let first = (pfn.0 - self.zones[zone].start_pfn) as usize;
        self.owned[zone][first..first + order.pages() as usize].fill(false);
        self.counts[zone].freed_pages += order.pages();
    }

    fn free_pages(&self, zone: usize) -> u64 {
        self.owned[zone].iter().filter(|owned| !**owned).count() as u64
    }

    /// Whether a whole block of `order` is in nobody's hands, and the request may see it: above
    /// order 0, one that cannot reclaim does not see the reserve for atomic requests without the
    /// right to it, and does not unreserve it (LB C.5, D.6).
    fn has_block(&self, pool: &Allocator<'_, Script>, zone: usize, request: Request) -> bool {
        let Request { order, gfp, .. } = request;
        let (start, pages) = (self.zones[zone].start_pfn, order.pages());
        let skip = start.next_multiple_of(pages) - start;
        let rest = self.owned[zone].get(skip as usize..).unwrap_or_default();
        // Free pageblocks that were of different types are not joined when one is unreserved (LB
        // B.8).
        if order > PAGEBLOCK_ORDER && pool.policy().highatomic.limit == HighAtomicLimit::PlusBlock {
            return false;
        }
        let sees_reserve = order == Order::ZERO || gfp.contains(Gfp::HIGH);
        let ops = pool.zone_ops(ZoneId(zone as u16));
        let mut blocks = rest.chunks_exact(pages as usize).enumerate();
        blocks.any(|(at, block)| {
            let first = start + skip + at as u64 * pages;
            let reserved = ops.pageblock_type(Pfn(first)) == Migratetype::HighAtomic;
            let visible = unreserves(gfp) || sees_reserve || !reserved;
            block.iter().all(|owned| !owned) && visible
        })
    }

    /// A refusal is true if no zone the request may use has the block and stays above what the
    /// request must leave (LB C.5, D.5), and it names the last such zone.
    pub fn check_refusal(
        &self,
        pool: &Allocator<'_, Script>,
        cpu: CpuId,
        request: Request,
        error: AllocError,
    ) {
        let Request { order, gfp, node } = request;
        assert_eq!(error.order, order);
        let both = gfp.contains(Gfp::MOVABLE.union(Gfp::RECLAIMABLE));
        let Some(highest) = self.highest(gfp).filter(|_| !both) else {
            assert_eq!(error.why, Refusal::BadGfp(gfp));
            return;
        };
        let list = self.zonelist(cpu, request);
        let Some(last) = list.last() else {
            let node = node.unwrap_or(self.cpus[cpu.0 as usize]);
            let nodes = pool.tables.nodes.len() as u16;
            let expected = match node.0 < nodes {
                true => Refusal::NoZone(node),
                false => Refusal::NoNode { node, nodes },
            };
            assert_eq!(error.why, expected);
            return;
        };
        for zone in &list {
            let leave = leave(pool, *zone, gfp, highest, order);
            let aside = order.pages() + set_aside(pool, *zone, gfp).1;
            let usable = (self.free_pages(*zone) + 1).saturating_sub(aside);
            let passes = leave.is_none_or(|leave| usable > leave);
            assert!(
                !(passes && self.has_block(pool, *zone, request)),
                "{request:?} refused ({error}), but zone {zone} has {} free pages of which \
                 {leave:?} must stay, and a block",
                self.free_pages(*zone)
            );
        }
        let (free, needed) = (self.free_pages(*last), leave(pool, *last, gfp, highest, order));
        let aside = order.pages() + set_aside(pool, *last, gfp).0;
        let usable = (free + 1).saturating_sub(aside);
        match error.why {
            Refusal::Watermark { zone, node, kind, watermark, free: said, needed: asked } => {
                let spec = self.zones[*last];
                assert_eq!((zone.0 as usize, node, kind), (*last, spec.node, spec.kind));
                let all = needed.map(|needed| needed + order.pages() - 1);
                let open = free.saturating_sub(aside - order.pages());
                assert_eq!((watermark, said, Some(asked)), (Watermark::Min, open, all));
                assert!(said <= asked);
            }
            Refusal::Fragmented { zone, free: said, .. } => {
                assert_eq!((zone.0 as usize, said), (*last, free));
                assert!(needed.is_none_or(|needed| usable > needed));
            }
            why => panic!("{why:?}"),
        }
    }

    pub fn assert_nothing_cached(&self, pool: &Allocator<'_, Script>) {
        for zone in 0..self.zones.len() {
            let stats = pool.zone_stats(ZoneId(zone as u16));
            assert_eq!((stats.cached_pages, stats.free_pages), (0, self.free_pages(zone)));
        }
    }

    /// Every invariant, every count.
    pub fn compare(&self, pool: &Allocator<'_, Script>) {
        if let Err(fault) = pool.validate() {
            panic!("{fault}");
        }
        for (id, expected) in self.counts.iter().enumerate() {
            let stats = pool.zone_stats(ZoneId(id as u16));
            let counts = Counts {
                allocs: stats.allocs,
                allocated_pages: stats.allocated_pages,
                freed_pages: stats.freed_pages,
                numa: stats.numa,
            };
            assert_eq!((id, counts), (id, *expected));
            assert_eq!(stats.free_pages + stats.cached_pages, self.free_pages(id));
            assert_eq!(stats.double_frees, 0);
        }
        let held = pool.allocated();
        assert!(held.eq(self.blocks.iter().map(|(pfn, order)| (*pfn, *order))));
        pool.zones().iter().for_each(|zone| check_fast(pool, zone));
    }
}

/// What a request must leave in a zone (LB C.5, D.5); `None` if anything goes.
fn leave(
    pool: &Allocator<'_, Script>,
    zone: usize,
    gfp: Gfp,
    highest: ZoneKind,
    order: Order,
) -> Option<u64> {
    let nomemalloc = gfp.contains(Gfp::NOMEMALLOC);
    if gfp.contains(Gfp::MEMALLOC) && !nomemalloc {
        return None;
    }
    let zone = &pool.zones()[zone];
    let (watermarks, high) = (zone.watermarks(), gfp.contains(Gfp::HIGH));
    let mut min = watermarks.min + if high && order == Order::ZERO { 0 } else { watermarks.boost };
    if high {
        min -= min / 2;
    }
    // Since 6.4 who cannot block goes further down only with the right to half (LB C.5).
    let older = pool.policy().reserves == ReserveRights::HighHarder;
    if (high || older) && !gfp.contains(Gfp::DIRECT_RECLAIM) && !nomemalloc {
        min -= min / 4;
    }
    Some(min + zone.reserve(highest))
}

/// Whether a request that would fail unreserves pageblocks first (LB D.6).
fn unreserves(gfp: Gfp) -> bool {
    let gives_up = gfp.contains(Gfp::MEMALLOC) || gfp.contains(Gfp::NORETRY);
    gfp.contains(Gfp::DIRECT_RECLAIM) && !gives_up
}

/// Pages that stay for requests with a right to some reserve: now, and when pageblocks of the
/// reserve that have free pages are unreserved. Up to 6.12 these are all pages of the reserved
/// pageblocks, free or not; what others own of them stays set aside (LB B.8, C.5). Later they are
/// free pages.
fn set_aside(pool: &Allocator<'_, Script>, zone: usize, gfp: Gfp) -> (u64, u64) {
    let cannot_block = !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC);
    let later = pool.policy().highatomic.count == HighAtomicCount::Free;
    if later || gfp.contains(Gfp::HIGH) || cannot_block {
        return (0, 0);
    }
    let areas = pool.stats().free_areas(ZoneId(zone as u16));
    let reserved = areas.reserved_highatomic;
    let given = if areas.free_highatomic > 0 && unreserves(gfp) { PAGEBLOCK_PAGES } else { 0 };
    (reserved, reserved.saturating_sub(given))
}

/// ZONE-3: a set bit promises that a plain request, for whatever kind of zone, passes the high
/// watermark (LB D.4 step 5). And under pressure every pcp goes through the core.
fn check_fast(pool: &Allocator<'_, Script>, zone: &Zone) {
    let bits = zone.fast.load(Relaxed);
    for cpu in (0..pool.cpus()).filter(|_| zone.has(BELOW_HIGH)) {
        let pcp = pool.pcp(zone.id(), CpuId(cpu as u32));
        assert!(PcpWord(pcp.word.load(Relaxed)).is_slow());
    }
    for order in Order::all().take_while(|order| *order <= PAGEBLOCK_ORDER) {
        if bits & (1 << order.get()) == 0 {
            continue;
        }
        for kind in ZoneKind::ALL {
            let snapshot = zone.snapshot(kind);
            let watermarks = zone.watermarks();
            let passes =
                snapshot.ok_fast(order, &watermarks, Watermark::High, AllocFlags::WMARK_LOW);
            assert!(
                passes,
                "{:?} lets {order:?} pass for {kind}: {snapshot:?} {watermarks:?}",
                zone.id()
            );
        }
    }
}
