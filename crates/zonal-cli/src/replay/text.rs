//! The report as text, for people.

use std::iter;

use zonal_replay::fidelity::{Fidelity, Pair};
use zonal_replay::report::{
    Beyond, JudgedSides, Memory, NodeEvents, PlacementReport, Report, Side, TraceFacts, error,
};
use zonal_replay::{EVERY, Explained, Latency, NotJudged, ReclaimJudged};

use crate::output;

/// Stretches that are not judged and told one by one.
const NOT_JUDGED_TOLD: usize = 10;

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut text = head(report);
    text.extend(report.explained.iter().map(explained));
    text.push_str(&comparison(report));
    text.push_str(&by_place(report));
    text.extend(report.fidelity.as_ref().map(over_time));
    text.push_str(&tail(report));
    text
}

fn head(report: &Report) -> String {
    let TraceFacts { name, kernel_release, cpus, nodes, recorded_seconds, .. } = &report.trace;
    let release = kernel_release.as_deref().unwrap_or("of unknown release");
    let where_ = match report.memory {
        Memory::Real => {
            format!("on real memory, {}", output::counted(report.threads as u64, "thread"))
        }
        Memory::None => "on no memory, one thread for all CPUs".to_owned(),
    };
    let set = report.policy_set.iter().map(|(key, value)| format!(" {key}={value}"));
    let policy = iter::once(report.policy.to_owned()).chain(set).collect::<String>();
    let latency =
        |l: &Latency| format!("p50 {} ns, p99 {} ns, p99.9 {} ns", l.p50_ns, l.p99_ns, l.p999_ns);
    format!(
        "trace     {name}: Linux {release}, {}, {}; {} events in {recorded_seconds:.1} s\n\
         replay    policy {policy}, {where_}: {:.3} s, {} events/s\n\
         alloc     {} (1 call in {} timed, clock included)\n\
         free      {}\n\n",
        output::counted(u64::from(*cpus), "CPU"),
        output::counted(*nodes as u64, "node"),
        grouped(report.events),
        report.seconds,
        grouped(report.events_per_s as u64),
        latency(&report.latency.alloc),
        EVERY,
        latency(&report.latency.free),
    )
}

fn comparison(report: &Report) -> String {
    let recorded = &report.recorded;
    let off = off(report);
    let mut rows = vec![row("", ["model", "kernel", off])];
    let mut line = |name: &str, model: Option<u64>, kernel: u64| {
        rows.push(compared(name, model, kernel, off.len()));
    };
    line("allocations", Some(report.allocs), recorded.allocs);
    line("  pages", Some(report.pages.allocated), recorded.allocated_pages);
    line("frees", Some(report.frees), recorded.frees);
    line("  pages", Some(report.pages.freed), recorded.freed_pages);
    line("refused allocations", Some(report.failed), recorded.failed);
    line("refills, pages", Some(report.model.refill_pages), report.kernel.refill_pages);
    line("  zone-lock holds", Some(report.model.refill_holds), report.kernel.refill_holds);
    line("drains, pages", Some(report.model.drain_pages), report.kernel.drain_pages);
    line("  zone-lock holds", Some(report.model.drain_holds), report.kernel.drain_holds);
    line("  drains", report.model.drain_bursts, report.kernel.drain_bursts.unwrap_or(0));
    line("past the lists, pages", Some(report.model.direct_pages), report.kernel.direct_pages);
    let sum = |field: fn(&NodeEvents) -> u64| report.numa.model.iter().map(field).sum();
    line("numa local", Some(sum(|n| n.local)), report.numa.kernel.local);
    line("numa other", Some(sum(|n| n.other)), report.numa.kernel.other);
    for (node, n) in report.numa.model.iter().enumerate() {
        rows.push(format!(
            "node {node}: numa_hit {} numa_miss {} numa_foreign {} numa_local {} \
             numa_other {}\n",
            n.hit, n.miss, n.foreign, n.local, n.other
        ));
    }
    rows.concat()
}

fn by_place(report: &Report) -> String {
    let head = ["refill pages", "holds", "drain pages", "holds"];
    let mut text = format!("\n{:<24}{:<8}", "zone", "");
    head.iter().for_each(|name| text.push_str(&format!("{name:>14}")));
    text.push('\n');
    for place in &report.places {
        let name = match place.cpu {
            Some(cpu) => format!("{}, CPU {cpu}", place.zone),
            None => place.zone.clone(),
        };
        for (who, side) in [("model", &place.model), ("kernel", &place.kernel)] {
            let Some(side) = side else { continue };
            let pages = (side.refill_pages, side.drain_pages);
            let numbers = [pages.0, side.refill_holds, pages.1, side.drain_holds];
            text.push_str(&format!("{name:<24}{who:<8}"));
            numbers.iter().for_each(|n| text.push_str(&format!("{:>14}", grouped(*n))));
            text.push('\n');
        }
    }
    text
}

