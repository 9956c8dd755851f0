//! What may be said of a published cell: the worst that any figure says of it.

use crate::cost;
use crate::machine::Machine;
use crate::pagecache;
use crate::platform;
use crate::provenance::{Given, Label};
use crate::variant;
use crate::workload;

/// Every number of the model, the loads and the workloads that is a constant.
fn given() -> impl Iterator<Item = &'static Given> {
    let parts = cost::GIVEN.iter().chain(pagecache::GIVEN).chain(workload::GIVEN);
    let parts = parts.copied().flatten();
    parts.chain(variant::GIVEN).chain(platform::GIVEN)
}

/// What may be said of a published cell of an experiment that ran on `machine`. `more`: numbers of
/// the experiments.
pub(super) fn label(
    machine: &Machine,
    more: &'static [&'static [Given]],
    [experiment, row, column]: [&str; 3],
) -> Label {
    let params = workload::KINDS.iter().flat_map(|kind| kind.params).map(|param| &param.from);
    let given = given().chain(more.iter().copied().flatten());
    let all = machine.sources.values().chain(given.map(|given| &given.from)).chain(params);
    let labels = all.map(|from| from.label(experiment, row, column));
    labels.max().unwrap_or(Label::Prediction)
}

#[cfg(test)]
mod tests;
