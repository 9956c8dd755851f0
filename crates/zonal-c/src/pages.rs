//! Blocks and many pages at once.
//!
//! The functions of one page or block are short, and have no stack frame where it is a page: what
//! is rarer is a call at their end. A panic in the short functions ends the process (CAPI-2).

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use zonal::{AllocError, FreeError, Gfp, HotPages, Missed, MissedFree, Order, Pool, Request};

use crate::error::{border, fail};
use crate::handle::{no_handle, peek};
use crate::input::{address, array, array_mut, node, order};
use crate::pool::{Held, pool, zonal_pool};

/// Ordinary use: may wait and reclaim.
pub const ZONAL_GFP_KERNEL: u32 = 0xcc0;
/// Cannot wait; may use part of the reserve.
pub const ZONAL_GFP_ATOMIC: u32 = 0x820;
/// Cannot wait.
pub const ZONAL_GFP_NOWAIT: u32 = 0x2800;
/// Added: the bytes are zero.
pub const ZONAL_GFP_ZERO: u32 = 0x100;
/// Added: the pages can be moved, for zones and pageblocks of such pages.
pub const ZONAL_GFP_MOVABLE: u32 = 0x8;
/// Added: the pages can be dropped under pressure.
pub const ZONAL_GFP_RECLAIMABLE: u32 = 0x10;
/// Added: one attempt at reclaim.
pub const ZONAL_GFP_NORETRY: u32 = 0x10000;
/// Added: tries hard, but fails rather than call the last resort.
pub const ZONAL_GFP_RETRY_MAYFAIL: u32 = 0x4000;
/// Added: waits for memory until there is some.
pub const ZONAL_GFP_NOFAIL: u32 = 0x8000;
/// Added: from the node that is asked for, or not at all.
pub const ZONAL_GFP_THISNODE: u32 = 0x200000;
/// Added: only memory of a DMA zone, in a pool that has one.
pub const ZONAL_GFP_DMA: u32 = 0x1;
/// Added: only memory of a DMA32 zone, or below, in a pool that has one.
pub const ZONAL_GFP_DMA32: u32 = 0x4;

const _: () = assert!(ZONAL_GFP_KERNEL == Gfp::KERNEL.bits());
const _: () = assert!(ZONAL_GFP_ATOMIC == Gfp::ATOMIC.bits());
const _: () = assert!(ZONAL_GFP_NOWAIT == Gfp::NOWAIT.bits());
const _: () = assert!(ZONAL_GFP_ZERO == Gfp::ZERO.bits());
const _: () = assert!(ZONAL_GFP_MOVABLE == Gfp::MOVABLE.bits());
const _: () = assert!(ZONAL_GFP_RECLAIMABLE == Gfp::RECLAIMABLE.bits());
const _: () = assert!(ZONAL_GFP_NORETRY == Gfp::NORETRY.bits());
const _: () = assert!(ZONAL_GFP_RETRY_MAYFAIL == Gfp::RETRY_MAYFAIL.bits());
const _: () = assert!(ZONAL_GFP_NOFAIL == Gfp::NOFAIL.bits());
const _: () = assert!(ZONAL_GFP_THISNODE == Gfp::THISNODE.bits());
const _: () = assert!(ZONAL_GFP_DMA == Gfp::DMA.bits());
const _: () = assert!(ZONAL_GFP_DMA32 == Gfp::DMA32.bits());

/// A page of 4 KiB for ordinary use, from the running CPU's node. Null if it is refused.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_page(pool: *mut zonal_pool) -> *mut c_void {
    // SAFETY: (1) C-1.
    let Some(held) = (unsafe { peek::<Held>(pool) }) else { return without_pool(pool) };
    match HotPages::of(&held.pool).pop() {
        Ok(start) => start.as_ptr().cast(),
        Err(missed) => alloc_missed(&held.pool, missed),
    }
}

