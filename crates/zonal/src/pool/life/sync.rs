//! What `entries` shares between threads; its model under loom has its own in their place.

pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread::yield_now;
