//! A pool in the kernel's own texts, and in sentences.

use std::ffi::{CStr, c_char};
use std::fmt::Write;

use zonal::text::{Layout, layout_of};
use zonal::{Gfp, Pool, Request};

use crate::error::{Failure, border};
use crate::input::{choice, copy_out, node, node_of, order};
use crate::pool::{pool, zonal_pool};

/// What zonal_text writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum zonal_text_kind {
    /// /proc/zoneinfo.
    ZONAL_TEXT_ZONEINFO = 0,
    /// /proc/buddyinfo.
    ZONAL_TEXT_BUDDYINFO = 1,
    /// /proc/pagetypeinfo.
    ZONAL_TEXT_PAGETYPEINFO = 2,
    /// /proc/vmstat.
    ZONAL_TEXT_VMSTAT = 3,
    /// numastat of a node.
    ZONAL_TEXT_NUMASTAT = 4,
    /// meminfo of a node.
    ZONAL_TEXT_NODE_MEMINFO = 5,
    /// vmstat of a node.
    ZONAL_TEXT_NODE_VMSTAT = 6,
    /// All figures, for Prometheus and the like (OpenMetrics 1.0).
    ZONAL_TEXT_OPENMETRICS = 7,
    /// Where the pool's bytes are, a line for each reason.
    ZONAL_TEXT_HELD = 8,
    /// What the operating system did not grant, a line each.
    ZONAL_TEXT_NOTICES = 9,
    /// "rseq", or "lock" with the reason.
    ZONAL_TEXT_MODE = 10,
    /// What each registered consumer did, a line each: its name, a colon, and figures.
    ZONAL_TEXT_CONSUMERS = 11,
}

use zonal_text_kind::*;

const KINDS: [zonal_text_kind; 12] = [
    ZONAL_TEXT_ZONEINFO,
    ZONAL_TEXT_BUDDYINFO,
    ZONAL_TEXT_PAGETYPEINFO,
    ZONAL_TEXT_VMSTAT,
    ZONAL_TEXT_NUMASTAT,
    ZONAL_TEXT_NODE_MEMINFO,
    ZONAL_TEXT_NODE_VMSTAT,
    ZONAL_TEXT_OPENMETRICS,
    ZONAL_TEXT_HELD,
    ZONAL_TEXT_NOTICES,
    ZONAL_TEXT_MODE,
    ZONAL_TEXT_CONSUMERS,
];

/// The layout of the kernel that the pool's policy is of.
pub const ZONAL_LAYOUT_OF_POLICY: u32 = 0;
/// Linux 6.1 to 6.11.
pub const ZONAL_LAYOUT_6_1: u32 = 1;
/// Linux 6.12 and 6.13.
pub const ZONAL_LAYOUT_6_12: u32 = 2;
/// Linux 6.14 to 6.19.
pub const ZONAL_LAYOUT_6_14: u32 = 3;
/// Linux 7.0 and later.
pub const ZONAL_LAYOUT_7_0: u32 = 4;

/// Writes a text of the pool into a buffer of len bytes, as snprintf does: cut to what fits, with a
/// zero byte behind it. Returns the bytes of the whole text without the zero, or -1. kind is a
/// zonal_text_kind, layout a ZONAL_LAYOUT_*; node is only looked at for texts of a node.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_text(
    pool: *mut zonal_pool,
    kind: u32,
    layout: u32,
    node: i32,
    buffer: *mut c_char,
    len: usize,
) -> i64 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let kind = choice(kind, &KINDS, "kind of text")?;
        let of_policy = layout_of(pool.policy());
        let [first, second, third, fourth] = Layout::ALL;
        let layouts = [of_policy, first, second, third, fourth];
        let text = write(pool, kind, choice(layout, &layouts, "layout")?, node)?;
        // SAFETY: (1) C-2.
        unsafe { copy_out(&text, buffer, len) }
    })
}

fn write(pool: &Pool, kind: zonal_text_kind, layout: Layout, node: i32) -> Result<String, Failure> {
    let of_node = || node_of(node, pool.nodes());
    Ok(match kind {
        ZONAL_TEXT_ZONEINFO => pool.state().zoneinfo(layout).to_string(),
        ZONAL_TEXT_BUDDYINFO => pool.state().buddyinfo().to_string(),
        ZONAL_TEXT_PAGETYPEINFO => pool.state().pagetypeinfo().to_string(),
        ZONAL_TEXT_VMSTAT => pool.state().vmstat(layout).to_string(),
        ZONAL_TEXT_NUMASTAT => pool.state().numastat(of_node()?).to_string(),
        ZONAL_TEXT_NODE_MEMINFO => pool.state().node_meminfo(of_node()?, layout).to_string(),
        ZONAL_TEXT_NODE_VMSTAT => pool.state().node_vmstat(of_node()?, layout).to_string(),
        ZONAL_TEXT_OPENMETRICS => pool.state().openmetrics(),
        ZONAL_TEXT_HELD => format!("{}\n", pool.held()),
        ZONAL_TEXT_NOTICES => pool.notices().iter().map(|notice| format!("{notice}\n")).collect(),
        ZONAL_TEXT_MODE => pool.mode().to_string(),
        ZONAL_TEXT_CONSUMERS => consumers(pool),
    })
}

fn consumers(pool: &Pool) -> String {
    let mut text = String::new();
    for one in pool.reclaim_report() {
        // Into a string: never fails.
        let _ = writeln!(text, "{one}");
    }
    text
}

/// Why a request would get a block now, or be refused, as a text: see zonal_text for buffer, len
/// and the result.
///
/// # Safety
/// C-1, C-2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_explain(
    pool: *mut zonal_pool,
    order: u32,
    gfp: u32,
    node: i32,
    buffer: *mut c_char,
    len: usize,
) -> i64 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { self::pool(pool) }?;
        let node = self::node(node, pool.nodes())?;
        let request = Request { order: self::order(order)?, gfp: Gfp::from_bits(gfp), node };
        // SAFETY: (1) C-2.
        unsafe { copy_out(&pool.explain(&request).to_string(), buffer, len) }
    })
}

/// The library's version, as in "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn zonal_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    const TEXT: &CStr = match CStr::from_bytes_with_nul(VERSION) {
        Ok(text) => text,
        Err(_) => c"unknown",
    };
    TEXT.as_ptr()
}
