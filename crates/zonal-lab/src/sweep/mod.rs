//! Sweeps: a run for every combination of some values.
//!
//! ```text
//!  base recipe + axes ──► points ──► those not in the file yet ──► runs, on several threads
//!                                                                    └► one line each, at once
//!  all done ──► the file again, in the order of the points
//! ```
//! A line is recognised by its key: everything that its run depends on. So an interrupted sweep
//! goes on where it was, a larger one keeps what a smaller one did, and the finished file does not
//! depend on how many threads, processes or interruptions there were.
//!
//! Other processes make rows of their texts ([`Sweep::texts`], [`RowText::run`]) and hand them to
//! one that has the file ([`Sweep::open`]); or each has a [`Shard`] and a file of its own, which
//! [`merge`] joins.

mod file;
mod lock;
mod merge;
mod open;
mod point;
mod row;
mod text;
mod version;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::{LabError, huge, stop};

pub use lock::{Held, hold};
pub use merge::{Join, Merged, extend, merge, write};
pub use open::{Done, Open};
pub use point::{Axis, POINTS_MAX, Point, Shard, Sweep, axes};
pub use row::{Column, Header, Row, column, columns};
pub use text::RowText;
pub use version::version;

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
        self.run_until(path, threads, &AtomicBool::new(false), progress)
    }

    /// The same, and begins no further run once `stop` is set: the rows that there are then are
    /// written and returned.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until(
        &self,
        path: &Path,
        threads: usize,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<(Vec<Row>, Done), LabError> {
        let open = self.open(path)?;
        let missing: Vec<usize> = open.missing().collect();
        progress(open.found());
        let open = Mutex::new(open);
        let broken = || LabError::Plan("a run of the sweep broke off; its rows are kept".into());
        let (next, failed, heard) = (AtomicUsize::new(0), AtomicBool::new(false), &stop::heard());
        // Relaxed: the counter hands out numbers and nothing else, the flags are hints to stop.
        let work = || -> Result<(), LabError> {
            while !failed.load(Relaxed) && !stop.load(Relaxed) {
                let Some(&at) = missing.get(next.fetch_add(1, Relaxed)) else { break };
                let made = heard
                    .run(|| self.text(at).run())
                    .and_then(|row| open.lock().map_err(|_| broken())?.add(at, row));
                made.inspect_err(|_| failed.store(true, Relaxed))?;
                progress(1);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..threads.max(1)).map(|_| scope.spawn(|| huge::keeping(work))).collect();
            let ended = workers.into_iter().map(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(_) => Err(broken()),
            });
            ended.collect::<Vec<_>>().into_iter().collect::<Result<(), LabError>>()
        })?;
        open.into_inner().map_err(|_| broken())?.finish()
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
        assert_eq!(sweep.points[3].recipe.machine, "xeon-2007-8@2");
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
        let base = Recipe::new("xeon-2007-8", "nonsense", "burst");
        let over = axes(&texts(&["policy=zonal"])).unwrap();
        let error = Sweep::new(&base, over, &presets).unwrap_err().to_string();
        assert!(error.contains("no policy is called 'nonsense'"), "{error}");
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

    #[test]
    fn a_row_is_made_of_its_text_alone() {
        let sweep = sweep(&["cpus=2,4", "seed=1,2"]).unwrap();
        let texts: Vec<String> = sweep.texts().collect();
        let folder = tempfile::tempdir().unwrap();
        let (rows, _) = sweep.run(&folder.path().join("a.csv"), 1, &|_| ()).unwrap();
        for (text, row) in texts.iter().zip(&rows) {
            // The machine is no preset (2048 MiB), so that its file is part of the text.
            let mut made = RowText::parse(text).unwrap().run().unwrap();
            assert_ne!(made, *row);
            made.relabel(row.get("point").unwrap());
            assert_eq!(made, *row);
        }
        let text = RowText::parse(&texts[0]).unwrap();
        assert!(text.machine_toml.is_some());
        for (changed, expected) in [
            (RowText { machine_toml: None, ..text.clone() }, "expected the same figures"),
            (RowText { file_id: "abc".into(), ..text.clone() }, "expected the same bytes"),
            (RowText { run_us: 0, ..text.clone() }, "run_us: 0; expected 1"),
            (RowText { policy: "x".into(), ..text.clone() }, "no policy is called 'x'"),
        ] {
            let error = changed.run().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (line, expected) in [
            ("zonal lab once".to_owned(), "expected a line of `zonal lab sweep --list`"),
            (texts[0].replace(version(), "0.0.1+x"), "a row of zonal 0.0.1+x; this is zonal"),
            (texts[0].replace("seed", "sead"), "unknown field `sead`"),
        ] {
            let error = RowText::parse(&line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn recipes_that_differ_anywhere_have_different_keys_and_come_back_whole() {
        let mut base = Recipe::new("xeon-2007-8", "zonal", "burst:hold=16");
        (base.warm_us, base.run_us) = (10, 30);
        // A field that is added to a recipe must be added here: there is no `..`.
        let Recipe { machine, policy, workload, variant, busy, seed, warm_us, run_us } =
            base.clone();
        assert_eq!((&*variant, busy), ("", None));
        let texts = [
            ("machine", format!("{machine}@4")),
            ("policy", format!("{policy}+pcp.scale_max=2")),
            ("workload", workload.replace("16", "17")),
            ("variant", "refresh-aligned".into()),
            ("busy", "3".into()),
            ("seed", (seed + 1).to_string()),
            ("warm_us", (warm_us + 1).to_string()),
            ("run_us", (run_us + 1).to_string()),
        ];
        let mut keys = std::collections::BTreeSet::new();
        for (key, value) in texts {
            let mut recipe = base.clone();
            recipe.set(key, &value).unwrap();
            assert_ne!(recipe, base, "{key}");
            let axes = vec![Axis { key: key.into(), values: vec![value] }];
            let text = Sweep::new(&base, axes, &presets).unwrap().text(0);
            assert_eq!(text.recipe(), recipe, "{key}");
            let line = serde_json::to_string(&text).unwrap();
            assert_eq!(RowText::parse(&line).unwrap(), text, "{key}");
            assert!(keys.insert(Row::key_of(&text.key())), "{key}");
        }
    }

    #[test]
    fn rows_of_a_variant_are_made_with_it_and_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let plain = sweep(&["seed=1"]).unwrap();
        plain.run(&path, 1, &|_| ()).unwrap();
        let two = sweep(&["variant=zones=2;singles-apart"]).unwrap();
        let (rows, done) = two.run(&path, 1, &|_| ()).unwrap();
        assert_eq!(done, Done { made: 2, found: 0 });
        let mut base = Recipe::new("xeon-2007-8", "zonal", "burst:hold=16");
        (base.warm_us, base.run_us) = (10, 30);
        for (row, variant) in rows.iter().zip(["zones=2", "singles-apart"]) {
            base.set("variant", variant).unwrap();
            let figures = base.plan(&presets).unwrap().run().unwrap();
            assert_eq!(row.get("result_hash"), Some(&*figures.hash), "{variant}");
            assert_eq!(row.get("command"), Some(&*base.command()));
        }
        assert_ne!(rows[0].get("result_hash"), rows[1].get("result_hash"));
        let (_, done) = two.run(&path, 1, &|_| ()).unwrap();
        assert_eq!(done, Done { made: 0, found: 2 });
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
    }

    #[test]
    fn shards_have_each_point_once_and_merge_into_the_file_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let over = ["cpus=2,4,8", "policy=zonal,linux-6.6"];
        let whole = sweep(&over).unwrap();
        whole.run(&path("whole.csv"), 2, &|_| ()).unwrap();
        let parts: Vec<_> = (1..=4).map(|number| path(&format!("{number}.csv"))).collect();
        for (number, part) in parts.iter().enumerate() {
            let shard = format!("{}/4", number + 1).parse().unwrap();
            sweep(&over).unwrap().shard(shard).run(part, 1, &|_| ()).unwrap();
        }
        let some = merge(&parts[1..], Some(&whole)).unwrap();
        assert_eq!((some.rows.len(), some.missing), (4, vec![0, 4]));
        let all = merge(&[&parts[..], &parts[..1]].concat(), Some(&whole)).unwrap();
        assert_eq!(all.missing, [0; 0]);
        write(&path("all.csv"), &all.rows).unwrap();
        let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!(text("all.csv"), text("whole.csv"));
        assert_eq!(merge(&parts, None).unwrap().rows.len(), 6);
        for bad in ["0/4", "5/4", "1", "x/2", "1/0", ""] {
            let error = bad.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains("expected I/N"), "{bad}: {error}");
        }
        let error = merge(&[path("no.csv")], None).unwrap_err().to_string();
        assert!(error.contains("no.csv: there is no such file"), "{error}");
        let error = merge(&[folder.path().to_owned()], None).unwrap_err().to_string();
        assert!(error.contains(": this is a directory; expected the files in it"), "{error}");
        let error = merge(&["/dev/null".into()], None).unwrap_err().to_string();
        assert!(error.contains("/dev/null: this is no regular file"), "{error}");
    }

    #[test]
    fn rows_that_contradict_are_damaged_or_of_another_version_are_refused_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let sweep = sweep(&["seed=1,2"]).unwrap();
        sweep.run(&path, 1, &|_| ()).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = good.lines().collect();
        let hash = lines[1].rsplit(',').nth(1).unwrap_or_default();
        let twice = format!("{good}{}\n", lines[1]);
        std::fs::write(&path, &twice).unwrap();
        sweep.run(&path, 1, &|_| ()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), good, "the same row twice is one row");
        let other = hash.chars().rev().collect::<String>();
        for (bad, expected) in [
            (format!("{good}{}\n", lines[1].replace(hash, &other)), "line 4: a second row of"),
            (good.replace(version(), "0.0.1"), "line 2: a row of zonal 0.0.1; this is zonal"),
            (good.replace(hash, "beef"), "line 2: column result_hash: 'beef'"),
            (
                good.replace(lines[2], &lines[2].replace(",8,1,", ",8,one,")),
                "line 3: column nodes: 'one'",
            ),
            (format!("{good}a,b\n"), "line 4: 2 fields; expected"),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let error = sweep.run(&path, 1, &|_| ()).unwrap_err().to_string();
            assert!(error.contains(&format!("a.csv: {expected}")), "{expected}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad, "it is left alone");
        }
    }

    #[test]
    fn one_process_at_a_time_has_a_file_and_a_stop_leaves_a_valid_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let sweep = sweep(&["seed=1,2,3,4,5"]).unwrap();
        let mut open = sweep.open(&path).unwrap();
        let error = sweep.open(&path).unwrap_err().to_string();
        assert!(error.contains("another sweep is writing it"), "{error}");
        let row = sweep.text(3).run().unwrap();
        let error = open.add(2, row.clone()).unwrap_err().to_string();
        assert!(error.contains("--seed 4") && error.contains("--seed 3"), "{error}");
        open.add(3, row.clone()).unwrap();
        open.add(3, row).unwrap();
        drop(open);
        assert_eq!(sweep.open(&path).unwrap().missing().collect::<Vec<_>>(), [0, 1, 2, 4]);
        let stop = AtomicBool::new(false);
        // The first call tells of the row that was found; the stop comes with it.
        let (rows, done) =
            sweep.run_until(&path, 1, &stop, &|_| stop.store(true, Relaxed)).unwrap();
        assert_eq!((rows.len(), done), (1, Done { made: 0, found: 1 }));
        let (rows, done) = sweep.run(&path, 2, &|_| ()).unwrap();
        assert_eq!((rows.len(), done.made + done.found), (5, 5));
    }
}
