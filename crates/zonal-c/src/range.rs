//! Pages in a row: any number, at any address, given back in any parts.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use zonal::{Gfp, PageRange, RangeRequest, ZoneId};

use crate::error::border;
use crate::input::{Sized32, address, node, read_struct, zero};
use crate::pool::{pool, zonal_pool};

/// A request for pages in a row. Begin with zonal_range_request_init.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_range_request {
    /// sizeof(zonal_range_request).
    pub size: u32,
    /// ZONAL_GFP_KERNEL and so on.
    pub gfp: u32,
    /// Pages, exactly as many as are handed out.
    pub pages: u64,
    /// The first page is at a multiple of this power of two, in pages: its address up to 1024
    /// (4 MiB), and above that its place in the pool. 0 or 1: anywhere.
    pub align: u64,
    /// Node to prefer, or ZONAL_ANY_NODE.
    pub node: i32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: (1) numbers.
unsafe impl Sized32 for zonal_range_request {
    const NAME: &'static str = "zonal_range_request";
    const FIRST: usize = 32;
}

/// Exactly pages pages in a row for ordinary use, not rounded up. Null if they are refused.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_alloc(pool: *mut zonal_pool, pages: u64) -> *mut c_void {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        Ok(pool.ranges().alloc_raw(RangeRequest::new(pages))?.as_ptr().cast::<c_void>())
    })
}

/// As zonal_range_alloc, with alignment, rights and a node of the caller's choice, far above 4 MiB
/// too.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_alloc_with(
    pool: *mut zonal_pool,
    request: *const zonal_range_request,
) -> *mut c_void {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) C-2.
        let asked = unsafe { read_struct(request) }?;
        zero(asked.reserved, zonal_range_request::NAME)?;
        let gfp = Gfp::from_bits(asked.gfp);
        let mut request = RangeRequest::new(asked.pages).aligned(asked.align.max(1)).gfp(gfp);
        request.node = node(asked.node, pool.nodes())?;
        Ok(pool.ranges().alloc_raw(request)?.as_ptr().cast::<c_void>())
    })
}

/// The pages pages from start on, an address in the pool's memory: ZONAL_OK, or ZONAL_E_IN_THE_WAY
/// with the first page that cannot be had.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_alloc_at(
    pool: *mut zonal_pool,
    start: *mut c_void,
    pages: usize,
    gfp: u32,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let start = address(start)?.as_ptr();
        let range = pool.ranges().alloc_at(start, pages, Gfp::from_bits(gfp))?;
        let _ = range.into_raw();
        Ok(0)
    })
}

/// Frees pages pages from start on: a range, any part of one, or whole blocks in a row. If one of
/// them is not in use, nothing is changed.
///
/// # Safety
/// C-1, C-3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_free(
    pool: *mut zonal_pool,
    start: *mut c_void,
    pages: usize,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) C-3.
        unsafe { pool.ranges().free_raw(address(start)?, pages) }?;
        Ok(0)
    })
}

/// Takes the more pages right behind a range of pages pages. If they cannot be had, the range is as
/// before.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_grow(
    pool: *mut zonal_pool,
    start: *mut c_void,
    pages: usize,
    more: usize,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        // SAFETY: (1) it is only asked to grow, which looks at whose it is, and is never dropped.
        let mut range =
            ManuallyDrop::new(unsafe { PageRange::from_raw(pool, address(start)?, pages) });
        range.try_grow(more)?;
        Ok(0)
    })
}

/// Frees all but the first keep pages of a range of pages pages.
///
/// # Safety
/// C-1; C-3 for the pages behind the first keep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_shrink(
    pool: *mut zonal_pool,
    start: *mut c_void,
    pages: usize,
    keep: usize,
) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let start = address(start)?;
        if keep == 0 || keep >= pages {
            let text = format!(
                "a range of {pages} pages cannot shrink to {keep}; expected 1 to {}",
                pages.saturating_sub(1)
            );
            return Err(crate::error::Failure::argument(text));
        }
        let most = pool.bytes() / zonal::PAGE_SIZE;
        if pages > most {
            let text = format!("a range of {pages} pages: the pool has {most}");
            return Err(crate::error::Failure::argument(text));
        }
        // No overflow: fewer bytes than the pool has. The address may be any.
        let tail = start.as_ptr().wrapping_add(keep * zonal::PAGE_SIZE);
        // SAFETY: (1) C-3.
        unsafe { pool.ranges().free_raw(address(tail.cast())?, pages - keep) }?;
        Ok(0)
    })
}

/// Pages of the longest run in a zone that a request could have now; 0 for a zone that the pool
/// does not have. Looks at every block of the zone.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_range_longest(pool: *mut zonal_pool, zone: u32) -> u64 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        Ok(u16::try_from(zone).map_or(0, |zone| pool.ranges().longest(ZoneId(zone))))
    })
}
