//! Sweeps: a run for every combination of some values.
//!
//! ```text
//!  base recipe + axes ──► points ──► those not in the file yet ──► runs, on several threads
//!                                                                    └► one line each, at once
//!  all done ──► the file again, in the order of the points
//! ```
//! A line is recognised by its key: everything that its run depends on. So an interrupted sweep
//! goes on where it was, a larger one keeps what a smaller one did, and the finished file does not
//! depend on how many threads or interruptions there were.

mod file;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::LabError;
use crate::recipe::{Machines, Recipe};
use crate::run::{FIGURES, Plan};

pub use file::{Header, Row};

/// Most runs of one sweep.
pub const POINTS_MAX: usize = 1_000_000;

/// One thing that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What [`Recipe::set`] knows it by.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of each axis.
    pub values: Vec<String>,
    /// The run.
    pub recipe: Recipe,
    /// The same, with everything found.
    pub plan: Plan,
}

/// Every run of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// What is varied.
    pub axes: Vec<Axis>,
    /// Every combination, the last axis changing fastest.
    pub points: Vec<Point>,
}

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Runs made.
    pub made: usize,
    /// Runs that were in the file already.
    pub found: usize,
}

/// Axes from `KEY=VALUE,VALUE`. Values that hold commas are separated by semicolons; a key that
/// comes again gets more values.
///
/// # Errors
/// An axis without values, or a value that comes twice.
pub fn axes(texts: &[String]) -> Result<Vec<Axis>, LabError> {
    let mut axes: Vec<Axis> = Vec::new();
    for text in texts {
        let wrong = |what: &str| LabError::Plan(format!("--over {text}: {what}"));
        let (key, list) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected KEY=VALUE,VALUE, as pcp.tuning=0,5,9 or cpus=2,8,88"))?;
        let separator = if list.contains(';') { ';' } else { ',' };
        let values: Vec<&str> =
            list.split(separator).map(str::trim).filter(|value| !value.is_empty()).collect();
        if values.is_empty() {
            return Err(wrong("no values, so there is nothing to run; expected at least one"));
        }
        let at = axes.iter().position(|axis| axis.key == key).unwrap_or_else(|| {
            axes.push(Axis { key: key.to_owned(), values: Vec::new() });
            axes.len() - 1
        });
        for value in values {
            if axes[at].values.iter().any(|known| known == value) {
                return Err(wrong(&format!("{value} comes twice")));
            }
            axes[at].values.push(value.to_owned());
        }
    }
    Ok(axes)
}

impl Sweep {
    /// Every combination of the axes' values, each checked.
    ///
    /// # Errors
    /// No axis, too many combinations, or the first value that cannot be.
    pub fn new(base: &Recipe, axes: Vec<Axis>, machines: Machines<'_>) -> Result<Sweep, LabError> {
        if axes.is_empty() {
            let what = "an empty sweep: nothing is varied; expected --over KEY=VALUE,VALUE";
            return Err(LabError::Plan(what.into()));
        }
        let count = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
        let count = count.filter(|count| *count <= POINTS_MAX).ok_or_else(|| {
            LabError::Plan(format!("more than {POINTS_MAX} runs; expected fewer values"))
        })?;
        let points: Result<Vec<Point>, LabError> =
            (0..count).map(|number| point(base, &axes, number, machines)).collect();
        Ok(Sweep { points: points?, axes })
    }

