//! Ranges of exactly as many pages as are asked for, beside blocks of the next power of two.
//!
//! One thread keeps `HELD` of them; each step frees the oldest and allocates the next of a fixed
//! program, of 3 to 511 pages, none a power of two. Only `zonal` runs it. What it does not show:
//! several threads, ranges above 4 MiB, a pool that is nearly full.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zonal::{Gfp, Order, Pool, RangeRequest};

use crate::cell::{Bench, Cell};
use crate::crew::Crew;
use crate::plan::Options;
use crate::row::Report;
use crate::turns::{self, Way};
use crate::words::split_mix;

const POOL_BYTES: usize = 256 << 20;
/// Blocks that are held at once.
const HELD: usize = 64;
/// Steps of the program.
const STEPS: usize = 4096;

/// Measures both ways and appends their rows, if the options ask for them.
pub fn measure(options: &Options, crew: &Arc<Crew>, report: &mut Report) {
    turns::measure(options, Bench::Ranges, report, || {
        let length = options.slot / 4;
        let exact = Holder::new(Exact)?.way(crew, length, ["zonal", "zonal-again"])?;
        let names = ["zonal-pow2", "zonal-pow2-again"];
        Ok([exact, Holder::new(PowersOfTwo)?.way(crew, length, names)?])
    });
}

/// How pages in a row are had.
trait Take: Copy + Send + Sync + 'static {
    fn take(self, pool: &Pool, pages: usize) -> Option<NonNull<u8>>;
    /// # Safety
    /// 1. What `take` of this pool returned for as many pages; not given back yet, and unused.
    unsafe fn give(self, pool: &Pool, start: NonNull<u8>, pages: usize) -> bool;
}

#[derive(Clone, Copy)]
struct Exact;

impl Take for Exact {
    fn take(self, pool: &Pool, pages: usize) -> Option<NonNull<u8>> {
        pool.ranges().alloc_raw(RangeRequest::new(pages as u64)).ok()
    }
    unsafe fn give(self, pool: &Pool, start: NonNull<u8>, pages: usize) -> bool {
        // SAFETY: (1) this function's contract.
        unsafe { pool.ranges().free_raw(start, pages) }.is_ok()
    }
}

#[derive(Clone, Copy)]
struct PowersOfTwo;

impl PowersOfTwo {
    fn order(pages: usize) -> Order {
        Order::new(pages.next_power_of_two().trailing_zeros()).unwrap_or(Order::MAX)
    }
}

impl Take for PowersOfTwo {
    fn take(self, pool: &Pool, pages: usize) -> Option<NonNull<u8>> {
        pool.alloc_pages(PowersOfTwo::order(pages), Gfp::KERNEL).ok()
    }
    unsafe fn give(self, pool: &Pool, start: NonNull<u8>, pages: usize) -> bool {
        // SAFETY: (1) this function's contract.
        unsafe { pool.free_pages(start, PowersOfTwo::order(pages)) }.is_ok()
    }
}

/// A pool, and what a thread holds of it.
struct Holder<T> {
    how: T,
    pool: Pool,
    program: Vec<usize>,
    /// Addresses of the blocks held, with their pages; the oldest is at `step % HELD`.
    held: Vec<(usize, usize)>,
    step: usize,
}

impl<T: Take> Holder<T> {
    fn new(how: T) -> Result<Holder<T>, String> {
        let pool = Pool::builder().size(POOL_BYTES).prefault(true).build();
        let pool = pool.map_err(|error| error.to_string())?;
        Ok(Holder { how, pool, program: program(), held: Vec::with_capacity(HELD), step: 0 })
    }

    /// Fills what is held. Pages handed out for each page asked for, as the pool counts them.
    fn fill(&mut self) -> Result<f64, String> {
        let before = self.pool.free_page_count();
        let mut asked = 0;
        while self.held.len() < HELD {
            let pages = self.program[self.step];
            let start = self.how.take(&self.pool, pages).ok_or("a request was refused")?;
            self.held.push((start.as_ptr() as usize, pages));
            self.step += 1;
            asked += pages;
        }
        let handed_out = before.saturating_sub(self.pool.free_page_count());
        Ok(handed_out as f64 / asked as f64)
    }

    /// Steps for so long. Nanoseconds of each.
    fn run(&mut self, length: Duration) -> Result<f64, String> {
        let start = Instant::now();
        let mut steps = 0_u32;
        while !steps.is_multiple_of(64) || start.elapsed() < length || steps == 0 {
            let place = self.step % HELD;
            let (oldest, pages) = self.held[place];
            let oldest = NonNull::new(oldest as *mut u8).ok_or("a block at null")?;
            // SAFETY: (1) it was held until now, and nobody writes to it.
            let freed = unsafe { self.how.give(&self.pool, oldest, pages) };
            let pages = self.program[self.step % STEPS];
            let next = self.how.take(&self.pool, pages).filter(|_| freed);
            let next = next.ok_or("a request was refused")?;
            self.held[place] = (next.as_ptr() as usize, pages);
            self.step += 1;
            steps += 1;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(steps))
    }

    /// This way, whose rounds run on the crew's first thread.
    fn way(
        mut self,
        crew: &Arc<Crew>,
        length: Duration,
        names: [&'static str; 2],
    ) -> Result<Way, String> {
        let pages_for_each = Some(self.fill()?);
        // Warm, and every path has run.
        self.run(length)?;
        let (crew, this) = (Arc::clone(crew), Arc::new(std::sync::Mutex::new(self)));
        let round = move || {
            let this = Arc::clone(&this);
            let work = move |_: usize| {
                let mut this = this.lock().map_err(|_| "a round before this one panicked")?;
                this.run(length)
            };
            let mut done = crew.run(1, true, Arc::new(work)).map_err(|error| error.to_string())?;
            done.pop().unwrap_or(Err("no thread ran".to_owned()))
        };
        let cell =
            Cell { bench: Bench::Ranges, threads: 1, pinned: true, order: 0, touched: false };
        Ok(Way { names, cell, pages_for_each, round: Box::new(round) })
    }
}

/// Sizes in pages: each power of two from 2 to 256 as often as any other, and evenly above it.
fn program() -> Vec<usize> {
    let mut state = 0x7261_6e67;
    let size = |_| {
        let below = 2_u64 << (split_mix(&mut state) % 8);
        (below + 1 + split_mix(&mut state) % (below - 1)) as usize
    };
    (0..STEPS).map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_size_is_a_power_of_two_and_each_is_within_its_bounds() {
        let program = program();
        assert!(program.iter().all(|pages| (3..512).contains(pages)));
        assert!(program.iter().all(|pages| !pages.is_power_of_two()));
        assert!(program.iter().any(|pages| *pages < 8) && program.iter().any(|p| *p > 256));
    }
}
