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
mod point;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::LabError;

pub use file::{Header, Row, columns};
pub use point::{Axis, POINTS_MAX, Point, Sweep, axes};

/// What became of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Runs made.
    pub made: usize,
    /// Runs that were in the file already.
    pub found: usize,
}

impl Sweep {
    /// Makes the runs that are not in the file at `path` yet on `threads` threads, then rewrites
    /// the file in the order of the points. `progress` hears of each row, found or made.
    ///
    /// # Errors
    /// The file is not of a sweep or cannot be written, or a run is invalid.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::recipe::Recipe;

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
        // A larger sweep reuses the runs of a smaller one, and a smaller one keeps the rest.
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
