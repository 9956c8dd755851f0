//! Every call of a store fails once: the nth, for every n, in every way. What `sync` calls safe is
//! safe, what reads give is what was written, and every error is told.

mod support;

use std::time::Duration;

use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use support::device::{Call, DeviceStore, Fault};
use support::program::Program;
use support::{PAGE, end, pattern, pool};
use zonal::Pool;
use zonal_cache::Cache;

const STEPS: u64 = 50;

/// A program in which one call fails. Returns whether there were so many calls, and how many of
/// each kind.
fn with_failure(pool: &std::sync::Arc<Pool>, seed: u64, nth: i64, fault: Fault) -> Option<Call> {
    let cache = Cache::builder(pool.clone())
        .max_pages(6)
        .read_ahead(3)
        .dirty_percent(1, 100)
        .writeback_every(Duration::from_secs(3600))
        .build()
        .unwrap();
    let model = pattern(seed, 15 * PAGE as usize + 77);
    let store = DeviceStore::new(model.clone(), seed ^ nth as u64);
    store.fail_after(nth, fault);
    let file = match cache.open_store(store.clone()) {
        Ok(file) => file,
        Err(error) => {
            assert_eq!((nth, store.calls()), (0, vec![Call::Len]), "{error}");
            end(cache, pool);
            return Some(Call::Len);
        }
    };
    let mut program = Program { file, store: store.clone(), model, told: 0 };
    let mut random = Pcg64::seed_from_u64(seed);
    for _ in 0..STEPS {
        program.step(&mut random);
    }
    // Now the device works, unless the failure has not come yet: it ends well all the same.
    program.end_well(&(seed, nth, fault));
    let failed = store.has_failed().then(|| store.calls()[nth as usize]);
    match failed {
        // Nobody asked for what is read ahead.
        Some(Call::Read) | None => {}
        // A short call is no failure.
        Some(_) if fault == Fault::Short => assert_eq!(program.told, 0),
        Some(call) => assert!(program.told > 0, "a failed {call:?} was told to nobody"),
    }
    let Program { file, .. } = program;
    drop(file);
    end(cache, pool);
    failed
}

fn whichever_call_fails(fault: Fault) {
    let pool = pool();
    let mut failed = Vec::new();
    for seed in 0..3 {
        failed.extend((0..).map_while(|nth| with_failure(&pool, seed, nth, fault)));
    }
    for (call, at_least) in
        [(Call::Read, 50), (Call::Write, 50), (Call::Sync, 10), (Call::SetLen, 5), (Call::Len, 3)]
    {
        let count = failed.iter().filter(|failed| **failed == call).count();
        let at_least = if (call, fault) == (Call::Len, Fault::Short) { 0 } else { at_least };
        assert!(count >= at_least, "only {count} of {call:?}");
    }
}

#[test]
fn whichever_call_fails_what_is_called_safe_is_safe() {
    whichever_call_fails(Fault::Errno(5));
}

#[test]
fn whichever_call_fails_half_way_what_is_called_safe_is_safe() {
    whichever_call_fails(Fault::Half(28));
}

#[test]
fn whichever_call_is_short_nothing_is_missing() {
    whichever_call_fails(Fault::Short);
}

#[test]
fn whichever_call_panics_what_is_called_safe_is_safe() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<&str>();
        if text.is_none_or(|text| !text.contains("on purpose")) {
            hook(panic);
        }
    }));
    whichever_call_fails(Fault::Panic);
}
