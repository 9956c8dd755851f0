//! The depots of a zone, seen from the zone: counted, and emptied into the buddy (see
//! [`crate::pcp::depot`]).

use super::{PRESSED, ZoneOps};
use crate::buddy::FreeFlags;
use crate::frame::PageWord;
use crate::machine::CPUS_MAX;
use crate::pcp::depot::{DEPOT, Depot, Magazine};
use crate::pcp::stack;
use crate::pcp::state::{Pcp, PcpList};
use crate::pcp::tune::{PcpParams, SCALE_MAX_DEFAULT};
use crate::platform::{Platform, Step};
use crate::policy::Policy;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, PageCount};
use crate::zone::state::LockedZone;

const _: () = assert!(DEPOT.cpu.0 as usize == CPUS_MAX);

/// Whether there is a magazine.
fn full(shelf: &AtomicU64) -> bool {
    stack::top(shelf).is_some()
}

/// The word of a block of `list` in a depot (DEPOT-2).
pub fn depot_word(list: &PcpList) -> PageWord {
    PageWord::cached(list.order(), list.migratetype(), DEPOT)
}

impl<'s, 'a, P: Platform> ZoneOps<'s, 'a, P> {
    /// The depot that a pcp uses.
    #[inline]
    pub fn depot(self, pcp: &Pcp) -> Option<&'a Depot> {
        // Where the policy is compiled in there need be no code for depots.
        if Policy::fixed_for::<P>().is_some_and(|policy| policy.pcp.depot.magazines == 0) {
            return None;
        }
        let depot = &self.pcp(pcp.depot_cpu).depot;
        depot.exists().then_some(depot)
    }

    /// Parameters of a pcp's tuning. A small `scale_max` is for pcps with a depot; under pressure
    /// lists bypass it, and larger chunks take the zone lock less often.
    pub fn params(self, pcp: &Pcp) -> PcpParams {
        let mut params = pcp.params(&self.on.fixed());
        if self.zone.has(PRESSED) && self.depot(pcp).is_some() {
            params.scale_max = params.scale_max.max(SCALE_MAX_DEFAULT);
        }
        params
    }

    /// The zone's depots, each with the CPU whose pcp has it.
    pub fn depots(self) -> impl Iterator<Item = (CpuId, &'a Depot)> + use<'s, 'a, P> {
        let cpus = if self.on.policy().pcp.depot.magazines == 0 { 0 } else { self.on.cpus() };
        let all = (0..cpus).map(|cpu| CpuId(cpu as u32));
        let depots = all.map(move |cpu| (cpu, &self.pcp(cpu).depot));
        depots.filter(|(_, depot)| depot.exists())
    }

    /// Base pages in the depots.
    pub fn depot_pages(self) -> u64 {
        self.depots().map(|(_, depot)| u64::from(depot.pages())).sum()
    }

    /// Where magazines of the depot in a CPU's pcp are, with their list: its own shelves, and for
    /// each CPU of the group the one of rows that came back to it.
    pub fn shelves(
        self,
        cpu: CpuId,
    ) -> impl Iterator<Item = (usize, &'a AtomicU64)> + use<'s, 'a, P> {
        let lists = self.on.map.len();
        let row = self.on.map.row().map_or(lists, |(row, _)| row);
        let cpus = if row == lists { 0 } else { self.on.cpus() as u32 };
        let group = (0..cpus).map(CpuId).filter(move |other| *other != cpu);
        let rows = group.map(move |other| self.pcp(other)).filter(move |pcp| pcp.depot_cpu == cpu);
        let rows = rows.map(move |pcp| (row, pcp.depot.shelf(row)));
        let depot = &self.pcp(cpu).depot;
        (0..lists).map(move |list| (list, depot.shelf(list))).chain(rows)
    }

    /// Whether there is a magazine for a CPU's list.
    pub fn depot_has(self, cpu: CpuId, list: usize) -> bool {
        let pcp = self.pcp(cpu);
        let own =
            || self.on.map.row().is_some_and(|(row, of)| of == list && full(pcp.depot.shelf(row)));
        let has = |depot: &Depot| {
            full(depot.shelf(list)) || own() || self.rows_of_all(pcp, depot, list).any(full)
        };
        self.depot(pcp).is_some_and(has)
    }

    /// The shelves of rows of a pcp's whole group, where more than half of what the depot may hold
    /// waits: so those that do not take theirs leave the rest of the group a depot.
    pub fn rows_of_all(
        self,
        pcp: &Pcp,
        depot: &Depot,
        list: usize,
    ) -> impl Iterator<Item = &'a AtomicU64> + use<'s, 'a, P> {
        let row = self.on.map.row().filter(|(_, own)| *own == list);
        let row = row.filter(|_| depot.pages().get() > depot.limit().get() / 2);
        let shelves = row.map(|_| self.shelves(pcp.depot_cpu)).into_iter().flatten();
        shelves.filter(move |(of, _)| row.is_some_and(|(row, _)| row == *of)).map(|shelf| shelf.1)
    }

    /// Whether a depot holds pages, or they are on their way.
    pub fn depots_in_use(self) -> bool {
        self.depots().any(|(_, depot)| !depot.is_empty())
    }

    /// How often magazines came to the depots or left them.
    pub fn depot_changes(self) -> u64 {
        // Those of rows are in the pcps of all CPUs.
        let cpus = if self.on.policy().pcp.depot.magazines == 0 { 0 } else { self.on.cpus() };
        let all = (0..cpus).map(|cpu| self.pcp(CpuId(cpu as u32)));
        all.map(|pcp| pcp.depot.changes()).fold(0, u64::wrapping_add)
    }

    /// Empties the depots into the buddy. Returns the pages moved.
    pub fn drain_depots(self) -> u64 {
        self.depots().map(|(cpu, depot)| self.empty(cpu, depot, PageCount::MAX)).sum()
    }

    /// The depot's part of a refresh: pages not needed since the last one go to the buddy, under
    /// pressure all. The others look after the depot of a CPU that is gone. Returns whether
    /// there was anything.
    pub fn refresh_depot(self, cpu: CpuId) -> bool {
        let group = self.pcp(cpu).depot_cpu;
        let Some(depot) = self.depot(self.pcp(cpu)) else { return false };
        if depot.is_empty() || (group != cpu && self.on.is_online(group)) {
            return false;
        }
        let pressed = self.zone.has(PRESSED);
        let unused = depot.unused();
        self.empty(group, depot, if pressed { PageCount::MAX } else { unused });
        true
    }

    /// Moves magazines to the buddy until at least `pages` pages have moved or the depot is empty.
    /// Large blocks first, rows last. Returns the pages moved.
    fn empty(self, cpu: CpuId, depot: &'a Depot, pages: PageCount) -> u64 {
        let mut moved = 0;
        let lists = self.on.map.len();
        let row = self.on.map.row().map_or(lists, |(row, _)| row);
        for list in (0..row).rev().chain(row..lists) {
            let shelves = self.shelves(cpu).filter(|(of, _)| *of == list);
            for (_, shelf) in shelves {
                moved += self.empty_shelf((cpu, depot), (list, shelf), u64::from(pages) - moved);
                if moved >= u64::from(pages) || depot.is_empty() {
                    return moved;
                }
            }
        }
        moved
    }

    /// The same of one shelf.
    fn empty_shelf(
        self,
        (cpu, depot): (CpuId, &'a Depot),
        (list, shelf): (usize, &AtomicU64),
        pages: u64,
    ) -> u64 {
        let mut moved = 0;
        while moved < pages && full(shelf) {
            let record = &self.pcp(cpu).lists[list];
            // The lock first (DEPOT-1).
            let mut locked = self.lock();
            let taken = depot.take(&mut locked, self.on.slots, shelf, record.order());
            let Some(magazine) = taken else { break };
            moved += self.free_magazine(&mut locked, record, &magazine);
            let blocks = magazine.frames().len() as u32;
            depot.emptied(&mut locked, self.on.slots, magazine);
            drop(locked);
            let zone = self.zone.id;
            self.on.platform.cost(Step::Depot { zone, group: cpu, blocks });
        }
        moved
    }

    /// Merges the blocks of a magazine into the locked buddy.
    fn free_magazine(
        self,
        locked: &mut LockedZone<'_, P>,
        record: &PcpList,
        magazine: &Magazine<'_>,
    ) -> u64 {
        let order = record.order();
        let pcp = self.pcp(self.on.platform.cpu());
        let mut pages = 0;
        for slot in magazine.frames() {
            let idx = slot.load(Relaxed) - self.zone.frame_base as u32;
            let LockedZone { buddy, frames, .. } = &mut *locked;
            if buddy.free_block(frames, idx, order, FreeFlags::default()).is_ok() {
                locked.account(&pcp.free_diff, order.pages() as i64, 1);
                pages += order.pages();
            } else {
                pcp.events.double_frees.fetch_add(1, Relaxed);
            }
        }
        pages
    }

    /// Shows every block in a depot of the zone, with the word it must have, while nothing runs.
    pub fn each_in_depots(self, mut see: impl FnMut(&AtomicU32, PageWord)) {
        for (cpu, depot) in self.depots() {
            let lists = &self.pcp(cpu).lists;
            for (list, shelf) in self.shelves(cpu) {
                let word = depot_word(&lists[list]);
                depot.each(self.on.slots, shelf, |frames| {
                    frames.iter().for_each(|slot| see(slot, word));
                });
            }
        }
    }
}
