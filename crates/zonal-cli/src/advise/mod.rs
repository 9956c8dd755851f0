//! `zonal advise`: what other settings would have done with a recorded load.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use comfy_table::{ContentArrangement, Table};
use zonal_replay::advise::{
    Advice, AdvisedOn, Options, Row, Saving, Verdict as Advised, WaitCheck, advise_all,
};
use zonal_replay::{AskedFor, LockRow, ReclaimCost};
use zonal_trace::samples;

use crate::output;
use crate::verdict::Verdict;

/// Flags of `zonal advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// A trace of any form, with the machine it was recorded on; several of one load, made on one
    /// machine under the same settings, give medians and ranges. Without any: the bundled recording
    /// of a build of zlib (make -j4) on Linux 6.18.
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Take the machine's description from the files of this directory.
    #[arg(long, value_name = "DIR", requires = "traces")]
    pub machine: Option<PathBuf>,

    /// Try only changes whose name begins so, such as min_free_kbytes or linux-; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
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
    let open = |path: &PathBuf| crate::trace::open(path, args.machine.as_deref());
    let mut recordings = args.traces.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    if recordings.is_empty() {
        recordings.push(samples::zlib_make_j4()?);
    }
    let options = Options { limit: args.limit, only: &args.only };
    let advice = advise_all(&recordings, &options, &mut output::Bar::default().watch())?;
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
        let (contention, counts) = (&row.contention, &row.counts);
        table.add_row([
            row.change.clone(),
            counts.lock_holds.to_string(),
            counts.refills.to_string(),
            counts.drains.to_string(),
            counts.list_pages_mean.to_string(),
            counts.list_pages_max.to_string(),
            format!("{:.4}", contention.busy_percent_max),
            format!("{:.4}", contention.contended_percent),
            match advice.has_waits() {
                true => format!("{:.3}", contention.wait_us_per_s),
                false => "not modelled".to_owned(),
            },
            counts.refused.to_string(),
        ]);
    }
    let mut text = verdict(advice);
    text.push_str(&each(advice));
    let cost = match &advice.cost {
        Some(cost) => format!(
            "{:.0} ns a hold and {:.1} ns a block, by {}",
            cost.hold_ns, cost.page_ns, cost.machine
        ),
        None => "by the prices of each recording".to_owned(),
    };
    let table = match advice.modelled {
        true => format!("every number below is modelled; contention: {cost}\n\n{table}\n"),
        false => format!("prices: {cost}\n"),
    };
    text.push_str(&format!(
        "\n{}: Linux {release}, {}, {} in {:.1} s, by the rules of {}\n{table}",
        advice.trace,
        output::counted(u64::from(advice.cpus), "CPU"),
        output::counted(advice.allocs, "allocation"),
        advice.seconds,
        advice.policy,
    ));
    text.push_str(&lock_table(advice));
    text.push_str(&group(advice, "settings, best first", |row| {
        row.setting.is_some() && !row.is_worse
    }));
    text.push_str(&group(advice, "settings that are worse", |row| {
        row.setting.is_some() && row.is_worse
    }));
    text.push_str(&group(advice, "other machines and releases", |row| row.setting.is_none()));
    for note in &advice.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// What the recording's own figures are: of a host, or of the lab.
fn measured(simulated: bool) -> &'static str {
    if simulated { "simulated" } else { "measured" }
}

/// Measured waits, in the columns of `perf lock contention`.
fn lock_table(advice: &Advice) -> String {
    let Some(waits) = advice.lock_waits.as_ref().filter(|waits| !waits.rows.is_empty()) else {
        return String::new();
    };
    let mut text = format!(
        "\nwaits for spinlocks, {}\n{:>12}{:>14}{:>14}{:>14}   caller\n",
        measured(advice.simulated),
        "contended",
        "total wait",
        "max wait",
        "avg wait"
    );
    for LockRow { lock, caller, contended, total_us, max_us, avg_us } in &waits.rows {
        text.push_str(&format!(
            "{contended:>12}{total_us:>11.2} us{max_us:>11.2} us{avg_us:>11.2} us   {lock}: \
             {caller}\n"
        ));
    }
    text
}

/// Measured waits beside modelled ones.
fn waits_line(how: &str, check: &WaitCheck) -> String {
    let traced = check.traced_block_ns.map_or(String::new(), |ns| {
        format!(" with the recorder's events under the lock ({ns:.0} ns a block)")
    });
    let modelled = format!("modelled {:.1} us/s in {}", check.modelled_us_per_s, check.modelled);
    let Some((waits, us)) = check.measured.zip(check.measured_us_per_s) else {
        return format!("waits for zone locks: not in the recording; {modelled}{traced}\n");
    };
    let judged = match check.is_modelled {
        true if check.is_few() => "so few waits are chance: the two need not be near\n",
        true => "",
        false => {
            "waits are not modelled here: the two are more than a factor of 2 apart, as where \
             virtual CPUs are taken from holders; no saving below counts them\n"
        }
    };
    format!("waits for zone locks: {how} {us:.1} us/s in {waits}, {modelled}{traced}\n{judged}")
}

