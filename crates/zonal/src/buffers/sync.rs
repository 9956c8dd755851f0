//! The mutex of `gate`.

pub(super) use std::sync::{Mutex, MutexGuard};
