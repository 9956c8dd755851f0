//! Runs of an experiment's rows side by side.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use super::table::Progress;
use crate::LabError;
use crate::huge;
use crate::stop;

/// What `one` makes of every row, on as many threads as the machine has CPUs; the result does not
/// depend on it. `one` says `looked` after each of its `looks` parts. After an error no other row
/// is begun.
pub(super) fn all<R: Sync, T: Send>(
    rows: &[R],
    looks: u64,
    progress: Progress<'_>,
    one: impl Fn(&R, &mut dyn FnMut()) -> Result<T, LabError> + Sync,
) -> Result<Vec<T>, LabError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(rows.len());
    let next = Mutex::new(0..rows.len());
    let (send, receive) = mpsc::channel();
    let total = rows.len() as u64 * looks;
    let stop = &stop::heard();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next, one) = (send.clone(), &next, &one);
            let work = move || {
                let take = || next.lock().ok().and_then(|mut rows| rows.next());
                while let Some(at) = take().filter(|_| !stop.is_asked()) {
                    let mut looked = || drop(send.send(None));
                    let run = stop.run(|| one(&rows[at], &mut looked));
                    if let (true, Ok(mut rows)) = (run.is_err(), next.lock()) {
                        // Nobody will see the others.
                        rows.start = rows.end;
                    }
                    drop(send.send(Some((at, run))));
                }
            };
            scope.spawn(|| huge::keeping(work));
        }
        drop(send);
        let mut done = 0;
        let mut runs: Vec<Option<T>> = rows.iter().map(|_| None).collect();
        for message in receive {
            match message {
                None => {
                    done += 1;
                    progress(done, total);
                }
                Some((at, run)) => runs[at] = Some(run?),
            }
        }
        // Rows that were not begun because of that are missing.
        stop::check();
        Ok(runs.into_iter().flatten().collect())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    #[test]
    fn after_an_error_no_other_row_is_begun() {
        let (rows, played) = ([0; 5000], AtomicUsize::new(0));
        let failed = all(&rows, 0, &mut |_, _| {}, |_, _| -> Result<(), LabError> {
            if played.fetch_add(1, Relaxed) == 0 {
                return Err(LabError::Kept("no room".into()));
            }
            thread::sleep(Duration::from_millis(1));
            Ok(())
        });
        assert!(matches!(failed, Err(LabError::Kept(_))));
        assert!(played.into_inner() < rows.len());
    }
}
