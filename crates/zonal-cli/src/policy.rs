//! `zonal policy`: the values of a policy, as they can be given to `--set`.

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;
use zonal_core::policy::Policy;
use zonal_core::policy::set::Assignment;

use crate::output;
use crate::policy_args::{PolicyArgs, preset};
use crate::verdict::Verdict;

const SCHEMA_VERSION: u32 = 1;

/// Flags of `zonal policy`.
#[derive(Args, Debug)]
pub struct ShowPolicyArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Show only the values that differ from those of this policy.
    #[arg(long, value_name = "POLICY", value_parser = preset)]
    pub against: Option<Policy>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// One value, for `--json`.
#[derive(Serialize)]
struct Value {
    key: &'static str,
    value: String,
    accepted: String,
    help: &'static str,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown {
    schema_version: u32,
    policy: &'static str,
    presets: Vec<&'static str>,
    values: Vec<Value>,
}

/// Runs the command.
///
/// # Errors
/// A `--set` that cannot be.
pub fn show(args: &ShowPolicyArgs) -> anyhow::Result<Verdict> {
    let policy = args.policy.policy()?;
    let value = |assignment: Assignment<'_>| Value {
        key: assignment.setting.key,
        value: assignment.value().to_string(),
        accepted: assignment.setting.accepted().to_string(),
        help: assignment.setting.help,
    };
    let values = match &args.against {
        Some(other) => policy.differences(other).map(value).collect(),
        None => policy.settings().map(value).collect(),
    };
    let shown = Shown {
        schema_version: SCHEMA_VERSION,
        policy: policy.name,
        presets: Policy::PRESETS.iter().map(|preset| preset.name).collect(),
        values,
    };
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&shown)? + "\n",
        false => shown.text(args.against.as_ref()),
    })?;
    Ok(Verdict::Pass)
}

impl Shown {
    fn text(&self, against: Option<&Policy>) -> String {
        if let Some(other) = against.filter(|_| self.values.is_empty()) {
            return format!("policy {}; no value differs from {}\n", self.policy, other.name);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["key", "value", "meaning", "accepted"]);
        for Value { key, value, accepted, help } in &self.values {
            table.add_row([key, value.as_str(), help, accepted]);
        }
        let differing = match against {
            Some(other) => format!("; values that differ from {}", other.name),
            None => String::new(),
        };
        format!("policy {}{differing}\n\n{}\n", self.policy, table.trim_fmt())
    }
}
