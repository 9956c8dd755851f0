//! `zone-reclaim-fsmark`, `-largedd`, `-streamwriter` (2011): programs on one node's CPUs that fill
//! the memory with pages of files, with node reclaim on, for each zonelist cache.
//!
//! The original cache never wakes the background reclaimer: each request that finds its first zone
//! below the low watermark reclaims 32 pages there, cache or not (LB G.5). One clean page among the
//! inactive ones is enough, so the first zone serves nearly all, the other zones stay free, and who
//! cannot reclaim (interrupts, huge pages) is served there. With the fix, one request that fails to
//! make room (a huge page; a moment in which all is dirty) closes the zone to all for a second.
//! They fill the other zones, until one that cannot reclaim finds none above its watermark.
//!
//! In fs_mark a third of the pages go with their inodes. Buffer heads fill the first zone's part
//! for reclaimable objects once most of the memory is cached, and then who reclaims there, outside
//! the file system, empties its caches too (LB G.3).
//!
//! Why a large dd then takes half as long: pages of the file that is read are active, and active
//! pages are at most half of the first zone. A file a little larger than that half goes round in it
//! and is read again and again.

use sha2::{Digest, Sha256};
use zonal_core::policy::Policy;
use zonal_core::policy::walk::{
    NodeReclaimMode, NodeReclaimPolicy, ZonelistCaching, ZonelistOrder,
};

use super::published::Published;
use super::rows;
use super::table::{Cell, Experiment, Extent, FiguresIn, Options, Progress, Table};
use crate::LabError;
use crate::pagecache::{FsMark, LargeDd, StreamWriter};
use crate::pagecache::{Load, Setup};
use crate::provenance::{Provenance, cells, given};

/// fs_mark.
pub const FSMARK: Experiment = Experiment {
    name: "zone-reclaim-fsmark",
    about: "2011: creating files while a node is reclaimed, by the zonelist cache",
    target_percent: 10.0,
    sizes: false,
    run: |options, progress| run(&FSMARK, "fsmark", options, progress),
};
/// A large dd.
pub const LARGEDD: Experiment = Experiment {
    name: "zone-reclaim-largedd",
    about: "2011: copying a large file while a node is reclaimed, by the zonelist cache",
    target_percent: 10.0,
    sizes: false,
    run: |options, progress| run(&LARGEDD, "largedd", options, progress),
};
/// A streaming mapped writer.
pub const STREAMWRITER: Experiment = Experiment {
    name: "zone-reclaim-streamwriter",
    about: "2011: writing a mapped file while a node is reclaimed, by the zonelist cache",
    target_percent: 10.0,
    sizes: false,
    run: |options, progress| run(&STREAMWRITER, "streamwriter", options, progress),
};

given! {
    /// Pages of the machine for one of the model.
    SCALE: u64 = 16,
        Provenance::seen(
            "one to one takes hours; at that, direct scans of the fix are 0.03 to 0.05 of the \
             published",
            cells!["zone-reclaim-fsmark", "zone-reclaim-largedd", "zone-reclaim-streamwriter"],
        );
    /// How near a count has to be.
    FACTOR: f64 = 1.5,
        Provenance::estimated("counts of reclaim differ that much between runs of a kernel");
}

const MACHINE: &str = "westmere-2011-24";
const TABLE: &str = include_str!("../../published/2011-zone-reclaim.csv");
/// The column whose kernel had no fix: it sets the sizes of machine and loads.
const VANILLA: &str = "vanilla";

const ELAPSED: &str = "elapsed_s";
/// Elapsed time by that of the first column.
const RATIO: &str = "elapsed_ratio";

/// Columns that are played where the experiment is to be brief: those with cells that are modelled.
const BRIEF_COLUMNS: usize = 2;

