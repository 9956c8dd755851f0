//! The loads of 2011 on a page cache over a pool of two made-up nodes, on the CPUs of the first
//! one, and the published figures beside what was measured here.
//!
//! ```no_run
//! use zonal_bench::pressure::{Options, Workload, run};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = std::env::temp_dir();
//! let report = run(&Options::new(Workload::Fsmark, directory), &|_mib_written| {})?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//! | file | does |
//! |--|--|
//! | `options` | which load, on which pool and disk |
//! | `loads` | the loads |
//! | `around` | what else takes memory in a machine under load |
//! | `disk` | a disk of its time |
//! | `report` | measured figures beside published ones |

mod around;
mod disk;
mod error;
mod loads;
mod options;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};
use zonal::sys::affinity::{allowed_cpus, possible_cpus_max};
use zonal::view::Scans;
use zonal::{CpuId, CpuMap, PAGE_SIZE, Pool};
use zonal_cache::{Cache, Stats};
use zonal_core::platform::reclaimer::Shrunk;

pub use self::error::PressureError;
pub use self::options::{DiskSpeed, Options, Variant, Workload};
pub use self::report::{Column, Report};

use self::around::Around;
use self::disk::Disk;
use self::loads::Load;

/// Nodes of the pool.
const NODES: u16 = 2;
/// Files that stay in the cache when they are closed, at most.
const FILES_MAX: u64 = 1 << 16;
/// How long the refresh thread may take to put down what it moves, on a machine that is busy.
const SETTLED: Duration = Duration::from_secs(30);
/// Descriptors that the cache leaves to the rest of the program.
const DESCRIPTORS_LEFT: u64 = 256;

/// Runs a load once for each variant, in a pool and a directory of its own. `progress` gets the MiB
/// written so far, of all runs together.
///
/// # Errors
/// A directory that cannot be written, a pool that cannot be made, or one that is not as it should
/// be at the end.
pub fn run(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Result<Report, PressureError> {
    let mut columns = Vec::new();
    for (done, variant) in options.variants.iter().enumerate() {
        let before = done as u64 * options.data_mib;
        let told = |mib: u64| progress(before + mib.min(options.data_mib));
        columns.push(measure(options, variant, &told)?);
    }
    Report::new(options, columns)
}

/// One run, in a pool and a directory of its own.
fn measure(
    options: &Options,
    variant: &Variant,
    told: &(dyn Fn(u64) + Sync),
) -> Result<Column, PressureError> {
    let place = &options.directory;
    let dir = tempfile::tempdir_in(place);
    let dir = dir.map_err(|source| PressureError::Directory { place: place.clone(), source })?;
    let (map, first_node) = two_nodes(&allowed_cpus()?);
    let builder = Pool::builder().size((options.pool_mib as usize) << 20).policy(variant.policy);
    let pool = Arc::new(builder.fake_nodes(NODES, map).build()?);
    // As in a kernel: reclaimers sleep until a request wakes them.
    pool.set_background_check(false);
    let disk = options.disk.map(|disk| Arc::new(Disk::new(disk.mib_s, disk.seek)));
    let cache = {
        // The cache's threads inherit the load's CPUs: in 2011 the program itself did the
        // read-ahead.
        let _pinned = loads::pin(&first_node, 0)?;
        make_cache(&pool, disk.as_ref())?
    };
    let start = Instant::now();
    let load = Load {
        cache: &cache,
        dir: dir.path(),
        data_mib: options.data_mib,
        threads: options.threads.unwrap_or(first_node.len() as u64),
        cpus: &first_node,
    };
    let around = Around {
        pool: &pool,
        disk: disk.as_deref(),
        huge_every: options.huge_every,
        cpus: &first_node,
        tick: &|| told((cache.stats().written * zonal::PAGE_SIZE as u64) >> 20),
    };
    let mut figures = around.run(|| loads::run(options.workload, load))?;
    figures.push(("elapsed_s", start.elapsed().as_secs_f64()));
    // While there is a consumer: without one the pool has no reclaimer to ask.
    // One reading, of which sums and parts are made: reclaimers may still be at work.
    let nodes: Vec<Scans> = pool.view().nodes().map(|node| node.scans()).collect();
    figures.extend(scans(&pool, &nodes, &cache.stats()));
    figures.extend(answers(&pool, &nodes));
    drop(cache);
    if let Err(fault) = pool.validate() {
        let text = format!("the pool broke an invariant under this load: {fault:?}");
        return Err(PressureError::Pages(text));
    }
    if !pool.view().all_free_within(SETTLED) {
        let (free, all) = (pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
        let text = format!("pages are lost: {free} bytes of {all} are free at the end");
        return Err(PressureError::Pages(text));
    }
    Ok(Column::new(variant, figures))
}

fn make_cache(pool: &Arc<Pool>, disk: Option<&Arc<Disk>>) -> Result<Cache, PressureError> {
    let builder = Cache::builder(pool.clone()).direct(true).closed_files(files_max());
    let builder = match disk.cloned() {
        Some(disk) => builder.stores(move |file| disk.store(file)),
        None => builder,
    };
    Ok(builder.build()?)
}

/// Half of the CPUs that may be used belong to the first node, which the load runs on; all of them
/// if there is only one.
fn two_nodes(allowed: &[CpuId]) -> (CpuMap, Vec<CpuId>) {
    let first: Vec<CpuId> = allowed[..allowed.len().div_ceil(2)].to_vec();
    let node_of = |cpu: u32| u16::from(allowed.len() > 1 && !first.contains(&CpuId(cpu)));
    (CpuMap::Explicit((0..possible_cpus_max()).map(node_of).collect()), first)
}

/// Files that may be open at once, each by two descriptors, after the limit was raised as far as
/// possible.
fn files_max() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If that is refused the old limit stays.
    let _ = rustix::process::setrlimit(Resource::Nofile, wanted);
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit.saturating_sub(DESCRIPTORS_LEFT) / 2).clamp(1, FILES_MAX) as usize
}

