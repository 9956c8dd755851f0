//! Flags of `zonal pressure`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use zonal_core::policy::Policy;
use zonal_core::policy::walk::ZonelistCaching;

use super::disk::Disk;
use crate::policy_args::{apply, preset};

/// Flags of `zonal pressure`.
#[derive(Args, Debug)]
pub struct PressureArgs {
    /// What puts the pool under pressure.
    #[arg(value_enum)]
    pub workload: Workload,

    /// Whose rules the allocator follows; `zonal policy` lists them. Node reclaim is on
    /// (node_reclaim.mode=1) whatever the policy says, unless it is set.
    #[arg(long, value_name = "POLICY", default_value = "linux-3.0", value_parser = preset)]
    policy: Policy,

    /// Change one value of the policy; may be repeated. Without zlc=... there is a run for each of
    /// the three zonelist caches that were published: original, first_zone and
    /// first_zone+reconsider.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Threads of the loads that have several. They run on the CPUs of the first node. Default: as
    /// many as it has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: Option<u64>,

    /// MiB that the disk moves in a second, in real time: the load's disk is this machine's, slowed
    /// to one of 2011. Default: a 7200 rpm disk of 2010, in the middle. 0: as fast as it is.
    #[arg(long, value_name = "MIB", default_value_t = 85)]
    disk_mib_s: u64,

    /// Microseconds that the slowed disk takes to go elsewhere. Default: as the lab's machine of
    /// 2011.
    #[arg(long, value_name = "US", default_value_t = 6800,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    disk_seek_us: u64,

    /// Seconds from one request for a huge block to the next: somebody asks for one now and then on
    /// a kernel with transparent huge pages, whose daemon looks every 10 s. 0: nobody does.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    huge_every: u64,

    /// MiB of the pool: half of it, and half of the CPUs, on each of two made-up nodes. Default:
    /// a 24th to a 96th of the memory of 2011, by load.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=65536))]
    pool: Option<u64>,

    /// MiB of data to write in each run. Default: as many times the pool as in 2011.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    data: Option<u64>,

    /// Where to put the files. Default: the directory for temporary files. They are removed.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,

    /// Print comma-separated values instead of a table.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// What puts the pool under pressure.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
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

impl PressureArgs {
    /// MiB of the pool.
    pub fn pool_mib(&self) -> u64 {
        self.pool.unwrap_or(sizes(self.workload).0)
    }

    /// MiB to write.
    pub fn data_mib(&self) -> u64 {
        self.data.unwrap_or(self.pool_mib() * sizes(self.workload).1 / 1000)
    }

    /// The disk; `None`: this machine's, as it is.
    pub fn disk(&self) -> Option<Disk> {
        let seek = Duration::from_micros(self.disk_seek_us);
        (self.disk_mib_s > 0).then(|| Disk::new(self.disk_mib_s, seek))
    }

    /// The disk in words.
    pub fn disk_in_words(&self) -> String {
        match self.disk_mib_s {
            0 => "this machine's disk as it is".into(),
            mib => format!(
                "this machine's disk slowed to {mib} MiB/s and {} us a seek",
                self.disk_seek_us
            ),
        }
    }

    /// How often somebody asks for a huge block; zero: never.
    pub fn huge_every(&self) -> Duration {
        Duration::from_secs(self.huge_every)
    }

    /// The runs to be made.
    ///
    /// # Errors
    /// A key that is none, or a value that is not accepted.
    pub fn variants(&self) -> anyhow::Result<Vec<Variant>> {
        let sets = |key: &str| self.set.iter().any(|text| text.split('=').next() == Some(key));
        let mut policy = self.policy;
        if !sets("node_reclaim.mode") {
            apply(&mut policy, &["node_reclaim.mode=1".to_owned()])?;
        }
        apply(&mut policy, &self.set)?;
        if sets("zlc") {
            let same = |(cache, _): &&(ZonelistCaching, _)| *cache == policy.zonelist.cache;
            let column = PUBLISHED.iter().find(same).map(|(_, column)| *column);
            return Ok(vec![Variant { policy, column }]);
        }
        let variant = |(cache, column): (ZonelistCaching, &'static str)| {
            let mut policy = policy;
            policy.zonelist.cache = cache;
            Variant { policy, column: Some(column) }
        };
        Ok(PUBLISHED.map(variant).to_vec())
    }
}