/// Columns, and what ran.
fn columns() -> [(&'static str, Policy); 5] {
    let on = |policy: Policy| {
        let mode = NodeReclaimMode::Bits(1);
        Policy { node_reclaim: NodeReclaimPolicy { mode, ..policy.node_reclaim }, ..policy }
    };
    // The default of `numa_zonelist_order` where low zones are less than half of the memory and
    // less than 70 percent of each node's: by zone (LB A.4).
    let with = |cache| {
        let mut policy = on(Policy::LINUX_3_0);
        policy.zonelist.order = ZonelistOrder::Zone;
        policy.zonelist.cache = cache;
        policy
    };
    [
        (VANILLA, with(ZonelistCaching::Original)),
        ("zlcfirst", with(ZonelistCaching::FirstZone)),
        ("zlcreconsider", with(ZonelistCaching::FirstZoneReconsider)),
        ("linux-6.18", on(Policy::LINUX_6_18)),
        ("zonal", on(Policy::ZONAL)),
    ]
}

fn load(name: &str) -> Box<dyn Load> {
    match name {
        "fsmark" => Box::new(FsMark::PUBLISHED),
        "largedd" => Box::new(LargeDd::PUBLISHED),
        _ => Box::new(StreamWriter::PUBLISHED),
    }
}

fn run(
    experiment: &Experiment,
    workload: &str,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Table, LabError> {
    let of_workload = |line: &&str| line.starts_with('#') || line.starts_with(workload);
    let lines = TABLE
        .lines()
        .filter(of_workload)
        .map(|line| line.strip_prefix(workload).map_or(line, |rest| rest.trim_start_matches(',')));
    let head = "metric,vanilla,zlcfirst,zlcreconsider";
    let text: Vec<&str> = std::iter::once(head).chain(lines).collect();
    let published = Published::parse(&text.join("\n"));
    let machine = options.machine(MACHINE)?;
    let (mut cells, mut hash) = (Vec::new(), Sha256::new());
    let all = columns();
    let columns = match options.extent {
        Extent::Whole => &all[..],
        Extent::Published | Extent::Brief => &all[..BRIEF_COLUMNS],
    };
    let elapsed = |column: &str| published.figure(ELAPSED, column);
    let played = rows::all(columns, 1, progress, |(_, policy), looked| {
        let setup =
            Setup { machine: machine.clone(), policy: *policy, seed: options.seed, scale: SCALE };
        let figures = setup.run(load(workload).as_mut())?;
        looked();
        Ok(figures)
    })?;
    let mut first_s = None;
    for ((column, _), figures) in columns.iter().zip(&played) {
        hash.update(&figures.hash);
        for (row, simulated) in &figures.values {
            let mut cell = Cell::new(row, column, published.figure(row, column), *simulated);
            let counts = row.ends_with("_scanned") || row.ends_with("_reclaimed");
            cell.factor = counts.then_some(FACTOR);
            cells.push(cell);
        }
        let took_s = figures.get(ELAPSED).unwrap_or_default();
        if let Some(first_s) = first_s {
            let known = elapsed(column).zip(elapsed(VANILLA)).map(|(this, first)| this / first);
            cells.push(Cell::new(RATIO, column, known, took_s / first_s));
        }
        first_s = first_s.or(Some(took_s));
    }
    let ran = (machine.name.as_str(), options);
    Ok(Table {
        cells,
        figures_in: FiguresIn::Rows,
        notes: vec![
            format!(
                "a page of the model is {SCALE} pages of the machine: memory, files, requests and \
                 the disk's speed are that many times smaller, times, files and seeks are not; \
                 counts of pages are multiplied by {SCALE}"
            ),
            "counts of the columns with the fix hold at this scale only: with one page for one of \
             the machine, the background reclaimer makes most of the room (docs/explanation/lab.md)"
                .into(),
            "chosen with all columns in view: the order of the zonelists (the default of the \
             time), how often interrupts need a page, how much unmapped \
             memory programs' files have (estimates), how often huge pages are asked for, how long \
             the disk waits behind a read, the part of memory that may be dirty and how writers \
             wait above it (defaults of the time)"
                .into(),
        ],
        ..experiment.table(ran, published.source, hash)
    })
}
