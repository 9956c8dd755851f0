//! The records of an allocator, cut from one piece of memory.
//!
//! ```text
//!  | page words, zone by zone | pcps | zones | nodes | NUMA deltas | owners | ...
//!  ... | zonelist | slots | types |
//!  ^ at most 127 bytes behind the start of the memory
//! ```
//! Page words come first, because they are nearly all of it: where a kernel maps the piece from
//! memory of several nodes, [`Layout::words_of`] says which bytes belong to a zone.
//!
//! # Invariants
//! - **CARVE-1** a slice of records is made of bytes that no other slice has: each is split off the
//!   front of what is left.
//! - **CARVE-2** it starts at a multiple of the records' alignment and has room for all of them.
//! - **CARVE-3** each record was written, or its bytes are zero and zero is its default state.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::{Layout, Machine, MachineError, Metadata};
use crate::pcp::owner::{OwnedBlock, Owner};
use crate::pcp::state::Pcp;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};
use crate::types::ZoneId;
use crate::vmstat::numa::NumaDeltas;
use crate::zone::state::Zone;
use crate::zonelist::Node;

/// Alignment of the first record: the largest of all.
const ALIGN: usize = align_of::<Pcp>();
const _: () = assert!(align_of::<Zone>() <= ALIGN && align_of::<Node>() <= ALIGN);
const _: () = assert!(align_of::<Owner>() <= ALIGN && align_of::<OwnedBlock>() <= ALIGN);
const _: () = assert!(align_of::<NumaDeltas>() <= ALIGN && align_of::<AtomicU64>() <= ALIGN);

/// Where a slice of `count` records ends that is put behind `at`. `None`: beyond all addresses.
const fn behind<T>(at: Option<usize>, count: usize) -> Option<usize> {
    let (Some(at), Some(bytes)) = (at, count.checked_mul(size_of::<T>())) else { return None };
    match at.checked_next_multiple_of(align_of::<T>()) {
        Some(start) => start.checked_add(bytes),
        None => None,
    }
}

impl Layout {
    /// Bytes that [`carve`](Self::carve) needs, wherever they start. More than
    /// [`bytes`](Self::bytes), which counts no gap; `usize::MAX` where the layout has more records
    /// than there are addresses.
    pub const fn carve_bytes(&self) -> usize {
        let end = behind::<AtomicU64>(Some(ALIGN - 1), self.words);
        let end = behind::<Pcp>(end, self.pcps);
        let end = behind::<Zone>(end, self.zones);
        let end = behind::<Node>(end, self.nodes);
        let end = behind::<NumaDeltas>(end, self.numa);
        let end = behind::<Owner>(end, self.owners);
        let end = behind::<OwnedBlock>(end, self.owned);
        let end = behind::<ZoneId>(end, self.zonelist);
        let end = behind::<AtomicU32>(end, self.slots);
        match behind::<AtomicU8>(end, self.blocks) {
            Some(end) => end,
            None => usize::MAX,
        }
    }

    /// Cuts all records from `memory`, which must have [`carve_bytes`](Self::carve_bytes) bytes of
    /// any contents and any alignment. Writes every record: about 8 bytes for each page of the
    /// machine.
    ///
    /// The memory is `MaybeUninit`, because records have bytes that are never written, and nobody
    /// may read those later.
    ///
    /// # Errors
    /// [`MachineError::Memory`] if there are fewer bytes; nothing was written then.
    pub fn carve<'a>(
        &self,
        memory: &'a mut [MaybeUninit<u8>],
    ) -> Result<Metadata<'a>, MachineError> {
        let mut knife = self.knife(memory)?;
        Ok(Metadata {
            words: knife.written(self.words),
            pcps: knife.written(self.pcps),
            zones: knife.written(self.zones),
            nodes: knife.written(self.nodes),
            numa: knife.written(self.numa),
            owners: knife.written(self.owners),
            owned: knife.written(self.owned),
            zonelist: knife.written(self.zonelist),
            slots: knife.written(self.slots),
            blocks: knife.written(self.blocks),
        })
    }

    /// As [`carve`](Self::carve), for memory that is zero, as it comes from firmware that clears
    /// it, from `mmap`, or in a `.bss`: page words, slots and pageblock types are not touched, so
    /// pages behind them that are mapped on first use stay away until then.
    ///
    /// # Errors
    /// As [`carve`](Self::carve).
    ///
    /// # Safety
    /// 1. Every byte of `memory` is initialised, and zero.
    pub unsafe fn carve_zeroed<'a>(
        &self,
        memory: &'a mut [MaybeUninit<u8>],
    ) -> Result<Metadata<'a>, MachineError> {
        let mut knife = self.knife(memory)?;
        let words = knife.cells::<AtomicU64>(self.words);
        let (pcps, zones) = (knife.written(self.pcps), knife.written(self.zones));
        let nodes = knife.written(self.nodes);
        let numa = knife.written(self.numa);
        let (owners, owned) = (knife.written(self.owners), knife.written(self.owned));
        let zonelist = knife.written(self.zonelist);
        let slots = knife.cells::<AtomicU32>(self.slots);
        let blocks = knife.cells::<AtomicU8>(self.blocks);
        // SAFETY: (1) the caller's contract: every byte is zero, which is a valid value of an
        // atomic integer, and its default (CARVE-3).
        let words = unsafe { words.assume_init_mut() };
        // SAFETY: (1) as for the words.
        let slots = unsafe { slots.assume_init_mut() };
        // SAFETY: (1) as for the words.
        let blocks = unsafe { blocks.assume_init_mut() };
        Ok(Metadata { zones, pcps, words, blocks, slots, nodes, zonelist, numa, owners, owned })
    }

    /// The bytes of the page words of the zone at this position of [`Machine::zones`], counted from
    /// where records begin: at the first address of the carved memory that is a multiple of 128. A
    /// kernel that maps the memory page by page takes these pages from the zone's node. Empty for a
    /// zone that is not there. Neighbouring zones share a page where a boundary is not a multiple
    /// of 512 page frames.
    pub fn words_of(&self, machine: &Machine<'_>, zone: usize) -> Range<usize> {
        // The machine may be one that cannot be, and the layout another machine's.
        let bytes = |zones: usize| {
            let spanned = machine.zones.iter().take(zones).map(|zone| zone.spanned as usize);
            let words = spanned.fold(0, usize::saturating_add).min(self.words);
            words.saturating_mul(size_of::<AtomicU64>())
        };
        bytes(zone)..bytes(zone.saturating_add(1))
    }

    fn knife<'a>(&self, memory: &'a mut [MaybeUninit<u8>]) -> Result<Knife<'a>, MachineError> {
        let (given, needed) = (memory.len(), self.carve_bytes());
        if given < needed {
            return Err(MachineError::Memory(given, needed));
        }
        let mut knife = Knife { left: memory };
        knife.skip_to(ALIGN);
        Ok(knife)
    }
}