fn placement(report: &Report) -> String {
    let PlacementReport { judged, same_pfn, lists, buddy, free_running } = &report.placement;
    let share = |part: u64, whole: u64| {
        format!("{} of {} ({})", grouped(part), grouped(whole), percent(part, whole))
    };
    let mut text = format!(
        "\nplacement, one step at a time from where the kernel was\n\
         lists     same page frame: {}; same page drained: {}\n",
        share(*same_pfn, *judged),
        share(lists.drained_same_pfn, lists.drained_judged),
    );
    for (count, why) in lists.reasons() {
        text.push_str(&format!("{:>12}  {why}\n", grouped(count)));
    }
    text.push_str(&format!(
        "buddies   same page frame: {}; where nothing of the start is in it: {}\n",
        share(buddy.same_pfn, buddy.judged),
        share(buddy.known_same_pfn, buddy.known_judged),
    ));
    for (count, why) in buddy.reasons() {
        text.push_str(&format!("{:>12}  {why}\n", grouped(count)));
    }
    text.push_str(&format!(
        "placement, running by itself\n\
         \x20         same page frame: {}; same block: {}\n\
         {:>12}  not judged: frames not seen before\n\
         {:>12}  not judged: in use here\n",
        share(free_running.same_pfn, free_running.judged),
        share(free_running.same_block, free_running.judged_block),
        grouped(free_running.unseen),
        grouped(free_running.held_in_model),
    ));
    text
}

fn limits(report: &Report) -> String {
    let lines = report.limits.lines().into_iter().filter(|(count, _)| *count > 0);
    let lines: String =
        lines.map(|(count, what)| format!("{:>12}  {what}\n", grouped(count))).collect();
    let recorded = report.use_recorded.names().join(", ");
    let told = match recorded.as_str() {
        "" => "allocations, frees and zoneinfo alone",
        more => &format!("allocations, frees, zoneinfo and, as recorded: {more}"),
    };
    format!("\nthe model was told {told}; what limits it\n{lines}")
}

fn tail(report: &Report) -> String {
    let mut text = String::new();
    if report.memory == Memory::None {
        text.push_str(&placement(report));
        text.push_str(&limits(report));
    }
    let counted = &report.counted;
    text.push_str("\ncounted, not hidden in a total\n");
    for (count, pages, what) in [
        (counted.before_start, 0, "events before the start, not replayed"),
        (counted.old_frees, counted.old_free_pages, "frees of blocks from before the trace"),
        (
            counted.hidden_allocs,
            counted.hidden_alloc_pages,
            "allocations without event (their frees are not replayed)",
        ),
        (counted.allocs_made_up, counted.alloc_pages_made_up, "allocations without event, made up"),
        (counted.hidden_frees, counted.hidden_free_pages, "frees without event, made up"),
        (counted.part_frees, 0, "frees of a part of a block"),
        (counted.order_differs, 0, "frees with another order than the allocation's"),
        (report.recorded.failed, 0, "allocations that the kernel refused, not replayed"),
        (counted.skipped_frees, 0, "frees of what was refused here"),
        (counted.refreshes_made_up, 0, "runs of statistics workers made up, one each second"),
        (counted.unknown_events, 0, "events of unknown kinds"),
        (counted.lost_events, 0, "events that the recorder lost"),
    ] {
        if count > 0 {
            let pages = match pages {
                0 => String::new(),
                1 => " (1 page)".to_owned(),
                _ => format!(" ({} pages)", grouped(pages)),
            };
            text.push_str(&format!("{:>12}  {what}{pages}\n", grouped(count)));
        }
    }
    text.push_str(&format!("\n{}\n", meaning(report)));
    text.push_str(&reclaim_judged(report));
    text.push_str(&not_judged(report));
    text.push_str(&beyond(report));
    text.push_str(match (report.not_judged.is_empty(), report.reclaim_judged.is_empty()) {
        _ if !report.passed() => "FAIL\n",
        (true, _) if !report.beyond.is_empty() => "PASS, except for what is too far off\n",
        (false, _) if !report.beyond.is_empty() => {
            "PASS, outside of what is not judged, except for what is too far off\n"
        }
        (false, _) => "PASS, outside of what is not judged\n",
        (true, false) => "PASS; stretches above are judged because the model is near there\n",
        (true, true) => "PASS\n",
    });
    text
}

