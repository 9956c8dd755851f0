//! The loads: programs that use files through a page cache until the pool is short of pages.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use zonal::CpuId;
use zonal::reclaim::{Scanned, Shrinker};
use zonal::sys::affinity::Pinned;
use zonal_cache::{Cache, CachedFile};

use super::error::PressureError;
use super::options::Workload;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Bytes of a file of fsmark, about as in 2011, and of one write.
const FILE: u64 = 256 << 10;
const WRITE: u64 = 64 << 10;
/// Rounds of fsmark whose speeds are compared.
const ROUNDS: u64 = 16;
/// Bytes of what is kept of a file after it was closed: about a name and an inode.
const NAME_BYTES: usize = 1024;

/// Figures of a load's own, in the order and under the names of the published table.
pub type Figures = Vec<(&'static str, f64)>;

/// Where and how large.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// What files are read and written through.
    pub cache: &'a Cache,
    /// Where they are.
    pub dir: &'a Path,
    /// MiB to write.
    pub data_mib: u64,
    /// Threads of the loads that have several.
    pub threads: u64,
    /// CPUs to run on, in turn.
    pub cpus: &'a [CpuId],
}

/// Runs a load. Everything is written when it returns.
pub fn run(workload: Workload, load: Load<'_>) -> Result<Figures, PressureError> {
    match workload {
        Workload::Fsmark => fsmark(load),
        Workload::Largedd => largedd(load),
        Workload::Streamwriter => streamwriter(load),
    }
}

/// Names of files that were made lately: a cache of objects beside the pages.
type Names = Arc<Mutex<VecDeque<(u64, u64)>>>;

fn names_shrinker(names: &Names) -> Shrinker {
    let (counted, scanned) = (Arc::clone(names), Arc::clone(names));
    let count = move |_| counted.try_lock().map_or(0, |names| names.len() as u64);
    let scan = move |ask: &zonal::reclaim::ScanRequest| match scanned.try_lock() {
        Ok(mut names) => {
            let freed = names.len().min(ask.objects as usize);
            names.drain(..freed);
            Scanned::Freed(freed as u64)
        }
        Err(_) => Scanned::Stop,
    };
    Shrinker::new("names", count, scan).object_bytes(NAME_BYTES)
}

fn fsmark(load: Load<'_>) -> Result<Figures, PressureError> {
    let Load { cache, dir, data_mib, .. } = load;
    let names = Names::default();
    let _registered = cache.pool().register_shrinker(names_shrinker(&names));
    let per_round = (data_mib * MIB / FILE / ROUNDS / load.threads).max(1);
    let make = |me: u64, round: u64| -> Result<(), PressureError> {
        for file in 0..per_round {
            let path = dir.join(format!("{me}-{round}-{file}"));
            let out = cache
                .create(&path)
                .map_err(|source| PressureError::File { path: path.clone(), source })?;
            fill(&out, FILE, me << 32 | round << 16 | file)?;
            if let Ok(mut names) = names.lock() {
                names.push_back((me, round));
            }
        }
        Ok(())
    };
    let mut speeds = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        on_threads(load, |me| make(me, round))?;
        speeds.push((per_round * load.threads) as f64 / start.elapsed().as_secs_f64());
    }
    cache.sync()?;
    let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
    let square = |speed: &f64| (speed - mean) * (speed - mean);
    let spread = (speeds.iter().map(square).sum::<f64>() / (speeds.len() - 1) as f64).sqrt();
    Ok(vec![
        ("files_per_s_min", speeds.iter().copied().fold(f64::INFINITY, f64::min)),
        ("files_per_s_mean", mean),
        ("files_per_s_stddev", spread),
        ("files_per_s_max", speeds.iter().copied().fold(0.0, f64::max)),
    ])
}

/// Pages that circulate in the first node's half of used pages: where requests stay on the node, a
/// slightly larger file is read again for every copy. Parts of the pool: a quarter and a little.
const SOURCE_PART: (u64, u64) = (17, 64);

fn largedd(load: Load<'_>) -> Result<Figures, PressureError> {
    let Load { cache, dir, data_mib, .. } = load;
    let _pinned = pin(load.cpus, 0)?;
    let (part, of) = SOURCE_PART;
    let bytes = (cache.pool().bytes() as u64 * part / of).next_multiple_of(MIB);
    let copies = (data_mib * MIB).div_ceil(bytes).saturating_sub(1).max(1);
    let from = dir.join("source");
    let start = Instant::now();
    let source = cache.create(&from)?;
    fill(&source, bytes, 1)?;
    source.sync()?;
    let download = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut buffer = vec![0; MIB as usize];
    let mut made = Vec::new();
    for copy in 0..copies {
        let path = dir.join(format!("copy-{copy}"));
        let copy = cache.create(&path)?;
        for at in (0..bytes).step_by(MIB as usize) {
            let read = source.read_at(&mut buffer, at)?;
            write_all(&copy, &buffer[..read], at)?;
        }
        made.push((copy, path));
    }
    cache.sync()?;
    let dd = start.elapsed().as_secs_f64();
    let start = Instant::now();
    made.push((source, from));
    for (file, path) in made {
        file.set_len(0)?;
        fs::remove_file(&path)?;
    }
    let delete = start.elapsed().as_secs_f64();
    Ok(vec![("download_s", download), ("dd_s", dd), ("delete_s", delete)])
}

fn streamwriter(load: Load<'_>) -> Result<Figures, PressureError> {
    let Load { cache, dir, data_mib, .. } = load;
    let path = dir.join("stream");
    let pages = data_mib * MIB / PAGE;
    cache.create(&path)?.set_len(pages * PAGE)?;
    let file = cache.open(&path)?.mapped(true);
    on_threads(load, |me| {
        // Each thread its part of the file, from front to back.
        let part = pages / load.threads;
        for index in me * part..(me + 1) * part {
            file.pin_mut(index)?.fill(index as u8);
        }
        Ok(())
    })?;
    file.sync()?;
    Ok(Vec::new())
}

/// Writes `bytes` bytes that a file system cannot leave out.
fn fill(file: &CachedFile, bytes: u64, seed: u64) -> Result<(), PressureError> {
    let block: Vec<u8> = (0..WRITE).map(|at| (at as u8 ^ seed as u8) | 1).collect();
    for at in (0..bytes).step_by(WRITE as usize) {
        write_all(file, &block[..(bytes - at).min(WRITE) as usize], at)?;
    }
    Ok(())
}

fn write_all(file: &CachedFile, mut bytes: &[u8], mut offset: u64) -> Result<(), PressureError> {
    while !bytes.is_empty() {
        let written = file.write_at(bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Keeps the calling thread on one of the CPUs, until the result is dropped.
pub fn pin(cpus: &[CpuId], thread: u64) -> Result<Pinned, PressureError> {
    let cpu = cpus.get(thread as usize % cpus.len().max(1)).ok_or(PressureError::NoCpu)?;
    Ok(Pinned::to(*cpu)?)
}

/// Runs the same on several threads. Returns the first error.
fn on_threads(
    load: Load<'_>,
    run: impl Fn(u64) -> Result<(), PressureError> + Sync,
) -> Result<(), PressureError> {
    let one = |me: u64| -> Result<(), PressureError> {
        let _pinned = pin(load.cpus, me)?;
        run(me)
    };
    thread::scope(|scope| {
        let start = |me: u64| {
            let one = &one;
            scope.spawn(move || one(me))
        };
        let threads: Vec<_> = (0..load.threads).map(start).collect();
        for thread in threads {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => return Err(PressureError::Panicked("a thread of the load")),
            }
        }
        Ok(())
    })
}
