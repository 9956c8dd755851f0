//! The state a replay starts from: which frames are free, in use, on a list, or not there.
//!
//! | frames | why | become |
//! |--|--|--|
//! | blocks held at the start | the trace frees them | in use, exactly those blocks |
//! | blocks that a run before left | the trace frees them | in use, in place of recorded ones |
//! | those for which there is no place | | in use, where most pages are free |
//! | the first that a CPU takes | its lists held as many when the state was read | on its list |
//! | all others that the trace allocates | they came out of the buddy | free |
//! | frames the trace never names | to make up the recorded totals | free, in use, or absent |
//!
//! Unnamed free pages come as whole 4 MiB blocks where the trace touches nothing, unnamed pages in
//! use from around those it touches: the free blocks that the trace uses stay as small as its own
//! frames make them, and small blocks go first (LB B.6). Where a zone has few free pageblocks,
//! free pages come in the blocks that `pagetypeinfo` and `buddyinfo` tell of, by type and order, as
//! near as named ones allow (`shape`): a request that may not mix types passes a zone by that has
//! neither pages of its type nor a free pageblock, and each that does so finds a list empty, which
//! raises the limit of its CPU (LB B.7, E.6).
//!
//! # What is not known
//! The order of blocks on the buddy's lists; the migratetypes of pageblocks that the trace
//! allocates nothing from (Movable is assumed, of others the type that most allocations in them
//! asked for); which lists of a CPU held its pages (those that it allocates from first are
//! assumed); how far a CPU's tuning was between two doublings.

mod bounds;
mod cached;
mod limit;
mod sampled;
mod shape;

use std::collections::{BTreeMap, HashMap};

use zonal_core::alloc::Allocator;
use zonal_core::frame::Frames;
use zonal_core::pcp::tune::PcpState;
use zonal_core::types::{CpuId, Migratetype, NR_MIGRATETYPES, Order, PAGEBLOCK_ORDER, Pfn, ZoneId};
use zonal_core::zone::state::Zone;
use zonal_trace::{MachineDescription, Pageset};

pub use self::bounds::keep_boosted;
use self::cached::{Cached, Chooser};
use self::limit::Limit;
pub use self::sampled::machine;
use crate::build::{Rebuilt, Script};
use crate::error::ReplayError;
use crate::facts::Shown;
use crate::program::{self, Origin, Program};
use crate::told::{FirstDrain, Told, few_blocks};
use crate::zones::{FreeBlocks, ZoneMap, at_start};

/// Unnamed pages in use come online in blocks of this order, unnamed free ones of the largest.
const HELD_ORDER: u32 = 9;
const CHUNK: usize = Order::MAX.pages() as usize;

/// Start state of a zone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Totals {
    managed: u64,
    free: u64,
    /// Its free blocks, if a file says and pageblocks are few.
    blocks: Option<FreeBlocks>,
    pagesets: Vec<Pageset>,
}

/// Target state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Absent,
    Free,
    /// In use or on a list: the first frame of a block of an order, and its others.
    Block(u8),
    Inside,
}

/// The start state made, and its distance from the recorded one.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct StartReport {
    /// Pages on lists, as recorded.
    pub cached_pages: u64,
    /// Of them, pages that the trace names.
    pub cached_named: u64,
    /// Free pages in the buddies.
    pub free_pages: u64,
    /// Of them, pages that the trace takes, or freed before the start.
    pub free_named: u64,
    /// Pages in use from before.
    pub held_pages: u64,
    /// Of them, pages that the trace frees.
    pub held_named: u64,
    /// Pages by which the managed pages differ from the recorded ones.
    pub managed_differs: i64,
    /// Blocks in use at the start that could not be placed: outside all zones, or overlapping.
    pub unplaced_blocks: u64,
}

/// Facts about the start beyond the files.
pub struct Known<'a> {
    /// The trace.
    pub program: &'a Program,
    /// What the events show together, the types of pageblocks among it, if that is to be known.
    pub shown: Option<&'a Shown>,
    /// The pages of each list, and what led to them, if known.
    pub told: Option<&'a Told>,
}