/// What reclaim cost, where there was any.
fn reclaim_line(how: &str, cost: &ReclaimCost) -> String {
    let ReclaimCost { background_percent, compaction_percent, direct_percent, .. } = *cost;
    let ReclaimCost { reclaimed_pages, read_again_pages, .. } = *cost;
    // What a memory cgroup reclaims for its limit is not among the host's reclaimed pages.
    let of_limits = match read_again_pages > reclaimed_pages {
        true => ": more than that, taken by limits of memory cgroups or before the recording",
        false => "",
    };
    let for_rings = cost.read_again_for_rings_pages.filter(|pages| *pages > 0);
    let of_rings = for_rings.map_or(String::new(), |pages| {
        format!(", {pages} of them only because of the recorder's own rings")
    });
    let is_any = reclaimed_pages > 0
        || read_again_pages > 0
        || [background_percent, compaction_percent, direct_percent].iter().any(|part| *part != 0.0);
    let mut text = String::new();
    if is_any {
        text = format!(
            "reclaim, {how}: background {background_percent:.2} % of a CPU, compaction \
             {compaction_percent:.2} %, direct {direct_percent:.2} % of a thread; \
             {reclaimed_pages} pages reclaimed, {read_again_pages} of files read again{of_rings}\
             {of_limits}\n"
        );
    }
    let waits = cost.disk_wait_percent.zip(cost.memory_wait_percent).zip(cost.read_gib);
    if let Some(((disk, memory), read)) = waits {
        text.push_str(&format!(
            "waits, {how}: some task of the host waited for a disk {disk:.1} % of the time, for \
             memory {memory:.1} %; {read:.2} GiB read\n"
        ));
    }
    let asked = cost.asked_for.as_ref().and_then(AskedFor::words);
    text.extend(asked.map(|words| format!("{words}\n")));
    text
}

/// What a recording's waits and reclaim were, measured or simulated.
fn figures(
    simulated: bool,
    (check, reclaim): (Option<&WaitCheck>, Option<&ReclaimCost>),
) -> String {
    let how = measured(simulated);
    let waits = check.map(|check| waits_line(how, check)).unwrap_or_default();
    waits + &reclaim.map(|cost| reclaim_line(how, cost)).unwrap_or_default()
}

/// From this share of others in the pages on, in percent, a verdict is rather of them than of the
/// recorded command.
const MOST: f64 = 50.0;

/// Says so beside the verdict; a smaller share is a note.
fn of_others(advice: &Advice) -> String {
    let of_most = |percent: f64| {
        format!(
            "{percent:.1} % of the allocated pages are of others than the recorded command: this \
             says more of them than of it\n"
        )
    };
    let percent = advice.of_others_pages_percent.filter(|percent| *percent >= MOST);
    percent.map(of_most).unwrap_or_default()
}

/// What to do, and how far the model is off.
fn verdict(advice: &Advice) -> String {
    let off = |error: Option<f64>| match error {
        Some(percent) => format!("{percent:+.1} %"),
        None => "none in the recording".to_owned(),
    };
    let error = &advice.model_error_percent;
    let figures = figures(advice.simulated, (advice.wait_check.as_ref(), advice.reclaim.as_ref()));
    let model = match advice.modelled {
        true => format!(
            "model against the kernel on this recording: refilled pages {}, drained pages {}\n",
            off(error.refill_pages),
            off(error.drain_pages),
        ),
        false => String::new(),
    };
    let others = of_others(advice);
    format!("{}: {}\n{others}{model}{figures}", advice.verdict.name(), advice.reason)
}

/// What each of several recordings says by itself.
fn each(advice: &Advice) -> String {
    let [_, _, ..] = &advice.recordings[..] else { return String::new() };
    let mut text = format!(
        "\n{} recordings: medians below, and of savings the whole range\n",
        advice.recordings.len()
    );
    for one in &advice.recordings {
        let AdvisedOn { trace, verdict, reason, simulated, .. } = one;
        text.push_str(&format!("  {trace}: {}: {reason}\n", verdict.name()));
        let figures = figures(*simulated, (one.wait_check.as_ref(), one.reclaim.as_ref()));
        text.extend(figures.lines().map(|line| format!("    {line}\n")));
    }
    text
}

/// The changes of a kind. A line to type stands only where it is worth typing.
fn group(advice: &Advice, title: &str, belongs: impl Fn(&Row) -> bool) -> String {
    let mut text = String::new();
    for row in advice.changes.iter().filter(|row| belongs(row)) {
        let Saving { low, mid, high } = row.saving_percent_of_cpu;
        let same = row.same_as.iter().map(|other| format!(", {other}")).collect::<String>();
        text.push_str(&format!("  {}{same}: {}\n", row.change, row.reason));
        text.push_str(&format!(
            "      saves {mid:.3} % of a CPU ({low:.3} to {high:.3}); {:.1} MiB more at worst\n",
            row.memory_mib_worst
        ));
        let Saving { low, mid, high } = row.saving_percent_of_time;
        if high > 0.0 {
            text.push_str(&format!(
                "      saves {mid:.1} % of the elapsed time ({low:.1} to {high:.1}): less is read \
                 again\n"
            ));
        }
        let command = row.command.as_ref().filter(|_| advice.verdict == Advised::WorthTrying);
        text.extend(command.map(|command| format!("      {command}\n")));
        let not_counted = command.and(row.not_counted.as_ref());
        text.extend(not_counted.map(|what| format!("      not counted: {what}\n")));
    }
    if text.is_empty() { text } else { format!("\n{title}\n{text}") }
}
