//! `zonal advise`: what other settings would have done with a recorded load.
//!
//! The trace is replayed on the recorded machine without memory, once as it was and once for each
//! change of one thing. Everything in the table is of the model; [`cost`] says how contention is
//! made of it.

mod changes;
mod cost;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use zonal_core::policy::Policy;

use self::changes::{Change, Settings};
use self::cost::{Contention, HoldCost};
use crate::replay::{Trial, Trialled, WhatIf};
use crate::{Verdict, output};

/// A change is better or worse if its waiting or its holds differ by more than this, in percent.
const NOTABLE_PERCENT: f64 = 2.0;

/// Flags of `zonal advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// A trace of any form, with the machine it was recorded on.
    pub trace: PathBuf,

    /// Take the machine's description from the files of this directory.
    #[arg(long, value_name = "DIR")]
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

/// The result.
#[derive(Debug, Serialize)]
struct Advice {
    schema_version: u32,
    trace: String,
    kernel_release: Option<String>,
    /// Rules of the recorded kernel.
    policy: &'static str,
    cpus: u32,
    seconds: f64,
    allocs: u64,
    /// Every number below is of the model.
    modelled: bool,
    /// What contention is made of.
    cost: HoldCost,
    recorded: Row,
    /// Best first.
    changes: Vec<Row>,
    notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    change: String,
    /// The line to type.
    command: Option<String>,
    lock_holds: u64,
    refills: u64,
    refill_pages: u64,
    drains: u64,
    drain_pages: u64,
    list_pages_mean: u64,
    list_pages_max: u64,
    refused: u64,
    slow_paths: u64,
    #[serde(flatten)]
    contention: Contention,
    reason: String,
}

/// Runs the command.
///
/// # Errors
/// Bad input, with file and line, or a machine that cannot be rebuilt.
pub fn run(args: &AdviseArgs) -> anyhow::Result<Verdict> {
    let recording = crate::trace::open(&args.trace, args.machine.as_deref())?;
    let machine = recording.description();
    let policy = changes::policy_of(machine.kernel_release.as_deref());
    let settings = Settings::of(&recording)?;
    let what_if = WhatIf::new(&recording, policy, args.limit)?;
    let cost = HoldCost::of_lab()?;
    let seconds = what_if.seconds();
    let mut notes = Vec::new();
    let base = Trial { policy, sysctls: settings.recorded(), cpus: 1 };
    let as_recorded = what_if.run(&base).context("the trace as it was recorded")?;
    let faults = as_recorded.faults.clone();
    let recorded =
        Row::new("as recorded", None, &as_recorded, cost.contention(&as_recorded, 1, seconds));
    let mut rows = Vec::new();
    let wanted = |change: &Change| {
        args.only.is_empty() || args.only.iter().any(|name| change.name.starts_with(name))
    };
    let changes = changes::all(&settings, &policy, machine.nodes.len());
    for change in changes.into_iter().filter(wanted) {
        let trial = base.with(&change);
        match what_if.run(&trial) {
            Ok(trialled) => {
                let contention = cost.contention(&trialled, change.cpus, seconds);
                let mut row = Row::new(&change.name, change.command.clone(), &trialled, contention);
                row.times(change.cpus);
                row.reason = reason(&row, &recorded, &change);
                rows.push(row);
            }
            Err(error) => notes.push(format!("{}: {}", change.name, output::chain(&error))),
        }
    }
    rows.sort_by(|a, b| a.key(&recorded).total_cmp(&b.key(&recorded)));
    if machine.nodes.len() < 2 {
        notes.push("one node: zone_reclaim_mode changes nothing".to_owned());
    } else {
        let elsewhere = what_if.allocs_elsewhere();
        notes.push(format!("{elsewhere} allocations of the trace went to another node"));
    }
    if settings.min_free_kbytes.is_none() {
        notes.push("the recording has no sysctl.txt: min_free_kbytes is not tried".to_owned());
    }
    notes.extend(faults.iter().map(|fault| format!("FAILED: {fault}")));
    let advice = Advice {
        schema_version: 1,
        trace: machine.name.clone(),
        kernel_release: machine.kernel_release.clone(),
        policy: policy.name,
        cpus: what_if.cpus(),
        seconds,
        allocs: what_if.allocs(),
        modelled: true,
        cost,
        recorded,
        changes: rows,
        notes,
    };
    output::data(&match args.json {
        true => serde_json::to_string_pretty(&advice)? + "\n",
        false => advice.text(),
    })?;
    Ok(if faults.is_empty() { Verdict::Pass } else { Verdict::Failed })
}