/// Frees a page. An address that is not that of a page in use is refused.
///
/// # Safety
/// C-1, C-3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free_page(pool: *mut zonal_pool, page: *mut c_void) -> i32 {
    // SAFETY: (1) C-1.
    let Some(held) = (unsafe { peek::<Held>(pool) }) else { return not_a_pool(pool) };
    // SAFETY: (1) C-3.
    match unsafe { HotPages::of(&held.pool).push(page.cast()) } {
        Ok(()) => 0,
        // SAFETY: (1) C-3.
        Err(missed) => unsafe { free_missed(&held.pool, missed) },
    }
}

/// A block of 2^order pages, 4 KiB to 4 MiB (order 0 to 10), aligned to its size, with the rights
/// in gfp: ZONAL_GFP_KERNEL and so on. Null if it is refused. Its bytes are the last owner's, or
/// zero, unless gfp asks for zeroes.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc(pool: *mut zonal_pool, order: u32, gfp: u32) -> *mut c_void {
    // SAFETY: (1) C-1.
    let Some(held) = (unsafe { peek::<Held>(pool) }) else { return without_pool(pool) };
    // What most calls ask for is no longer than zonal_alloc_page.
    if (order, gfp) != (0, ZONAL_GFP_KERNEL) {
        return alloc_block(&held.pool, order, gfp);
    }
    match HotPages::of(&held.pool).pop() {
        Ok(start) => start.as_ptr().cast(),
        Err(missed) => alloc_missed(&held.pool, missed),
    }
}

/// As zonal_alloc, from a node of the caller's choice, or ZONAL_ANY_NODE.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_on(
    pool: *mut zonal_pool,
    order: u32,
    gfp: u32,
    node: i32,
) -> *mut c_void {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let node = self::node(node, pool.nodes())?;
        let request = Request { order: self::order(order)?, gfp: Gfp::from_bits(gfp), node };
        let (start, _) = pool.alloc_with(request)?.into_raw();
        Ok(start.as_ptr().cast::<c_void>())
    })
}

/// Frees a block of 2^order pages. A block that is free already, another pool's, of another order,
/// or no block at all is refused, and nothing is changed. Two threads that free one block within
/// the same few nanoseconds may both succeed where restartable sequences are used; the block is
/// then handed out once.
///
/// # Safety
/// C-1, C-3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free(pool: *mut zonal_pool, start: *mut c_void, order: u32) -> i32 {
    // SAFETY: (1) C-1.
    let Some(held) = (unsafe { peek::<Held>(pool) }) else { return not_a_pool(pool) };
    if order != 0 {
        // SAFETY: (1) C-3.
        return unsafe { free_block(&held.pool, start, order) };
    }
    // SAFETY: (1) C-3.
    match unsafe { HotPages::of(&held.pool).push(start.cast()) } {
        Ok(()) => 0,
        // SAFETY: (1) C-3.
        Err(missed) => unsafe { free_missed(&held.pool, missed) },
    }
}

/// A block from this CPU's list, or null, without a reason, if that would take a lock. For signal
/// handlers.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_try_alloc(pool: *mut zonal_pool, order: u32) -> *mut c_void {
    // SAFETY: (1) C-1.
    let held = unsafe { peek::<Held>(pool) };
    let (Some(held), Some(order)) = (held, Order::new(order)) else { return null_mut() };
    held.pool.try_alloc_cached(order).map_or(null_mut(), |start| start.as_ptr().cast())
}

/// Frees a block if that needs no lock: 1. 0, and nothing done, otherwise. For signal handlers.
///
/// # Safety
/// C-1; C-3 if it returns 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_try_free(
    pool: *mut zonal_pool,
    start: *mut c_void,
    order: u32,
) -> i32 {
    // SAFETY: (1) C-1.
    let held = unsafe { peek::<Held>(pool) };
    let start = NonNull::new(start.cast::<u8>());
    let (Some(held), Some(start), Some(order)) = (held, start, Order::new(order)) else {
        return 0;
    };
    // SAFETY: (1) C-3.
    i32::from(unsafe { held.pool.try_free_cached(start, order) })
}

/// Fills pages[0] to pages[len - 1] from the front with pages of 4 KiB. Returns how many there are;
/// fewer than len only if there are no more, 0 with the reason in zonal_last_error.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_alloc_bulk(
    pool: *mut zonal_pool,
    gfp: u32,
    pages: *mut *mut c_void,
    len: usize,
) -> usize {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) C-2.
        let pages = unsafe { array_mut(pages.cast::<*mut u8>(), len, "pages") }?;
        if pages.is_empty() {
            return Ok(0);
        }
        Ok(pool.alloc_bulk(Gfp::from_bits(gfp), pages)?)
    })
}

