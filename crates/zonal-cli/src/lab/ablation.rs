//! `zonal lab ablation`: what each published table owes to each mechanism of the model.

use anyhow::ensure;
use comfy_table::{Table as Drawn, presets};
use serde::Serialize;
use zonal_lab::experiment::ablation::{self, Ablation, Moved, mechanisms, near};
use zonal_lab::experiment::{EXPERIMENTS, Experiment, Extent, SCHEMA_VERSION};
use zonal_lab::mechanism::{Mechanism, all};
use zonal_lab::report;

use super::args::AblationArgs;
use super::kept::Kept;
use crate::output;
use crate::verdict::Verdict;

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema_version: u32,
    kind: &'static str,
    command: &'a str,
    experiments: Vec<Of<'a>>,
}

#[derive(Serialize)]
struct Of<'a> {
    experiment: &'static str,
    machine: &'a str,
    seed: u64,
    conclusion: String,
    /// The first one is with all mechanisms.
    tables: Vec<One<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    without: Option<&'static str>,
    result_hash: &'a str,
    within_target: usize,
    sentence: Option<String>,
    cells: Vec<Moved<'a>>,
}

/// Runs the command.
///
/// # Errors
/// An experiment or a mechanism that is none, or a file that cannot be written.
pub fn run(args: &AblationArgs) -> anyhow::Result<Verdict> {
    if args.list {
        return list();
    }
    let chosen = experiments(&args.experiment)?;
    for name in &args.mechanism {
        let known: Vec<&str> = all().map(|(_, name, _)| *name).collect();
        ensure!(
            Mechanism::named(name).is_some(),
            "--mechanism: '{name}'; expected {}",
            known.join(", ")
        );
    }
    let takes = |name: &str| args.mechanism.is_empty() || args.mechanism.iter().any(|m| m == name);
    let has_one =
        |experiment: &Experiment| mechanisms(experiment).iter().any(|(_, name, _)| takes(name));
    ensure!(
        chosen.iter().any(has_one),
        "nothing to switch off: no machine of these experiments has the mechanism {}",
        args.mechanism.join(", ")
    );
    let extent = if args.whole_time { Extent::Published } else { Extent::Brief };
    let command = command(args);
    output::note(&command);
    if let (Some(keep), Some(html)) = (&args.keep, &args.html) {
        ensure!(!output::same(keep, html), "--keep and --html: both are {}", keep.display());
    }
    args.keep.iter().try_for_each(|keep| output::check_name(keep))?;
    let kept = args.keep.clone().map(Kept::at).transpose()?;
    let page = args.html.as_deref().map(output::Target::new).transpose()?;
    let mut ablations = Vec::new();
    for experiment in chosen {
        if !has_one(&experiment) {
            let name = experiment.name;
            output::note(&format!("{name}: none of the mechanisms is part of its machine"));
            continue;
        }
        let steps = output::Steps::new(experiment.name, "parts", 0);
        let all = &mut |done, of| steps.at(done, of);
        let finished: &dyn ablation::Kept = match &kept {
            Some(kept) => kept,
            None => &(),
        };
        let one = Ablation::run(&experiment, (args.seed, extent), &takes, finished, all)?;
        if let Some(kept) = &kept {
            note_taken(&one, kept);
        }
        ablations.push(one);
    }
    if let Some(page) = page {
        page.write(&report::ablation_html(&ablations, &command))?;
    }
    output::data(&match (args.json, args.csv) {
        (true, _) => json(&ablations, &command)? + "\n",
        (_, true) => report::ablation_csv(&ablations),
        _ => ablations.iter().map(text).collect::<Vec<_>>().join("\n"),
    })?;
    Ok(Verdict::Pass)
}

/// Says which tables were not played.
fn note_taken(ablation: &Ablation, kept: &Kept) {
    let taken = kept.taken();
    if taken > 0 {
        let (name, of, file) = (ablation.whole.experiment, ablation.without.len() + 1, kept.file());
        output::note(&format!(
            "{name}: {taken} of {of} tables are from {file}; without it they are made again"
        ));
    }
}

fn experiments(names: &[String]) -> anyhow::Result<Vec<Experiment>> {
    if names.is_empty() {
        return Ok(EXPERIMENTS.iter().copied().filter(|e| e.target_percent > 0.0).collect());
    }
    Ok(names.iter().map(|name| Experiment::named(name)).collect::<Result<_, _>>()?)
}

fn command(args: &AblationArgs) -> String {
    let many = |flag: &str, values: &[String]| -> String {
        values.iter().map(|value| format!(" --{flag} {value}")).collect()
    };
    format!(
        "zonal lab ablation --seed {}{}{}{}",
        args.seed,
        if args.whole_time { " --whole-time" } else { "" },
        many("experiment", &args.experiment),
        many("mechanism", &args.mechanism)
    )
}

fn list() -> anyhow::Result<Verdict> {
    let mut drawn = Drawn::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(["mechanism", "without it"]);
    for (_, name, left) in all() {
        drawn.add_row([*name, *left]);
    }
    output::data(&format!("{}\n", drawn.trim_fmt()))?;
    Ok(Verdict::Pass)
}

fn text(ablation: &Ablation) -> String {
    let mut drawn = Drawn::new();
    drawn.load_style(presets::NOTHING);
    drawn.set_header(["without", "within target", ""]);
    let cells = ablation.cells(None);
    drawn.add_row(["-", &format!("{} of {}", near(&cells), cells.len()), "as it is"]);
    for one in &ablation.without {
        let cells = ablation.cells(Some(one));
        let near = format!("{} of {}", near(&cells), cells.len());
        drawn.add_row([one.mechanism, &near, &ablation.sentence(one)]);
    }
    let whole = &ablation.whole;
    format!(
        "{} (simulated, {}) on {}, seed {}\n{}\n\n{}\n",
        whole.experiment,
        played(ablation.extent),
        whole.machine,
        whole.seed,
        ablation.conclusion(),
        drawn.trim_fmt()
    )
}

fn played(extent: Extent) -> &'static str {
    if extent == Extent::Brief { "played briefly" } else { "played for its own time" }
}

fn json(ablations: &[Ablation], command: &str) -> anyhow::Result<String> {
    let experiments = ablations.iter().map(of).collect();
    let printed =
        Printed { schema_version: SCHEMA_VERSION, kind: "simulated", command, experiments };
    Ok(serde_json::to_string_pretty(&printed)?)
}

fn of(ablation: &Ablation) -> Of<'_> {
    let whole = std::iter::once(None).chain(ablation.without.iter().map(Some));
    let tables = whole.map(|without| {
        let cells = ablation.cells(without);
        One {
            without: without.map(|one| one.mechanism),
            result_hash: &without.map_or(&ablation.whole, |one| &one.table).result_hash,
            within_target: near(&cells),
            sentence: without.map(|one| ablation.sentence(one)),
            cells,
        }
    });
    Of {
        experiment: ablation.whole.experiment,
        machine: &ablation.whole.machine,
        seed: ablation.whole.seed,
        conclusion: ablation.conclusion(),
        tables: tables.collect(),
    }
}
