//! Two runs that differ in their policy alone: what changed, and which counters explain it.
//!
//! The cycles of a call are a sum: waiting for zone locks, moving pages, counters, waiting for
//! lines, and the rest. So is a difference of two; each part is named with the counters behind it.

use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_core::policy::set::Assignment;

use crate::LabError;
use crate::platform::Work;
use crate::recipe::{Machines, Recipe};
use crate::report::figure;
use crate::run::{Figures, Plan};
use crate::stop;

/// Version of [`Comparison`].
pub const SCHEMA_VERSION: u32 = 1;

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this form; it changes when readers would break.
    pub schema_version: u32,
    /// Everything here is simulated.
    pub kind: &'static str,
    /// On which machine.
    pub machine: String,
    /// Doing what.
    pub workload: String,
    /// From which seed.
    pub seed: u64,
    /// One side, and the other.
    pub sides: [Side; 2],
    /// Values of the policies that differ.
    pub settings: Vec<Setting>,
    /// Every figure of both.
    pub figures: Vec<Change>,
    /// Parts of a call's cycles.
    pub parts: Vec<Change>,
    /// What explains the difference, the largest part first.
    pub explanation: Vec<String>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Its policy.
    pub policy: String,
    /// Hash of its run.
    pub result_hash: String,
    /// The command line that makes it again.
    pub command: String,
}

/// A value of the policies that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// Its value on both sides.
    pub values: [String; 2],
    /// Its effect.
    pub help: &'static str,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its name.
    pub name: &'static str,
    /// Its meaning and unit.
    pub about: &'static str,
    /// Its value on both sides.
    pub values: [f64; 2],
    /// By how much it changed, in percent of the first; none from nothing.
    pub change_percent: Option<f64>,
}

/// A part of the cycles of a call: its name, and where its share is from.
struct PartOf {
    name: &'static str,
    about: &'static str,
    share: Share,
    /// Its cause: a name, a figure, and the base of the count.
    counters: &'static [Counter],
}

/// Where the share of a part is from.
enum Share {
    /// A figure: percent of the cycles.
    Percent(&'static str),
    /// Cycles of work apart from the allocator's.
    Work(fn(&Work) -> u64),
}

/// A counter behind a part: its meaning, and the figures whose ratio it is.
struct Counter {
    says: &'static str,
    part: &'static str,
    of: &'static str,
    times: f64,
}

const PER_1000_CALLS: f64 = 1000.0;
const PERCENT: f64 = 100.0;

const PARTS: [PartOf; 11] = [
    PartOf {
        name: "lock waits",
        about: "cycles of a call spent waiting for zone locks",
        share: Share::Percent("lock_wait_percent"),
        counters: &[
            Counter {
                says: "locks taken per 1000 calls",
                part: "lock_holds",
                of: "calls",
                times: PER_1000_CALLS,
            },
            Counter {
                says: "found taken, percent",
                part: "lock_contended",
                of: "lock_holds",
                times: PERCENT,
            },
        ],
    },
    PartOf {
        name: "moving pages",
        about: "cycles of a call spent moving pages between lists and zones",
        share: Share::Percent("pages_percent"),
        counters: &[
            Counter { says: "pages per refill", part: "refilled_pages", of: "refills", times: 1.0 },
            Counter { says: "pages per drain", part: "drained_pages", of: "drains", times: 1.0 },
            Counter {
                says: "pages past the lists per 1000 calls",
                part: "direct_pages",
                of: "calls",
                times: PER_1000_CALLS,
            },
        ],
    },
    PartOf {
        name: "counters",
        about: "cycles of a call spent on counters",
        share: Share::Percent("counters_percent"),
        counters: &[Counter {
            says: "folds per 1000 calls",
            part: "folds",
            of: "calls",
            times: PER_1000_CALLS,
        }],
    },
    PartOf {
        name: "reads",
        about: "cycles of a call spent waiting for lines that others wrote",
        share: Share::Percent("reads_percent"),
        counters: &[Counter {
            says: "lines fetched per 1000 calls",
            part: "fetches",
            of: "calls",
            times: PER_1000_CALLS,
        }],
    },
    PartOf {
        name: "contents",
        about: "cycles of a call spent on what pages hold",
        share: Share::Percent("contents_percent"),
        counters: &[
            Counter {
                says: "lines missed by last-level caches per call",
                part: "cache_misses",
                of: "calls",
                times: 1.0,
            },
            Counter {
                says: "of those asked of them, percent",
                part: "cache_misses",
                of: "cache_references",
                times: PERCENT,
            },
        ],
    },
    PartOf {
        name: "waits for owners",
        about: "cycles of a call spent waiting for the locks of CPUs' own pageblocks",
        share: Share::Percent("owner_lock_wait_percent"),
        counters: &[Counter {
            says: "locks taken per 1000 calls",
            part: "owner_lock_holds",
            of: "calls",
            times: PER_1000_CALLS,
        }],
    },
    PartOf {
        name: "other waits",
        about: "cycles of a call spent waiting for other locks and lines of the kernel",
        share: Share::Percent("kernel_lock_wait_percent"),
        counters: &[],
    },
    PartOf {
        name: "calls",
        about: "cycles that a call takes before anything moves; more where CPUs share a core",
        share: Share::Work(|work| work.calls),
        counters: &[],
    },
    PartOf {
        name: "kernel",
        about: "cycles of a call that the kernel works around the allocator, as in faults",
        share: Share::Work(|work| work.kernel),
        counters: &[],
    },
    PartOf {
        name: "programs",
        about: "cycles of a call that programs work, without the pages that they touch",
        share: Share::Work(|work| work.programs),
        counters: &[],
    },
    PartOf {
        name: "sent work",
        about: "cycles of a call that a CPU lost to work that others sent it, as drains",
        share: Share::Work(|work| work.sent),
        counters: &[],
    },
];
const REST: (&str, &str) = ("the rest", "cycles of a call that no part has");
const TOTAL: &str = "cycles_per_call";
/// A part below this share of the largest one explains nothing.
const WORTH_NAMING: f64 = 0.1;

/// Runs `base` under both policies and compares.
///
/// # Errors
/// A machine, a policy or a workload that is not there or cannot be.
pub fn compare(
    base: &Recipe,
    policies: [&str; 2],
    machines: Machines<'_>,
) -> Result<Comparison, LabError> {
    let recipes = policies.map(|policy| {
        let mut recipe = base.clone();
        policy.clone_into(&mut recipe.policy);
        recipe
    });
    let plans = [recipes[0].plan(machines)?, recipes[1].plan(machines)?];
    let figures = both(&plans)?;
    let side = |at: usize| Side {
        policy: recipes[at].policy.clone(),
        result_hash: figures[at].hash.clone(),
        command: recipes[at].command(),
    };
    let parts = parts(&figures);
    let settings = settings(&plans[0].policy, &plans[1].policy);
    Ok(Comparison {
        schema_version: SCHEMA_VERSION,
        kind: "simulated",
        machine: plans[0].machine.name.clone(),
        workload: plans[0].workload.to_string(),
        seed: base.seed,
        sides: [side(0), side(1)],
        figures: changes(&figures),
        explanation: explain(&figures, &parts, settings.is_empty()),
        parts,
        settings,
    })
}

/// Both runs, at the same time.
fn both(plans: &[Plan; 2]) -> Result<[Figures; 2], LabError> {
    let stop = &stop::heard();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || stop.run(|| plans[1].run()));
        let one = stop.run(|| plans[0].run())?;
        let broken = |_| LabError::Plan("the second run broke off".into());
        Ok([one, other.join().map_err(broken)??])
    })
}

