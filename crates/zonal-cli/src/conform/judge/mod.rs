//! Holds what a kernel printed to what the core computes.
//!
//! | file | judges |
//! |--|--|
//! | `limits` | marks, `protection`, batches, limits of lists, of each `zoneinfo` |
//! | `then` | the same where they were computed when zones had other sizes; thresholds |
//! | `boot` | `min_free_kbytes`, fallback order, mobility grouping |
//! | `written` | sysctls that were written: taken or refused, and what they are since |
//! | `totals` | amounts of memory, states of nodes, texts that say the same thing twice |
//!
//! Everything else that a capture prints is state at a moment, and is listed as not judged.

mod boot;
mod limits;
mod then;
mod totals;
mod written;

use zonal_core::policy::Policy;
use zonal_core::types::NodeId;
use zonal_core::zone::watermark::MovableMin;

use self::limits::Part;
use super::capture::Capture;
use super::era::{Era, PrintedHigh};
use super::files::Place;
use super::model::{Computed, Shape};
use super::report::{Case, Check, Value};
use super::settings::Write;
use super::zones::ZoneFile;

/// What everything is judged with.
struct Bench<'a> {
    capture: &'a Capture,
    shape: Shape,
    policy: Policy,
    writes: Vec<Write>,
    /// What follows from the sizes of the main `zoneinfo`.
    computed: Computed,
}

/// Judges a capture.
///
/// # Errors
/// If the machine cannot be rebuilt: bad input, with file and line where there is one.
pub fn judge(capture: &Capture) -> anyhow::Result<Case> {
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

impl<'a> Bench<'a> {
    /// Finds out which of the rules that could hold do: those that leave the fewest mismatches.
    fn new(capture: &'a Capture, case: &mut Case) -> anyhow::Result<Bench<'a>> {
        let shape = shape(capture);
        let kinds = capture.kinds();
        let managed = sizes(capture.main());
        let disputed = capture.settings.disputed(&capture.meta);
        let noted = capture.settings.as_noted(&capture.meta);
        // Where they fit the kernel equally well, `meta.json` is right.
        let mut settings = vec![&noted];
        if !disputed.is_empty() {
            settings.push(&capture.settings);
        }
        // Wrong values with the sysctls of `meta.json`, then with those of their text.
        let mut wrong = Vec::new();
        let mut best: Option<(usize, Bench<'a>, MovableMin)> = None;
        for settings in settings {
            let writes = settings.writes(capture.release, &kinds)?;
            let mut least = usize::MAX;
            for movable in capture.release.movable_mins() {
                let policy = capture.release.policy(settings.thp().unwrap_or(true), *movable);
                let computed = shape.compute(&policy, &managed, &writes)?;
                let checks = limits::checks(capture, capture.main(), &computed.zones);
                least = least.min(checks.iter().filter(|(_, _, check)| !check.holds()).count());
                if best.as_ref().is_none_or(|(before, ..)| least < *before) {
                    let (shape, writes) = (shape.clone(), writes.clone());
                    best =
                        Some((least, Bench { capture, shape, policy, writes, computed }, *movable));
                }
            }
            wrong.push(least);
        }
        let (_, bench, movable) = best.expect("there is at least one rule and one text");
        if capture.release.movable_mins().len() > 1 {
            let reason =
                format!("taken from the capture: {movable:?}; {} may have either", capture.release);
            case.skip("rule of movable zones", reason);
        }
        for (key, (value, place), (noted, there)) in disputed {
            // The text is to blame but where it is `meta.json` that fits the kernel worse.
            let check = match wrong[1] < wrong[0] {
                true => text(&there, key, noted, value),
                false => text(&place, key, value, noted),
            };
            case.check(check);
        }
        let agreed = capture.meta.sysctls.iter().filter_map(|(key, noted)| {
            capture.settings.get(key).filter(|(value, _)| value == noted)
        });
        agreed.for_each(|(value, place)| {
            case.check(text(place, "sysctl".to_owned(), value.to_owned(), value.to_owned()));
        });
        Ok(bench)
    }

    /// The value of a sysctl that was written to the core.
    fn written(&self, sysctl: zonal_core::alloc::Sysctl) -> i64 {
        self.writes.iter().find(|write| write.sysctl == sysctl).map_or(0, |write| write.value)
    }

    /// Online CPUs of a node.
    fn node_cpus(&self, node: NodeId) -> u32 {
        self.capture.nodes.get(node.0 as usize).map_or(0, |node| node.cpus.len() as u32)
    }
}

/// Nodes by position, zones in the order of the main `zoneinfo`.
fn shape(capture: &Capture) -> Shape {
    let zones = &capture.main().zones;
    Shape {
        distances: capture.distances.clone(),
        node_cpus: capture.nodes.iter().map(|node| node.cpus.clone()).collect(),
        zones: zones.iter().map(|zone| (capture.node_index(zone.node), zone.kind)).collect(),
    }
}

/// Managed pages by zone.
fn sizes(file: &ZoneFile) -> Vec<u64> {
    file.zones.iter().map(|zone| zone.managed.value).collect()
}

/// A comparison of two texts.
fn text(place: &Place, what: String, expected: String, computed: String) -> Check {
    let Place { file, line } = place.clone();
    Check { file, line, what, expected: Value::Text(expected), computed: Value::Text(computed) }
}

/// A comparison of two numbers.
fn number(file: &str, line: u64, what: impl Into<String>, expected: u64, computed: u64) -> Check {
    let (expected, computed) = (Value::Number(expected), Value::Number(computed));
    Check { file: file.to_owned(), line, what: what.into(), expected, computed }
}

/// What no capture determines.
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

/// Whether the part of a zone's text is one that follows from marks or sizes at the moment they
/// were set up.
fn is_limit(part: Part) -> bool {
    part != Part::Threshold
}
