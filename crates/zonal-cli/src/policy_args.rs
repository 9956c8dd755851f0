//! Flags that choose a policy, for every command that has them.

use anyhow::Context;
use clap::Args;
use zonal_core::policy::Policy;

/// Flags that say whose rules the allocator follows.
#[derive(Args, Clone, Debug)]
pub struct PolicyArgs {
    #[arg(long, value_name = "POLICY", value_parser = preset)]
    #[arg(help = policy_help())]
    policy: Option<Policy>,

    /// Change one value of the policy; may be repeated. `zonal policy` lists the keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl PolicyArgs {
    /// The policy, with the values that were set.
    ///
    /// # Errors
    /// A key that is none, or a value that is not accepted or does not go with the others.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        let mut policy = self.policy.unwrap_or(Policy::ZONAL);
        apply(&mut policy, &self.set)?;
        Ok(policy)
    }

    /// Whether no such flag was given.
    pub fn is_empty(&self) -> bool {
        self.policy.is_none() && self.set.is_empty()
    }
}

/// Changes values of a policy, each given as `KEY=VALUE`.
///
/// # Errors
/// A key that is none, or a value that is not accepted or does not go with the others.
pub fn apply(policy: &mut Policy, settings: &[String]) -> anyhow::Result<()> {
    for text in settings {
        let (key, value) = text.split_once('=').with_context(|| {
            format!("--set {text}: expected KEY=VALUE, as --set pcp.scale_max=3")
        })?;
        let set = policy.set(key, value);
        set.map_err(|error| anyhow::anyhow!("--set {text}: {error}"))?;
    }
    Ok(())
}

fn preset_names() -> String {
    Policy::PRESETS.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ")
}

fn policy_help() -> String {
    format!("Whose rules the allocator follows: {} [default: zonal]", preset_names())
}

/// A preset by name.
pub fn preset(name: &str) -> Result<Policy, String> {
    Policy::preset(name).map_err(|error| error.to_string())
}
