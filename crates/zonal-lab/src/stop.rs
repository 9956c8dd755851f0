//! Ends a long call of the lab from another thread.
//!
//! A call runs within [`Stop::run`]. Its threads look at the request to stop every few hundred
//! steps of a simulated CPU, and unwind: what the call had made is dropped, as after an error. A
//! sweep keeps the rows that are in its file.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::LabError;

thread_local! {
    /// The request that this thread's call listens to.
    static HEARD: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// A request to stop, shared by its clones.
///
/// ```
/// use zonal_lab::{LabError, Stop};
/// use zonal_lab::machine::Machine;
/// use zonal_lab::recipe::Recipe;
///
/// let stop = Stop::new();
/// let other = stop.clone();
/// let asking = std::thread::spawn(move || other.ask());
/// let recipe = Recipe::new("broadwell-2017-88", "zonal", "churn");
/// let run = stop.run(|| recipe.plan(&|name| Ok(Machine::named(name)?))?.run());
/// asking.join().unwrap();
/// assert!(matches!(run, Ok(_) | Err(LabError::Stopped)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// What a stopped thread unwinds with.
struct Stopped;

impl Stop {
    /// A request that nobody has made yet.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Makes it. It cannot be taken back.
    pub fn ask(&self) {
        // Relaxed: a hint; what the stopped threads wrote is read after they were joined.
        self.0.store(true, Relaxed);
    }

    /// Whether it was made.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Makes a call of the lab that ends soon after the request was made.
    ///
    /// # Errors
    /// [`LabError::Stopped`], or what `call` returns.
    pub fn run<T>(&self, call: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        let before = HEARD.replace(Some(self.clone()));
        // A stopped call leaves nothing that is used again but files, which are whole at each line.
        let result = catch_unwind(AssertUnwindSafe(call));
        HEARD.set(before);
        match result {
            Ok(result) => result,
            Err(payload) if payload.is::<Stopped>() => Err(LabError::Stopped),
            Err(payload) => resume_unwind(payload),
        }
    }
}

/// What another thread of this call needs to listen, too: makes part of the call there.
pub(crate) fn heard() -> Stop {
    HEARD.with_borrow(|stop| stop.clone().unwrap_or_default())
}

/// Unwinds if this thread's call should stop.
pub(crate) fn check() {
    if HEARD.with_borrow(|stop| stop.as_ref().is_some_and(Stop::is_asked)) {
        resume_unwind(Box::new(Stopped));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::{EXPERIMENTS, Options};
    use crate::machine::Machine;
    use crate::recipe::Recipe;
    use crate::sweep::{Axis, Sweep};

    fn machines(name: &str) -> Result<Machine, LabError> {
        Ok(Machine::named(name)?)
    }

    /// A run of ten minutes, which nobody waits for.
    fn endless() -> Recipe {
        let mut recipe = Recipe::new("xeon-2007-8", "zonal", "churn");
        recipe.set("run_us", "600000000").unwrap();
        recipe
    }

    fn asked_soon() -> Stop {
        let stop = Stop::new();
        let asking = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            asking.ask();
        });
        stop
    }

    #[test]
    fn a_run_and_a_comparison_of_ten_minutes_end_when_they_are_asked_to() {
        let recipe = endless();
        let run = asked_soon().run(|| recipe.plan(&machines)?.run().map(drop));
        assert!(matches!(run, Err(LabError::Stopped)), "{run:?}");
        let both = ["zonal", "linux-6.6"];
        let compared = asked_soon().run(|| crate::compare::compare(&recipe, both, &machines));
        assert!(matches!(compared, Err(LabError::Stopped)), "{compared:?}");
    }

    #[test]
    fn a_stopped_sweep_keeps_its_file_and_goes_on_from_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let sweep = |recipe: &Recipe| {
            let axis = Axis { key: "seed".into(), values: vec!["1".into(), "2".into()] };
            Sweep::new(recipe, vec![axis], &machines).unwrap()
        };
        let stopped = asked_soon().run(|| sweep(&endless()).run(&path, 2, &|_| {}).map(drop));
        assert!(matches!(stopped, Err(LabError::Stopped)), "{stopped:?}");
        let mut short = endless();
        short.set("run_us", "100").unwrap();
        let (rows, done) = sweep(&short).run(&path, 2, &|_| {}).unwrap();
        assert_eq!((rows.len(), done.made), (2, 2));
    }

    #[test]
    fn every_experiment_ends_when_it_is_asked_to() {
        for experiment in EXPERIMENTS {
            let stop = Stop::new();
            stop.ask();
            let options = Options::seeded(1);
            let run = stop.run(|| experiment.run(&options, &mut |_, _| {}).map(drop));
            assert!(matches!(run, Err(LabError::Stopped)), "{}: {run:?}", experiment.name);
        }
    }

    #[test]
    fn a_panic_within_is_not_taken_for_a_stop() {
        let stop = Stop::new();
        let call = || stop.run::<()>(|| resume_unwind(Box::new("a defect")));
        let payload = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"a defect"));
    }
}
