//! Sizes and the printed form of hashes that several modules share.

/// Pages of a MiB.
pub(crate) const MIB_PAGES: u64 = 256;
/// Cache lines of a page.
pub const PAGE_LINES: u64 = 64;

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
