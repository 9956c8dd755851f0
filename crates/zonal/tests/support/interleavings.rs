//! What the models under loom share: every interleaving of a scene, and canaries.
//!
//! A canary is a model with something left out that loom must miss. It runs in a process of its
//! own, because loom cannot always unwind: in the test `model_of_the_child` of the same program,
//! which does nothing unless [`canary`] says which one to be.

use std::fmt::{Debug, Display};
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

/// The one of `faults` that this process is to play, or the model without a fault, `sound`; `None`:
/// no child.
pub fn fault_of_child<F: Copy + Debug>(sound: F, faults: &[F]) -> Option<F> {
    let name = canary()?;
    let named = |fault: &&F| format!("{fault:?}") == name;
    Some(faults.iter().find(named).copied().unwrap_or(sound))
}

/// Asks that loom finds each of `faults`, and nothing without one.
pub fn assert_each_is_found<F: Debug>(sound: F, faults: &[F]) {
    assert!(!is_found(format_args!("{sound:?}")), "the same scenes without a fault");
    for fault in faults {
        assert!(is_found(format_args!("{fault:?}")), "{fault:?} was not found");
    }
}

/// Whether loom finds something wrong with a canary.
pub fn is_found(canary: impl Display) -> bool {
    run_child("model_of_the_child", CANARY, &canary.to_string()) != Some(0)
}