/// A slot that has no block. Page frame 0 is in no zone of any PC.
pub const NO_BLOCK: u64 = 0;

/// The state at the start.
pub struct Started {
    /// How it was made.
    pub report: StartReport,
    /// What the lists are to hold: [`warm_up`] moves it there.
    pub warm: Vec<Warm>,
    /// The frame of each slot that is held, else [`NO_BLOCK`].
    pub blocks: Vec<u64>,
}

/// Brings a rebuilt machine into the state at the start of the program.
///
/// # Errors
/// If the core refuses memory, which is a bug.
pub fn bring_up(
    rebuilt: &Rebuilt<'_>,
    machine: &MachineDescription,
    map: &ZoneMap,
    known: &Known<'_>,
) -> Result<Started, ReplayError> {
    let Known { program, shown, told } = *known;
    let chooser = Chooser { program, map, lists: rebuilt.allocator.tables().lists(), told };
    let mut report = StartReport::default();
    let mut warm = Vec::new();
    let mut blocks = vec![NO_BLOCK; program.slots.len()];
    if rebuilt.allocator.tables().grouping() {
        tag_pageblocks(rebuilt, program, map);
        if let Some(shown) = shown {
            tag_as_recorded(rebuilt, shown, map);
        }
    }
    let zones = (0..map.zones().len()).map(|index| totals(machine, program, (index, map)));
    let all: Vec<Totals> = zones.collect();
    let roomiest = (0..all.len()).max_by_key(|index| all[*index].free);
    for (index, (zone, mut totals)) in map.zones().iter().zip(all).enumerate() {
        let spanned = (zone.end - zone.start) as usize;
        let fates = vec![Fate::Absent; spanned];
        let mut fates = Fates { start: zone.start, fates, spare: spanned };
        fates.place_held(program, map, index, &mut blocks, &mut report);
        let zone_warm = fates.place_cached(&chooser, index, &totals, &mut report);
        fates.place_free(program, map, index);
        totals.free += fates.freed(program, map, index);
        if roomiest == Some(index) {
            fates.place_left(program, &mut totals, &mut blocks, &mut report);
        }
        fates.fill_up(&totals, &rebuilt.frames(index), &mut report);
        let zone_id = ZoneId(index as u16);
        fates.online(&rebuilt.allocator, zone_id, &zone.kind)?;
        report.free_pages += rebuilt.allocator.zone_stats(zone_id).free_pages;
        let managed = rebuilt.allocator.zones()[index].managed();
        report.managed_differs += managed as i64 - totals.managed as i64;
        warm.extend(zone_warm);
    }
    report.unplaced_blocks =
        program.held().filter(|(slot, _)| blocks[*slot as usize] == NO_BLOCK).count() as u64;
    Ok(Started { report, warm, blocks })
}

/// Pages that a CPU's lists are to hold, hottest first.
#[derive(Debug, Clone)]
pub struct Warm {
    zone: ZoneId,
    cpu: CpuId,
    high: Limit,
    alloc_factor: u32,
    /// The first drain, and the batch that it is of.
    drain: Option<(FirstDrain, u64)>,
    /// Frame and list.
    pages: Vec<(u64, usize)>,
}

/// The bounds of each zone's lists.
pub fn bounds(rebuilt: &Rebuilt<'_>) -> Vec<(u32, u32)> {
    let zones = rebuilt.allocator.zones().iter();
    let sizes = zones.map(Zone::pcp_sizes);
    sizes.map(|(_, min, max)| (min, max)).collect()
}