/// What reclaim did, in the published terms: kernels count node reclaim as direct reclaim.
fn scans(pool: &Pool, nodes: &[Scans], stats: &Stats) -> Vec<(&'static str, f64)> {
    let (mut background, mut direct) = (Shrunk::default(), Shrunk::default());
    for scans in nodes {
        background = background.plus(scans.background);
        direct = direct.plus(scans.direct).plus(scans.node);
    }
    let objects = pool.view().objects_scanned();
    // As Mel Gorman's reports: nothing scanned is done with full efficiency.
    let percent = |part: u64, of: u64| (part * 100).checked_div(of).unwrap_or(100);
    let all = background.scanned + direct.scanned;
    let kib = |pages: u64| (pages * 4) as f64;
    vec![
        ("pages_in", kib(stats.read)),
        ("pages_out", kib(stats.written)),
        ("direct_pages_scanned", direct.scanned as f64),
        ("kswapd_pages_scanned", background.scanned as f64),
        ("kswapd_pages_reclaimed", background.reclaimed as f64),
        ("direct_pages_reclaimed", direct.reclaimed as f64),
        ("kswapd_efficiency_percent", percent(background.reclaimed, background.scanned) as f64),
        ("direct_efficiency_percent", percent(direct.reclaimed, direct.scanned) as f64),
        ("percent_direct_scans", percent(direct.scanned, all) as f64),
        ("slabs_scanned", objects as f64),
    ]
}

/// The causes: answers of node reclaim, what the zonelist cache did with them, and which reclaim
/// ran.
fn answers(pool: &Pool, nodes: &[Scans]) -> Vec<(&'static str, f64)> {
    let stats = pool.view().reclaim_stats();
    let caches = pool.view().nodes().map(|node| node.zonelist_cache());
    let (mut marks, mut passes, mut expiries, mut reconsiders) = (0, 0, 0, 0);
    for cache in caches {
        marks += cache.marks;
        passes += cache.passes;
        expiries += cache.expiries;
        reconsiders += cache.reconsiders;
    }
    let mut rows = vec![
        ("node_reclaim_success", stats.success as f64),
        ("node_reclaim_some", stats.failed as f64),
        ("node_reclaim_full", stats.full as f64),
        ("node_reclaim_noscan", stats.no_scan as f64),
        ("zlc_marks", marks as f64),
        ("zlc_passes", passes as f64),
        ("zlc_expiries", expiries as f64),
        ("zlc_reconsiders", reconsiders as f64),
        ("background_runs", stats.background_runs as f64),
        ("direct_reclaims", stats.direct.iter().sum::<u64>() as f64),
    ];
    const NODES_SCANNED: [(&str, &str); NODES as usize] = [
        ("node0_reclaim_scanned", "node0_kswapd_scanned"),
        ("node1_reclaim_scanned", "node1_kswapd_scanned"),
    ];
    for (scans, (reclaim, kswapd)) in nodes.iter().zip(NODES_SCANNED) {
        rows.push((reclaim, scans.node.scanned as f64));
        rows.push((kswapd, scans.background.scanned as f64));
    }
    rows
}
