//! Memory of a process after a burst: 512 MiB of a pool are touched and freed at once, and the pool
//! is to give 256 MiB a second back to the operating system.
//!
//! ```text
//! cargo run --release -p zonal --example burst
//! ```

use std::time::{Duration, Instant};

use zonal::{Order, Pool};

const MIB: usize = 1 << 20;

/// What the process has in memory, in MiB.
fn resident() -> Result<usize, Box<dyn std::error::Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).ok_or("no second field")?.parse()?;
    Ok(pages * 4096 / MIB)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(512 * MIB).trim_rate(256 * MIB).build()?;
    println!("before the burst {:>4} MiB", resident()?);
    let mut pages: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::ZERO).ok()).collect();
    pages.iter_mut().for_each(|page| page[0] = 1);
    println!("at its top       {:>4} MiB", resident()?);
    // In an order that leaves pages of every 2 MiB on the lists.
    pages.sort_by_key(|page| (page.as_ptr() as usize >> 12) % 509);
    drop(pages);
    let end = Instant::now();
    for half_seconds in 0..10 {
        let due = end + Duration::from_millis(500) * half_seconds;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let lists = pool.held().lists as usize / MIB;
        println!("{:>4} ms later    {:>4} MiB, {lists} on lists", half_seconds * 500, resident()?);
    }
    Ok(())
}