/// Moves the pages that lists held at the start there. Call it after the limits were set up.
/// `as_recorded` are the bounds without the settings that are tried; where these leave lists less
/// room, what they cannot hold has gone back to the buddy before the start. Returns a remark on
/// such pages.
pub fn warm_up(
    rebuilt: &Rebuilt<'_>,
    warm: Vec<Warm>,
    as_recorded: &[(u32, u32)],
) -> Option<String> {
    let allocator = &rebuilt.allocator;
    let policy = allocator.policy();
    let scale_max = policy.pcp.scale_max;
    let bounds = bounds(rebuilt);
    let mut given_back = 0;
    for Warm { zone, cpu, high, alloc_factor, drain, mut pages } in warm {
        let now = bounds[zone.0 as usize];
        let pcp = allocator.pcp(zone, cpu);
        let record = &allocator.zones()[zone.0 as usize];
        if let Some(room) = high.room(as_recorded[zone.0 as usize], now) {
            given_back += give_back(rebuilt, (zone, cpu), &mut pages, room);
        }
        let Some(mut closed) = rebuilt.raw().close(zone, cpu) else { continue };
        for list in 0..allocator.tables().lists().len() {
            let of_list = |page: &&(u64, usize)| page.1 == list;
            let count = pages.iter().filter(of_list).count() as u32;
            if count == 0 {
                continue;
            }
            let Some(cached) = pcp.list(list).map(|list| list.cached_word().bits()) else {
                continue;
            };
            let mut sink = closed.refill(list, count);
            for (pfn, _) in pages.iter().filter(of_list).take(sink.room() as usize) {
                let frame = record.frame_base() as u64 + (pfn - record.start_pfn().0);
                // Relaxed: one thread.
                let word = &rebuilt.raw().words()[frame as usize];
                word.store(cached, std::sync::atomic::Ordering::Relaxed);
                sink.give(frame as u32);
            }
            closed.refilled(list, sink);
        }
        let alloc_factor = alloc_factor.min(scale_max.into()) as u8;
        let (count, high) = (closed.count().get(), high.under(now));
        let free_count = drain.map_or(0, |(drain, batch)| drain.freed_before(batch, &policy.pcp));
        let state = PcpState { count, high, alloc_factor, free_count, ..PcpState::default() };
        closed.set_state(&state);
        drop(closed);
        if !pages.is_empty() && record.node() != allocator.node_of(cpu) {
            arm_expiry(allocator, zone, cpu);
        }
    }
    (given_back > 0).then(|| {
        format!(
            "{given_back} pages that lists held at the start of the recording are free here: these \
             settings do not leave lists as much room"
        )
    })
}

/// Frees what a CPU's lists cannot hold, the coldest of the fullest list first, as drains behind
/// frees to it do (LB E.8). Returns how many pages that are.
fn give_back(
    rebuilt: &Rebuilt<'_>,
    (zone, cpu): (ZoneId, CpuId),
    pages: &mut Vec<(u64, usize)>,
    room: u32,
) -> u64 {
    let allocator = &rebuilt.allocator;
    let lists = allocator.tables().lists();
    let size = |list: usize| lists.of(list).0.pages();
    let mut held = vec![0; lists.len()];
    pages.iter().for_each(|(_, list)| held[*list] += size(*list));
    let mut excess = held.iter().sum::<u64>().saturating_sub(room.into());
    let mut left = vec![0; lists.len()];
    while excess > 0 {
        let Some(fullest) = (0..lists.len()).max_by_key(|list| held[*list]) else { break };
        held[fullest] -= size(fullest);
        left[fullest] += 1;
        excess = excess.saturating_sub(size(fullest));
    }
    let mut freed = 0;
    let mut kept = Vec::new();
    allocator.platform().turn(cpu.0, 0, true);
    for &(pfn, list) in pages.iter().rev() {
        let is_freed = left[list] > 0 && allocator.free(Pfn(pfn), lists.of(list).0).is_ok();
        match is_freed {
            true => (left[list], freed) = (left[list] - 1, freed + size(list)),
            false => kept.push((pfn, list)),
        }
    }
    allocator.drain(zone, cpu);
    kept.reverse();
    *pages = kept;
    freed
}

/// A CPU that holds pages of another node's zone is emptied a batch each three seconds, and each
/// such drain leaves the counter delta that arms the next (LB F.4). So the kernel's was armed.
fn arm_expiry(allocator: &Allocator<'_, Script>, zone: ZoneId, cpu: CpuId) {
    let platform = allocator.platform();
    let node = allocator.zones()[zone.0 as usize].node();
    let cpus = (0..allocator.cpus() as u32).map(CpuId);
    let Some(local) = cpus.into_iter().find(|other| allocator.node_of(*other) == node) else {
        return;
    };
    platform.turn(cpu.0, 0, false);
    let taken = Order::all().find_map(|order| Some((allocator.isolate_block(zone, order)?, order)));
    platform.turn(local.0, 0, false);
    if let Some((pfn, order)) = taken {
        allocator.restore_block(zone, pfn, order);
    }
}

