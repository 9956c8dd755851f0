//! The report as text: a summary with a line per subject, and every row.

use crate::cell::Bench;
use crate::comparison::Comparison;
use crate::row::{Report, Row, Skip};
use comfy_table::{CellAlignment, Table, presets};

/// A column of the summary: the targets of DESIGN section 9, plus the mix.
struct Headline {
    title: &'static str,
    bench: Bench,
    order: u32,
    threads: u32,
}

const fn headline(title: &'static str, bench: Bench, order: u32, threads: u32) -> Headline {
    Headline { title, bench, order, threads }
}

const HEADLINES: [Headline; 9] = [
    headline("pair", Bench::Pair, 0, 1),
    headline("pair, 2 threads", Bench::Pair, 0, 2),
    headline("32+32", Bench::Batch32, 0, 1),
    headline("4096 singles", Bench::Singles, 0, 1),
    headline("4096 bulk", Bench::Bulk, 0, 1),
    headline("stream", Bench::Stream, 0, 2),
    headline("64 KiB pair", Bench::Pair, 4, 1),
    headline("2 MiB pair", Bench::Pair, 9, 1),
    headline("mix", Bench::Mix, 0, 1),
];

/// How a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For a terminal.
    Terminal,
    /// For a README.
    Markdown,
}

/// One line per subject, untouched, with the headline figures in nanoseconds per operation, and the
/// first of them as a multiple of the limit's.
pub fn summary(report: &Report, style: Style) -> String {
    let mut table = new_table(style);
    table.set_header(
        ["ns per operation", "pair x limit"].into_iter().chain(HEADLINES.map(|head| head.title)),
    );
    for subject in subjects(report) {
        let row_of = |head: &Headline| {
            report.rows.iter().find(|row| row.subject == subject && matches(head, row))
        };
        // Ways that only other benches have are no subjects of this table.
        if HEADLINES.iter().all(|head| row_of(head).is_none()) {
            continue;
        }
        let ratio = ratio(row_of(&HEADLINES[0]).and_then(|row| row.ratio_to_limit));
        let figures = HEADLINES
            .iter()
            .map(|head| row_of(head).map_or_else(|| "-".into(), |row| nanoseconds(row.ns_per_op)));
        table.add_row([subject.to_owned(), ratio].into_iter().chain(figures));
    }
    align_figures(&mut table, 1);
    table.trim_fmt()
}

/// Every row, cell by cell, the fastest subject of a cell first.
pub fn rows(report: &Report, style: Style) -> String {
    const FIGURES: [&str; 12] = [
        "ns/op",
        "p10",
        "p90",
        "alloc p50",
        "p99",
        "p99.9",
        "free p99.9",
        "x limit",
        "discarded",
        "cpu",
        "in lists",
        "in depots",
    ];
    let mut table = new_table(style);
    table.set_header(PLACE.into_iter().chain(FIGURES));
    let mut rows: Vec<&Row> = report.rows.iter().collect();
    rows.sort_by(|a, b| cell(a).cmp(&cell(b)).then(a.ns_per_op.total_cmp(&b.ns_per_op)));
    for row in rows {
        let mut fields = place(row).to_vec();
        let Row { ns_per_op, p10_ns, p90_ns, p50_ns, p99_ns, p999_ns, free_p999_ns, .. } = *row;
        let figures = [ns_per_op, p10_ns, p90_ns, p50_ns, p99_ns, p999_ns, free_p999_ns];
        fields.extend(figures.map(nanoseconds));
        fields.push(ratio(row.ratio_to_limit));
        fields.push(discarded_of(row));
        fields.push(row.cpu_ns_per_op.map_or_else(|| "-".into(), nanoseconds));
        fields.extend([row.list_pages, row.depot_pages].map(pages));
        table.add_row(fields);
    }
    align_figures(&mut table, PLACE.len());
    table.trim_fmt()
}

/// Pages that wait somewhere.
fn pages(pages: Option<u64>) -> String {
    pages.map_or_else(|| "-".into(), |pages| pages.to_string())
}