fn settings(one: &Policy, other: &Policy) -> Vec<Setting> {
    let ours: Vec<Assignment<'_>> = one.settings().collect();
    let theirs = other.differences(one);
    theirs
        .filter_map(|theirs| {
            let ours = ours.iter().find(|ours| ours.setting.key == theirs.setting.key)?;
            Some(Setting {
                key: theirs.setting.key,
                values: [ours.value().to_string(), theirs.value().to_string()],
                help: theirs.setting.help,
            })
        })
        .collect()
}

impl Change {
    fn new(name: &'static str, about: &'static str, values: [f64; 2]) -> Change {
        let change_percent = match values[0] == 0.0 {
            true => (values[1] == 0.0).then_some(0.0),
            false => Some((values[1] / values[0] - 1.0) * 100.0),
        };
        Change { name, about, values, change_percent }
    }

    fn difference(&self) -> f64 {
        self.values[1] - self.values[0]
    }
}

fn changes(figures: &[Figures; 2]) -> Vec<Change> {
    let pairs = figures[0].each().zip(figures[1].each());
    pairs
        .map(|((what, one), (_, other))| Change::new(what.name, what.about, [one, other]))
        .collect()
}

fn parts(figures: &[Figures; 2]) -> Vec<Change> {
    let get = |at: usize, name: &str| figures[at].get(name).unwrap_or(0.0);
    let total = [get(0, TOTAL), get(1, TOTAL)];
    let mut rest = total;
    let mut parts: Vec<Change> = PARTS
        .iter()
        .map(|part| {
            let cycles = |at: usize| match part.share {
                Share::Percent(name) => get(at, name) / 100.0 * total[at],
                Share::Work(of) => {
                    let calls = get(at, "calls");
                    if calls > 0.0 { of(&figures[at].work) as f64 / calls } else { 0.0 }
                }
            };
            let values = [cycles(0), cycles(1)];
            rest = [rest[0] - values[0], rest[1] - values[1]];
            Change::new(part.name, part.about, values)
        })
        .collect();
    parts.push(Change::new(REST.0, REST.1, rest));
    parts
}

