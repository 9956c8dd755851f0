//! The pool's metadata: one mapping, cut into the tables that the core asks for.

use std::mem::align_of;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use zonal_core::machine::{Layout, Metadata};
use zonal_core::pcp::owner::{OwnedBlock, Owner};
use zonal_core::pcp::state::{PCP_BYTES, Pcp};
use zonal_core::types::{PAGE_SIZE, ZoneId};
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

use crate::rseq::{FAST_TO_WORDS, Fast, PCPS_TO_FAST};
use crate::sys::map::{ALIGN_2M, Backing, MapError, MapOptions, Mapping};

/// Where the table of pcps ends in its page. Nothing else that is hot has this offset: a
/// header at the offset of another hot line runs up to ten times slower on some pages (4K
/// aliasing).
const PCPS_PAGE_OFFSET: usize = 0x300;

/// The metadata mapping.
#[derive(Debug)]
pub(super) struct Records {
    mapping: Mapping,
}

/// Hands out consecutive parts of the mapping.
struct Cutter {
    next: usize,
    end: usize,
}

impl Cutter {
    /// Address for `count` values of `T`.
    fn take<T>(&mut self, count: usize) -> *mut T {
        let start = self.next.next_multiple_of(align_of::<T>().max(64));
        self.next = start + count * size_of::<T>();
        assert!(self.next <= self.end, "the mapping was sized for the layout");
        start as *mut T
    }
    /// Moves on so that the byte `bytes` further has the given offset in its page.
    fn skip_to_page_offset(&mut self, bytes: usize, offset: usize) {
        self.next = (self.next + bytes).next_multiple_of(PAGE_SIZE) + offset - bytes;
    }
}

impl Records {
    pub(super) fn map(layout: &Layout) -> Result<Records, MapError> {
        // Each of the ten tables may lose most of a page to alignment.
        let bytes = (layout.bytes() + 16 * PAGE_SIZE).next_multiple_of(PAGE_SIZE);
        let mapping = Mapping::new(&MapOptions {
            bytes,
            align: if bytes >= ALIGN_2M { ALIGN_2M } else { PAGE_SIZE },
            backing: Backing::KernelDefault,
        })?;
        Ok(Records { mapping })
    }

    pub(super) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// The tables, as the core takes them, and between them the place for the fast path's [`Fast`],
    /// not yet written. Called once.
    ///
    /// # Safety
    /// 1. The mapping is kept for as long as the tables are used.
    /// 2. It is called once: the tables are handed out as exclusive references.
    pub(super) unsafe fn tables(&self, layout: &Layout) -> (Metadata<'static>, *mut Fast) {
        let start = self.mapping.base().as_ptr() as usize;
        let mut cutter = Cutter { next: start, end: start + self.mapping.bytes() };
        let zones = cutter.take::<Zone>(layout.zones);
        let nodes = cutter.take::<Node>(layout.nodes);
        let zonelist = cutter.take::<ZoneId>(layout.zonelist);
        let blocks = cutter.take::<AtomicU8>(layout.blocks);
        let slots = cutter.take::<AtomicU32>(layout.slots);
        let numa = cutter.take::<NumaDeltas>(layout.numa);
        let owners = cutter.take::<Owner>(layout.owners);
        let owned = cutter.take::<OwnedBlock>(layout.owned);
        // From here on everything is where the fast path looks for it (FAST-5).
        cutter.skip_to_page_offset(layout.pcps * PCP_BYTES, PCPS_PAGE_OFFSET);
        let pcps = cutter.take::<Pcp>(layout.pcps);
        let of_no_cpu = cutter.take::<Pcp>(2);
        cutter.next = of_no_cpu as usize + PCPS_TO_FAST;
        let fast = cutter.take::<Fast>(1);
        cutter.next = fast as usize + FAST_TO_WORDS;
        let words = cutter.take::<AtomicU64>(layout.words);
        fill(of_no_cpu, 2, || {
            let pcp = Pcp::default();
            pcp.make_slow();
            pcp
        });
        fill(pcps, layout.pcps, Pcp::default);
        fill(zones, layout.zones, Zone::default);
        fill(nodes, layout.nodes, Node::default);
        fill(zonelist, layout.zonelist, ZoneId::default);
        fill(numa, layout.numa, NumaDeltas::default);
        fill(owners, layout.owners, Owner::default);
        fill(owned, layout.owned, OwnedBlock::default);
        // SAFETY: (1) cut above, disjoint, aligned, filled; alive by this function's contract.
        let pcps = unsafe { std::slice::from_raw_parts_mut(pcps, layout.pcps) };
        // SAFETY: (1) as above.
        let zones = unsafe { std::slice::from_raw_parts_mut(zones, layout.zones) };
        // SAFETY: (1) as above.
        let nodes = unsafe { std::slice::from_raw_parts_mut(nodes, layout.nodes) };
        // SAFETY: (1) as above.
        let zonelist = unsafe { std::slice::from_raw_parts_mut(zonelist, layout.zonelist) };
        // SAFETY: (1) as above.
        let numa = unsafe { std::slice::from_raw_parts_mut(numa, layout.numa) };
        // SAFETY: (1) as above.
        let owners = unsafe { std::slice::from_raw_parts_mut(owners, layout.owners) };
        // SAFETY: (1) as above.
        let owned = unsafe { std::slice::from_raw_parts_mut(owned, layout.owned) };
        // SAFETY: (1) cut above; (2) a fresh mapping is zero, which is a valid atomic.
        let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, layout.blocks) };
        // SAFETY: (1) and (2) as above.
        let slots = unsafe { std::slice::from_raw_parts_mut(slots, layout.slots) };
        // SAFETY: (1) and (2) as above.
        let words = unsafe { std::slice::from_raw_parts_mut(words, layout.words) };
        let metadata =
            Metadata { zones, pcps, words, blocks, slots, nodes, zonelist, numa, owners, owned };
        (metadata, fast)
    }
}

/// Writes `count` values from `start` on, which the caller has just cut from the mapping.
fn fill<T>(start: *mut T, count: usize, value: impl Fn() -> T) {
    for index in 0..count {
        let place = start.wrapping_add(index);
        // SAFETY: (1) `Cutter::take` made room for `count` values, aligned.
        unsafe { place.write(value()) };
    }
}
