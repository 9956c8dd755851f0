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