/// What is left of the memory.
struct Knife<'a> {
    left: &'a mut [MaybeUninit<u8>],
}

impl<'a> Knife<'a> {
    /// Splits bytes off the front (CARVE-1). [`Layout::knife`] has made sure that there are enough.
    fn take(&mut self, bytes: usize) -> &'a mut [MaybeUninit<u8>] {
        let left = core::mem::take(&mut self.left);
        let (front, left) = left.split_at_mut(bytes);
        self.left = left;
        front
    }

    fn skip_to(&mut self, align: usize) {
        let address = self.left.as_ptr().addr();
        self.take(address.next_multiple_of(align) - address);
    }

    /// Room for records, from the front.
    fn cells<T>(&mut self, count: usize) -> &'a mut [MaybeUninit<T>] {
        self.skip_to(align_of::<T>());
        let bytes = self.take(count * size_of::<T>());
        let first = bytes.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: (1) `bytes` are `count` records long and start at a multiple of their alignment
        // (CARVE-2); (2) they are borrowed for 'a, by this slice alone (CARVE-1); (3) a
        // `MaybeUninit` may have any bytes.
        unsafe { core::slice::from_raw_parts_mut(first, count) }
    }

    /// Records in their default state, from the front.
    fn written<T: Default>(&mut self, count: usize) -> &'a mut [T] {
        let cells = self.cells::<T>(count);
        write_defaults(cells);
        // SAFETY: (1) each was written just now (CARVE-3).
        unsafe { cells.assume_init_mut() }
    }
}

/// Brings records into their default state, whatever they are in.
pub(crate) fn reset<T: Default>(records: &mut [T]) {
    // SAFETY: (1) borrowed here, and each is written again below: no record's default panics.
    // Records have nothing to drop but in models of interleavings.
    unsafe { core::ptr::drop_in_place(records) };
    let cells = core::ptr::from_mut(records) as *mut [MaybeUninit<T>];
    // SAFETY: (1) the same records, which are borrowed here; (2) a `MaybeUninit` may have any
    // bytes; (3) each has a record again when the borrow ends (CARVE-3).
    write_defaults(unsafe { &mut *cells });
}

