//! `cargo xtask table CSV`: writes the bench table of the book from a file in `results/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";
/// The subject that every other one is compared with.
const LIMIT: &str = "rseq-bare";

/// A column: its title, and the cell of the CSV that it shows.
struct Column {
    title: &'static str,
    bench: &'static str,
    threads: &'static str,
    order: &'static str,
}

const COLUMNS: [Column; 9] = [
    Column { title: "pair", bench: "pair", threads: "1", order: "0" },
    Column { title: "pair, 2 threads", bench: "pair", threads: "2", order: "0" },
    Column { title: "32+32", bench: "32+32", threads: "1", order: "0" },
    Column { title: "4096 singles", bench: "singles4096", threads: "1", order: "0" },
    Column { title: "4096 bulk", bench: "bulk4096", threads: "1", order: "0" },
    Column { title: "stream", bench: "stream", threads: "2", order: "0" },
    Column { title: "mix", bench: "mix", threads: "1", order: "0" },
    Column { title: "64 KiB pair", bench: "pair", threads: "1", order: "4" },
    Column { title: "2 MiB pair", bench: "pair", threads: "1", order: "9" },
];

/// One row of the CSV: field by header.
type Row = BTreeMap<String, String>;

/// The page with the table, between two marks.
const PAGE: &str = "docs/reference/bench.md";

/// Writes the table of `csv` into the page of the book below `root`.
pub fn run(root: &Path, csv: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(csv).with_context(|| format!("cannot read {}", csv.display()))?;
    let rows = parse(&text).with_context(|| format!("in {}", csv.display()))?;
    let page = root.join(PAGE);
    let old = std::fs::read_to_string(&page)
        .with_context(|| format!("cannot read {}", page.display()))?;
    let new = insert(&old, &render(&rows, &csv.display().to_string())?)?;
    std::fs::write(&page, new).with_context(|| format!("cannot write {}", page.display()))
}

/// Splits a CSV with a header line. Fields may be quoted; quotes inside are doubled.
fn parse(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines();
    let header = fields(lines.next().context("the file is empty")?);
    let mut rows = Vec::new();
    for (number, line) in (2..).zip(lines).filter(|(_, line)| !line.is_empty()) {
        let values = fields(line);
        let (found, expected) = (values.len(), header.len());
        ensure!(found == expected, "line {number}: {found} fields, expected {expected}");
        rows.push(header.iter().cloned().zip(values).collect());
    }
    Ok(rows)
}

fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            letter => field.push(letter),
        }
    }
    all.push(field);
    all
}

