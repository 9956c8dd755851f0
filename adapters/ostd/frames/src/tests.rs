//! Tests that run inside of OSTD: `cargo osdk test`.

use core::alloc::Layout;

use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::io::util::HasVmReaderWriter;
use ostd::mm::{FrameAllocOptions, HasPaddr, PAGE_SIZE};
use ostd::prelude::*;

use crate::{FRAMES, LINEAR};

fn pages(count: usize, align: usize) -> Layout {
    Layout::from_size_align(count * PAGE_SIZE, align * PAGE_SIZE).expect("a layout")
}

fn free_pages() -> u64 {
    FRAMES.with_core(|core| core.free_pages()).expect("it is up")
}

#[ktest]
fn the_allocator_of_this_kernel_is_zonal() {
    let frame = FrameAllocOptions::new().alloc_frame().unwrap();
    let pfn = zonal_core::types::Pfn((frame.paddr() / PAGE_SIZE) as u64);
    let has_it = FRAMES.with_core(|core| core.allocated().any(|(at, _)| at == pfn));
    assert_eq!(has_it, Some(true), "{pfn:?} is not handed out");
}

#[ktest]
fn memory_is_mapped_where_the_adapter_writes_its_records() {
    let frame = FrameAllocOptions::new().alloc_frame().unwrap();
    let at = frame.reader().cursor() as usize;
    assert_eq!(at, LINEAR + frame.paddr());
}

#[ktest]
fn segments_of_any_size_come_back_in_any_parts() {
    let before = free_pages();
    for count in [1, 2, 3, 5, 8, 63, 512, 1023, 1024, 1025, 3000] {
        let at = FRAMES.alloc(pages(count, 1)).expect("pages");
        let page = |n: usize| (at + n * PAGE_SIZE, PAGE_SIZE);
        // The last, every second of the others, the rest.
        let odd = (0..count).filter(|n| n % 2 == 1);
        let even = (0..count).filter(|n| n % 2 == 0);
        odd.chain(even).map(page).for_each(|(at, size)| FRAMES.dealloc(at, size));
        assert_eq!(free_pages(), before, "{count} pages");
    }
    let at = FRAMES.alloc(pages(100, 1)).expect("pages");
    FRAMES.dealloc(at + 30 * PAGE_SIZE, 50 * PAGE_SIZE);
    FRAMES.dealloc(at, 30 * PAGE_SIZE);
    FRAMES.dealloc(at + 80 * PAGE_SIZE, 20 * PAGE_SIZE);
    assert_eq!(free_pages(), before);
}

#[ktest]
fn segments_begin_where_their_alignment_says() {
    for align in [1, 2, 16, 512, 1024] {
        let at = FRAMES.alloc(pages(3, align)).expect("pages");
        assert_eq!(at % (align * PAGE_SIZE), 0);
        FRAMES.dealloc(at, 3 * PAGE_SIZE);
    }
}

#[ktest]
fn what_is_wrong_is_refused_and_nothing_is_lost() {
    let before = (free_pages(), FRAMES.refused_frees());
    let at = FRAMES.alloc(pages(4, 1)).expect("pages");
    FRAMES.dealloc(at, 4 * PAGE_SIZE);
    FRAMES.dealloc(at, 4 * PAGE_SIZE);
    FRAMES.dealloc(at, PAGE_SIZE);
    FRAMES.dealloc(usize::MAX & !(PAGE_SIZE - 1), PAGE_SIZE);
    assert!(FRAMES.alloc(pages(1 << 24, 1)).is_none(), "64 GiB");
    assert_eq!((free_pages(), FRAMES.refused_frees()), (before.0, before.1 + 3));
    let valid = FRAMES.with_core(|core| core.validate()).expect("it is up");
    valid.expect("everything is as it must be");
}

#[ktest]
fn the_allocators_own_records_are_never_given_back() {
    let before = (free_pages(), FRAMES.late_pages(), FRAMES.refused_frees());
    let records = FRAMES.with_core(|core| core.zones().as_ptr() as usize).expect("it is up");
    let page = (records - LINEAR) & !(PAGE_SIZE - 1);
    FRAMES.dealloc(page, PAGE_SIZE);
    let after = (free_pages(), FRAMES.late_pages(), FRAMES.refused_frees());
    assert_eq!(after, (before.0, before.1, before.2 + 1));
}

#[ktest]
fn two_frames_are_never_the_same() {
    let mut all = alloc::vec::Vec::new();
    for _ in 0..2000 {
        all.push(FRAMES.alloc(pages(1, 1)).expect("a page"));
    }
    let mut sorted = all.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), all.len());
    all.into_iter().for_each(|at| FRAMES.dealloc(at, PAGE_SIZE));
}
