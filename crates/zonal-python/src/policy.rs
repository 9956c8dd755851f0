//! Policies: a name and the values that differ, as text; each value with its meaning.

use pyo3::prelude::*;
use serde_json::{Value, json};
use zonal_core::policy::Policy;
use zonal_core::policy::set::Assignment;

use crate::fault::Fault;

/// The policy `NAME` or `NAME+KEY=VALUE+...`.
///
/// # Errors
/// No such policy, key or value.
pub fn parse(text: &str) -> Result<Policy, Fault> {
    zonal_lab::recipe::policy(text).map_err(|error| Fault::of("PolicyError", &error))
}

/// A policy as JSON: `name` and `values`, each with key, value, accepted and help. With `against`
/// only the values that differ from that policy's.
#[pyfunction]
#[pyo3(signature = (text, against=None))]
pub fn policy_values(text: &str, against: Option<&str>) -> PyResult<String> {
    let policy = parse(text)?;
    let value = |assignment: Assignment<'_>| {
        json!({
            "key": assignment.setting.key,
            "value": assignment.value().to_string(),
            "accepted": assignment.setting.accepted().to_string(),
            "help": assignment.setting.help,
        })
    };
    let values: Vec<Value> = match against.map(parse).transpose()? {
        Some(other) => policy.differences(&other).map(value).collect(),
        None => policy.settings().map(value).collect(),
    };
    Ok(json!({ "name": policy.name, "values": values }).to_string())
}

/// Names of the policies that there are.
#[pyfunction]
pub fn policy_names() -> Vec<&'static str> {
    Policy::PRESETS.iter().map(|preset| preset.name).collect()
}
