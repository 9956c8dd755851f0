//! Flags of `zonal pressure`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use zonal_core::policy::Policy;
use zonal_core::policy::walk::ZonelistCaching;

use crate::cli::{apply, preset};

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

    /// Programs of the load ask for a huge block as their buffer for each file or MiB, as programs
    /// under a kernel with transparent huge pages do.
    #[arg(long)]
    pub huge: bool,

    /// MiB of the pool: half of it, and half of the CPUs, on each of two made-up nodes.
    #[arg(long, value_name = "MIB", default_value_t = 64,
          value_parser = clap::value_parser!(u64).range(16..=65536))]
    pub pool: u64,

    /// MiB of data to write in each run.
    #[arg(long, value_name = "MIB", default_value_t = 128,
          value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    pub data: u64,

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