impl Trial {
    fn with(&self, change: &Change) -> Trial {
        let policy: Policy = change.policy.unwrap_or(self.policy);
        let mut sysctls = self.sysctls.clone();
        if let Some((sysctl, value)) = change.sysctl {
            sysctls.retain(|(other, _)| *other != sysctl);
            sysctls.push((sysctl, value));
        }
        Trial { policy, sysctls, cpus: change.cpus }
    }
}

impl Row {
    fn new(
        name: &str,
        command: Option<String>,
        trialled: &Trialled,
        contention: Contention,
    ) -> Row {
        Row {
            change: name.to_owned(),
            command,
            lock_holds: trialled.lock_holds,
            refills: trialled.refills,
            refill_pages: trialled.refill_pages,
            drains: trialled.drains,
            drain_pages: trialled.drain_pages,
            list_pages_mean: trialled.list_pages_mean,
            list_pages_max: trialled.list_pages_max,
            refused: trialled.refused,
            slow_paths: trialled.slow_paths,
            contention,
            reason: String::new(),
        }
    }

    /// All CPUs of a machine that has `times` as many.
    fn times(&mut self, times: u32) {
        let times = u64::from(times);
        for number in [
            &mut self.lock_holds,
            &mut self.refills,
            &mut self.refill_pages,
            &mut self.drains,
            &mut self.drain_pages,
            &mut self.list_pages_mean,
            &mut self.list_pages_max,
            &mut self.refused,
            &mut self.slow_paths,
        ] {
            *number *= times;
        }
    }

    /// Less is better: what is refused first, then waiting, then holds, then pages on lists.
    fn key(&self, recorded: &Row) -> f64 {
        let refused = self.refused.saturating_sub(recorded.refused) as f64;
        let waits = percent(self.contention.wait_us_per_s, recorded.contention.wait_us_per_s);
        let holds = percent(self.lock_holds as f64, recorded.lock_holds as f64);
        let pages = percent(self.list_pages_mean as f64, recorded.list_pages_mean as f64);
        refused * 1e12 + waits + holds / 1e3 + pages / 1e6
    }
}

/// By how much a number is larger than the recorded one, in percent of that.
fn percent(now: f64, recorded: f64) -> f64 {
    if recorded > 0.0 { (now - recorded) * 100.0 / recorded } else { now.min(1.0) * 100.0 }
}

/// Why a change stands where it stands.
fn reason(row: &Row, recorded: &Row, change: &Change) -> String {
    let holds = percent(row.lock_holds as f64, recorded.lock_holds as f64);
    let pages = row.list_pages_mean as i64 - recorded.list_pages_mean as i64;
    let mut parts = Vec::new();
    if row.refused > recorded.refused {
        parts.push(format!("refuses {} allocations", row.refused - recorded.refused));
    }
    if holds.abs() >= NOTABLE_PERCENT {
        parts.push(format!("{holds:+.0} % lock holds"));
    }
    if pages.unsigned_abs() * 50 > recorded.list_pages_mean {
        parts.push(format!("{:+.1} MiB on lists", pages as f64 / 256.0));
    }
    let what = match parts.is_empty() {
        true => "no notable difference for this load".to_owned(),
        false => parts.join(", "),
    };
    format!("{what}: {}", change.about)
}

impl Advice {
    fn text(&self) -> String {
        let release = self.kernel_release.as_deref().unwrap_or("of unknown release");
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
        for row in std::iter::once(&self.recorded).chain(&self.changes) {
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
            self.trace,
            self.cpus,
            self.allocs,
            self.seconds,
            self.policy,
            self.cost.hold_ns,
            self.cost.page_ns,
            self.cost.machine
        );
        for row in &self.changes {
            text.push_str(&format!("  {}: {}\n", row.change, row.reason));
            if let Some(command) = &row.command {
                text.push_str(&format!("      {command}\n"));
            }
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }
}
