//! Limits of the values in an event.

/// Largest order of a block: 10 with pages of 4 KiB (LB-B.1), 11 and 13 on arm64 with pages of 16
/// and 64 KiB, whose huge pages have that many.
pub const ORDER_MAX: u8 = 13;

/// Largest order of a block where pages have so many bytes.
pub(crate) const fn order_max(page_size: u32) -> u8 {
    match page_size {
        ..=4096 => 10,
        4097..=16384 => 11,
        _ => ORDER_MAX,
    }
}

/// Largest migratetype that is accepted. Linux 6.12 has 0 to 5 with all options on; 7 leaves room
/// and still lets a caller index an array of eight.
pub const MIGRATETYPE_MAX: u8 = 7;

/// Page frame numbers are below this: a 64-bit physical address in pages of 4 KiB.
pub const PFN_LIMIT: u64 = 1 << 52;