fn explain(figures: &[Figures; 2], parts: &[Change], alike: bool) -> Vec<String> {
    if figures[0].hash == figures[1].hash {
        let why = match alike {
            true => "no value of the policies differs",
            false => "the values that differ do not affect this workload",
        };
        return vec![format!("both runs are the same to the last cycle: {why}")];
    }
    let get = |at: usize, name: &str| figures[at].get(name).unwrap_or(0.0);
    let pair = |name: &str| [get(0, name), get(1, name)];
    let total = Change::new(TOTAL, "", pair(TOTAL));
    let mut lines = vec![format!(
        "a call takes {} cycles instead of {} ({:+.1} %), of that:",
        figure(total.values[1]),
        figure(total.values[0]),
        total.change_percent.unwrap_or(0.0),
    )];
    let mut order: Vec<&Change> = parts.iter().collect();
    order.sort_by(|one, other| other.difference().abs().total_cmp(&one.difference().abs()));
    let largest = order.first().map_or(0.0, |part| part.difference().abs());
    for part in order.iter().filter(|part| part.difference().abs() > WORTH_NAMING * largest) {
        let behind = PARTS.iter().find(|known| known.name == part.name);
        let counters = behind.map_or(&[][..], |known| known.counters).iter().map(|counter| {
            let ratio = |at: usize| {
                let of = get(at, counter.of);
                if of > 0.0 { counter.times * get(at, counter.part) / of } else { 0.0 }
            };
            format!("{} {} -> {}", counter.says, figure(ratio(0)), figure(ratio(1)))
        });
        let counters: Vec<String> = counters.collect();
        let because = match counters.is_empty() {
            true => String::new(),
            false => format!(" ({})", counters.join("; ")),
        };
        lines.push(format!("{} {:+.1} cycles{because}", part.name, part.difference()));
    }
    let held = pair("listed_pages_max");
    let mib = |pages: f64| figure(pages / 256.0);
    lines.push(format!("lists held at most {} MiB instead of {} MiB", mib(held[1]), mib(held[0])));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::run::FIGURES;

    fn presets(name: &str) -> Result<Machine, LabError> {
        let mut machine = Machine::named(name)?;
        machine.memory_mib = 2048;
        Ok(machine)
    }

    fn base() -> Recipe {
        let mut base = Recipe::new("broadwell-2017-88@16", "zonal", "burst:hold=200");
        (base.warm_us, base.run_us) = (50, 100);
        base
    }

    #[test]
    fn every_figure_that_explains_something_exists() {
        let known = |name: &str| FIGURES.iter().any(|figure| figure.name == name);
        assert!(known(TOTAL) && known("listed_pages_max"));
        for part in PARTS {
            if let Share::Percent(name) = part.share {
                assert!(known(name), "{name}");
            }
            for counter in part.counters {
                assert!(known(counter.part) && known(counter.of), "{}", counter.says);
            }
        }
    }

    #[test]
    fn the_parts_are_the_cycles_of_a_call_and_name_what_changed() {
        let policies = ["linux-6.18+pcp.scale_max=0", "linux-6.18+pcp.scale_max=5"];
        let result = compare(&base(), policies, &presets).unwrap();
        let keys: Vec<&str> = result.settings.iter().map(|setting| setting.key).collect();
        assert_eq!(keys, ["pcp.scale_max"]);
        assert_eq!(result.settings[0].values, ["0", "5"]);
        let total = result.figures.iter().find(|change| change.name == TOTAL).unwrap();
        for side in [0, 1] {
            let sum: f64 = result.parts.iter().map(|part| part.values[side]).sum();
            assert!((sum - total.values[side]).abs() < 1e-6, "{sum} {total:?}");
            assert!(result.parts.iter().all(|part| part.values[side] >= -1e-6), "{result:?}");
        }
        let holds = result.figures.iter().find(|change| change.name == "lock_holds").unwrap();
        assert!(holds.values[1] < holds.values[0], "larger refills are fewer: {holds:?}");
        assert!(result.explanation.len() > 2, "{:?}", result.explanation);
        assert_eq!(compare(&base(), policies, &presets).unwrap(), result, "the same again");
    }

    #[test]
    fn what_no_part_has_is_less_than_a_twentieth_of_a_call() {
        for workload in ["handoff", "churn", "burst", "unix-stream", "page-fault"] {
            let mut base = base();
            workload.clone_into(&mut base.workload);
            let result = compare(&base, ["linux-6.18", "zonal"], &presets).unwrap();
            let total = result.figures.iter().find(|change| change.name == TOTAL).unwrap();
            let rest = result.parts.last().unwrap();
            assert_eq!(rest.name, REST.0);
            for side in [0, 1] {
                assert!(total.values[side] > 0.0, "{workload} called nothing");
                let share = rest.values[side] / total.values[side];
                assert!(share.abs() < 0.05, "{workload}: {share} {:?}", result.parts);
            }
        }
    }

    #[test]
    fn a_policy_beside_itself_changes_nothing() {
        let result = compare(&base(), ["zonal", "zonal"], &presets).unwrap();
        assert_eq!(result.settings, []);
        assert!(result.figures.iter().all(|change| change.change_percent == Some(0.0)));
        assert!(result.explanation[0].contains("the same to the last cycle"));
        let result = compare(&base(), ["zonal", "zonal"], &presets).unwrap();
        assert!(result.explanation[0].ends_with("no value of the policies differs"));
        let error = compare(&base(), ["zonal", "nonsense"], &presets).unwrap_err().to_string();
        assert!(error.contains("no policy is called 'nonsense'"), "{error}");
    }
}