/// Figures that the model does not reproduce.
fn beyond(report: &Report) -> String {
    if report.beyond.is_empty() {
        return String::new();
    }
    let mut text = "\ntoo far from the kernel: what is said of these here, or predicted of them, \
                    does not hold\n"
        .to_owned();
    for Beyond { figure, model, kernel, percent, limit_percent } in &report.beyond {
        let percent = percent.map_or("none in the kernel".to_owned(), |p| format!("{p:+.1} %"));
        text.push_str(&format!(
            "{:>12}  {percent}, {} for {}; at most {limit_percent} % is near\n",
            figure.replace('_', " "),
            grouped(*model),
            grouped(*kernel),
        ));
    }
    text
}

/// Stretches that count because the model is near there.
fn reclaim_judged(report: &Report) -> String {
    if report.reclaim_judged.is_empty() {
        return String::new();
    }
    let mut text =
        "\nwith reclaim or other watermarks, and judged because the model is near\n".to_owned();
    for stretch in report.reclaim_judged.iter().take(NOT_JUDGED_TOLD) {
        let ReclaimJudged { from_s, to_s, reason, .. } = stretch;
        let off =
            |percent: Option<f64>| percent.map_or("none".to_owned(), |p| format!("{p:+.1} %"));
        let (refill, drain) = (off(stretch.refill_percent), off(stretch.drain_percent));
        let small = if stretch.is_near { "" } else { "; small beside the others" };
        text.push_str(&format!(
            "{from_s:>12.3} s to {to_s:.3} s: {reason}; refilled {refill}, drained {drain}{small}\n"
        ));
    }
    text + &more(report.reclaim_judged.len())
}

/// How many stretches of so many are not in the text.
fn more(stretches: usize) -> String {
    match stretches.saturating_sub(NOT_JUDGED_TOLD) {
        0 => String::new(),
        more => format!("{more:>12} more; `--json` has all\n"),
    }
}

/// Stretches that the comparison above says nothing about, in words.
fn not_judged(report: &Report) -> String {
    let percent = 100.0 * report.not_judged_share();
    let mut text = match report.not_judged.is_empty() {
        true => String::new(),
        false => format!(
            "\nnot judged: {percent:.0} % of the time; the totals above have it, these do not\n{}",
            judged(report)
        ),
    };
    for stretch in report.not_judged.iter().take(NOT_JUDGED_TOLD) {
        let NotJudged { from_s, to_s, reason } = stretch;
        text.push_str(&format!("{from_s:>12.3} s to {to_s:.3} s: {reason}\n"));
    }
    text + &more(report.not_judged.len())
}

/// What both sides moved in the rest of the time.
fn judged(report: &Report) -> String {
    let Some(JudgedSides { model, kernel }) = &report.judged else { return String::new() };
    let off = off(report);
    let row = |name, model, kernel| compared(name, Some(model), kernel, off.len());
    [
        row("refills, pages", model.refill_pages, kernel.refill_pages),
        row("  zone-lock holds", model.refill_holds, kernel.refill_holds),
        row("drains, pages", model.drain_pages, kernel.drain_pages),
        row("  zone-lock holds", model.drain_holds, kernel.drain_holds),
    ]
    .concat()
}

/// What PASS stands for.
fn meaning(report: &Report) -> String {
    let owners = match report.memory {
        Memory::Real => format!(
            "each of {} pages was found as its owner had stamped it,\n",
            grouped(report.pages.checked)
        ),
        Memory::None => String::new(),
    };
    format!(
        "PASS means: {owners}every page is free again once all blocks are back, and the\n\
         allocator's own checks hold. How near it is to the kernel, the tables say."
    )
}