    /// Makes the runs that are not in the file at `path` yet on `threads` threads, then writes the
    /// file anew in the order of the points. `progress` hears of each row, found or made.
    ///
    /// # Errors
    /// A file that is none of a sweep or cannot be written, or a run that cannot be.
    pub fn run(
        &self,
        path: &Path,
        threads: usize,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<(Vec<Row>, Done), LabError> {
        let mut rows = file::read(path)?;
        let open = Mutex::new(file::append(path)?);
        let found = self.points.iter().map(|point| rows.remove(&file::key(point)));
        let mut found: Vec<Option<Row>> = found.collect();
        let missing: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_none()).collect();
        progress(found.len() - missing.len());
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Relaxed: the counter hands out numbers and nothing else, the flag is a hint to stop.
        let work = || -> Result<Vec<(usize, Row)>, LabError> {
            let mut made = Vec::new();
            while !failed.load(Relaxed) {
                let Some(&at) = missing.get(next.fetch_add(1, Relaxed)) else { break };
                let point = &self.points[at];
                let row = point.plan.run().and_then(|figures| {
                    let row = Row::new(self, point, &figures);
                    file::write(&open, &row)?;
                    Ok(row)
                });
                made.push((at, row.inspect_err(|_| failed.store(true, Relaxed))?));
                progress(1);
            }
            Ok(made)
        };
        let made: Vec<Result<Vec<(usize, Row)>, LabError>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let broken =
                || LabError::Plan("a run of the sweep broke off; its rows are kept".into());
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err(broken())))
                .collect()
        });
        for (at, row) in made.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            found[at] = Some(row);
        }
        let mut all: Vec<Row> = found.into_iter().flatten().collect();
        for (row, point) in all.iter_mut().zip(&self.points) {
            row.relabel(self, point);
        }
        let others: Vec<Row> = rows.into_values().collect();
        file::rewrite(path, all.iter().chain(&others))?;
        let done = Done { made: missing.len(), found: all.len() - missing.len() };
        Ok((all, done))
    }

    /// A point's values with their keys: `cpus=8 policy=zonal`.
    pub fn label(&self, point: &Point) -> String {
        let pair = |(axis, value): (&Axis, &String)| format!("{}={value}", axis.key);
        self.axes.iter().zip(&point.values).map(pair).collect::<Vec<_>>().join(" ")
    }
}

fn point(
    base: &Recipe,
    axes: &[Axis],
    number: usize,
    machines: Machines<'_>,
) -> Result<Point, LabError> {
    let (mut rest, mut values) = (number, Vec::new());
    for axis in axes.iter().rev() {
        values.push(axis.values[rest % axis.values.len()].clone());
        rest /= axis.values.len();
    }
    values.reverse();
    let mut recipe = base.clone();
    // What names a whole comes before what changes a part of it.
    let part = |key: &str| !matches!(key, "machine" | "policy" | "workload");
    let mut set: Vec<(&str, &str)> =
        axes.iter().zip(&values).map(|(axis, value)| (&*axis.key, &**value)).collect();
    set.sort_by_key(|(key, _)| part(key));
    for (key, value) in set {
        let at = |error: LabError| LabError::Plan(format!("--over {key}={value}: {error}"));
        recipe.set(key, value).map_err(at)?;
    }
    let pairs = axes.iter().zip(&values).map(|(axis, value)| format!("{}={value}", axis.key));
    let pairs = pairs.collect::<Vec<_>>().join(" ");
    let label = |error: LabError| LabError::Plan(format!("at {pairs}: {error}"));
    let plan = recipe.plan(machines).map_err(label)?;
    Ok(Point { values, recipe, plan })
}

