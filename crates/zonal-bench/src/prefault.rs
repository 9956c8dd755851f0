//! How long it takes until a pool is in memory: by a thread on each CPU of each node, beside one.
//!
//! An operation is a page. A round makes a pool and drops it; only the making counts. What it does
//! not show: several nodes, where each thread also runs beside its memory; a pool of hundreds of
//! GiB.

use std::time::Instant;

use zonal::Pool;

use crate::cell::{Bench, Cell};
use crate::crew::Crew;
use crate::plan::Options;
use crate::row::Report;
use crate::subject::PAGE;
use crate::turns::{self, Way};

/// Bytes of the pool; in a quick run a quarter.
const POOL_BYTES: usize = 256 << 20;

/// Measures both ways and appends their rows, if the options ask for them.
pub fn measure(options: &Options, crew: &Crew, report: &mut Report) {
    let bytes = if options.quick { POOL_BYTES / 4 } else { POOL_BYTES };
    turns::measure(options, Bench::Prefault, report, || {
        let many = crew.cpus().count() as u32;
        Ok([
            way(["zonal", "zonal-again"], bytes, many),
            way(["zonal-one", "zonal-one-again"], bytes, 1),
        ])
    });
}

fn way(names: [&'static str; 2], bytes: usize, threads: u32) -> Way {
    let round = move || {
        let builder = Pool::builder().size(bytes);
        let builder =
            if threads == 1 { builder.prefault(true) } else { builder.prefault_parallel() };
        let start = Instant::now();
        let pool = builder.build().map_err(|error| error.to_string())?;
        let took = start.elapsed();
        drop(pool);
        Ok(took.as_nanos() as f64 / (bytes / PAGE) as f64)
    };
    let cell = Cell { bench: Bench::Prefault, threads, pinned: false, order: 0, touched: true };
    Way { names, cell, pages_for_each: None, round: Box::new(round) }
}
