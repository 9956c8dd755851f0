//! Which load, on which pool and disk.

use std::path::PathBuf;
use std::time::Duration;

use zonal_core::policy::Policy;
use zonal_core::policy::walk::ZonelistCaching;

/// What puts the pool under pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Threads make files, as many as they can.
    Fsmark,
    /// A large file is written, copied again and again, and deleted.
    Largedd,
    /// Threads write a large file through pages that they have mapped.
    Streamwriter,
}

impl Workload {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Fsmark => "fsmark",
            Workload::Largedd => "largedd",
            Workload::Streamwriter => "streamwriter",
        }
    }
}

/// A load, and what it runs on.
#[derive(Clone, Debug)]
pub struct Options {
    /// The load.
    pub workload: Workload,
    /// A run for each of these.
    pub variants: Vec<Variant>,
    /// Threads of the loads that have several; `None`: one for each CPU of the first node.
    pub threads: Option<u64>,
    /// MiB of the pool: half of it, and half of the CPUs, on each of two made-up nodes.
    pub pool_mib: u64,
    /// MiB of data to write in each run.
    pub data_mib: u64,
    /// How slow the disk is; `None`: this machine's as it is.
    pub disk: Option<DiskSpeed>,
    /// Interval of requests for huge blocks; zero: none.
    pub huge_every: Duration,
    /// An existing directory for the files; each run makes one below it and removes it.
    pub directory: PathBuf,
}

impl Options {
    /// A load in a directory, with the sizes of 2011 divided by 24 to 96, and its disk.
    pub fn new(workload: Workload, directory: PathBuf) -> Options {
        let (pool_mib, _) = sizes(workload);
        Options {
            workload,
            variants: Variant::published(Policy::LINUX_3_0),
            threads: None,
            pool_mib,
            data_mib: Options::data_mib(workload, pool_mib),
            disk: Some(DiskSpeed::default()),
            huge_every: Duration::from_secs(10),
            directory,
        }
    }

    /// MiB to write on a pool of `pool_mib`: as many times the pool as in 2011.
    pub fn data_mib(workload: Workload, pool_mib: u64) -> u64 {
        pool_mib * sizes(workload).1 / 1000
    }
}

/// A disk: its rate and its seek time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpeed {
    /// MiB moved in a second.
    pub mib_s: u64,
    /// Time of a seek.
    pub seek: Duration,
}

impl Default for DiskSpeed {
    /// A 7200 rpm disk of 2010, in the middle.
    fn default() -> Self {
        DiskSpeed { mib_s: 85, seek: Duration::from_micros(6800) }
    }
}

/// Sizes of a load by default: MiB of the pool, and thousandths of it that are written.
const fn sizes(workload: Workload) -> (u64, u64) {
    match workload {
        // 87 GiB over 12 GiB of memory.
        Workload::Fsmark => (256, 7200),
        // The file, which is a little larger than what can be active on the first node, and ten
        // copies.
        Workload::Largedd => (512, 2900),
        // 115 GiB.
        Workload::Streamwriter => (128, 9600),
    }
}

/// The caches that were published, with the name of the column.
const PUBLISHED: [(ZonelistCaching, &str); 3] = [
    (ZonelistCaching::Original, "vanilla"),
    (ZonelistCaching::FirstZone, "zlcfirst"),
    (ZonelistCaching::FirstZoneReconsider, "zlcreconsider"),
];

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The policy of the pool.
    pub policy: Policy,
    /// The published column that used this zonelist cache, if one did.
    pub column: Option<&'static str>,
}

impl Variant {
    /// This policy with each of the zonelist caches that were published.
    pub fn published(policy: Policy) -> Vec<Variant> {
        let variant = |(cache, column): (ZonelistCaching, &'static str)| {
            let mut policy = policy;
            policy.zonelist.cache = cache;
            Variant { policy, column: Some(column) }
        };
        PUBLISHED.map(variant).to_vec()
    }

    /// This policy, beside the published column with its zonelist cache if there is one.
    pub fn of(policy: Policy) -> Variant {
        let same = |(cache, _): &&(ZonelistCaching, _)| *cache == policy.zonelist.cache;
        Variant { policy, column: PUBLISHED.iter().find(same).map(|(_, column)| *column) }
    }
}
