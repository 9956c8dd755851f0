//! Sizes and the printed form of hashes that several modules share.

/// Pages of a MiB.
pub(crate) const MIB_PAGES: u64 = 256;
/// Page frames below 4 GiB.
pub(crate) const LOW_END: u64 = 1 << 20;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Bits of a byte.
pub(crate) const BYTE_BITS: f64 = 8.0;
/// KiB of a page.
pub(crate) const PAGE_KIB: u64 = 4;
/// Bytes of a KiB.
pub(crate) const KIB: u64 = 1024;
/// KiB of a MiB.
pub(crate) const MIB_KIB: u64 = 1024;
/// Nanoseconds of a second.
pub(crate) const S_NS: u64 = 1_000_000_000;
/// Nanoseconds of a microsecond.
pub(crate) const US_NS: u64 = 1000;
/// Bytes of a cache line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Cache lines of a page.
pub const PAGE_LINES: u64 = 64;

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `count` times `by`, which is not negative, without its fraction: as by way of unsigned numbers,
/// which take a dozen instructions more to and from floating point. Both are below 2^63.
#[inline]
pub(crate) fn scaled(count: u64, by: f64) -> u64 {
    debug_assert!(count >> 63 == 0 && by >= 0.0);
    (count as i64 as f64 * by) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_scaled_is_what_unsigned_numbers_give() {
        for shift in 0..50 {
            for count in [0, 1, 3, 1000, 1023] {
                for by in [0.0, 0.3, 0.625, 1.0, 2.4, 1e-9, 512.0] {
                    let (count, by): (u64, f64) = (count << shift, by);
                    let unsigned = (count as f64 * by) as u64;
                    if unsigned < 1 << 63 {
                        assert_eq!(scaled(count, by), unsigned, "{count} {by}");
                    }
                }
            }
        }
    }
}
