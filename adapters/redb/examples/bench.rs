//! redb with its own cache, and with most of that memory as a page cache of the pool, side by side.
//!
//! ```text
//! cargo run --release --example bench -- [ROUNDS]
//! ```
//!
//! Three subjects with the same memory in all: `redb` (its own cache), `redb again` (the same,
//! which shows the noise), `zonal` (an eighth for redb's cache, the rest for the page cache); and
//! `redb small`, with that eighth alone, and the operating system's cache below it. Each
//! round runs all of them in random order, each on a fresh file; the tables have medians of the
//! times and of the ratios to `redb` within a round: by the CPU time of the whole process, with the
//! cache's threads and the kernel, and by the clock.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use rustix::time::{ClockId, clock_gettime};
use zonal_cache::EngineCache;
use zonal_redb::Cached;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("records");
const RECORDS: u64 = 150_000;
const VALUE: usize = 150;
/// Memory of each subject.
const MEMORY: usize = 16 << 20;
const READS: u64 = 100_000;
const COMMITS: u64 = 100;
const SUBJECTS: [&str; 4] = ["redb", "redb again", "redb small", "zonal"];
const PHASES: [&str; 5] =
    ["bulk load", "random reads", "hot reads", "commits of 20 writes", "whole scan"];

/// xorshift: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn open(subject: &str) -> Result<(Database, Option<EngineCache>), Box<dyn Error>> {
    let file = FileBackend::new(tempfile::tempfile_in(".")?)?;
    let mut builder = Database::builder();
    if subject != "zonal" {
        builder.set_cache_size(if subject == "redb small" { MEMORY / 8 } else { MEMORY });
        return Ok((builder.create_with_backend(file)?, None));
    }
    let page_bytes = 4096;
    let part = MEMORY / 8 * 7;
    let pool = Arc::new(zonal::Pool::builder().size(part.next_multiple_of(2 << 20)).build()?);
    let cache = EngineCache::builder(pool)
        .page_bytes(page_bytes)
        .max_pages((part / page_bytes) as u64)
        .build()?;
    builder.set_cache_size(MEMORY / 8);
    Ok((builder.create_with_backend(Cached::new(file, &cache)?)?, Some(cache)))
}

fn value(key: u64) -> [u8; VALUE] {
    let mut value = [key as u8; VALUE];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

fn read(database: &Database, mut key: impl FnMut() -> u64) -> Result<(), Box<dyn Error>> {
    let table = database.begin_read()?.open_table(TABLE)?;
    for _ in 0..READS {
        let key = key();
        let found = table.get(key)?.ok_or("a record is gone")?;
        assert_eq!(found.value()[..8], key.to_le_bytes());
    }
    Ok(())
}

/// CPU time of the process so far, and the time by the clock.
fn now() -> [Duration; 2] {
    [ClockId::ProcessCPUTime, ClockId::Monotonic].map(|clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    })
}

/// Times of the phases, by both clocks.
type Times = [[Duration; 2]; PHASES.len()];

fn run(subject: &str) -> Result<Times, Box<dyn Error>> {
    let (database, cache) = open(subject)?;
    let mut random = Random(88_172_645_463_325_252);
    let mut times = Vec::new();
    let mut time = |start: [Duration; 2]| {
        let now = now();
        times.push([now[0] - start[0], now[1] - start[1]]);
    };

    let start = now();
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(TABLE)?;
        for key in 0..RECORDS {
            // Each key once, in an order that is not theirs.
            let key = key * 61_861 % RECORDS;
            table.insert(key, &value(key)[..])?;
        }
    }
    write.commit()?;
    time(start);

    let start = now();
    read(&database, || random.next(RECORDS))?;
    time(start);

    let start = now();
    // Nine of ten in a twentieth of the keys.
    read(&database, || match random.next(10) {
        0 => random.next(RECORDS),
        _ => random.next(RECORDS / 20),
    })?;
    time(start);

    let start = now();
    for _ in 0..COMMITS {
        let mut write = database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        {
            let mut table = write.open_table(TABLE)?;
            for _ in 0..20 {
                let key = random.next(RECORDS);
                table.insert(key, &value(key)[..])?;
            }
        }
        write.commit()?;
    }
    time(start);

    let start = now();
    let table = database.begin_read()?.open_table(TABLE)?;
    let mut keys = 0;
    for record in table.range::<u64>(..)? {
        let (key, value) = record?;
        assert_eq!(value.value()[..8], key.value().to_le_bytes());
        keys += 1;
    }
    assert_eq!(keys, RECORDS);
    time(start);
    drop((table, database));
    if let Some(cache) = cache
        && std::env::var_os("STATS").is_some()
    {
        eprintln!("{}", cache.stats());
    }
    times.try_into().map_err(|_| "a phase without a time".into())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let mut random = Random(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64 | 1);
    let mut all: Vec<[Times; SUBJECTS.len()]> = Vec::new();
    for _ in 0..rounds.max(1) {
        let mut order = [0, 1, 2, 3];
        for at in (1..order.len()).rev() {
            order.swap(at, random.next(at as u64 + 1) as usize);
        }
        let mut round = [[[Duration::ZERO; 2]; PHASES.len()]; SUBJECTS.len()];
        for subject in order {
            round[subject] = run(SUBJECTS[subject])?;
        }
        all.push(round);
    }
    for (clock, name) in ["CPU", "clock"].into_iter().enumerate() {
        println!("| phase | redb, {name} ms | {} |", SUBJECTS[1..].join(" | "));
        println!("|--|--:|--:|--:|--:|");
        for (at, phase) in PHASES.iter().enumerate() {
            let seconds = |round: &[Times; SUBJECTS.len()], subject: usize| {
                round[subject][at][clock].as_secs_f64()
            };
            let ms = median(all.iter().map(|round| seconds(round, 0) * 1e3).collect());
            let ratio = |subject: usize| {
                let of = |round| seconds(round, subject) / seconds(round, 0);
                let each: Vec<f64> = all.iter().map(of).collect();
                let least = each.iter().copied().fold(f64::INFINITY, f64::min);
                let most = each.iter().copied().fold(0.0, f64::max);
                format!("{:.2} ({least:.2} to {most:.2})", median(each))
            };
            println!("| {phase} | {ms:.1} | {} | {} | {} |", ratio(1), ratio(2), ratio(3));
        }
        println!();
    }
    Ok(())
}
