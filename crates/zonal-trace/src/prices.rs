//! Prices of a host, as a recording keeps them.

use serde::{Deserialize, Serialize};

/// What holding a zone lock takes on a machine, in picoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPrices {
    /// How that was found.
    pub source: String,
    /// Each hold: the lock's line comes from another CPU.
    pub hold_ps: u64,
    /// Each block that is moved in it.
    pub block_ps: u64,
    /// Whether the kernel of this host was timed while it moved blocks; otherwise `block_ps` is of
    /// another machine, and without the lines of memory that a block's words are on.
    #[serde(default)]
    pub is_block_measured: bool,
}
