//! Alignments of mappings.

/// 2 MiB: a huge page, and a pageblock.
pub const ALIGN_2M: usize = 2 << 20;
/// 4 MiB: the largest buddy block.
pub const ALIGN_4M: usize = 4 << 20;