/// One copy for records that are cut and for those that are used again, made where they stay.
#[inline(never)]
fn write_defaults<T: Default>(cells: &mut [MaybeUninit<T>]) {
    for cell in cells {
        cell.write(T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ZoneSpec;
    use crate::policy::Policy;
    use crate::sync::Ordering::SeqCst;
    use crate::types::{NodeId, ZoneKind};
    use std::vec::Vec;

    const ZONE: ZoneSpec = ZoneSpec {
        node: NodeId(0),
        kind: ZoneKind::Normal,
        start_pfn: 4096,
        spanned: 5000,
        present: 4000,
    };
    const ZONES: [ZoneSpec; 2] = [ZONE, ZoneSpec { node: NodeId(1), start_pfn: 16384, ..ZONE }];
    const MACHINE: Machine<'static> = Machine {
        distances: &[10, 20, 20, 10],
        zones: &ZONES,
        cpus: &[NodeId(0), NodeId(1), NodeId(1)],
        cache_slice_bytes: 1 << 20,
        caches: &[],
    };

    fn lengths(metadata: &Metadata<'_>) -> Layout {
        Layout {
            zones: metadata.zones.len(),
            pcps: metadata.pcps.len(),
            words: metadata.words.len(),
            blocks: metadata.blocks.len(),
            slots: metadata.slots.len(),
            nodes: metadata.nodes.len(),
            zonelist: metadata.zonelist.len(),
            numa: metadata.numa.len(),
            owners: metadata.owners.len(),
            owned: metadata.owned.len(),
        }
    }

    #[test]
    fn every_record_is_cut_from_memory_of_any_alignment() {
        for policy in [Policy::ZONAL, Policy::LINUX_6_18, Policy::OWNED_2026] {
            let layout = Layout::of(&MACHINE, &policy).unwrap();
            let needed = layout.carve_bytes();
            assert!(needed >= layout.bytes());
            assert!(needed < layout.bytes() + 10 * ALIGN);
            for offset in [0, 1, 3, 64, 127] {
                let mut memory = std::vec![MaybeUninit::new(0xa5u8); offset + needed];
                let memory = &mut memory[offset..];
                let metadata = layout.carve(memory).unwrap();
                assert_eq!(lengths(&metadata), layout);
                assert!(metadata.words.iter().all(|word| word.load(SeqCst) == 0));
                assert!(metadata.blocks.iter().all(|block| block.load(SeqCst) == 0));
                assert!(metadata.slots.iter().all(|slot| slot.load(SeqCst) == 0));
                assert_eq!(metadata.pcps.as_ptr().addr() % ALIGN, 0);
            }
        }
    }

    #[test]
    fn slices_lie_apart_and_inside() {
        let layout = Layout::of(&MACHINE, &Policy::OWNED_2026).unwrap();
        let mut memory = std::vec![MaybeUninit::new(0u8); layout.carve_bytes()];
        let whole = memory.as_ptr_range();
        let whole = whole.start.addr()..whole.end.addr();
        let metadata = layout.carve(&mut memory).unwrap();
        fn span<T>(slice: &[T]) -> Range<usize> {
            let span = slice.as_ptr_range();
            span.start.addr()..span.end.addr()
        }
        let mut spans = [
            span(metadata.zones),
            span(metadata.pcps),
            span(metadata.words),
            span(metadata.blocks),
            span(metadata.slots),
            span(metadata.nodes),
            span(metadata.zonelist),
            span(metadata.numa),
            span(metadata.owners),
            span(metadata.owned),
        ];
        spans.sort_by_key(|span| (span.start, span.end));
        assert!(spans.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(whole.start <= spans[0].start && spans[9].end <= whole.end);
    }

    #[test]
    fn a_byte_too_few_is_refused_with_what_is_needed() {
        let layout = Layout::of(&MACHINE, &Policy::ZONAL).unwrap();
        let needed = layout.carve_bytes();
        let mut memory = std::vec![MaybeUninit::new(7u8); needed];
        let short = MachineError::Memory(needed - 1, needed);
        assert_eq!(layout.carve(&mut memory[1..]).unwrap_err(), short);
        assert_eq!(layout.carve(&mut []).unwrap_err(), MachineError::Memory(0, needed));
        let forged = Layout { words: usize::MAX / 4, ..layout };
        let all = MachineError::Memory(needed, usize::MAX);
        assert_eq!(forged.carve(&mut memory).unwrap_err(), all);
    }

    #[test]
    fn zeroed_memory_is_cut_as_other_memory() {
        let layout = Layout::of(&MACHINE, &Policy::LINUX_6_18).unwrap();
        let mut memory = std::vec![MaybeUninit::new(0u8); layout.carve_bytes()];
        // SAFETY: (1) each byte is zero.
        let metadata = unsafe { layout.carve_zeroed(&mut memory) }.unwrap();
        assert_eq!(lengths(&metadata), layout);
        assert!(metadata.words.iter().all(|word| word.load(SeqCst) == 0));
    }

    #[test]
    fn a_zones_words_are_found_in_the_carved_memory() {
        let layout = Layout::of(&MACHINE, &Policy::ZONAL).unwrap();
        assert_eq!(layout.words_of(&MACHINE, 0), 0..40_000);
        assert_eq!(layout.words_of(&MACHINE, 1), 40_000..80_000);
        assert_eq!(layout.words_of(&MACHINE, 2), 80_000..80_000);
        let mut memory: Vec<MaybeUninit<u8>> = Vec::new();
        memory.resize(layout.carve_bytes(), MaybeUninit::new(0));
        let start = memory.as_ptr().addr().next_multiple_of(ALIGN);
        let metadata = layout.carve(&mut memory).unwrap();
        assert_eq!(metadata.words[5000..].as_ptr().addr() - start, 40_000);
        let vast = ZoneSpec { spanned: u64::MAX, ..ZONE };
        let machine = Machine { zones: &[ZONE, vast, vast], ..MACHINE };
        assert_eq!(layout.words_of(&machine, 2), 80_000..80_000);
        let forged = Layout { words: usize::MAX, ..layout };
        assert_eq!(forged.words_of(&machine, 1), 40_000..usize::MAX);
        assert_eq!(forged.bytes(), usize::MAX);
        assert!(forged.overhead().is_finite());
    }
}