/// The table: a line per subject, the limit first, then by the first column.
fn render(rows: &[Row], source: &str) -> Result<String> {
    let get = |row: &Row, key: &str| row.get(key).cloned().unwrap_or_default();
    let first = rows.first().context("the file has no rows")?;
    let mut subjects: Vec<String> = Vec::new();
    for row in rows {
        let subject = get(row, "subject");
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let cell = |subject: &str, column: &Column| {
        let is = |row: &&Row| {
            get(row, "subject") == subject
                && get(row, "bench") == column.bench
                && get(row, "threads") == column.threads
                && get(row, "order") == column.order
                && get(row, "touched") == "false"
        };
        rows.iter().find(is).and_then(|row| get(row, "ns_per_op").parse::<f64>().ok())
    };
    let speed = |subject: &String| match subject.as_str() {
        LIMIT => 0.0,
        subject => cell(subject, &COLUMNS[0]).unwrap_or(f64::MAX),
    };
    // Ways that only other benches have are no subjects of this table.
    subjects.retain(|subject| COLUMNS.iter().any(|column| cell(subject, column).is_some()));
    subjects.sort_by(|a, b| speed(a).total_cmp(&speed(b)));
    let mut table = String::new();
    let machine = format!("{}, Linux {}", get(first, "cpu"), get(first, "kernel"));
    writeln!(table, "Measured, ns per operation (medians; {machine}; `{source}`):\n")?;
    let titles = COLUMNS.map(|column| column.title).join(" | ");
    writeln!(table, "| subject | {titles} |\n|--|{}", "--:|".repeat(COLUMNS.len()))?;
    for subject in &subjects {
        let cells = COLUMNS.each_ref().map(|column| show(cell(subject, column)));
        writeln!(table, "| {subject} | {} |", cells.join(" | "))?;
    }
    if let Some(line) = edge(rows) {
        writeln!(table, "\n{line}")?;
    }
    Ok(table)
}

/// Summary of the rows of the bench `edge`.
fn edge(rows: &[Row]) -> Option<String> {
    let row = rows.iter().find(|row| row.get("bench").is_some_and(|bench| bench == "edge"))?;
    let figure = |key: &str| row.get(key)?.parse::<f64>().ok();
    let (ratio, p999_ns) = (figure("ratio_to_limit")?, figure("p999_ns")?);
    Some(format!(
        "At the edge of memory (two threads, mixed rights, a cache that gives way): {:.2} of the \
         rate with room to spare, and 99.9 % of the requests that must not wait are answered \
         within {:.1} µs.",
        1.0 / ratio,
        p999_ns / 1000.0
    ))
}

/// Three significant digits.
fn show(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

fn insert(page: &str, table: &str) -> Result<String> {
    let (Some(begin), Some(end)) = (page.find(BEGIN), page.find(END)) else {
        bail!("{PAGE} has no {BEGIN} and {END}");
    };
    ensure!(begin < end, "{PAGE}: {END} stands before {BEGIN}");
    let (head, tail) = (&page[..begin + BEGIN.len()], &page[end..]);
    Ok(format!("{head}\n{table}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "bench,subject,threads,order,touched,ns_per_op,cpu,kernel\n\
        pair,slow,1,0,false,12.34,\"A, \"\"B\"\"\",6.1\n\
        pair,rseq-bare,1,0,false,2.004,\"A, \"\"B\"\"\",6.1\n\
        pair,fast,1,0,false,3.5,\"A, \"\"B\"\"\",6.1\n\
        pair,fast,1,0,true,99,\"A, \"\"B\"\"\",6.1\n";

    #[test]
    fn the_limit_comes_first_then_the_fastest() {
        let table = render(&parse(CSV).unwrap(), "x.csv").unwrap();
        let subjects: Vec<&str> =
            table.lines().skip(4).filter_map(|line| line.split(" | ").next()).collect();
        assert_eq!(subjects, ["| rseq-bare", "| fast", "| slow"]);
        assert!(table.contains("| fast | 3.50 | - |"), "{table}");
        assert!(table.contains("A, \"B\", Linux 6.1"), "{table}");
    }

    #[test]
    fn ways_of_other_benches_are_no_subjects() {
        let csv = "bench,subject,threads,order,touched,ns_per_op,cpu,kernel\n\
            pair,zonal,1,0,false,3.5,A,6.1\nranges,zonal-pow2,1,0,false,150,A,6.1\n";
        let table = render(&parse(csv).unwrap(), "x.csv").unwrap();
        assert!(table.contains("| zonal |") && !table.contains("zonal-pow2"), "{table}");
    }

    #[test]
    fn the_edge_of_memory_is_a_line_below() {
        let table = render(&parse(CSV).unwrap(), "x.csv").unwrap();
        assert!(!table.contains("edge"), "{table}");
        let csv = "bench,subject,threads,order,touched,ns_per_op,p999_ns,ratio_to_limit\n\
            pair,zonal,1,0,false,3.5,90,1.5\nedge,zonal,2,0,true,400,12345,1.25\n";
        let table = render(&parse(csv).unwrap(), "x.csv").unwrap();
        assert!(table.contains("0.80 of the rate"), "{table}");
        assert!(table.contains("within 12.3 µs"), "{table}");
    }

    #[test]
    fn a_short_line_is_named() {
        let error = parse("a,b\n1,2\n3\n").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let new = insert(&page, "new\n").unwrap();
        assert_eq!(new, format!("head\n{BEGIN}\nnew\n{END}\ntail\n"));
        assert!(insert("no marks", "x").is_err());
    }
}
