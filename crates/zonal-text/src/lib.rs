//! The kernel's text interfaces: parse and print.
//!
//! A module per format, each with a `Document` that holds every value in the order it is printed,
//! a `parse` that makes one from a text, and a `Display` that prints it. For every text that a
//! kernel wrote, `parse(text)?.to_string() == text`, byte for byte: widths, blanks at the ends of
//! lines and all (LB-I).
//! "LB I.1" is section I.1 of the reference of Linux' behaviour, `docs/linux` of the repository.
//!
//! ```text
//!   /proc/zoneinfo ── parse ──► zoneinfo::Document ── Display ──► the same bytes
//! ```
//!
//! | module | files | LB |
//! |--|--|--|
//! | [`zoneinfo`] | `/proc/zoneinfo` | I.1 |
//! | [`buddyinfo`], [`pagetypeinfo`] | `/proc/buddyinfo`, `/proc/pagetypeinfo` | I.2 |
//! | [`vmstat`] | `/proc/vmstat`; `vmstat` and `numastat` of a node | I.3, I.4 |
//! | [`meminfo`] | `meminfo` of a node, `/proc/meminfo` | I.4 |
//! | [`cpulist`], [`distance`] | `cpulist`, `distance` of a node, `online` and other lists | I.4 |
//! | [`sysctl`] | settings, one `key=value` per line | I.5 |
//! | [`iomem`], [`cmdline`] | `/proc/iomem`, `/proc/cmdline` | |
//! | [`release`] | the first numbers of `/proc/sys/kernel/osrelease` | |
//!
//! Names of counters are kept as printed, so a kernel that adds a counter needs no change here. To
//! print a text of your own, take names and order from [`counters`], and the form from [`Layout`].
//!
//! ```
//! let text = "Node 0, zone   Normal      1      0      3 \n";
//! let buddyinfo = zonal_text::buddyinfo::parse(text)?;
//! assert_eq!(buddyinfo.zones[0].free_blocks, [1, 0, 3]);
//! assert_eq!(buddyinfo.to_string(), text);
//! let error = zonal_text::buddyinfo::parse("Node 0, zone DMA x \n").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "buddyinfo: line 1: bad free blocks: expected a decimal number, found `x`"
//! );
//! # Ok::<(), zonal_text::Error>(())
//! ```
//!
//! # What this crate does not do
//!
//! It reads no files and does not depend on the allocator: a `Document` is the contents of a text,
//! no more.
//!
//! # Without `std`
//!
//! Without the feature `std`, which is on by default, there are no documents: [`counters`],
//! [`Layout`] and the [`forms`] of lines are what a kernel needs to print texts of its own.
//!
//! # Errors
//!
//! Each [`Error`] names the line, what was expected and what was found. Nothing in this crate
//! panics on any input.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "std")]
pub mod buddyinfo;
#[cfg(feature = "std")]
pub mod cmdline;
pub mod counters;
#[cfg(feature = "std")]
pub mod cpulist;
#[cfg(feature = "std")]
pub mod distance;
#[cfg(feature = "std")]
mod error;
pub mod forms;
#[cfg(feature = "std")]
pub mod iomem;
mod layout;
#[cfg(feature = "std")]
mod lines;
#[cfg(feature = "std")]
pub mod meminfo;
#[cfg(feature = "std")]
pub mod openmetrics;
#[cfg(feature = "std")]
pub mod pagetypeinfo;
#[cfg(feature = "std")]
pub mod release;
#[cfg(feature = "std")]
mod stat;
#[cfg(feature = "std")]
pub mod sysctl;
#[cfg(feature = "std")]
pub mod vmstat;
#[cfg(feature = "std")]
pub mod zoneinfo;

#[cfg(feature = "std")]
pub use error::{Error, ErrorKind};
pub use layout::Layout;
#[cfg(feature = "std")]
pub use layout::UnknownLayout;
#[cfg(feature = "std")]
pub use stat::Stat;

/// More CPUs than any Linux machine has (`CONFIG_NR_CPUS` is at most 8192 on x86-64).
pub const CPUS_MAX: u32 = 8192;

/// More nodes than any Linux machine has (`CONFIG_NODES_SHIFT` is at most 10).
pub const NODES_MAX: u32 = 1024;

/// `text.parse()` gives a document too, by the `parse` of its module.
#[cfg(feature = "std")]
macro_rules! from_str_by_parse {
    ($($module:ident),*) => {
        $(impl std::str::FromStr for $module::Document {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                $module::parse(text)
            }
        })*
    };
}

#[cfg(feature = "std")]
from_str_by_parse!(
    buddyinfo,
    cmdline,
    cpulist,
    distance,
    iomem,
    meminfo,
    pagetypeinfo,
    sysctl,
    vmstat,
    zoneinfo
);

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
