//! Systems without restartable sequences: no area, no registration (`rseq_own.rs` has Linux').

use super::Errno;

/// There are no sequences.
pub const RSEQ_SIGNATURE: u32 = 0;
/// There is no area.
pub(super) const AREA_BYTES: u32 = 0;

/// Refused.
pub(super) fn join() -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// There is no area.
pub(super) fn distance(_: usize) -> Option<isize> {
    None
}
