//! A platform with one CPU, no sections and no operating system, and the calls a kernel makes.
#![no_std]
#![deny(unsafe_code)]

use zonal_core::alloc::{Allocator, Request, hot, new_over_fresh};
use zonal_core::gfp::Gfp;
use zonal_core::machine::{Layout, Machine, MachineError, Metadata};
use zonal_core::platform::{FixedPolicy, Platform};
use zonal_core::policy::Policy;
use zonal_core::sync::{LockWord, Wait};
use zonal_core::types::{CpuId, Order, Pfn, ZoneId};

/// One CPU that is never interrupted.
pub struct Home;

impl Wait for Home {
    fn wait(&self, _word: &LockWord, _value: u32) {
        core::hint::spin_loop();
    }
    fn wake_one(&self, _word: &LockWord) {}
}

impl Platform for Home {
    const POLICY: Option<FixedPolicy> =
        if cfg!(feature = "fixed") { Some(Policy::fix(&FIXED)) } else { None };

    // The image has no call for ranges.
    const KEEPS_RANGES: bool = !cfg!(target_os = "none");

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn fence(&self, _cpu: CpuId) -> bool {
        true
    }
    fn uses_gates(&self) -> bool {
        cfg!(not(feature = "by-core"))
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

/// The allocator of this home.
pub type Pages<'a> = Allocator<'a, Home>;

/// The policy that the feature `fixed` compiles in.
const FIXED: Policy = if cfg!(feature = "kernel") { Policy::KERNEL } else { Policy::ZONAL };

/// The policy: with the feature `fixed` the one that is compiled in, whatever is given.
fn in_force(policy: &Policy) -> &Policy {
    if cfg!(feature = "fixed") { &FIXED } else { policy }
}

/// How much metadata the machine needs.
pub fn layout(machine: &Machine<'_>, policy: &Policy) -> Result<Layout, MachineError> {
    Layout::of(machine, in_force(policy))
}

/// An allocator over the metadata, with all memory of its first zone.
///
/// # Safety
/// 1. Every record is in its default state, as `Layout::carve` leaves it.
#[allow(unsafe_code)]
pub unsafe fn start<'a>(
    machine: &Machine<'a>,
    policy: &Policy,
    metadata: Metadata<'a>,
) -> Option<Pages<'a>> {
    // SAFETY: (1) the caller's contract.
    let pages = unsafe { new_over_fresh(machine, *in_force(policy), metadata, Home) }.ok()?;
    let zone = machine.zones.first()?;
    let range = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.present);
    pages.online(ZoneId(0), range).ok()?;
    pages.setup();
    Some(pages)
}

/// A block of pages. The slow way is a function of its own, with a frame of its own.
pub fn alloc(pages: &Pages<'_>, order: Order, gfp: Gfp) -> Option<Pfn> {
    match hot::alloc(pages, Request::new(order).gfp(gfp)) {
        Some(pfn) => Some(pfn),
        None => alloc_slowly(pages, order, gfp),
    }
}

/// Gives a block back; `false` if it is not allocated.
pub fn free(pages: &Pages<'_>, pfn: Pfn, order: Order) -> bool {
    match hot::free(pages, pfn, order) {
        Ok(()) => true,
        Err((pfn, order)) => free_slowly(pages, pfn, order),
    }
}

#[cold]
#[inline(never)]
fn alloc_slowly(pages: &Pages<'_>, order: Order, gfp: Gfp) -> Option<Pfn> {
    hot::alloc_missed(pages, Request::new(order).gfp(gfp)).ok()
}

#[cold]
#[inline(never)]
fn free_slowly(pages: &Pages<'_>, pfn: Pfn, order: Order) -> bool {
    hot::free_missed(pages, pfn, order).is_ok()
}
