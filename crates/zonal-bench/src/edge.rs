//! Two threads with mixed rights at the edge of a pool's memory, with a cache that gives pages back
//! on request, beside the same with room to spare. Only `zonal` runs it: the peers have no reclaim.
//!
//! Each step is the same on both sides: allocate with the next rights, write the first byte, put
//! the page at the end of the thread's queue. With room to spare (`room`) the thread frees the
//! oldest page of its queue itself; at the edge (`edge`) the background reclaimer and direct
//! reclaim do, and the pool is always full. Rounds of both take turns, so that a busy machine meets
//! both alike; the latencies are those of NOWAIT requests, from rounds of their own.
//!
//! A request that is refused is no operation, and its time counts. What this does not show: more
//! than two threads, other orders, pages that are expensive to reclaim.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal::reclaim::{Holdings, PageLru, Pass, Registration, Shrunk, Unit};
use zonal::{Gfp, Order, Pool};

use crate::cell::{Bench, Cell};
use crate::crew::{Crew, Gate};
use crate::error::BenchError;
use crate::latency::{self, Readings};
use crate::plan::Options;
use crate::rounds::Measured;
use crate::row::{Report, Row, Skip, to_thousandths};
use crate::runner::Burst;

/// The subject of the rows.
pub const SUBJECT: &str = "zonal";
const THREADS: usize = 2;
pub(crate) const POOL_BYTES: usize = 256 << 20;
/// Pages that a thread keeps with room to spare: half of the pool for both.
const KEPT: usize = POOL_BYTES / 4096 / 4;
pub(crate) const RIGHTS: [Gfp; 4] = [Gfp::KERNEL, Gfp::NOWAIT, Gfp::ATOMIC, Gfp::NOFS];
/// Rounds of each side that a median is taken over, at most.
const ROUNDS_MAX: u32 = 11;
/// Rounds with a clock around NOWAIT requests.
const TIMED_ROUNDS: u32 = 4;

/// Measures both sides and appends their rows, if the options ask for one of them.
pub fn measure(options: &Options, crew: &Crew, report: &mut Report) {
    let asked = |bench| options.benches.is_empty() || options.benches.contains(&bench);
    if !(asked(Bench::Edge) || asked(Bench::Room)) || !options.wants(SUBJECT) {
        return;
    }
    let start = Instant::now();
    match sides(options, crew) {
        Ok(rows) => report.rows.extend(rows),
        Err(reason) => report.skipped.push(Skip {
            subject: SUBJECT.into(),
            cell: Some(cell(Bench::Edge).to_string()),
            reason,
            fault: false,
        }),
    }
    report.measured_s = to_thousandths(report.measured_s + start.elapsed().as_secs_f64());
}

fn cell(bench: Bench) -> Cell {
    Cell { bench, threads: THREADS as u32, pinned: true, order: 0, touched: true }
}

fn sides(options: &Options, crew: &Crew) -> Result<[Row; 2], String> {
    if crew.cpus().count() < THREADS {
        return Err(format!("it takes {THREADS} CPUs"));
    }
    let words = |error: BenchError| error.to_string();
    let mut sides = [Side::new(Bench::Room)?, Side::new(Bench::Edge)?];
    // Until both are as full as they stay.
    sides.iter().try_for_each(|side| side.fill(crew)).map_err(words)?;
    for _ in 0..options.rounds.min(ROUNDS_MAX) {
        for side in &mut sides {
            let phase = side.phase(crew, options.slot, false).map_err(words)?;
            side.measured.push(Burst::unjudged(phase.ns_per_op));
        }
    }
    let mut readings = [Vec::new(), Vec::new()];
    for _ in 0..TIMED_ROUNDS {
        for (side, readings) in sides.iter().zip(&mut readings) {
            readings.extend(side.phase(crew, options.slot, true).map_err(words)?.readings);
        }
    }
    for (side, readings) in sides.iter_mut().zip(&readings) {
        side.measured.latency = latency::summarise(readings);
    }
    let [room, edge] = sides.map(|side| side.row());
    let ratio = to_thousandths(edge.ns_per_op / room.ns_per_op);
    Ok([room, Row { ratio_to_limit: Some(ratio), ..edge }])
}

/// A pool, and what its threads hold.
struct Side {
    bench: Bench,
    queues: Arc<Queues>,
    measured: Measured,
    _registered: Option<Registration>,
}

struct Phase {
    ns_per_op: f64,
    readings: Vec<Readings>,
}

impl Side {
    fn new(bench: Bench) -> Result<Side, String> {
        let pool = Pool::builder().size(POOL_BYTES).prefault(true).build();
        let pool = Arc::new(pool.map_err(|error| error.to_string())?);
        let queues = Arc::new(Queues::new(Arc::clone(&pool), THREADS));
        let registered = (bench == Bench::Edge).then(|| pool.register_lru(queues.clone()));
        let measured = Measured::default();
        Ok(Side { bench, queues, measured, _registered: registered })
    }

