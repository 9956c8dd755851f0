//! What `zonal top` and `zonal exporter` look at: the kernel that runs, or a pool of another
//! program.
//!
//! ```text
//!  /proc/zoneinfo, buddyinfo, vmstat ─┐
//!                                     ├─► Reading ─► Rates (of two) ─► screen, text, metrics
//!  a pool's observed file ────────────┘
//! ```
//! | file | does |
//! |--|--|
//! | `reading` | one reading, the same of both |
//! | `source` | where it comes from |
//! | `events` | tracepoints counted by the kernel: refills, drains, waits |
//! | `rates` | a second's worth of each |

pub mod events;
pub mod rates;
pub mod reading;
pub mod source;
