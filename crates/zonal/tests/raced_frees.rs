//! Double frees at the same moment, of every kind at once: see `support/raced.rs`.

mod support;

use support::raced::{self, raced_frees};
use zonal::{Mode, Policy};

const MIB: usize = 1 << 20;

/// With the lists under locks, of any number of frees at once exactly one is told that it freed.
#[test]
fn of_several_frees_at_once_one_counts_under_locks() {
    for (policy, seed) in [(Policy::ZONAL, 1), (Policy::LINUX_6_18, 2)] {
        let pool = raced::pool(64 * MIB, false, policy);
        let raced = raced_frees(&pool, 2, 400, seed);
        eprintln!("{}: {raced}", policy.name);
        assert!(raced.refused > raced.blocks / 2, "the others were refused");
    }
}

/// With sequences two of them may be told so, and one copy of the page counts. Bulk frees are left
/// out there: see "Two frees by sequences" in docs/reference/invariants.md.
#[test]
fn of_several_frees_at_once_one_counts_with_sequences() {
    for (policy, seed) in [(Policy::ZONAL, 3), (Policy::LINUX_6_18, 4)] {
        let pool = raced::pool(64 * MIB, true, policy);
        if *pool.mode() != Mode::Rseq {
            eprintln!("note: SKIPPED: there are no restartable sequences here");
            return;
        }
        let raced = raced_frees(&pool, 2, 400, seed);
        eprintln!("{} ({}): {raced}", policy.name, pool.mode());
    }
}

/// Where a policy leaves nothing to sequences, none runs, whatever the system has.
#[test]
fn of_several_frees_at_once_one_counts_where_no_sequence_runs() {
    let pool = raced::pool(64 * MIB, true, Policy::OWNED_2026);
    let raced = raced_frees(&pool, 2, 400, 4);
    eprintln!("{} ({}): {raced}", Policy::OWNED_2026.name, pool.mode());
    assert_eq!((raced.freed, raced.strays), (raced.blocks, 0));
}
