//! The storm of `stress.rs` must find what it is there to find. Here its process is sabotaged: the
//! kernel is told that the restartable sequences are empty, so it never restarts one. The same
//! storm that passes untouched must then fail within seconds.
//!
//! Each storm runs in a process of its own: a broken pool may do anything.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod support;

use std::time::Duration;

use support::storm::{Plan, assert_calm, storm};
use support::{EXIT_HUNG, Watchdog, exit_now, pool, run_child, sequences};
use zonal::Mode;

/// Says which storm the child runs.
const VARIANT: &str = "ZONAL_CANARY";
/// Exit code of a child that saw an error.
const EXIT_FOUND: i32 = 42;
/// A broken storm ends at its first error, mostly within a second.
const LIMIT: Duration = Duration::from_secs(120);

/// The other process. Without the variable it is no test.
#[test]
fn storm_of_the_child() {
    let Ok(variant) = std::env::var(VARIANT) else { return };
    let _watchdog = Watchdog::new("the child", LIMIT);
    // Whatever a broken pool makes panic, here or in a worker, is an error found.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        exit_now(EXIT_FOUND);
    }));
    let pool = pool(16 << 20, true);
    let broken = variant == "broken";
    if broken {
        sequences::disarm();
    }
    let time = if broken { LIMIT } else { Duration::from_millis(300) };
    let exit_on_error = Some(EXIT_FOUND);
    let report = storm(&pool, Plan { time, order_max: 0, exit_on_error, ..Plan::default() });
    assert_calm(&pool, &report);
}

#[test]
fn sections_that_are_not_restarted_are_found() {
    if *pool(4 << 20, true).mode() != Mode::Rseq {
        eprintln!("no restartable sequences here: nothing to break");
        return;
    }
    assert!(!sequences::all().is_empty());
    let storm = |variant| run_child("storm_of_the_child", VARIANT, variant);
    assert_eq!(storm("sound"), Some(0), "the same storm, untouched");
    let code = storm("broken");
    // None: a signal, such as a segmentation fault.
    assert!(matches!(code, None | Some(EXIT_FOUND)), "{code:?}; {EXIT_HUNG} means not found");
}
