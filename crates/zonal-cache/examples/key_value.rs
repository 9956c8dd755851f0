//! Serves a sorted key-value file that is larger than the memory it may use.
//!
//! The file has 64-byte records in order of their keys. A look-up is a binary search over it, page
//! by page; keys are asked for as popular things are: a few of them very often. The same load runs
//! with caches of several sizes, and the program prints which part of the pages it needed was in
//! memory. In between the whole file is scanned once, which must not push the popular pages out.
//!
//! ```sh
//! cargo run --release -p zonal-cache --example key_value -- [MIB_OF_FILE]
//! ```

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use zonal::Pool;
use zonal_cache::{Cache, CachedFile};

const RECORD: u64 = 64;
const PER_PAGE: u64 = 4096 / RECORD;
const LOOKUPS: u64 = 300_000;

/// A record: its key, and what is stored under it.
fn record(number: u64) -> [u8; RECORD as usize] {
    let mut bytes = [b'.'; RECORD as usize];
    bytes[..8].copy_from_slice(&key(number).to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Keys are in the order of the records, with gaps.
fn key(number: u64) -> u64 {
    number * 1000 + number % 7
}

/// The record with this key: the page by binary search, then the record in it.
fn find(file: &CachedFile, wanted: u64) -> Result<Option<u64>, Box<dyn Error>> {
    let (mut low, mut high) = (0, file.len().div_ceil(4096));
    while low < high {
        let middle = low.midpoint(high);
        // In place: the page stays where it is until `page` goes.
        let page = file.pin(middle)?;
        let key_at = |at: usize| u64::from_be_bytes(page[at..at + 8].try_into().unwrap_or([0; 8]));
        let last = page.len() - RECORD as usize;
        if wanted < key_at(0) {
            high = middle;
        } else if wanted > key_at(last) {
            low = middle + 1;
        } else {
            let mut records = (0..=last).step_by(RECORD as usize);
            return Ok(records.find(|at| key_at(*at) == wanted).map(|at| key_at(at + 8)));
        }
    }
    Ok(None)
}

/// A record number between 0 and `count`, the smaller ones far more often (about as 1/n), spread
/// over the file.
fn popular(random: &mut Pcg64, count: u64) -> u64 {
    let unit = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = ((count as f64).powf(unit) - 1.0) as u64;
    // Popular records share pages, as in a table whose newest rows are read most.
    let page = rank / PER_PAGE * 0x9e37_79b1 % (count / PER_PAGE);
    page * PER_PAGE + rank % PER_PAGE
}

fn main() -> Result<(), Box<dyn Error>> {
    let size: u64 = std::env::args().nth(1).map_or(Ok(64), |mib| mib.parse())?;
    let records = (size << 20) / RECORD;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("table");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path)?);
    (0..records).try_for_each(|number| out.write_all(&record(number)))?;
    out.into_inner()?.sync_all()?;
    println!("{records} records, {size} MiB; {LOOKUPS} look-ups, a scan, {LOOKUPS} look-ups");
    println!(
        "{:>10} {:>10} {:>12} {:>12} {:>12}",
        "pool MiB", "share", "hit rate", "after scan", "look-ups/s"
    );
    for share in [16, 8, 4, 2, 1] {
        let pool = Arc::new(Pool::builder().size(((size << 20) / share) as usize).build()?);
        let cache = Cache::builder(pool.clone()).build()?;
        let file = cache.open(&path)?;
        let mut random = Pcg64::seed_from_u64(1);
        let mut run = || -> Result<(f64, f64), Box<dyn Error>> {
            let (before, start) = (cache.stats(), Instant::now());
            for _ in 0..LOOKUPS {
                let number = popular(&mut random, records);
                if find(&file, key(number))? != Some(number) {
                    return Err(format!("record {number} was not found").into());
                }
            }
            let (after, seconds) = (cache.stats(), start.elapsed().as_secs_f64());
            let hits = (after.hits - before.hits) as f64;
            let asked = hits + (after.misses - before.misses) as f64;
            Ok((hits / asked, LOOKUPS as f64 / seconds))
        };
        let (first, _) = run()?;
        let mut buffer = vec![0; 1 << 20];
        for at in 0..size {
            file.read_at(&mut buffer, at << 20)?;
        }
        let (second, speed) = run()?;
        println!(
            "{:>10} {:>10} {:>10.1} % {:>10.1} % {:>12.0}",
            pool.bytes() >> 20,
            format!("1/{share}"),
            first * 100.0,
            second * 100.0,
            speed
        );
        drop((file, cache));
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes(), "pages are lost");
    }
    Ok(())
}
