//! What kernels did before 5.14, and the presets up to 5.4: the feature `history`.
//!
//! The lab, replays and conformance switch it on. A kernel or a pool does without: its policies
//! have fewer values, and no branch asks for the others.
//!
//! This folder is one place to look, not one layer. Each file is a module of the layer that its
//! path names, mounted there by `#[path]`: `history/pcp/cold.rs` is `pcp::history::cold`. What is
//! shorter than a function stays where it is used, behind `cfg(feature = "history")`.
//!
//! | file | holds | until |
//! |--|--|--|
//! | `vmstat/update.rs` | updates of a delta, also those proposed in 2007 (LB F.3, F.5) | 2.6.38 |
//! | `vmstat/races.rs` | what each of them loses to interrupts: tests | 2.6.38 |
//! | `vmstat/numa.rs` | NUMA events in deltas of 8 and 16 bits (LB F.7) | 5.13 |
//! | `vmstat/variant.rs` | statistics by release | 5.13 |
//! | `pcp/mod.rs` | growing round robin (LB E.8), lists of six chunks (LB E.11) | 5.17, 5.12 |
//! | `pcp/cold.rs`, `alloc/cold.rs` | lists of cold pages (LB E.11) | 2.6.24 |
//! | `zonelist/cache.rs`, `alloc/search/zlc.rs` | the zonelist cache (LB G.4 to G.6) | 4.3 |
//! | `machine.rs` | zonelists sorted by zones (LB A.4) | 4.13 |
//! | `policy.rs` | presets `linux-2.6.24` to `linux-5.4` | 5.4 |