/// Frees len blocks of 2^order pages. Returns how many were freed, from the front; if fewer than
/// len, zonal_last_error says why the next was not. The rest is still the caller's.
///
/// # Safety
/// C-1, C-2, C-3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_free_bulk(
    pool: *mut zonal_pool,
    pages: *const *mut c_void,
    len: usize,
    order: u32,
) -> usize {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) C-2.
        let pages = unsafe { array(pages.cast::<*mut u8>(), len, "pages") }?;
        // SAFETY: (1) C-3.
        match unsafe { pool.free_bulk(pages, self::order(order)?) } {
            Ok(()) => Ok(len),
            Err((freed, error)) => {
                fail(error.into());
                Ok(freed)
            }
        }
    })
}

// What follows is `extern "C"`, so that it does not unwind and may be the caller's last jump.

#[cold]
#[inline(never)]
extern "C" fn without_pool(at: *const zonal_pool) -> *mut c_void {
    fail(no_handle::<Held>(at));
    null_mut()
}

/// Blocks of every order, with any rights.
#[inline(never)]
extern "C" fn alloc_block(pool: &Pool, order: u32, gfp: u32) -> *mut c_void {
    let Some(order) = Order::new(order) else { return without_order(order) };
    match pool.alloc_pages(order, Gfp::from_bits(gfp)) {
        Ok(start) => start.as_ptr().cast(),
        Err(error) => refused(error),
    }
}

/// Blocks of every order.
///
/// # Safety
/// 1. C-3.
#[inline(never)]
unsafe extern "C" fn free_block(pool: &Pool, start: *mut c_void, order: u32) -> i32 {
    let (Some(block), Some(known)) = (NonNull::new(start.cast()), Order::new(order)) else {
        return no_block(start, order);
    };
    // SAFETY: (1) C-3.
    match unsafe { pool.free_pages(block, known) } {
        Ok(()) => 0,
        Err(error) => not_freed(error),
    }
}

#[cold]
#[inline(never)]
extern "C" fn without_order(order: u32) -> *mut c_void {
    border(|| self::order(order).map(|_| null_mut()))
}

#[cold]
#[inline(never)]
#[expect(improper_ctypes_definitions, reason = "called from here only")]
extern "C" fn refused(error: AllocError) -> *mut c_void {
    border(|| Err(error.into()))
}

#[cold]
#[inline(never)]
extern "C" fn no_block(start: *mut c_void, order: u32) -> i32 {
    border(|| address(start).and_then(|_| self::order(order)).map(|_| 0))
}

#[cold]
#[inline(never)]
#[expect(improper_ctypes_definitions, reason = "called from here only")]
extern "C" fn not_freed(error: FreeError) -> i32 {
    border(|| Err(error.into()))
}

#[cold]
#[inline(never)]
#[expect(improper_ctypes_definitions, reason = "called from here only")]
extern "C" fn alloc_missed(pool: &Pool, missed: Missed) -> *mut c_void {
    border(|| Ok(HotPages::of(pool).pop_missed(missed)?.as_ptr().cast::<c_void>()))
}

#[cold]
#[inline(never)]
extern "C" fn not_a_pool(at: *const zonal_pool) -> i32 {
    fail(no_handle::<Held>(at))
}

/// # Safety
/// 1. C-3.
#[cold]
#[inline(never)]
#[expect(improper_ctypes_definitions, reason = "called from here only")]
unsafe extern "C" fn free_missed(pool: &Pool, missed: MissedFree) -> i32 {
    border(|| {
        // SAFETY: (1) C-3; the pool is that of the miss.
        match unsafe { HotPages::of(pool).push_missed(missed) } {
            Ok(()) => Ok(0),
            // As every other call says it.
            Err(error) if error.address() == 0 => address(null_mut()).map(|_| 0),
            Err(error) => Err(error.into()),
        }
    })
}