/// The recorded totals of a zone at the start.
fn totals(
    machine: &MachineDescription,
    program: &Program,
    (index, map): (usize, &ZoneMap),
) -> Totals {
    let at = &map.zones()[index];
    let Some(zone) = machine.zone(at.node, &at.kind) else { return Totals::default() };
    let (managed, free, pagesets) = match at_start(machine, zone) {
        Some(polled) => (polled.managed, polled.free, &polled.pagesets),
        None => (zone.managed, zone.free, &zone.pagesets),
    };
    let blocks = few_blocks(machine, program, (index, map));
    Totals { managed, free, blocks, pagesets: pagesets.clone() }
}

/// Gives each pageblock that the trace allocates from the type that most of its pages were asked
/// for with.
fn tag_pageblocks(rebuilt: &Rebuilt<'_>, program: &Program, map: &ZoneMap) {
    let mut asked: HashMap<u64, [u64; 3]> = HashMap::new();
    for slot in program.slots.iter().filter(|slot| slot.origin != Origin::Held) {
        let counts = asked.entry(slot.pfn >> 9).or_default();
        if let Some(count) = counts.get_mut(slot.migratetype as usize) {
            *count += 1 << slot.order;
        }
    }
    for (block, counts) in asked {
        let Some(zone) = map.of((block << 9).max(1)) else { continue };
        let frames = rebuilt.frames(zone);
        let most = (0..3).max_by_key(|mt| counts[*mt]).unwrap_or(1);
        let mt = Migratetype::new(most as u32).unwrap_or(Migratetype::Movable);
        if let Some(idx) = frames.index(Pfn(block << 9)) {
            frames.set_pageblock_type(idx, mt);
        }
    }
}

/// Gives pageblocks the types that the trace tells. One that is several in the recorded kernel gets
/// that of most of them.
fn tag_as_recorded(rebuilt: &Rebuilt<'_>, shown: &Shown, map: &ZoneMap) {
    let mut told: BTreeMap<u64, [u32; NR_MIGRATETYPES]> = BTreeMap::new();
    let own = PAGEBLOCK_ORDER.get() as u8;
    for (pfn, mt) in shown.types.all_at(shown.start) {
        let first = pfn >> own;
        let blocks = 1 << shown.types.order().saturating_sub(own);
        (first..first + blocks).for_each(|block| told.entry(block).or_default()[mt.index()] += 1);
    }
    for (block, counts) in told {
        let pfn = block << own;
        let Some(zone) = map.of(pfn.max(1)) else { continue };
        let frames = rebuilt.frames(zone);
        let most = (0..NR_MIGRATETYPES).max_by_key(|mt| counts[*mt]);
        let mt = most.and_then(|mt| Migratetype::new(mt as u32));
        if let (Some(idx), Some(mt)) = (frames.index(Pfn(pfn)), mt) {
            frames.set_pageblock_type(idx, mt);
        }
    }
}

struct Fates {
    start: u64,
    fates: Vec<Fate>,
    /// Above it, no frame is left for [`place_unnamed`](Self::place_unnamed).
    spare: usize,
}

impl Fates {
    /// Marks a block if all of it is inside the zone and undecided.
    fn place(&mut self, pfn: u64, order: u8, fate: Fate) -> bool {
        let Some(first) = pfn.checked_sub(self.start).map(|index| index as usize) else {
            return false;
        };
        let Some(frames) = self.fates.get_mut(first..first + (1 << order)) else { return false };
        if pfn & ((1 << order) - 1) != 0 || frames.iter().any(|fate| *fate != Fate::Absent) {
            return false;
        }
        frames.fill(if fate == Fate::Free { Fate::Free } else { Fate::Inside });
        frames[0] = fate;
        true
    }

