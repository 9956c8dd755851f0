//! The worker threads: started once, used for every burst.
//!
//! Thread caches (of mimalloc, jemalloc, a thread-local Vec) live as long as their thread, so a
//! thread per burst would measure cold caches. Worker `i` is the same thread in every burst.
//! Workers sleep in `recv` between bursts and cost nothing there.

use crate::cpus::{Cpus, restrict_thread};
use crate::error::BenchError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A set of persistent worker threads, shared by all subjects of a process.
pub struct Crew {
    cpus: Cpus,
    workers: Mutex<Vec<Sender<Job>>>,
}

impl Crew {
    /// A crew for `cpus`; its threads start when first needed.
    pub fn new(cpus: Cpus) -> Crew {
        Crew { cpus, workers: Mutex::new(Vec::new()) }
    }

    /// The CPUs that pinned workers run on.
    pub fn cpus(&self) -> &Cpus {
        &self.cpus
    }

    /// Runs `work(index)` on `threads` workers at once and returns their results by index.
    /// Pinned worker `i` runs on `cpus().pin(i)`, unpinned ones wherever the scheduler likes.
    ///
    /// # Errors
    /// [`BenchError::WorkerGone`] if a worker panicked.
    ///
    /// # Panics
    /// If more pinned workers are asked for than there are CPUs: the plan never does.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        threads: usize,
        pinned: bool,
        work: Arc<dyn Fn(usize) -> R + Send + Sync>,
    ) -> Result<Vec<R>, BenchError> {
        assert!(!pinned || threads <= self.cpus.count(), "{threads} pinned threads");
        let (done, results) = channel();
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() < threads {
            workers.push(start_worker()?);
        }
        for (index, worker) in workers.iter().take(threads).enumerate() {
            let (work, done) = (Arc::clone(&work), done.clone());
            let home = if pinned { vec![self.cpus.pin(index)] } else { self.cpus.all().to_vec() };
            let job: Job = Box::new(move || {
                restrict_thread(&home);
                // The receiver is gone only when another worker panicked: nothing to tell.
                let _ = done.send((index, work(index)));
            });
            worker.send(job).map_err(|_| BenchError::WorkerGone)?;
        }
        drop(done);
        let mut answers: Vec<(usize, R)> = results.iter().collect();
        if answers.len() != threads {
            return Err(BenchError::WorkerGone);
        }
        answers.sort_by_key(|&(index, _)| index);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

fn start_worker() -> Result<Sender<Job>, BenchError> {
    let (sender, jobs) = channel::<Job>();
    let body = move || {
        for job in jobs {
            job();
        }
    };
    thread::Builder::new()
        .name("bench".into())
        .spawn(body)
        .map_err(|source| BenchError::Os { what: "starting a worker thread", source })?;
    Ok(sender)
}

/// All workers of a burst leave `wait` together.
pub(crate) struct Gate {
    arrived: AtomicUsize,
    expected: usize,
}

impl Gate {
    pub(crate) fn new(expected: usize) -> Gate {
        Gate { arrived: AtomicUsize::new(0), expected }
    }

    /// Spins, because waking from a futex would start the threads microseconds apart; yields now
    /// and then, because oversubscribed the thread waited for may need this very CPU.
    pub(crate) fn wait(&self) {
        // AcqRel: pairs with the Acquire load below in the other workers.
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0u32;
        // Acquire: pairs with the AcqRel increment of every other worker.
        while self.arrived.load(Ordering::Acquire) < self.expected {
            spins += 1;
            if spins.is_multiple_of(1024) {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_by_worker_index() {
        let crew = Crew::new(Cpus::of_process());
        let answers = crew.run(4, false, Arc::new(|index| index * 10)).unwrap();
        assert_eq!(answers, [0, 10, 20, 30]);
    }

    #[test]
    fn a_panicking_worker_is_an_error() {
        let crew = Crew::new(Cpus::of_process());
        let answers = crew.run::<()>(1, false, Arc::new(|_| panic!("on purpose, by this test")));
        assert!(matches!(answers, Err(BenchError::WorkerGone)));
    }
}
