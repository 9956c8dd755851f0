//! A run as people write it: each part a text, from which a [`Plan`] is made, and a command line
//! that makes the same run again.
//!
//! ```
//! use zonal_lab::machine::Machine;
//! use zonal_lab::recipe::Recipe;
//!
//! let mut recipe = Recipe::new("broadwell-2017-88", "linux-6.18", "burst");
//! recipe.set("cpus", "8").unwrap();
//! recipe.set("pcp.scale_max", "3").unwrap();
//! recipe.set("workload.hold", "64").unwrap();
//! let plan = recipe.plan(&|name| Ok(Machine::named(name)?)).unwrap();
//! assert_eq!((plan.machine.cpus(), plan.policy.pcp.scale_max), (8, 3));
//! assert!(recipe.command().contains("--policy linux-6.18+pcp.scale_max=3"));
//! ```

use zonal_core::policy::Policy;
use zonal_core::policy::set::SETTINGS;

use crate::LabError;
use crate::machine::{Machine, split_size};
use crate::run::{Plan, RUN_US, WARM_US};
use crate::variant::Variant;
use crate::workload::Workload;

/// Finds the machine of a name; who runs the lab knows files and measured machines too.
pub type Machines<'a> = &'a dyn Fn(&str) -> Result<Machine, LabError>;

/// A run as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The machine: `NAME`, `NAME@CPUS` or `NAME@CPUS/NODES`.
    pub machine: String,
    /// The policy: `NAME`, and after it values that differ, as `NAME+KEY=VALUE+KEY=VALUE`.
    pub policy: String,
    /// The workload: `NAME` or `NAME:PARAMETER=NUMBER,...`.
    pub workload: String,
    /// What its kernel does differently from every policy, as words with commas between them
    /// (`variant`); empty: nothing.
    pub variant: String,
    /// How many CPUs take part; without it all.
    pub busy: Option<u32>,
    /// What random choices start from.
    pub seed: u64,
    /// Time before anything is measured, in microseconds of virtual time.
    pub warm_us: u64,
    /// Time that is measured, in microseconds of virtual time.
    pub run_us: u64,
}

/// Settings besides the values of a policy, with their meaning.
pub const KEYS: [(&str, &str); 9] = [
    ("machine", "a machine"),
    ("cpus", "the size of the machine: CPUS, or CPUS/NODES"),
    ("policy", "a policy, as NAME or NAME+KEY=VALUE"),
    ("workload", "a workload, as NAME or NAME:PARAMETER=NUMBER"),
    ("workload.PARAMETER", "a number of the workload"),
    ("variant", "what a kernel does that no policy says, as chosen-before,zones=4"),
    ("busy", "how many CPUs take part"),
    ("seed", "what random choices start from"),
    ("warm_us, run_us", "time before measuring, and measured, in microseconds"),
];

impl Recipe {
    /// A run with all CPUs, seed 1 and the usual time.
    pub fn new(machine: &str, policy: &str, workload: &str) -> Recipe {
        Recipe {
            machine: machine.to_owned(),
            policy: policy.to_owned(),
            workload: workload.to_owned(),
            variant: String::new(),
            busy: None,
            seed: 1,
            warm_us: WARM_US,
            run_us: RUN_US,
        }
    }

    /// Sets one of [`KEYS`], or a value of the policy.
    ///
    /// # Errors
    /// A key that is none, or a number that is none. Whether the run can be is for
    /// [`Recipe::plan`] to say.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LabError> {
        let number = || {
            let wrong = |_| LabError::Plan(format!("{key}: '{value}'; expected a whole number"));
            value.parse::<u64>().map_err(wrong)
        };
        match key {
            "machine" => self.machine = value.to_owned(),
            "policy" => self.policy = value.to_owned(),
            "workload" => self.workload = value.to_owned(),
            "variant" => self.variant = value.parse::<Variant>()?.to_string(),
            "cpus" => {
                self.machine = format!("{}@{value}", split_size(&self.machine).0);
            }
            "busy" => {
                let wrong = |_| LabError::Plan(format!("busy: {value}; a machine has fewer CPUs"));
                self.busy = Some(u32::try_from(number()?).map_err(wrong)?);
            }
            "seed" => self.seed = number()?,
            "warm_us" => self.warm_us = number()?,
            "run_us" => self.run_us = number()?,
            _ => match key.strip_prefix("workload.") {
                Some(name) => {
                    let mut workload: Workload = self.workload.parse()?;
                    workload.set(name, value)?;
                    self.workload = workload.to_string();
                }
                None if SETTINGS.iter().any(|setting| setting.key == key) => {
                    let other = |part: &String| part.split_once('=').is_none_or(|(k, _)| k != key);
                    let kept: Vec<String> = parts(&self.policy).into_iter().filter(other).collect();
                    self.policy = format!("{}+{key}={value}", kept.join("+"));
                }
                None => return Err(unknown_key(key)),
            },
        }
        Ok(())
    }

    /// The run.
    ///
    /// # Errors
    /// A machine, a policy or a workload that is not there or cannot be.
    pub fn plan(&self, machines: Machines<'_>) -> Result<Plan, LabError> {
        let variant: Variant = self.variant.parse()?;
        let machine = variant.machine(machines(&self.machine)?)?;
        let policy = policy(&self.policy)?;
        let mut plan = Plan::new(machine, policy, self.workload.parse()?, self.seed);
        (plan.cpus, plan.warm_us, plan.run_us) = (self.busy, self.warm_us, self.run_us);
        plan.variant = variant;
        plan.check()?;
        Ok(plan)
    }

    /// The command line that makes this run.
    pub fn command(&self) -> String {
        let Recipe { machine, policy, workload, seed, warm_us, run_us, .. } = self;
        let busy = self.busy.map_or_else(String::new, |busy| format!(" --busy {busy}"));
        let variant = match self.variant.as_str() {
            "" => String::new(),
            words => format!(" --set variant={}", quoted(words)),
        };
        format!(
            "zonal lab once --machine {} --policy {} --workload {}{variant}{busy} --seed {seed} \
             --warm-us {warm_us} --run-us {run_us}",
            quoted(machine),
            quoted(policy),
            quoted(workload),
        )
    }
}