    fn place_held(
        &mut self,
        program: &Program,
        map: &ZoneMap,
        zone: usize,
        blocks: &mut [u64],
        report: &mut StartReport,
    ) {
        for (number, slot) in program.held().filter(|(_, slot)| map.of(slot.pfn) == Some(zone)) {
            if self.place(slot.pfn, slot.order, Fate::Block(slot.order)) {
                blocks[number as usize] = slot.pfn;
                report.held_named += 1 << slot.order;
                report.held_pages += 1 << slot.order;
            }
        }
    }

    /// Places blocks in use that were not in the recording, of which nothing says where they are,
    /// in pages that were free.
    fn place_left(
        &mut self,
        program: &Program,
        totals: &mut Totals,
        blocks: &mut [u64],
        report: &mut StartReport,
    ) {
        let mut left = program.held().filter(|(_, slot)| slot.pfn == 0).peekable();
        // A recording itself has none.
        if left.peek().is_none() {
            return;
        }
        let mut spare = totals.free.saturating_sub(self.count(|fate| *fate == Fate::Free));
        for (number, slot) in left {
            let pages = 1 << slot.order;
            if pages > spare {
                continue;
            }
            let Some(pfn) = self.place_unnamed(slot.order) else { continue };
            blocks[number as usize] = pfn;
            report.held_pages += pages;
            (spare, totals.free) = (spare - pages, totals.free - pages);
        }
    }

    /// Sets the pages aside that lists hold at the start.
    fn place_cached(
        &mut self,
        chooser: &Chooser<'_>,
        zone: usize,
        totals: &Totals,
        report: &mut StartReport,
    ) -> Vec<Warm> {
        let mut lists = Vec::new();
        for set in &totals.pagesets {
            let mut pages = Vec::new();
            for Cached { pfn, order, list } in chooser.choose(zone, set) {
                let named = pfn.filter(|pfn| self.place(*pfn, order, Fate::Block(order)));
                let Some(pfn) = named.or_else(|| self.place_unnamed(order)) else { continue };
                report.cached_named += if named.is_some() { 1 << order } else { 0 };
                report.cached_pages += 1 << order;
                pages.push((pfn, list));
            }
            let (zone, cpu) = (ZoneId(zone as u16), CpuId(set.cpu));
            let (high, alloc_factor) = (Limit::of(set), chooser.alloc_factor(zone.0.into(), set));
            let drain = chooser.first_drain(zone.0.into(), set).zip(Some(set.batch));
            lists.push(Warm { zone, cpu, high, alloc_factor, drain, pages });
        }
        lists
    }

    /// A block from the end of the zone, where the trace has nothing.
    fn place_unnamed(&mut self, order: u8) -> Option<u64> {
        let pages = 1_u64 << order;
        let end = self.start + self.spare as u64;
        let mut pfn = (end & !(pages - 1)).checked_sub(pages)?;
        while !self.place(pfn, order, Fate::Block(order)) {
            pfn = pfn.checked_sub(pages).filter(|pfn| *pfn >= self.start)?;
        }
        // Single pages fill the gaps below a larger one too.
        self.spare = (pfn - self.start) as usize + if order == 0 { 0 } else { pages as usize };
        Some(pfn)
    }

    /// Frames that the trace takes from the buddy, or freed before the start.
    fn place_free(&mut self, program: &Program, map: &ZoneMap, zone: usize) {
        let free = |origin| matches!(origin, Origin::Fresh | Origin::Gone | Origin::Away);
        let slots = program.slots.iter().filter(|slot| free(slot.origin));
        for slot in slots.filter(|slot| map.of(slot.pfn) == Some(zone)) {
            for page in 0..1 << slot.order {
                self.place(slot.pfn + page, 0, Fate::Free);
            }
        }
    }

    /// Pages that are in use at the recorded start, and free here.
    fn freed(&self, program: &Program, map: &ZoneMap, zone: usize) -> u64 {
        let all = program.slots.iter().filter(|slot| slot.origin == Origin::Away);
        let own = all.filter(|slot| map.of(slot.pfn) == Some(zone));
        let pages = own.flat_map(|slot| (slot.pfn - self.start..).take(1 << slot.order));
        pages.filter(|page| self.fates.get(*page as usize) == Some(&Fate::Free)).count() as u64
    }

