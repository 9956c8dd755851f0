//! Kinds of events in a block, by number.

use crate::notice::ROWS;

/// The first kind of a notice; version 1 of the format has none.
pub(super) const NOTICES: u8 = 12;
/// All kinds.
pub(super) const KINDS: u8 = NOTICES + ROWS.len() as u8;
