//! A log file larger than the memory it may use: appended, synced, and read back from the cache.
//!
//! ```text
//! cargo run --release -p zonal-cache --example log
//! ```

use std::sync::Arc;

use zonal::Pool;
use zonal_cache::Cache;

const RECORDS: u64 = 100_000;
const BYTES: u64 = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let pool = Arc::new(Pool::builder().size(4 << 20).build()?); // a third of the file
    let cache = Cache::new(pool)?;
    let log = cache.create(directory.path().join("log"))?;
    for record in 0..RECORDS {
        let mut line = [b' '; BYTES as usize];
        line[..8].copy_from_slice(&record.to_le_bytes());
        log.write_at(&line, record * BYTES)?; // into a page of the pool; written back behind us
    }
    log.sync()?; // now it is on the disk, or this says why not
    let mut found = [0; 8];
    for record in (0..RECORDS).rev().step_by(1000) {
        log.read_at(&mut found, record * BYTES)?;
        assert_eq!(u64::from_le_bytes(found), record);
    }
    println!("{}", cache.stats());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
