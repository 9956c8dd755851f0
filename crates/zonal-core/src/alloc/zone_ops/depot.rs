//! The depots of a zone, seen from the zone: counted, and emptied into the buddy (see
//! [`crate::pcp::depot`]).

use super::{PRESSED, ZoneOps};
use crate::buddy::FreeFlags;
use crate::frame::PageWord;
use crate::machine::CPUS_MAX;
use crate::pcp::depot::{DEPOT, Depot};
use crate::pcp::state::{Pcp, PcpList};
use crate::pcp::tune::{PcpParams, SCALE_MAX_DEFAULT};
use crate::platform::{Platform, Step};
use crate::policy::Policy;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::types::{CpuId, PageCount};
use crate::zone::state::LockedZone;

const _: () = assert!(DEPOT.cpu.0 as usize == CPUS_MAX);

/// The word of a block of `list` in a depot (DEPOT-2).
pub fn depot_word(list: &PcpList) -> PageWord {
    PageWord::cached(list.order(), list.migratetype(), DEPOT)
}

impl<'s, 'a, P: Platform> ZoneOps<'s, 'a, P> {
    /// The depot that a pcp uses.
    #[inline]
    pub fn depot<'p>(self, pcp: &'p Pcp) -> Option<&'p Depot>
    where
        'a: 'p,
    {
        // Where the policy is compiled in there need be no code for depots.
        if Policy::fixed_for::<P>().is_some_and(|policy| policy.pcp.depot.magazines == 0) {
            return None;
        }
        let has = if pcp.owner == pcp.depot_cpu { pcp } else { self.pcp(pcp.depot_cpu) };
        let depot = &has.depot;
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

    /// Whether a CPU's depot has a magazine of a list.
    pub fn depot_has(self, cpu: CpuId, list: usize) -> bool {
        self.depot(self.pcp(cpu)).is_some_and(|depot| depot.has(list))
    }

    /// Whether a depot holds pages, or they are on their way.
    pub fn depots_in_use(self) -> bool {
        self.depots().any(|(_, depot)| !depot.is_empty())
    }

    /// How often magazines came to the depots or left them.
    pub fn depot_changes(self) -> u64 {
        self.depots().map(|(_, depot)| depot.changes()).fold(0, u64::wrapping_add)
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

    /// Empties the depot that a CPU used, which is offline now, if no CPU that is online uses it:
    /// nobody is left to look after it.
    pub fn leave_depot(self, cpu: CpuId) {
        let group = self.pcp(cpu).depot_cpu;
        let uses = |cpu: &CpuId| self.pcp(*cpu).depot_cpu == group && self.on.is_online(*cpu);
        if let Some(depot) = self.depot(self.pcp(cpu))
            && !self.on.each_cpu().any(|cpu| uses(&cpu))
        {
            self.empty(group, depot, PageCount::MAX);
        }
    }

    /// Moves magazines to the buddy until at least `pages` pages have moved or the depot is empty.
    /// Large blocks first. Returns the pages moved.
    fn empty(self, cpu: CpuId, depot: &'a Depot, pages: PageCount) -> u64 {
        let mut moved = 0;
        let mut list = self.on.map.len();
        while moved < u64::from(pages) && list > 0 && !depot.is_empty() {
            if !depot.has(list - 1) {
                list -= 1;
                continue;
            }
            let record = &self.pcp(cpu).lists[list - 1];
            // The lock first (DEPOT-1).
            let mut locked = self.lock();
            match depot.take(&mut locked, self.on.slots, list - 1, record.order()) {
                Some(mut magazine) => {
                    let frames = magazine.split_off(self.on.policy().pcp.hold_blocks());
                    moved += self.free_frames(&mut locked, record, frames);
                    let blocks = frames.len() as u32;
                    match magazine.frames() {
                        [] => depot.emptied(&mut locked, self.on.slots, magazine),
                        _ => depot.put(&mut locked, magazine, list - 1, record.order()),
                    }
                    drop(locked);
                    let zone = self.zone.id;
                    self.on.platform.cost(Step::Depot { zone, group: cpu, blocks });
                }
                None => list -= 1,
            }
        }
        moved
    }

    /// Merges blocks of a magazine into the locked buddy. Returns their pages.
    fn free_frames(
        self,
        locked: &mut LockedZone<'_, P>,
        record: &PcpList,
        frames: &[AtomicU32],
    ) -> u64 {
        let order = record.order();
        let pcp = self.pcp(self.on.platform.cpu());
        let mut pages = 0;
        for slot in frames {
            let idx = slot.load(Relaxed) - self.zone.frame_base as u32;
            let LockedZone { buddy, frames, .. } = &mut *locked;
            if buddy.frees(frames, idx, order, FreeFlags::default()) {
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
            depot.each(self.on.slots, |list, frames| {
                let word = depot_word(&lists[list]);
                frames.iter().for_each(|slot| see(slot, word));
            });
        }
    }
}
