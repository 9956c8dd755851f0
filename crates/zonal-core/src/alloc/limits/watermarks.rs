//! `min_free_kbytes`, watermarks and reserves (LB A.7, C.1, C.2).

use super::Limits;
use crate::platform::Platform;
use crate::policy::MinFreeRule;
use crate::types::{NR_ZONE_KINDS, PAGE_SHIFT, ZoneKind};
use crate::zone::state::Zone;
use crate::zone::watermark::{self, MovableMin, Watermark, WatermarkInputs, Watermarks};

/// A pool's reserve is at most this part of its memory ([`MinFreeRule::Pool`]).
const POOL_RESERVE_PART: u64 = 128;
/// A kernel with less memory does not set up huge pages: 512 MiB, in pages of 4 KiB.
const THP_PAGES_MIN: u64 = (512 << 20) >> PAGE_SHIFT;

impl<'a, P: Platform> Limits<'_, 'a, P> {
    fn low_zones(self) -> impl Iterator<Item = &'a Zone> + Clone {
        self.on.zones.iter().filter(|zone| zone.kind() <= ZoneKind::Normal)
    }

    pub(super) fn compute_min_free(self) -> u32 {
        let pages = self.lowmem_pages();
        let user = self.on.tunables.min_free_written();
        let policy = &self.on.policy().watermark;
        let page = self.on.policy().page;
        let by_rule =
            watermark::min_free_kbytes(pages, user, policy.min_free_max_kbytes, page).kbytes();
        match policy.min_free {
            _ if user.is_some() => by_rule,
            MinFreeRule::Kbytes(kbytes) => kbytes,
            MinFreeRule::Linux { .. } | MinFreeRule::LinuxThpOff => by_rule,
            MinFreeRule::Pool => by_rule.min((pages * page.kbytes() / POOL_RESERVE_PART) as u32),
        }
    }

    /// Its change when huge pages are set up, after watermarks have been computed (LB C.1, C.3):
    /// they may raise it, up to a part of the pages above the high watermarks; where they are off
    /// the rule is applied again to these pages.
    pub(super) fn adjust_min_free(self) {
        let tunables = &self.on.tunables;
        if tunables.min_free_written().is_some() {
            return;
        }
        let computed = tunables.min_free_kbytes();
        let page = self.on.policy().page;
        let adjusted = match self.on.policy().watermark.min_free {
            MinFreeRule::Linux { thp: true } => {
                let low = self.low_zones().filter(|zone| zone.managed() > 0).count() as u32;
                watermark::min_free_kbytes_for_thp(computed, low, self.lowmem_pages(), page)
            }
            MinFreeRule::LinuxThpOff if page.own_pages(self.managed_pages()) >= THP_PAGES_MIN => {
                self.compute_min_free()
            }
            _ => computed,
        };
        if adjusted != computed {
            tunables.set_min_free_kbytes(adjusted);
            self.set_watermarks();
        }
    }

    fn managed_pages(self) -> u64 {
        self.on.zones.iter().map(Zone::managed).sum()
    }

    fn lowmem_pages(self) -> u64 {
        let watermark = |zone: &Zone| (zone.managed(), zone.watermark(Watermark::High));
        watermark::lowmem_pages(self.low_zones().map(watermark))
    }

    /// LB C.2, A.7 and E.4, in this order.
    pub(super) fn set_watermarks(self) {
        let lowmem = self.watermark_lowmem();
        let factor = self.on.tunables.scale_factor();
        for zone in self.on.zones {
            // Under the zone lock (LB C.2): an allocation may be raising the boost.
            let _locked = self.zone_ops(zone).lock();
            zone.set_watermarks(&self.watermarks_with(zone, lowmem, factor));
        }
        self.set_reserves();
        if self.sizes_follow_watermarks() {
            self.set_sizes(None);
        }
        self.refresh_zones();
    }

    /// Pages that the minimum is shared out over (LB C.2).
    pub fn watermark_lowmem(self) -> u64 {
        let all = self.on.policy().watermark.movable_min == MovableMin::Share;
        let shares = |zone: &&Zone| all || zone.kind() != ZoneKind::Movable;
        self.on.zones.iter().filter(shares).map(Zone::managed).sum()
    }

    /// A zone's watermarks, without a boost, with this `watermark_scale_factor`.
    fn watermarks_with(self, zone: &Zone, lowmem: u64, scale_factor: u32) -> Watermarks {
        Watermarks::compute(&WatermarkInputs {
            kind: zone.kind(),
            managed: zone.managed(),
            lowmem_managed: lowmem,
            movable: self.on.policy().watermark.movable_min,
            min_free_kbytes: self.on.tunables.min_free_kbytes(),
            scale_factor,
            page: self.on.policy().page,
        })
    }

    /// A zone's watermarks with another `watermark_scale_factor`; a boost stays.
    pub fn change_watermarks(self, zone: &Zone, lowmem: u64, scale_factor: u32) {
        let boost = zone.boost();
        zone.set_watermarks(&Watermarks {
            boost,
            ..self.watermarks_with(zone, lowmem, scale_factor)
        });
    }

    pub(super) fn set_reserves(self) {
        let ratio = self.on.tunables.lowmem_ratio();
        for zone in self.on.zones {
            let mut managed = [0; NR_ZONE_KINDS];
            for other in self.on.zones_of(zone.node) {
                managed[other.kind().index()] = other.managed();
            }
            zone.set_reserve(&watermark::lowmem_reserve(&managed, &ratio, zone.kind().index()));
        }
    }

    /// Pages that no request is to count on: of each zone its largest reserve and its high
    /// watermark (LB A.7).
    pub fn total_reserve(self) -> u64 {
        self.on.zones.iter().map(total_reserve_of).sum()
    }

    /// Pages above the high watermarks of all zones: what decides whether pageblocks are grouped by
    /// mobility (LB A.5).
    pub fn allocatable_pages(self) -> u64 {
        let above = |zone: &Zone| zone.managed().saturating_sub(zone.watermark(Watermark::High));
        self.on.zones.iter().filter(|zone| zone.kind() != ZoneKind::Device).map(above).sum()
    }
}

/// A zone's part of `totalreserve`.
pub fn total_reserve_of(zone: &Zone) -> u64 {
    let reserves = ZoneKind::ALL.map(|kind| zone.reserve(kind));
    watermark::total_reserve(zone.managed(), &reserves, &zone.watermarks())
}
