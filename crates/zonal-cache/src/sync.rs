//! What is shared between threads, in one place: the interleaving model (`tests/loom_page.rs`)
//! compiles `lock` with loom's types in place of these.

pub use std::sync::atomic::{AtomicU32, Ordering};
pub use std::sync::{Condvar, Mutex};
