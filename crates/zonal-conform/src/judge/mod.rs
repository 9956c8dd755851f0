//! Compares a kernel's texts with the core's values.
//!
//! | file | judges, or holds |
//! |--|--|
//! | `bench` | the machine and the rules that everything is judged with |
//! | `compared` | each value of a `zoneinfo` beside the core's |
//! | `limits` | marks, `protection`, batches, limits of lists, of each `zoneinfo` |
//! | `then` | the same where they were computed when zones had other sizes; thresholds |
//! | `boot` | `min_free_kbytes`, fallback order, mobility grouping |
//! | `written` | sysctls that were written: taken or refused, and what they are since |
//! | `totals` | amounts of memory, states of nodes, texts that say the same thing twice |
//!
//! Everything else that a capture prints is state at a moment, and is listed as not judged.

mod bench;
mod boosted;
mod boot;
mod compared;
mod limits;
mod then;
mod totals;
mod written;

use crate::capture::Capture;
use crate::era::{Era, PrintedHigh};
use crate::error::Error;
use crate::report::Case;
use bench::Bench;

/// Judges a capture.
///
/// # Errors
/// If the machine cannot be rebuilt: bad input, with file and line where there is one.
pub fn judge(capture: &Capture) -> Result<Case, Error> {
    let mut case = Case {
        name: capture.name.clone(),
        release: capture.meta.kernel_release.clone(),
        ..Case::default()
    };
    let bench = Bench::new(capture, &mut case)?;
    let (then, settled) = limits::judge(&bench, &mut case)?;
    then::thresholds(&bench, &then, &mut case);
    boot::min_free(&bench, &then, &mut case)?;
    written::judge(&bench, &mut case);
    boot::fallback_order(&bench, &mut case);
    boot::grouping(&bench, &mut case)?;
    totals::judge(&bench, settled.get(1), &mut case);
    never(capture, &mut case);
    Ok(case)
}

/// Values that no capture determines.
fn never(capture: &Capture, case: &mut Case) {
    if capture.release.printed_high() == PrintedHigh::Tuned {
        case.skip(
            "pagesets: high",
            "moved by the kernel with every allocation and free since 6.7; may also be left from \
             limits of before",
        );
    }
    for (what, reason) in [
        ("pagesets: count", "pages on a list at that moment"),
        ("zoneinfo: free, boost, node and zone counters, NUMA events", "counters at that moment"),
        ("zoneinfo: spanned, start_pfn", "the ends of nodes are not in a capture"),
        ("buddyinfo, rows of pagetypeinfo, vmstat, numastat", "state and events at that moment"),
        ("extfrag_index, unusable_index", "the core has no compaction"),
        ("drift mark, pressure threshold, node thresholds", "not printed by a kernel"),
        ("min_unmapped_pages, min_slab_pages", "not printed by a kernel"),
        ("cache slices (cpucache)", "what follows from them is not printed by a kernel"),
    ] {
        case.skip(what, reason);
    }
    if capture.started_with(&["kernelcore", "movablecore", "movable_node"]) {
        let reason = "sizes of zones are input: the core is given its zones";
        case.skip("where movable zones start", reason);
    }
}
