//! What a kernel needs around [`zonal_core`].
//!
//! ```text
//!  firmware's tables ── zones ──► Machine ─┐
//!  early memory ─────────────► Metadata ───┴─► Allocator ──► text: zoneinfo, vmstat …
//!  your kernel ── Kernel ──► KernelPlatform ───┘     ▲
//!  interrupt entry ── sections, answers              └── hotplug: CPUs come and go
//! ```
//! | module | does |
//! |--|--|
//! | [`kernel`] | the trait of a kernel; [`KernelPlatform`] is the core's platform |
//! | [`zones`] | zones, nodes and distances from what firmware says |
//! | [`fence`] | no section that began on that CPU can still commit; bounded waits |
//! | [`sections`] | the table by which an interrupt's entry starts a section over |
//! | [`hotplug`] | CPUs that come and go, in the right order |
//! | [`memory`] | memory that comes and goes |
//! | [`pages`] | any number of pages, and any part of them back |
//! | [`text`] | `zoneinfo`, `buddyinfo`, `vmstat` into any [`core::fmt::Write`] |
//!
//! The program `examples/kernel` of the repository is a kernel that boots with it, and the tutorial
//! "A kernel, step by step" builds one.
//!
//! # Which fast path
//! The core's own: `alloc` and `free` try the running CPU's pcp by plain Rust under its gate,
//! with interrupts masked. Nothing has to be fenced, handlers may allocate, and a kernel has
//! nothing to write. On x86-64 a kernel whose interrupts' entry starts sections over may have pops
//! and pushes by restartable assembly instead ([`sections::fast`]): half the instructions, and a
//! fence where the core touches another CPU's lists. [`sections`] and [`fence`] are also for a
//! kernel with sections of its own.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod cells;
pub mod fence;
pub mod hotplug;
pub mod kernel;
pub mod memory;
pub mod pages;
pub mod sections;
pub mod text;
pub mod zones;

pub use kernel::{Kernel, KernelPlatform};