/// The policy that `NAME+KEY=VALUE` says.
///
/// # Errors
/// A name, key or value that is none, with those there are.
pub fn policy(text: &str) -> Result<Policy, LabError> {
    let mut parts = parts(text).into_iter();
    let name = &*parts.next().unwrap_or_default();
    let mut policy = Policy::preset(name).map_err(|_| LabError::Unknown {
        what: "policy",
        name: name.to_owned(),
        known: Policy::PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", "),
    })?;
    for part in parts {
        let wrong = |why: &dyn std::fmt::Display| LabError::Plan(format!("policy {text}: {why}"));
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| wrong(&format!("'{part}'; expected KEY=VALUE after each +")))?;
        policy.set(key, value).map_err(|error| wrong(&error))?;
    }
    Ok(policy)
}

/// The name and each `KEY=VALUE` of a policy's text. A value may have a `+` of its own.
fn parts(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in text.split('+') {
        match parts.last_mut() {
            Some(value) if value.contains('=') && !piece.contains('=') => {
                value.push('+');
                value.push_str(piece);
            }
            _ => parts.push(piece.to_owned()),
        }
    }
    parts
}

fn unknown_key(key: &str) -> LabError {
    let mut known: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    known.extend(SETTINGS.iter().map(|setting| setting.key));
    LabError::Unknown { what: "value to set", name: key.to_owned(), known: known.join(", ") }
}

/// A word of a command line, quoted if a shell would make something else of it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/@:=,+-".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presets(name: &str) -> Result<Machine, LabError> {
        Ok(Machine::named(name)?)
    }

    #[test]
    fn what_is_set_is_in_the_plan_and_in_the_command() {
        let mut recipe = Recipe::new("xeon-2007-8", "zonal", "churn");
        for (key, value) in [
            ("machine", "broadwell-2017-88@44"),
            ("cpus", "16/4"),
            ("policy", "linux-6.6+pcp.scale_max=2"),
            ("pcp.scale_max", "1"),
            ("workload", "burst:hold=9"),
            ("workload.order", "2"),
            ("busy", "5"),
            ("seed", "77"),
            ("warm_us", "3"),
            ("run_us", "4"),
        ] {
            recipe.set(key, value).unwrap();
        }
        let plan = recipe.plan(&presets).unwrap();
        assert_eq!((plan.machine.cpus(), plan.machine.nodes()), (16, 4));
        assert_eq!((plan.policy.name, plan.policy.pcp.scale_max), ("linux-6.6", 1));
        assert_eq!((plan.workload.get("hold"), plan.workload.get("order")), (Some(9), Some(2)));
        assert_eq!((plan.cpus, plan.seed, plan.warm_us, plan.run_us), (Some(5), 77, 3, 4));
        assert_eq!(
            recipe.command(),
            "zonal lab once --machine broadwell-2017-88@16/4 --policy linux-6.6+pcp.scale_max=1 \
             --workload burst:hold=9,order=2,lines=64 --busy 5 --seed 77 --warm-us 3 --run-us 4"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_there_is() {
        let mut recipe = Recipe::new("xeon-2007-8", "zonal", "burst");
        for (key, value, expected) in [
            ("seed", "-1", "seed: '-1'; expected a whole number"),
            ("busy", "99999999999", "busy: 99999999999"),
            ("nonsense", "1", "there are machine, cpus"),
            ("pcp.scale_mx", "1", "did you mean 'pcp.scale_max'?"),
            ("workload.nonsense", "1", "it takes hold, order, lines"),
            ("workload.hold", "0", "expected a whole number from 1"),
        ] {
            let error = recipe.set(key, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (key, value, expected) in [
            ("machine", "nonsense", "there are xeon-2007-8"),
            ("cpus", "0", "0 CPUs"),
            ("policy", "nonsense", "there are "),
            ("policy", "zonal+x", "expected KEY=VALUE after each +"),
            ("pcp.scale_max", "9", "accepted: 0 to 6"),
            ("workload", "nonsense", "there are page-bench"),
            ("busy", "9", "has 1 to 8"),
            ("run_us", "0", "expected 1 to"),
        ] {
            let mut recipe = recipe.clone();
            recipe.set(key, value).unwrap();
            let error = recipe.plan(&presets).unwrap_err().to_string();
            assert!(error.contains(expected), "{key}={value}: {error}");
        }
    }

    #[test]
    fn every_policy_can_be_written_out_and_read_again() {
        for preset in Policy::PRESETS {
            let mut recipe = Recipe::new("xeon-2007-8", preset.name, "churn");
            for _ in 0..2 {
                for setting in preset.settings() {
                    recipe.set(setting.setting.key, &setting.value().to_string()).unwrap();
                }
            }
            let again = policy(&recipe.policy).unwrap();
            assert_eq!(again.differences(preset).count(), 0, "{}", recipe.policy);
        }
    }

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
        assert_eq!(quoted("a@8/2+b.c=1,2"), "a@8/2+b.c=1,2");
        assert_eq!(quoted("my m's.toml"), "'my m'\\''s.toml'");
        assert_eq!(quoted(""), "''");
    }
}