    fn count(&self, is_one: impl Fn(&Fate) -> bool) -> u64 {
        self.fates.iter().filter(|fate| is_one(fate)).count() as u64
    }

    /// Makes up the recorded totals from frames that the trace does not name.
    fn fill_up(&mut self, totals: &Totals, frames: &Frames<'_>, report: &mut StartReport) {
        let named_free = self.count(|fate| *fate == Fate::Free);
        let named_held = self.count(|fate| !matches!(fate, Fate::Free | Fate::Absent));
        let mut free = totals.free.saturating_sub(named_free);
        let mut held = totals.managed.saturating_sub(named_free + named_held + free);
        report.held_pages += held;
        report.free_named += named_free;
        if let Some(blocks) = &totals.blocks {
            free = self.shape(blocks, free, frames);
        }
        let skew = ((self.start as usize).wrapping_neg() % CHUNK).min(self.fates.len());
        for chunk in self.fates[skew..].chunks_exact_mut(CHUNK) {
            if free >= CHUNK as u64 && chunk.iter().all(|fate| *fate == Fate::Absent) {
                chunk.fill(Fate::Free);
                free -= CHUNK as u64;
            }
        }
        self.hold_unnamed(&mut held, true);
        for fate in self.fates.iter_mut().filter(|fate| **fate == Fate::Absent) {
            if free == 0 {
                break;
            }
            *fate = Fate::Free;
            free -= 1;
        }
        self.hold_unnamed(&mut held, false);
    }

    /// Marks up to `held` undecided frames as in use, in aligned blocks; with `near`, only in
    /// chunks that have a decided frame.
    fn hold_unnamed(&mut self, held: &mut u64, near: bool) {
        let mut index = 0;
        while index < self.fates.len() && *held > 0 {
            let chunk_end =
                (((self.start as usize + index) / CHUNK + 1) * CHUNK) - self.start as usize;
            let end = chunk_end.min(self.fates.len());
            let decided = self.fates[index..end].iter().any(|fate| *fate != Fate::Absent);
            if near && !decided {
                index = end;
                continue;
            }
            while index < end && *held > 0 {
                let pfn = self.start + index as u64;
                let run = self.fates[index..end].iter().take_while(|f| **f == Fate::Absent).count();
                if run == 0 {
                    index += 1;
                    continue;
                }
                let fits = (run as u64).min(*held).ilog2();
                let order = fits.min(pfn.trailing_zeros()).min(HELD_ORDER) as u8;
                self.place(pfn, order, Fate::Block(order));
                *held -= 1 << order;
                index += 1 << order;
            }
        }
    }

    /// Brings the frames online. A block in use comes online alone, so that the buddy cannot merge
    /// it, and is taken at once; free frames come last.
    fn online(
        &self,
        allocator: &Allocator<'_, Script>,
        zone: ZoneId,
        name: &str,
    ) -> Result<(), ReplayError> {
        let refused = |source| ReplayError::Online { zone: name.to_owned(), source };
        let mut index = 0;
        while index < self.fates.len() {
            let Fate::Block(order) = self.fates[index] else {
                index += 1;
                continue;
            };
            let pfn = self.start + index as u64;
            let order = program::order(order);
            allocator.online(zone, Pfn(pfn)..Pfn(pfn + order.pages())).map_err(refused)?;
            let found = allocator.isolate_block(zone, order);
            let is_kept = found.is_some_and(|found| allocator.ranges().keep_block(found, order));
            if found != Some(Pfn(pfn)) || !is_kept {
                let zone = name.to_owned();
                return Err(ReplayError::StartBlock { zone, expected: pfn, found });
            }
            index += order.pages() as usize;
        }
        let mut index = 0;
        while index < self.fates.len() {
            let run = self.fates[index..].iter().take_while(|fate| **fate == Fate::Free).count();
            if run > 0 {
                let pfn = self.start + index as u64;
                allocator.online(zone, Pfn(pfn)..Pfn(pfn + run as u64)).map_err(refused)?;
            }
            index += run.max(1);
        }
        Ok(())
    }
}
