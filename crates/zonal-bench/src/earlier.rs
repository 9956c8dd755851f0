//! An earlier run, from the file that `--csv` or `--json` wrote.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use crate::cpus::Cpus;
use crate::machine::Machine;
use crate::plan::{Options, plan};
use crate::row::{Report, Row, SCHEMA_VERSION};

/// No report is nearly as long.
const BYTES_MAX: u64 = 64 << 20;

/// Why a run cannot be compared with an earlier one.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The file cannot be read.
    #[error("cannot be read: {0}; expected what `zonal bench --csv FILE` or `--json` wrote")]
    File(#[from] std::io::Error),
    /// It is something else.
    #[error(
        "is no report of the bench: {0}; expected what `zonal bench --csv FILE` or `--json` wrote"
    )]
    NoReport(String),
    /// It is of a program that means something else by the same fields.
    #[error(
        "is a report of version {0}, and this program reads version {SCHEMA_VERSION}: measure \
         again with one program"
    )]
    Version(u64),
    /// Nanoseconds of two machines say nothing about the program.
    #[error(
        "was measured on {there}, and this is {here}: only runs of one machine can be compared"
    )]
    OtherMachine {
        /// CPU and number of CPUs in the file.
        there: String,
        /// CPU and number of CPUs here.
        here: String,
    },
    /// The two runs have no row in common.
    #[error(
        "has none of the rows of this run; compare with a run of the same --bench, --only and \
         --quick"
    )]
    NothingShared,
}

/// Where and of what an earlier run was made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Origin {
    cpu: String,
    cpus: usize,
    kernel: String,
    commit: String,
}

/// An earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    pub(crate) rows: Vec<Row>,
    origin: Origin,
    /// Only known from JSON.
    quick: Option<bool>,
}

impl Earlier {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no report of this version.
    pub fn read(path: &Path) -> Result<Earlier, CompareError> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(CompareError::NoReport(format!("it is longer than {BYTES_MAX} bytes")));
        }
        Earlier::parse(&text)
    }

    /// Reads the text of a file, JSON or CSV.
    ///
    /// # Errors
    /// If it is no report of this version.
    pub fn parse(text: &str) -> Result<Earlier, CompareError> {
        let earlier = if text.trim_start().starts_with('{') { json(text) } else { csv(text) }?;
        if earlier.rows.is_empty() {
            return Err(CompareError::NoReport("it has no rows".into()));
        }
        for (index, row) in earlier.rows.iter().enumerate() {
            let wrong = |what| Err(CompareError::NoReport(format!("{}: {what}", row.place())));
            let Row { p10_ns, ns_per_op, p90_ns, .. } = *row;
            let ordered = 0.0 < p10_ns && p10_ns <= ns_per_op && ns_per_op <= p90_ns;
            if !(ordered && p90_ns.is_finite()) {
                return wrong("p10_ns, ns_per_op and p90_ns are not ascending times");
            }
            if earlier.rows[..index].iter().any(|other| other.same_place(row)) {
                return wrong("there are two such rows");
            }
        }
        Ok(earlier)
    }

    /// Keeps what a run with these options will measure, too. Call it before measuring.
    ///
    /// # Errors
    /// If the file is of another machine, or nothing is kept.
    pub fn restrict(
        &mut self,
        options: &Options,
        cpus: &Cpus,
        here: &Machine,
    ) -> Result<(), CompareError> {
        let name = |cpu: &str, cpus: usize| format!("{cpu} with {cpus} CPUs");
        let Origin { cpu, cpus: count, .. } = &self.origin;
        if (cpu, *count) != (&here.cpu, here.cpus) {
            let (there, here) = (name(cpu, *count), name(&here.cpu, here.cpus));
            return Err(CompareError::OtherMachine { there, here });
        }
        let asked = |row: &Row| options.benches.is_empty() || options.benches.contains(&row.bench);
        self.rows.retain(|row| options.wants(&row.subject) && asked(row));
        let cells = plan(options, cpus);
        let shared =
            |row: &Row| !row.bench.is_planned() || cells.iter().any(|cell| row.is_of(cell));
        if self.rows.iter().any(shared) { Ok(()) } else { Err(CompareError::NothingShared) }
    }

    /// The commit that it is of.
    pub(crate) fn commit(&self) -> &str {
        &self.origin.commit
    }

    /// What a reader of a comparison with `now` must know.
    pub(crate) fn notices(&self, now: &Report) -> Vec<String> {
        let mut notices = Vec::new();
        if self.origin.kernel != now.machine.kernel {
            let (before, now) = (&self.origin.kernel, &now.machine.kernel);
            notices.push(format!("the kernel was Linux {before} and is {now}"));
        }
        if self.origin.commit == now.machine.commit {
            notices.push("both runs are of one commit".to_owned());
        }
        if self.quick.is_some_and(|quick| quick != now.quick) {
            notices.push("one of the runs is quick: its rounds are fewer and shorter".to_owned());
        }
        notices
    }
}

fn json(text: &str) -> Result<Earlier, CompareError> {
    let no_report = |error: serde_json::Error| CompareError::NoReport(error.to_string());
    let value: serde_json::Value = serde_json::from_str(text).map_err(no_report)?;
    let version = value.get("schema_version").and_then(serde_json::Value::as_u64);
    let is_report = value.get("rows").is_some();
    if let Some(version) = version.filter(|v| is_report && *v != u64::from(SCHEMA_VERSION)) {
        return Err(CompareError::Version(version));
    }
    let report: Report = serde_json::from_value(value).map_err(no_report)?;
    let Machine { cpu, cpus, kernel, commit, .. } = report.machine;
    let origin = Origin { cpu, cpus, kernel, commit };
    Ok(Earlier { rows: report.rows, origin, quick: Some(report.quick) })
}

fn csv(text: &str) -> Result<Earlier, CompareError> {
    let no_report = |error: csv::Error| CompareError::NoReport(error.to_string());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().map_err(no_report)?.clone();
    let (mut rows, mut origins) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.map_err(no_report)?;
        rows.push(record.deserialize::<Row>(Some(&headers)).map_err(no_report)?);
        origins.push(record.deserialize::<Origin>(Some(&headers)).map_err(no_report)?);
    }
    if origins.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(CompareError::NoReport("its rows are of several runs".into()));
    }
    let origin = origins.pop().ok_or_else(|| CompareError::NoReport("it has no rows".into()))?;
    Ok(Earlier { rows, origin, quick: None })
}
