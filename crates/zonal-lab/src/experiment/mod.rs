//! The published tables, each beside the lab's figures.
//!
//! No file here holds a cost: costs belong to machines and to the cost model.

pub mod ablation;
mod aging;
mod deferred_init;
mod kept;
mod label;
mod not_modelled;
mod numa_stat_threshold;
mod pageblocks;
mod pcp;
mod published;
mod rows;
mod table;
mod vmstat_update_cost;
mod zone_reclaim;

use crate::LabError;
use crate::machine::Machine;
use crate::provenance::Given;
use crate::stop;

pub use table::{Cell, Experiment, Extent, FiguresIn, Options, Progress, SCHEMA_VERSION, Table};

/// Every experiment.
pub const EXPERIMENTS: &[Experiment] = &[
    vmstat_update_cost::EXPERIMENT,
    numa_stat_threshold::EXPERIMENT,
    deferred_init::EXPERIMENT,
    zone_reclaim::FSMARK,
    zone_reclaim::LARGEDD,
    zone_reclaim::STREAMWRITER,
    pcp::KBUILD,
    pcp::UNIX,
    pcp::SCTP,
    pageblocks::EXPERIMENT,
];

/// Numbers of the experiments, each with its provenance.
const GIVEN: &[&[Given]] = &[
    aging::GIVEN,
    pageblocks::GIVEN,
    deferred_init::GIVEN,
    numa_stat_threshold::GIVEN,
    pcp::GIVEN,
    table::GIVEN,
    vmstat_update_cost::GIVEN,
    zone_reclaim::GIVEN,
];

impl Experiment {
    /// The experiment of this name.
    ///
    /// # Errors
    /// [`LabError::Unknown`] with the names there are.
    pub fn named(name: &str) -> Result<Experiment, LabError> {
        let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name).copied();
        found.ok_or_else(|| LabError::Unknown {
            what: "experiment",
            name: name.to_owned(),
            known: EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// A machine or a policy that cannot be, or sizes for an experiment that has one machine alone.
    pub fn run(&self, options: &Options, progress: Progress<'_>) -> Result<Table, LabError> {
        if !options.cpus.is_empty() && !self.sizes {
            let sized: Vec<&str> =
                EXPERIMENTS.iter().filter(|known| known.sizes).map(|known| known.name).collect();
            return Err(LabError::Plan(format!(
                "--cpus: {} runs on the machine of its table alone; expected one of {}, or \
                 `zonal lab once --machine NAME@CPUS`",
                self.name,
                sized.join(", ")
            )));
        }
        let mut heard = |done, of| {
            stop::check();
            progress(done, of);
        };
        let mut table = (self.run)(options, &mut heard)?;
        table.label(&Machine::named(&table.machine)?, GIVEN);
        Ok(table)
    }
}
