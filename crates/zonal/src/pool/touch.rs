//! Memory faulted in before anybody has it: at once, or by one thread on each CPU of the node that
//! it belongs to, which is where the kernel then takes it from, and zeroes it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::builder::{Builder, PrefaultProgress};
use super::plan::Plan;
use crate::sys::affinity::{Pinned, allowed_cpus};
use crate::sys::map::{MapError, Mapping, Prefaulted};
use zonal_core::types::CpuId;

/// What a thread faults in at a time: long enough that the system call does not count, short enough
/// that threads end together and progress is seen.
const CHUNK: usize = 32 << 20;

impl Builder {
    /// Faults all memory in before the pool is used, as [`prefault`](Self::prefault), by one thread
    /// on each CPU of each node: a pool of hundreds of gigabytes is ready in seconds. Not together
    /// with [`deferred`](Self::deferred), which has a thread per node.
    ///
    /// ```
    /// let pool = zonal::Pool::builder()
    ///     .size(64 << 20)
    ///     .prefault_parallel()
    ///     .on_prefault(|progress| assert!(progress.done <= progress.total))
    ///     .build()?;
    /// # drop(pool);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefault_parallel(mut self) -> Builder {
        self.prefault = true;
        self.parallel = true;
        self
    }

    /// Called each time that another stretch of memory is faulted in, the last time with all of it.
    /// The calls come from several threads where those fault it in, one call at a time. Never
    /// called for a [`deferred`](Self::deferred) pool.
    pub fn on_prefault(
        mut self,
        progress: impl Fn(PrefaultProgress) + Send + Sync + 'static,
    ) -> Builder {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Memory to be faulted in that nobody else knows yet.
pub(super) struct Touch<'a> {
    pub(super) memory: &'a Mapping,
    pub(super) plan: &'a Plan,
    pub(super) parallel: bool,
}

/// What the threads share.
struct Work<'a> {
    memory: &'a Mapping,
    /// Chunks, by node, and how many of each node were taken.
    nodes: Vec<(Vec<Range<usize>>, AtomicUsize)>,
    /// Somebody failed: no more is to be done.
    failed: AtomicBool,
    outcome: Mutex<Outcome>,
    progress: Option<&'a (dyn Fn(PrefaultProgress) + Send + Sync)>,
}

struct Outcome {
    done: usize,
    how: Result<Prefaulted, MapError>,
}

impl Touch<'_> {
    pub(super) fn all(
        &self,
        progress: Option<&(dyn Fn(PrefaultProgress) + Send + Sync)>,
    ) -> Result<Prefaulted, MapError> {
        let outcome = Mutex::new(Outcome { done: 0, how: Ok(Prefaulted::Populated) });
        let failed = AtomicBool::new(false);
        let work = Work { memory: self.memory, nodes: self.chunks(), failed, outcome, progress };
        if self.parallel {
            self.by_threads(&work);
        }
        // Alone, or what is left where threads could not be had.
        (0..work.nodes.len()).for_each(|node| work.fault_in(node));
        work.outcome.into_inner().unwrap_or_else(PoisonError::into_inner).how
    }

    /// The memory in pieces, by the node of each one's first byte.
    fn chunks(&self) -> Vec<(Vec<Range<usize>>, AtomicUsize)> {
        let mut nodes = Vec::new();
        let bytes = self.memory.bytes();
        for start in (0..bytes).step_by(CHUNK) {
            let node = self.plan.node_at(start);
            if nodes.len() <= node {
                nodes.resize_with(node + 1, || (Vec::new(), AtomicUsize::new(0)));
            }
            nodes[node].0.push(start..(start + CHUNK).min(bytes));
        }
        nodes
    }

    fn by_threads(&self, work: &Work<'_>) {
        // A machine that does not say which CPUs may be used has none for threads of ours.
        let cpus = allowed_cpus().unwrap_or_default();
        std::thread::scope(|scope| {
            for cpu in cpus {
                let Some(node) = self.plan.node_of(cpu) else { continue };
                if !work.has_more(node) {
                    continue;
                }
                let run = move || run_on(cpu, || work.fault_in(node));
                let name = format!("zonal-touch-{}", cpu.0);
                // Who cannot be had is done without.
                let _ = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
            }
        });
    }
}

/// Runs `body` on a CPU, or anywhere if that is refused.
fn run_on(cpu: CpuId, body: impl FnOnce()) {
    let _pinned = Pinned::to(cpu);
    body();
}

impl Work<'_> {
    fn has_more(&self, node: usize) -> bool {
        let chunks = self.nodes.get(node);
        // Relaxed: a guess; `fault_in` finds out.
        chunks.is_some_and(|(chunks, taken)| taken.load(Relaxed) < chunks.len())
    }

    /// Takes chunks of a node until there are no more.
    fn fault_in(&self, node: usize) {
        let Some((chunks, taken)) = self.nodes.get(node) else { return };
        // Relaxed: a stop that is seen late costs a chunk; each number is taken once.
        while !self.failed.load(Relaxed)
            && let Some(range) = chunks.get(taken.fetch_add(1, Relaxed))
        {
            // SAFETY: (1) pools commit all of their memory; (2) nobody else knows the mapping yet,
            // and each chunk is taken once.
            let how = unsafe { self.memory.prefault(range.clone()) };
            self.done(range.len(), how);
        }
    }

    fn done(&self, bytes: usize, how: Result<Prefaulted, MapError>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match how {
            Ok(how) => {
                outcome.done += bytes;
                if how != Prefaulted::Populated && outcome.how.is_ok() {
                    outcome.how = Ok(how);
                }
                let total = self.memory.bytes();
                let progress = PrefaultProgress { done: outcome.done, total };
                self.progress.iter().for_each(|call| call(progress));
            }
            Err(error) => {
                self.failed.store(true, Relaxed);
                outcome.how = Err(error);
            }
        }
    }
}