    fn keeps(&self) -> usize {
        if self.bench == Bench::Room { KEPT } else { usize::MAX }
    }

    fn fill(&self, crew: &Crew) -> Result<(), BenchError> {
        let (queues, keeps) = (Arc::clone(&self.queues), self.keeps());
        let fill = move |index| {
            for step in 0..KEPT * 2 {
                queues.step(index, step, keeps, None);
            }
        };
        crew.run(THREADS, true, Arc::new(fill)).map(drop)
    }

    /// Runs the threads.
    fn phase(&self, crew: &Crew, length: Duration, timed: bool) -> Result<Phase, BenchError> {
        let (queues, keeps) = (Arc::clone(&self.queues), self.keeps());
        let (gate, stop) = (Gate::new(THREADS), AtomicBool::new(false));
        let work = move |index: usize| {
            let mut readings = timed.then(|| Readings::with_room(usize::MAX));
            gate.wait();
            let start = Instant::now();
            let (mut served, mut step) = (0_u64, 0);
            while !stop.load(Relaxed) {
                served += u64::from(queues.step(index, step, keeps, readings.as_mut()));
                step += 1;
                // One thread looks at the clock for both, and not at each step.
                if step.is_multiple_of(256) && index == 0 && start.elapsed() >= length {
                    stop.store(true, Relaxed);
                }
            }
            (start.elapsed().as_nanos() as f64, served, readings)
        };
        let workers = crew.run(THREADS, true, Arc::new(work))?;
        let per_op = |worker: &(f64, u64, Option<Readings>)| worker.0 / worker.1.max(1) as f64;
        let ns_per_op = workers.iter().map(per_op).sum::<f64>() / THREADS as f64;
        let readings = workers.into_iter().filter_map(|worker| worker.2).collect();
        Ok(Phase { ns_per_op, readings })
    }

    fn row(&self) -> Row {
        Row::new(&cell(self.bench), SUBJECT, &self.measured)
    }
}

/// Pages in the order they came, a queue per thread.
pub(crate) struct Queues {
    pub(crate) pool: Arc<Pool>,
    queues: Box<[Mutex<VecDeque<usize>>]>,
}

impl Queues {
    /// A queue for each thread.
    pub(crate) fn new(pool: Arc<Pool>, threads: usize) -> Queues {
        Queues { pool, queues: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// One request. Returns whether it was served.
    fn step(&self, queue: usize, step: usize, keeps: usize, timed: Option<&mut Readings>) -> bool {
        let gfp = RIGHTS[step % RIGHTS.len()];
        let alloc = || self.pool.alloc_pages(Order::ZERO, gfp);
        let got = match timed.filter(|_| gfp == Gfp::NOWAIT) {
            Some(readings) => readings.time(alloc),
            None => alloc(),
        };
        let Ok(page) = got else { return false };
        // SAFETY: (1) the page was just handed out to this call.
        unsafe { page.as_ptr().write(1) };
        if self.push(queue, page) > keeps {
            self.free(queue, 1);
        }
        true
    }

    fn free(&self, queue: usize, pages: usize) -> u64 {
        let mut held = self.queues[queue].lock().unwrap_or_else(PoisonError::into_inner);
        let count = pages.min(held.len());
        let going: Vec<*mut u8> = held.drain(..count).map(|page| page as *mut u8).collect();
        drop(held);
        // SAFETY: (1) the pages were the queue's.
        let freed = unsafe { self.pool.free_bulk(&going, Order::ZERO) };
        freed.expect("each page is on one queue once");
        count as u64
    }

    /// Puts a page at the end; returns how many there are.
    pub(crate) fn push(&self, queue: usize, page: NonNull<u8>) -> usize {
        let mut held = self.queues[queue].lock().unwrap_or_else(PoisonError::into_inner);
        held.push_back(page.as_ptr() as usize);
        held.len()
    }
}

impl PageLru for Queues {
    fn name(&self) -> &str {
        "queues"
    }
    fn holdings(&self, _unit: Unit) -> Holdings {
        let len = |queue: &Mutex<VecDeque<usize>>| {
            queue.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
        };
        let pages = self.queues.iter().map(len).sum();
        Holdings { file: pages, inactive_file: pages, ..Holdings::default() }
    }
    fn shrink_inactive(&self, pages: u64, _pass: &Pass) -> Shrunk {
        let (queues, pages) = (self.queues.len(), pages as usize);
        // As many from each, and no more in all.
        let of = |queue| pages / queues + usize::from(queue < pages % queues);
        let reclaimed = (0..queues).map(|queue| self.free(queue, of(queue))).sum();
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}