/// Every row's latencies of single calls, cell by cell, the least p99.9 of a cell first.
pub fn latencies(report: &Report, style: Style) -> String {
    let mut table = new_table(style);
    let figures = ["alloc", "free"].into_iter().flat_map(|call| {
        let first = format!("{call} p50");
        std::iter::once(first).chain(["p99", "p99.9", "longest"].map(String::from))
    });
    table.set_header(PLACE.map(String::from).into_iter().chain(figures));
    // Rows of benches without a latency pass have nothing to say here.
    let mut rows: Vec<&Row> = report.rows.iter().filter(|row| row.max_ns > 0.0).collect();
    rows.sort_by(|a, b| cell(a).cmp(&cell(b)).then(a.p999_ns.total_cmp(&b.p999_ns)));
    for row in rows {
        let Row { p50_ns, p99_ns, p999_ns, max_ns, .. } = *row;
        let Row { free_p50_ns, free_p99_ns, free_p999_ns, free_max_ns, .. } = *row;
        let allocs = [p50_ns, p99_ns, p999_ns, max_ns];
        let frees = [free_p50_ns, free_p99_ns, free_p999_ns, free_max_ns];
        // The longest calls of a disturbed pass are those of the machine.
        let mark = |(at, ns): (usize, f64)| {
            let mark = if row.latency_busy && at == 3 { "!" } else { "" };
            nanoseconds(ns) + mark
        };
        let figures = [allocs, frees].map(|four| four.into_iter().enumerate().map(mark));
        table.add_row(place(row).into_iter().chain(figures.into_iter().flatten()));
    }
    align_figures(&mut table, PLACE.len());
    table.trim_fmt()
}

/// What rows are sorted by first.
fn cell(row: &Row) -> (Bench, u32, bool, u32) {
    (row.bench, row.order, row.touched, row.threads)
}

/// Titles of the columns of [`place`].
const PLACE: [&str; 5] = ["bench", "order", "threads", "touched", "subject"];

/// A row's cell and subject.
fn place(row: &Row) -> [String; 5] {
    let touched = if row.touched { "yes" } else { "no" };
    let Row { bench, order, threads, ref subject, .. } = *row;
    [bench.to_string(), order.to_string(), threads.to_string(), touched.into(), subject.clone()]
}

/// Discarded rounds of all; marked where those that are left were disturbed, too.
fn discarded_of(row: &Row) -> String {
    let mark = if row.busy { "!" } else { "" };
    format!("{}/{}{mark}", row.rounds_discarded, row.rounds_discarded + row.rounds)
}

/// How many rounds were discarded, in a line or two; empty if none were.
pub fn discarded(report: &Report) -> String {
    let sum = |count: fn(&Row) -> u32| report.rows.iter().map(count).sum::<u32>();
    let discarded = sum(|row| row.rounds_discarded);
    let busy = report.rows.iter().filter(|row| row.busy).count();
    let mut text = String::new();
    if discarded > 0 {
        let all = discarded + sum(|row| row.rounds);
        text += &format!("discarded {discarded} of {all} rounds: threads waited for a CPU\n");
    }
    if busy > 0 {
        text += &format!(
            "rows marked !, {busy} in all, have too few undisturbed rounds: the machine was busy; \
             measure them again\n"
        );
    }
    text
}

/// Skipped cells and the reasons. The cells that a subject missed for one reason share a line, and
/// so do the subjects that missed the same cells for the same reason.
pub fn skipped(report: &Report) -> String {
    let mut groups: Vec<(&Skip, usize)> = Vec::new();
    for skip in &report.skipped {
        let same = |first: &Skip| first.subject == skip.subject && first.reason == skip.reason;
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => groups.push((skip, 1)),
        }
    }
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (skip, count) in groups {
        let place = match (&skip.cell, count) {
            (None, _) => String::new(),
            (Some(cell), 1) => format!(" in {cell}"),
            (Some(cell), _) => format!(" in {count} cells from {cell}"),
        };
        let line = format!("{place}: {}", skip.reason);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, subjects)) => subjects.push(&skip.subject),
            None => lines.push((line, vec![&skip.subject])),
        }
    }
    let text =
        |(line, subjects): (String, Vec<&str>)| format!("skipped {}{line}\n", subjects.join(", "));
    lines.into_iter().map(text).collect()
}

