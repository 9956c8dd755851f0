//! A page that owns its pool beside one that borrows it: allocated and freed in turn, by one
//! thread, of the same pool. Only `zonal` runs it. What it does not show: blocks that outlive the
//! last handle, whose frees take a lock.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zonal::{Order, Pool};

use crate::cell::{Bench, Cell};
use crate::crew::Crew;
use crate::plan::Options;
use crate::row::Report;
use crate::turns::{self, Way};

const POOL_BYTES: usize = 64 << 20;
/// Pairs of a burst, between two looks at the clock.
const PAIRS: u32 = 4096;

/// Measures both ways and appends their rows, if the options ask for them.
pub fn measure(options: &Options, crew: &Arc<Crew>, report: &mut Report) {
    turns::measure(options, Bench::Owned, report, || {
        let pool = Pool::builder().size(POOL_BYTES).prefault(true).build();
        let pool = pool.map_err(|error| error.to_string())?;
        let length = options.slot / 4;
        let names = ["zonal-borrowed", "zonal-borrowed-again"];
        Ok([
            way::<true>(&pool, crew, length, ["zonal", "zonal-again"])?,
            way::<false>(&pool, crew, length, names)?,
        ])
    });
}

fn way<const OWNED: bool>(
    pool: &Pool,
    crew: &Arc<Crew>,
    length: Duration,
    names: [&'static str; 2],
) -> Result<Way, String> {
    let (pool, crew) = (pool.clone(), Arc::clone(crew));
    let round = move || {
        let pool = pool.clone();
        let work = move |_: usize| run::<OWNED>(&pool, length);
        let mut done = crew.run(1, true, Arc::new(work)).map_err(|error| error.to_string())?;
        done.pop().unwrap_or(Err("no thread ran".to_owned()))
    };
    // Warm, and every path has run.
    round()?;
    let cell = Cell { bench: Bench::Owned, threads: 1, pinned: true, order: 0, touched: false };
    Ok(Way { names, cell, pages_for_each: None, round: Box::new(round) })
}

/// Pairs for so long. Nanoseconds of each in the median of the bursts, which are far shorter than
/// the time between two interruptions of a busy machine.
fn run<const OWNED: bool>(pool: &Pool, length: Duration) -> Result<f64, String> {
    let start = Instant::now();
    let mut bursts = Vec::new();
    while bursts.is_empty() || start.elapsed() < length {
        let burst = Instant::now();
        let refused = pairs::<OWNED>(pool);
        bursts.push(burst.elapsed());
        if refused > 0 {
            return Err("a request was refused".to_owned());
        }
    }
    bursts.sort_unstable();
    Ok(bursts[bursts.len() / 2].as_nanos() as f64 / f64::from(PAIRS))
}

#[inline(never)]
fn pairs<const OWNED: bool>(pool: &Pool) -> u32 {
    let pair = |_: &u32| match pool.alloc(Order::ZERO) {
        Ok(page) if OWNED => {
            let page = page.into_owned();
            black_box(page.as_ptr());
            false
        }
        Ok(page) => {
            black_box(page.as_ptr());
            false
        }
        Err(_) => true,
    };
    (0..PAIRS).filter(pair).count() as u32
}
