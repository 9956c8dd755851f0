//! How long it takes until a large pool is in memory: by one thread, and by one on each CPU of each
//! node.
//!
//! ```text
//! cargo run --release -p zonal --example prefault [MiB]
//! ```

use std::time::{Duration, Instant};

use zonal::{Builder, Pool};

fn build(builder: Builder) -> Result<Duration, zonal::BuildError> {
    let start = Instant::now();
    let pool = builder.build()?;
    let took = start.elapsed();
    drop(pool);
    Ok(took)
}

/// Times of one thread and of many, in turn.
fn measure(mib: usize, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    for round in 0..rounds {
        let builder = Pool::builder().size(mib << 20);
        let one = build(builder.clone().prefault(true))?;
        let many = build(builder.prefault_parallel().on_prefault(move |now| {
            if round == 0 && now.done == now.total {
                println!("{} MiB in memory", now.total >> 20);
            }
        }))?;
        let ratio = one.as_secs_f64() / many.as_secs_f64();
        println!("one thread {one:.2?}, one on each CPU {many:.2?}: {ratio:.2} times as fast");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib = std::env::args().nth(1).map_or(Ok(1024), |mib| mib.parse())?;
    measure(mib, 5)
}

#[test]
fn runs() {
    measure(64, 1).unwrap();
}
