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
//! | `counter` | one of them, on one CPU; `no_counter` where that cannot be |
//! | `rates` | a second's worth of each |

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod counter;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[path = "no_counter.rs"]
mod counter;
pub mod events;
pub mod rates;
pub mod reading;
pub mod source;