/// Names of the columns of a sweep's file.
pub fn columns() -> Header {
    Header::new(FIGURES.iter().map(|figure| figure.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn presets(name: &str) -> Result<Machine, LabError> {
        let mut machine = Machine::named(name)?;
        machine.memory_mib = 2048;
        Ok(machine)
    }

    fn sweep(over: &[&str]) -> Result<Sweep, LabError> {
        let mut base = Recipe::new("xeon-2007-8", "zonal", "burst:hold=16");
        (base.warm_us, base.run_us) = (10, 30);
        Sweep::new(&base, axes(&texts(over))?, &presets)
    }

    #[test]
    fn every_combination_is_a_point_and_wholes_come_before_parts() {
        let sweep = sweep(&["pcp.scale_max=1,2", "policy=zonal,linux-6.6", "cpus=2"]).unwrap();
        let labels: Vec<String> = sweep.points.iter().map(|point| sweep.label(point)).collect();
        assert_eq!(labels[0], "pcp.scale_max=1 policy=zonal cpus=2");
        assert_eq!(labels[3], "pcp.scale_max=2 policy=linux-6.6 cpus=2");
        assert_eq!(sweep.points[3].recipe.policy, "linux-6.6+pcp.scale_max=2");
        assert_eq!(sweep.points[3].plan.machine.cpus(), 2);
    }

    #[test]
    fn axes_have_values_that_are_separated_by_commas_or_semicolons() {
        let axes = axes(&texts(&["workload=burst:hold=2,order=1;churn", "seed=1", "seed=2,3"]));
        let axes = axes.unwrap();
        assert_eq!(axes[0].values, ["burst:hold=2,order=1", "churn"]);
        assert_eq!((axes.len(), &*axes[1].values.join(" ")), (2, "1 2 3"));
    }

    #[test]
    fn sweeps_that_cannot_be_are_refused_with_the_axis() {
        for (over, expected) in [
            (&[][..], "an empty sweep"),
            (&["seed="], "--over seed=: no values"),
            (&["seed"], "expected KEY=VALUE,VALUE"),
            (&["seed=1,1"], "1 comes twice"),
            (&["seed=x"], "--over seed=x: seed: 'x'; expected a whole number"),
            (&["policy=nonsense"], "there are zonal"),
            (&["nonsense=1"], "--over nonsense=1: no value to set is called 'nonsense'"),
            (&["pcp.scale_max=99"], "accepted: 0 to 6"),
            (&["cpus=0"], "at cpus=0: "),
        ] {
            let error = sweep(over).unwrap_err().to_string();
            assert!(error.contains(expected), "{over:?}: {error}");
        }
        let many: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
        let over = |key: &str| format!("{key}={}", many.join(","));
        let error = sweep(&[&over("seed"), &over("run_us")]).unwrap_err().to_string();
        assert!(error.contains("more than 1000000 runs"), "{error}");
    }

    #[test]
    fn an_interrupted_sweep_goes_on_and_ends_in_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let run = |over: &[&str], name: &str, threads| {
            let path = folder.path().join(name);
            let result = sweep(over).unwrap().run(&path, threads, &|_| ()).unwrap();
            (result, std::fs::read_to_string(&path).unwrap())
        };
        let over = ["cpus=2,4", "policy=zonal,linux-6.6"];
        let ((rows, done), whole) = run(&over, "a.csv", 2);
        assert_eq!((rows.len(), done), (4, Done { made: 4, found: 0 }));
        let ((_, done), again) = run(&over, "a.csv", 1);
        assert_eq!((done, &again), (Done { made: 0, found: 4 }, &whole));
        // As an interruption leaves it: two rows, and half a line.
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        let torn = format!("{}{}{}{}", lines[0], lines[3], lines[1], &lines[2][..20]);
        std::fs::write(folder.path().join("b.csv"), torn).unwrap();
        let ((_, done), resumed) = run(&over, "b.csv", 2);
        assert_eq!((done, &resumed), (Done { made: 2, found: 2 }, &whole));
        // A larger sweep keeps what the smaller one did, a smaller one keeps the rest.
        let ((rows, done), _) = run(&["cpus=2,4,8", "policy=zonal,linux-6.6"], "b.csv", 2);
        assert_eq!((rows.len(), done), (6, Done { made: 2, found: 4 }));
        let ((rows, done), all) = run(&["cpus=8", "policy=zonal"], "b.csv", 1);
        assert_eq!((rows.len(), done), (1, Done { made: 0, found: 1 }));
        assert_eq!(all.lines().count(), 7);
    }

    #[test]
    fn a_file_that_is_no_sweep_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.csv");
        for text in ["a,b\n1,2\n", "my notes", "machine\n"] {
            std::fs::write(&path, text).unwrap();
            let error = sweep(&["seed=1"]).unwrap().run(&path, 1, &|_| ()).unwrap_err();
            assert!(error.to_string().contains("mine.csv: line 1: "), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = folder.path().join("nowhere/a.csv");
        let error = sweep(&["seed=1"]).unwrap().run(&nowhere, 1, &|_| ()).unwrap_err();
        assert!(error.to_string().contains("a.csv: cannot be written"), "{error}");
    }
}