/// The recorded kernel's own policy without memory, then the policy `zonal` on real memory.
pub fn both(own: &Report, real: &Report) -> String {
    let PlacementReport { judged, same_pfn, lists, buddy, .. } = &own.placement;
    let share = |part: u64, whole: u64| {
        format!("{} of {} ({})", grouped(part), grouped(whole), percent(part, whole))
    };
    let mut text = format!(
        "Does the model do what the kernel did? Its own policy, on its own machine, without \
         memory:\n\n{}{}\n\
         page frames, each choice made from where the kernel was\n  \
         lists give the kernel's page      {}\n  \
         lists drain the kernel's page     {}\n  \
         buddies give the kernel's block   {}, where both are known to be free\n\n\
         And the same load under the policy zonal, on this machine's memory:\n\n{}{}{}",
        head(own),
        comparison(own),
        share(*same_pfn, *judged),
        share(lists.drained_same_pfn, lists.drained_judged),
        share(buddy.known_same_pfn, buddy.known_judged),
        head(real),
        comparison(real),
        tail(real),
    );
    if !(own.passed() && real.passed()) {
        return text + "FAIL: a property did not hold; the notes say which\n";
    }
    let holds = |side: &Side| side.refill_holds + side.drain_holds;
    let saved = match error(holds(&real.model), holds(&real.kernel)) {
        Some(off) if off < 0.0 => format!("with {:.0} % fewer zone-lock holds than it took", -off),
        Some(off) => format!("with {off:.0} % more zone-lock holds than it took"),
        None => "with no zone-lock hold to compare".to_owned(),
    };
    let refills = own.error_percent.refill_pages.map_or(0.0, f64::abs);
    text.push_str(&format!(
        "\nUnder the kernel's own policy the model refills within {refills:.1} % of what Linux \
         did and gives out the same page\nin {} of the cases; \
         under zonal it serves this load at {} events/s here,\n{saved}.\n",
        percent(*same_pfn, *judged),
        grouped(real.events_per_s as u64),
    ));
    text
}

/// An explained request.
fn explained(explained: &Explained) -> String {
    let Explained { number, seconds, cpu, order, gfp, steps, outcome, .. } = explained;
    let steps: String = steps.iter().map(|step| format!("  {step}\n")).collect();
    format!(
        "request {number} at {seconds:.6} s on CPU {cpu}: order {order}, {gfp}\n{steps}  => \
         {outcome}\n\n"
    )
}

/// A line for each place.
fn over_time(fidelity: &Fidelity) -> String {
    let mut text = format!(
        "\nover time, {} bins of {} ms: mean difference of a bin (and the kernel's mean), in \
         pages\n{:<24}{:>20}{:>20}{:>20}{:>20}\n",
        fidelity.bins,
        fidelity.bin_ns / 1_000_000,
        "",
        "refilled",
        "drained",
        "on the lists",
        "high"
    );
    let cell = |pair: &Pair| match (pair.mean_difference, pair.kernel_mean) {
        (Some(difference), Some(mean)) => format!("{difference:.0} ({mean:.0})"),
        _ => "not polled".to_owned(),
    };
    for series in &fidelity.places {
        let name = format!("{}, CPU {}", series.zone, series.cpu);
        let [refill, drain, count, high] =
            [&series.refill_pages, &series.drain_pages, &series.count, &series.high].map(cell);
        text.push_str(&format!("{name:<24}{refill:>20}{drain:>20}{count:>20}{high:>20}\n"));
    }
    text.push_str(&format!("{:>12}  samples of zoneinfo\n", fidelity.polls));
    text
}

/// What a number that is not the kernel's is called: an error where the model follows the recorded
/// kernel's own policy on its own machine, else a difference.
fn off(report: &Report) -> &'static str {
    if report.follows_kernel() { "   error %" } else { "  difference %" }
}

fn row(name: &str, cells: [&str; 3]) -> String {
    format!("{name:<24}{:>14}{:>14}{}\n", cells[0], cells[1], cells[2])
}

fn compared(name: &str, model: Option<u64>, kernel: u64, width: usize) -> String {
    let error = model.and_then(|model| error(model, kernel));
    let error = error.map_or("-".to_owned(), |percent| format!("{percent:+.2}"));
    let model = model.map_or("-".to_owned(), grouped);
    row(name, [&model, &grouped(kernel), &format!("{error:>width$}")])
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.2} %", part as f64 * 100.0 / whole as f64),
    }
}

/// A number with a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Remarks and failed properties.
pub fn remarks(report: &Report) -> impl Iterator<Item = String> {
    let simulated =
        "note: the lab made the recording: its kernel's figures are simulated".to_owned();
    let notes = report.notes.iter().map(|note| format!("note: {note}"));
    let notes = report.trace.simulated.then_some(simulated).into_iter().chain(notes);
    notes.chain(report.faults.iter().map(|fault| format!("FAILED: {fault}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(520_208), "520,208");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
