//! `zonal pressure`: loads of files on a page cache over a pool that is too small for them, by
//! crate `zonal-bench`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use zonal_bench::pressure::{self, DiskSpeed, Options, Variant};
use zonal_core::policy::Policy;

use crate::output;
use crate::policy_args::{apply, preset};
use crate::scratch::Scratch;
use crate::verdict::Verdict;

/// Flags of `zonal pressure`.
#[derive(Args, Debug)]
pub struct PressureArgs {
    /// What puts the pool under pressure.
    #[arg(value_enum)]
    pub workload: Workload,

    /// Whose rules the allocator follows; `zonal policy` lists them. Node reclaim is on
    /// (node_reclaim.mode=1) under every policy, unless it is set.
    #[arg(long, value_name = "POLICY", default_value = "linux-3.0", value_parser = preset)]
    policy: Policy,

    /// Change one value of the policy; may be repeated. Without zlc=... there is a run for each of
    /// the three zonelist caches that were published: original, first_zone and
    /// first_zone+reconsider.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Threads of the loads that have several. They run on the CPUs of the first node. Default: all
    /// of them.
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

    /// Seconds between requests for a huge block, as from the daemon of transparent huge pages,
    /// which scans every 10 s. 0: none.
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

/// Runs the command.
///
/// # Errors
/// Settings that cannot be, a directory that cannot be written, or a pool that cannot be made.
pub fn run(args: &PressureArgs) -> anyhow::Result<Verdict> {
    let variants = args.variants()?;
    let place = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = Scratch::directory_in(&place)
        .with_context(|| format!("cannot make a directory in {}", place.display()))?;
    let options = args.options(variants, directory.path().to_owned());
    let all = options.variants.len() as u64 * options.data_mib;
    let bar = output::progress(options.workload.name(), "MiB written", Some(all));
    let report = pressure::run(&options, &|mib| bar.set_position(mib));
    bar.finish_and_clear();
    let report = report?;
    output::data(&match (args.json, args.csv) {
        (true, _) => serde_json::to_string_pretty(&report)? + "\n",
        (_, true) => report.csv(),
        _ => report.to_string(),
    })?;
    Ok(Verdict::Pass)
}

impl PressureArgs {
    fn options(&self, variants: Vec<Variant>, directory: PathBuf) -> Options {
        let workload = match self.workload {
            Workload::Fsmark => pressure::Workload::Fsmark,
            Workload::Largedd => pressure::Workload::Largedd,
            Workload::Streamwriter => pressure::Workload::Streamwriter,
        };
        let base = Options::new(workload, directory);
        let pool_mib = self.pool.unwrap_or(base.pool_mib);
        let seek = Duration::from_micros(self.disk_seek_us);
        Options {
            variants,
            threads: self.threads,
            pool_mib,
            data_mib: self.data.unwrap_or(Options::data_mib(workload, pool_mib)),
            disk: (self.disk_mib_s > 0).then_some(DiskSpeed { mib_s: self.disk_mib_s, seek }),
            huge_every: Duration::from_secs(self.huge_every),
            ..base
        }
    }

    /// The runs to be made.
    fn variants(&self) -> anyhow::Result<Vec<Variant>> {
        let sets = |key: &str| self.set.iter().any(|text| text.split('=').next() == Some(key));
        let mut policy = self.policy;
        if !sets("node_reclaim.mode") {
            apply(&mut policy, &["node_reclaim.mode=1".to_owned()])?;
        }
        apply(&mut policy, &self.set)?;
        Ok(if sets("zlc") { vec![Variant::of(policy)] } else { Variant::published(policy) })
    }
}
