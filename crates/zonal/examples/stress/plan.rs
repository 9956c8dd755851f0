//! What a round is made of.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use zonal::{BuildError, CpuMap, Order, Policy, Pool};

use super::support::Rng;
use super::support::storm::Plan;

/// How the pcps are kept consistent.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Restartable sequences, where the system has them.
    Rseq,
    /// A lock for each pcp.
    Lock,
}

/// A round: a pool and a storm over it.
pub struct Round {
    rseq: bool,
    threads: usize,
    mib: usize,
    nodes: u16,
    policy: (&'static str, Policy),
    order_max: u32,
    one_order: bool,
    hz: u32,
    settings: bool,
}

impl Round {
    /// Draws one. Every draw takes the same numbers, so that an argument changes its part alone.
    pub fn draw(
        rng: &mut Rng,
        mode: Option<ModeArg>,
        hz: Option<u32>,
        limit_mib: Option<u64>,
    ) -> Round {
        let rseq = rng.below(4) != 0;
        let threads = 2 + rng.below(15);
        let mib = [16, 32, 64, 128][rng.below(4)];
        let nodes = [1, 1, 2, 4][rng.below(4)];
        let preset = Policy::PRESETS[rng.below(Policy::PRESETS.len())];
        let policy = [Policy::ZONAL, preset][rng.below(2)];
        let order_max = rng.below(Order::MAX.get() as usize + 1) as u32;
        let one_order = rng.below(4) == 0;
        let drawn_hz = 1000 + rng.below(4001) as u32;
        let settings = rng.below(2) == 0;
        let room = limit_mib.map_or(usize::MAX, |limit| (limit as usize / 4).max(16));
        Round {
            rseq: mode.map_or(rseq, |mode| mode == ModeArg::Rseq),
            threads,
            mib: mib.min(room),
            nodes,
            policy: (policy.name, policy),
            order_max,
            one_order,
            hz: hz.unwrap_or(drawn_hz),
            settings,
        }
    }

    /// Its pool.
    pub fn pool(&self) -> Result<Pool, BuildError> {
        let builder = Pool::builder().size(self.mib << 20).rseq(self.rseq).policy(self.policy.1);
        let builder = match self.nodes {
            1 => builder,
            nodes => builder.fake_nodes(nodes, CpuMap::RoundRobin),
        };
        builder.refresh_every(Some(Duration::from_millis(20))).build()
    }

    /// The policy of its pool.
    pub fn policy(&self) -> Policy {
        self.policy.1
    }

    /// Its storm.
    pub fn plan(&self, seed: u64) -> Plan {
        let every = 1_000_000_000_u64.checked_div(u64::from(self.hz)).unwrap_or(0);
        Plan {
            workers: self.threads,
            time: Duration::from_millis(700),
            order_max: self.order_max,
            one_order: self.one_order,
            signal_every: Duration::from_nanos(every),
            // A pool of several nodes keeps watermarks in each: what is refused is not judged.
            settings: self.settings || self.nodes > 1,
            lists_served: false,
            seed,
            ..Plan::default()
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.rseq { "rseq" } else { "lock" };
        let orders = if self.one_order { "order" } else { "orders to" };
        write!(
            f,
            "{mode}, {} threads, {} MiB on {} nodes, {}, {orders} {}, signals at {} Hz, settings \
             {}",
            self.threads,
            self.mib,
            self.nodes,
            self.policy.0,
            self.order_max,
            self.hz,
            if self.settings { "change" } else { "stay" },
        )
    }
}
