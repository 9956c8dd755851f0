//! `zonal lab compare`: two policies on one workload.

use comfy_table::{Table as Drawn, presets};
use zonal_lab::compare::{Change, Comparison, compare};
use zonal_lab::report::figure;

use super::args::CompareArgs;
use super::machines::right;
use super::once::{machine, recipe};
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// A machine, a policy or a workload that is not there or cannot be.
pub fn run(args: &CompareArgs) -> anyhow::Result<Verdict> {
    // A `--set` of the policy would belong to one side or both: it is part of the names here.
    let base = recipe(&args.of, &args.one)?;
    anyhow::ensure!(
        base.policy == args.one,
        "--set changes the policy of one side; expected it in its name, as {}+KEY=VALUE",
        args.one
    );
    let policies = [args.one.as_str(), args.other.as_str()];
    let mut other = base.clone();
    args.other.clone_into(&mut other.policy);
    output::note(&base.command());
    output::note(&other.command());
    let result = compare(&base, policies, &machine)?;
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&result)? + "\n",
        false => text(&result),
    })?;
    Ok(Verdict::Pass)
}

fn text(result: &Comparison) -> String {
    let [one, other] = &result.sides;
    let names = [one.policy.as_str(), other.policy.as_str()];
    let mut settings = Drawn::new();
    settings.load_style(presets::NOTHING).set_header(["key", names[0], names[1], "meaning"]);
    for setting in &result.settings {
        settings.add_row([setting.key, &setting.values[0], &setting.values[1], setting.help]);
    }
    let settings = match result.settings.is_empty() {
        true => "the policies are the same".to_owned(),
        false => settings.trim_fmt(),
    };
    let why: Vec<String> = result.explanation.iter().map(|line| format!("  {line}\n")).collect();
    format!(
        "{} (simulated) on {}, seed {}: {} against {}\n\nwhat explains it\n{}\n\
         cycles of a call\n{}\n\nfigures that differ\n{}\n\nvalues that differ\n{settings}\n",
        result.workload,
        result.machine,
        result.seed,
        names[0],
        names[1],
        why.concat(),
        parts(&result.parts, names),
        differing(&result.figures, names),
    )
}

/// The parts that are not nothing on both sides.
fn parts(all: &[Change], names: [&str; 2]) -> String {
    let some = |part: &&Change| part.values.map(figure).iter().any(|text| !is_zero(text));
    table(all.iter().filter(some), names)
}

fn is_zero(text: &str) -> bool {
    text.parse() == Ok(0.0)
}

/// The figures that do not read alike on both sides, and how many do.
fn differing(all: &[Change], names: [&str; 2]) -> String {
    let differs = |change: &&Change| {
        let [one, other] = change.values.map(figure);
        one != other
    };
    let alike = all.len() - all.iter().filter(differs).count();
    let rows = match alike == all.len() {
        true => "none".to_owned(),
        false => table(all.iter().filter(differs), names),
    };
    format!("{rows}\n({alike} more are the same on both sides; --json has them)")
}

fn table<'a>(changes: impl Iterator<Item = &'a Change>, names: [&str; 2]) -> String {
    let mut drawn = Drawn::new();
    drawn.load_style(presets::NOTHING).set_header(["figure", names[0], names[1], "change %", ""]);
    for change in changes {
        let percent = change.change_percent.map_or_else(|| "-".into(), |p| format!("{p:+.1}"));
        let [one, other] = change.values.map(figure);
        drawn.add_row([change.name, &one, &other, &percent, change.about]);
    }
    right(&mut drawn, 1, 3);
    drawn.trim_fmt()
}
