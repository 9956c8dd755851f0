//! What the models under loom share: every interleaving of a scene, and canaries.
//!
//! A canary is a model with something left out that loom must miss. It runs in a process of its
//! own, because loom cannot always unwind: in the test `model_of_the_child` of the same program,
//! which does nothing unless [`canary`] says which one to be.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::run_child;

/// Says to the child which canary it is.
const CANARY: &str = "ZONAL_LOOM_CANARY";

/// Plays `scene` in every order of its threads' steps, with at most so many preemptions. Returns
/// how many there were.
pub fn explore(preemptions: Option<usize>, scene: impl Fn() + Send + Sync + 'static) -> u64 {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    let interleavings = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&interleavings);
    model.check(move || {
        seen.fetch_add(1, Relaxed);
        scene();
    });
    interleavings.load(Relaxed)
}

/// The canary that this process is; `None`: no child.
pub fn canary() -> Option<String> {
    std::env::var(CANARY).ok()
}

/// Whether loom finds something wrong with a canary.
pub fn is_found(canary: impl Display) -> bool {
    run_child("model_of_the_child", CANARY, &canary.to_string()) != Some(0)
}