/// The whole report for a terminal: machine, summary, rows, skipped, hash.
pub fn whole(report: &Report) -> String {
    format!(
        "{}\n\n{}\n\n{}\n\n{}{}{}result hash {}, measured in {:.1} s\n{}",
        report.machine.line(),
        summary(report, Style::Terminal),
        rows(report, Style::Terminal),
        edge(report) + &ranges(report) + &prefault(report) + &owned(report),
        discarded(report),
        skipped(report),
        report.result_hash,
        report.measured_s,
        report.comparison.as_ref().map_or_else(String::new, Comparison::text),
    )
}

/// Summary of the rows of `edge` in a line; empty without them.
pub fn edge(report: &Report) -> String {
    let row = report.rows.iter().find(|row| row.bench == Bench::Edge);
    let Some((row, ratio)) = row.and_then(|row| Some((row, row.ratio_to_limit?))) else {
        return String::new();
    };
    format!(
        "at the edge of memory: {:.2} of the rate with room to spare; 99.9 % of NOWAIT requests \
         within {:.1} us\n",
        1.0 / ratio,
        row.p999_ns / 1000.0,
    )
}

/// Summary of the rows of `ranges` in a line; empty without them.
fn ranges(report: &Report) -> String {
    let [Some(exact), Some(powers)] = first_of_each_way(report, Bench::Ranges) else {
        return String::new();
    };
    let wasted = |row: &Row| (row.pages_for_each.unwrap_or(1.0) - 1.0) * 100.0;
    format!(
        "ranges of odd sizes: {:.1} % more pages than asked for, {} ns each; as powers of two \
         {:.1} %, {} ns\n",
        wasted(exact),
        nanoseconds(exact.ns_per_op),
        wasted(powers),
        nanoseconds(powers.ns_per_op),
    )
}

/// Summary of the rows of `prefault` in a line; empty without them.
fn prefault(report: &Report) -> String {
    let [Some(many), Some(one)] = first_of_each_way(report, Bench::Prefault) else {
        return String::new();
    };
    let times = one.ns_per_op / many.ns_per_op;
    format!("a pool in memory: {times:.2} times as fast by {} threads as by one\n", many.threads)
}

/// Summary of the rows of `owned` in a line; empty without them.
fn owned(report: &Report) -> String {
    let mut rows = report.rows.iter().filter(|row| row.bench == Bench::Owned);
    let mut next = || rows.next().map(|row| row.ns_per_op);
    let [Some(owned), Some(again), Some(borrowed), Some(borrowed_again)] =
        [next(), next(), next(), next()]
    else {
        return String::new();
    };
    format!(
        "a page that owns its pool: {:.3} times a page that borrows it ({} and {} ns; equals \
         differ by {:.1} and {:.1} %)\n",
        owned / borrowed,
        nanoseconds(owned),
        nanoseconds(borrowed),
        (again / owned - 1.0).abs() * 100.0,
        (borrowed_again / borrowed - 1.0).abs() * 100.0,
    )
}

/// Each way is measured under two names.
fn first_of_each_way(report: &Report, bench: Bench) -> [Option<&Row>; 2] {
    let mut rows = report.rows.iter().filter(|row| row.bench == bench);
    [rows.next(), rows.nth(1)]
}

fn matches(head: &Headline, row: &Row) -> bool {
    let key = (row.bench, row.order, row.threads, row.touched);
    key == (head.bench, head.order, head.threads, false)
}

/// Subjects in the order of their first row.
fn subjects(report: &Report) -> Vec<&str> {
    let mut subjects: Vec<&str> = Vec::new();
    for row in &report.rows {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    subjects
}

/// Two decimals below 10, one below 100, none above: three figures, and no false precision.
fn nanoseconds(ns: f64) -> String {
    let decimals = match ns {
        _ if ns < 10.0 => 2,
        _ if ns < 100.0 => 1,
        _ => 0,
    };
    format!("{ns:.decimals$}")
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

fn new_table(style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(match style {
        Style::Terminal => presets::UTF8_BORDERS_ONLY,
        Style::Markdown => presets::ASCII_MARKDOWN,
    });
    table
}

fn align_figures(table: &mut Table, first: usize) {
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
