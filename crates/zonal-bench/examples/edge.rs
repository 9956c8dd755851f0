//! Two threads with mixed rights at the edge of a pool's memory, while a cache gives up what is
//! asked of it: how much slower than with room to spare, and how long a request that must not wait
//! takes.
//!
//! ```text
//! cargo run --release -p zonal-bench --example edge [SECONDS] [WATERMARK_SCALE_FACTOR]
//! ```
//! Both phases do the same with each page: allocate, write its first byte, put it at the end of a
//! queue. With room to spare the thread frees the oldest page of its queue itself; at the edge the
//! background reclaimer and direct reclaim do, and the pool is always full.
//!
//! What this does not show: more than two threads, other orders, pages that cost something to give
//! up.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zonal::reclaim::{Holdings, PageLru, Pass, Shrunk, Unit};
use zonal::text::Layout;
use zonal::{Gfp, Order, Pool, Sysctl};

const THREADS: usize = 2;
const POOL_BYTES: usize = 256 << 20;
/// Pages that a thread keeps with room to spare: half of the pool for both.
const KEPT: usize = POOL_BYTES / 4096 / 4;
/// `vm.watermark_scale_factor`: 3 % of the pool between two marks. The kernel's 0.1 % is 128 pages
/// here, which are gone before a thread that sleeps can wake up.
const SCALE_FACTOR: i64 = 300;
const RIGHTS: [(Gfp, &str); 4] = [
    (Gfp::KERNEL, "KERNEL"),
    (Gfp::NOWAIT, "NOWAIT"),
    (Gfp::ATOMIC, "ATOMIC"),
    (Gfp::NOFS, "NOFS"),
];

/// Pages in the order they came, a queue per thread.
struct Queues {
    pool: Arc<Pool>,
    queues: [Mutex<VecDeque<usize>>; THREADS],
}

impl Queues {
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

    fn push(&self, queue: usize, page: NonNull<u8>) -> usize {
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
        let half = pages.div_ceil(2) as usize;
        let reclaimed = self.free(0, half) + self.free(1, pages as usize - half);
        Shrunk { scanned: reclaimed, reclaimed, slab: 0 }
    }
    fn shrink_active(&self, _pages: u64, _pass: &Pass) -> u64 {
        0
    }
}

/// What a thread saw: times of single calls in nanoseconds, and refusals, by rights.
#[derive(Default)]
struct Seen {
    times: [Vec<u32>; RIGHTS.len()],
    refused: [u64; RIGHTS.len()],
}

fn work(queues: &Queues, queue: usize, keeps: Option<usize>, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    for step in 0_usize.. {
        if stop.load(Relaxed) {
            break;
        }
        let rights = step % RIGHTS.len();
        let start = Instant::now();
        let got = queues.pool.alloc_pages(Order::ZERO, RIGHTS[rights].0);
        let took = start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32;
        seen.times[rights].push(took);
        let Ok(page) = got else {
            seen.refused[rights] += 1;
            continue;
        };
        // SAFETY: (1) the page was just handed out to this call.
        unsafe { page.as_ptr().write(1) };
        if queues.push(queue, page) > keeps.unwrap_or(usize::MAX) {
            queues.free(queue, 1);
        }
    }
    seen
}

/// One phase. Returns pages per second, and all that was seen.
fn phase(queues: &Queues, keeps: Option<usize>, length: Duration) -> (f64, Seen) {
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let parts: Vec<Seen> = std::thread::scope(|threads| {
        let run = |queue| {
            let stop = &stop;
            threads.spawn(move || work(queues, queue, keeps, stop))
        };
        let workers: Vec<_> = (0..THREADS).map(run).collect();
        std::thread::sleep(length);
        stop.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no thread panics")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut all = Seen::default();
    for part in parts {
        for (rights, times) in part.times.into_iter().enumerate() {
            all.times[rights].extend(times);
            all.refused[rights] += part.refused[rights];
        }
    }
    let asked: usize = all.times.iter().map(Vec::len).sum();
    let served = asked as f64 - all.refused.iter().sum::<u64>() as f64;
    (served / seconds, all)
}

fn print(name: &str, rate: f64, seen: &mut Seen) {
    println!("{name}: {:.2} million pages a second", rate / 1e6);
    for (rights, times) in seen.times.iter_mut().enumerate() {
        times.sort_unstable();
        let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or(0);
        println!(
            "  {:<7} p50 {:>7} ns  p99 {:>7} ns  p99.9 {:>8} ns  refused {:.3} %",
            RIGHTS[rights].1,
            at(0.5),
            at(0.99),
            at(0.999),
            100.0 * seen.refused[rights] as f64 / times.len().max(1) as f64,
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let length = Duration::try_from_secs_f64(seconds)?;
    let pool = Arc::new(Pool::builder().size(POOL_BYTES).prefault(true).build()?);
    let queues = Arc::new(Queues { pool: Arc::clone(&pool), queues: Default::default() });
    println!("{THREADS} threads, pool of {} MiB, {}", POOL_BYTES >> 20, pool.mode());
    let (spare, mut seen) = phase(&queues, Some(KEPT), length);
    print("with room to spare", spare, &mut seen);
    let factor = std::env::args().nth(2).map_or(Ok(SCALE_FACTOR), |text| text.parse())?;
    pool.core().set(Sysctl::WatermarkScaleFactor, factor)?;
    let marks = pool.core().zones()[0].marks();
    println!("marks: min {}, low {}, high {} pages", marks.min, marks.low, marks.high);
    let registered = pool.register_lru(queues.clone());
    // Until it is full.
    phase(&queues, None, length.min(Duration::from_millis(500)));
    let (edge, mut seen) = phase(&queues, None, length);
    print("at the edge", edge, &mut seen);
    println!("{:.2} of the rate with room to spare", edge / spare);
    let vmstat = pool.vmstat(Layout::Linux6_12);
    for name in ["pgsteal_kswapd", "pgsteal_direct", "allocstall_normal", "pageoutrun"] {
        println!("  {name} {}", vmstat.value(name).unwrap_or(0));
    }
    drop(registered);
    (0..THREADS).for_each(|queue| {
        queues.free(queue, usize::MAX);
    });
    pool.validate()?;
    Ok(())
}
