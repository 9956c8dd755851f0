//! Who is asked: ranges of the core, blocks of the core under Linux' policy, first fit.

use std::collections::BTreeMap;
use std::fmt;

use zonal_core::alloc::range::RangeRequest;
use zonal_core::alloc::{Allocator, Request};
use zonal_core::machine::{Layout, Machine, ZoneSpec};
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use zonal_core::zone::watermark::Watermark;

use super::setup::Look;
use crate::LabError;
use crate::records::Records;

const ZONE: ZoneId = ZoneId(0);

/// The rules by which pages are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules {
    /// Ranges of the core, policy `zonal`: exactly as many pages.
    Ranges,
    /// The same, each at the lowest address that has it ([`RangeRequest::packed`]).
    Packed,
    /// First fit by a list of free runs, without blocks: exactly as many pages, at the lowest
    /// address that has them.
    FirstFit,
    /// Blocks of the core, policy `linux-6.18`: powers of two of pages.
    Blocks,
}

impl Rules {
    /// All of them.
    pub const ALL: [Rules; 4] = [Rules::Ranges, Rules::Packed, Rules::FirstFit, Rules::Blocks];
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rules::Ranges => "ranges",
            Rules::Packed => "ranges, packed",
            Rules::FirstFit => "first fit",
            Rules::Blocks => "Linux' blocks",
        })
    }
}

/// Pages in somebody's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub first: u64,
    pub pages: u64,
    /// How many were handed out before.
    pub number: u64,
}

/// What hands pages out.
pub(super) trait Subject {
    /// A range of at least so many pages; `None`: refused.
    fn alloc(&mut self, pages: u64) -> Option<Held>;
    fn free(&mut self, range: Held);
    fn look(&mut self) -> Look;
}

/// Calls `work` with a new zone of `pages` under these rules.
pub(super) fn with<T>(
    rules: Rules,
    pages: u64,
    work: impl FnOnce(&mut dyn Subject) -> T,
) -> Result<T, LabError> {
    let policy = if rules == Rules::Blocks { Policy::LINUX_6_18 } else { Policy::ZONAL };
    let normal = ZoneSpec {
        node: NodeId(0),
        kind: ZoneKind::Normal,
        start_pfn: 0,
        spanned: pages,
        present: pages,
    };
    let machine = Machine {
        distances: &[10],
        zones: &[normal],
        cpus: &[NodeId(0)],
        cache_slice_bytes: 0,
        caches: &[],
    };
    let layout = Layout::of(&machine, &policy)?;
    let mut records = Records::new(&layout);
    let core = records.allocator(&machine, policy, OneCpu)?;
    core.online(ZONE, Pfn(0)..Pfn(pages)).map_err(|error| LabError::Plan(error.to_string()))?;
    core.setup();
    // All keep the same pages back.
    let reserve = core.zones()[0].watermarks().of(Watermark::Min);
    Ok(match rules {
        Rules::FirstFit => work(&mut FirstFit::new(pages, reserve)),
        _ => work(&mut Core { core, rules, handed_out: 0 }),
    })
}

/// One CPU that is never interrupted.
struct OneCpu;

impl Wait for OneCpu {
    fn wait(&self, _word: &LockWord, _value: u32) {}
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for OneCpu {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

struct Core<'a> {
    core: Allocator<'a, OneCpu>,
    rules: Rules,
    handed_out: u64,
}

fn order_of(pages: u64) -> Option<Order> {
    Order::new(pages.next_power_of_two().ilog2())
}

impl Subject for Core<'_> {
    fn alloc(&mut self, pages: u64) -> Option<Held> {
        let request = RangeRequest::new(pages);
        let range = |request| self.core.ranges().alloc(request).ok();
        let (first, pages) = match self.rules {
            Rules::Blocks => {
                let order = order_of(pages)?;
                (self.core.alloc(Request::new(order)).ok()?, order.pages())
            }
            Rules::Packed => (range(request.packed())?, pages),
            _ => (range(request)?, pages),
        };
        self.handed_out += 1;
        Some(Held { first: first.0, pages, number: self.handed_out })
    }

    fn free(&mut self, range: Held) {
        let first = Pfn(range.first);
        let freed = match order_of(range.pages).filter(|_| self.rules == Rules::Blocks) {
            Some(order) => self.core.free(first, order),
            None => self.core.ranges().free(first..Pfn(range.first + range.pages)),
        };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    fn look(&mut self) -> Look {
        // As a request for a long range does.
        self.core.drain_all();
        Look { longest: self.core.ranges().longest(ZONE), free: self.core.free_pages() }
    }
}

/// Free runs by their first page.
struct FirstFit {
    runs: BTreeMap<u64, u64>,
    free: u64,
    reserve: u64,
    handed_out: u64,
}

impl FirstFit {
    fn new(pages: u64, reserve: u64) -> FirstFit {
        FirstFit { runs: BTreeMap::from([(0, pages)]), free: pages, reserve, handed_out: 0 }
    }
}

impl Subject for FirstFit {
    fn alloc(&mut self, pages: u64) -> Option<Held> {
        if self.free < pages + self.reserve {
            return None;
        }
        let (first, run) = self.runs.iter().find(|(_, run)| **run >= pages)?;
        let (first, run) = (*first, *run);
        self.runs.remove(&first);
        if run > pages {
            self.runs.insert(first + pages, run - pages);
        }
        self.free -= pages;
        self.handed_out += 1;
        Some(Held { first, pages, number: self.handed_out })
    }

    fn free(&mut self, Held { mut first, pages, .. }: Held) {
        self.free += pages;
        let mut run = pages;
        if let Some(behind) = self.runs.remove(&(first + pages)) {
            run += behind;
        }
        if let Some((&before, &pages)) = self.runs.range(..first).next_back()
            && before + pages == first
        {
            (first, run) = (before, run + pages);
        }
        self.runs.insert(first, run);
    }

    fn look(&mut self) -> Look {
        Look { longest: self.runs.values().copied().max().unwrap_or(0), free: self.free }
    }
}
