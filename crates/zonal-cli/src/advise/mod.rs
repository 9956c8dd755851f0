//! `zonal advise`: what other settings would have done with a recorded load.

use std::path::PathBuf;

use clap::Args;
use comfy_table::{ContentArrangement, Table};
use zonal_replay::advise::{Advice, Options, advise};
use zonal_trace::samples;

use crate::output;
use crate::verdict::Verdict;

/// Flags of `zonal advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// A trace of any form, with the machine it was recorded on. Without it: the bundled recording
    /// of a build of zlib (make -j4) on Linux 6.18.
    pub trace: Option<PathBuf>,

    /// Take the machine's description from the files of this directory.
    #[arg(long, value_name = "DIR", requires = "trace")]
    pub machine: Option<PathBuf>,

    /// Try only changes whose name begins so, such as min_free_kbytes or linux-; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Stop after this many events of the trace.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
///
/// # Errors
/// Bad input, with file and line, or a machine that cannot be rebuilt.
pub fn run(args: &AdviseArgs) -> anyhow::Result<Verdict> {
    let recording = match &args.trace {
        Some(path) => crate::trace::open(path, args.machine.as_deref())?,
        None => samples::zlib_make_j4()?,
    };
    let options = Options { limit: args.limit, only: &args.only };
    let advice = advise(&recording, &options, &mut output::Bar::default().watch())?;
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&advice)? + "\n",
        false => text(&advice),
    })?;
    Ok(if advice.faults.is_empty() { Verdict::Pass } else { Verdict::Failed })
}

fn text(advice: &Advice) -> String {
    let release = advice.kernel_release.as_deref().unwrap_or("of unknown release");
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "change",
        "lock holds",
        "refills",
        "drain holds",
        "pages on lists",
        "most",
        "busiest lock %",
        "contended %",
        "wait us/s",
        "refused",
    ]);
    for row in std::iter::once(&advice.recorded).chain(&advice.changes) {
        let contention = &row.contention;
        table.add_row([
            row.change.clone(),
            row.lock_holds.to_string(),
            row.refills.to_string(),
            row.drains.to_string(),
            row.list_pages_mean.to_string(),
            row.list_pages_max.to_string(),
            format!("{:.4}", contention.busy_percent_max),
            format!("{:.4}", contention.contended_percent),
            format!("{:.3}", contention.wait_us_per_s),
            row.refused.to_string(),
        ]);
    }
    let mut text = format!(
        "{}: Linux {release}, {} CPUs, {} allocations in {:.1} s, by the rules of {}\n\
         every number is modelled; contention: {:.0} ns a hold and {:.1} ns a page, of the \
         lab's {}\n\n{table}\n\nbest first\n",
        advice.trace,
        advice.cpus,
        advice.allocs,
        advice.seconds,
        advice.policy,
        advice.cost.hold_ns,
        advice.cost.page_ns,
        advice.cost.machine
    );
    for row in &advice.changes {
        text.push_str(&format!("  {}: {}\n", row.change, row.reason));
        if let Some(command) = &row.command {
            text.push_str(&format!("      {command}\n"));
        }
    }
    for note in &advice.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}
