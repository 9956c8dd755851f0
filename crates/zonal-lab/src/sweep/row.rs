//! One row of a sweep: what its run depends on, its figures, its hash and its command.

use std::sync::LazyLock;

use super::version::check_version;
use crate::LabError;
use crate::machine::Machine;
use crate::run::{FIGURES, Figures};

/// Columns before the figures; the first eleven are a row's key.
const BEFORE: [&str; 14] = [
    "version",
    "machine",
    "machine_id",
    "policy",
    "workload",
    "file_id",
    "variant",
    "busy",
    "seed",
    "warm_us",
    "run_us",
    "point",
    "cpus",
    "nodes",
];
pub(super) const KEY_COLUMNS: usize = 11;
const POINT: usize = KEY_COLUMNS;
const CPUS: usize = POINT + 1;
/// Columns after the figures.
const AFTER: [&str; 2] = ["result_hash", "command"];
/// Columns with whole numbers.
const COUNTS: [&str; 6] = ["busy", "seed", "warm_us", "run_us", "cpus", "nodes"];
/// Characters of a hash.
const HASH: usize = 64;
/// Between fields in memory: no field has it.
const END: char = '\u{1f}';

/// Names of the columns of a sweep's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header(Vec<String>);

/// One run of a sweep, as its line says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(Box<str>);

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Text.
    Text,
    /// A whole number, or nothing.
    Count,
    /// A number.
    Figure,
}

/// The columns in their order; looked up once, since a file may have a million rows.
static COLUMNS: LazyLock<Vec<(&str, Column)>> = LazyLock::new(|| {
    let names = BEFORE.into_iter().chain(FIGURES.iter().map(|figure| figure.name)).chain(AFTER);
    names.map(|name| (name, column(name))).collect()
});

/// Names of the columns of a sweep's file.
pub fn columns() -> Header {
    Header(COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect())
}

/// What the column of this name holds.
pub fn column(name: &str) -> Column {
    match name {
        _ if COUNTS.contains(&name) => Column::Count,
        _ if FIGURES.iter().any(|figure| figure.name == name) => Column::Figure,
        _ => Column::Text,
    }
}

impl Header {
    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }
}

impl Row {
    pub(super) fn new(
        key: &[String; KEY_COLUMNS],
        command: String,
        machine: &Machine,
        figures: &Figures,
    ) -> Row {
        let mut fields = key.to_vec();
        // Which values of which sweep: whoever asked for the row says it.
        fields.push(String::new());
        fields.extend([machine.cpus().to_string(), machine.nodes().to_string()]);
        fields.extend(figures.each().map(|(_, value)| value.to_string()));
        fields.extend([figures.hash.clone(), command]);
        Row::joined(fields.iter().map(String::as_str))
    }

    fn joined<'a>(fields: impl Iterator<Item = &'a str>) -> Row {
        let mut text = String::new();
        for field in fields {
            text.extend(field.split(END));
            text.push(END);
        }
        text.pop();
        Row(text.into())
    }

    /// The row of these fields.
    ///
    /// # Errors
    /// Too few or too many, a number that is none, no hash, or another version of the program.
    pub fn of(fields: &[String]) -> Result<Row, LabError> {
        Row::checked(fields.iter().map(String::as_str))
    }

    /// As [`of`](Self::of), of fields that are parts of a line.
    pub(super) fn checked<'a>(
        fields: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Row, LabError> {
        let wrong = |what: String| Err(LabError::Plan(what));
        let count = fields.clone().count();
        if count != COLUMNS.len() {
            return wrong(format!("{count} fields; expected {}", COLUMNS.len()));
        }
        check_version(fields.clone().next().unwrap_or_default())?;
        for (&(name, kind), field) in COLUMNS.iter().zip(fields.clone()) {
            let fits = match kind {
                Column::Text => name != "result_hash" || is_hash(field),
                Column::Count => field.is_empty() || field.parse::<u64>().is_ok(),
                Column::Figure => field.parse::<f64>().is_ok_and(f64::is_finite),
            };
            if !fits {
                let found: String = field.chars().take(40).collect();
                let expected =
                    if name == "result_hash" { "64 hexadecimal digits" } else { "a number" };
                return wrong(format!("column {name}: '{found}'; expected {expected}"));
            }
        }
        Ok(Row::joined(fields))
    }

    /// The row in one piece, which [`of_text`](Self::of_text) reads.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The row of what [`text`](Self::text) gave, here or in another process.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_text(text: &str) -> Result<Row, LabError> {
        Row::checked(text.split(END))
    }

    /// The fields, in the order of the columns.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.split(END)
    }

    /// What tells it from other rows.
    pub(super) fn key(&self) -> &str {
        let end = self.0.match_indices(END).nth(KEY_COLUMNS - 1);
        end.map_or(&*self.0, |(end, _)| &self.0[..end])
    }

    /// The key as rows have it, in one piece.
    pub(super) fn key_of(key: &[String; KEY_COLUMNS]) -> String {
        Row::joined(key.iter().map(String::as_str)).0.into()
    }

    /// Says which point of a sweep it is. The same run may be a point of another one.
    pub(super) fn relabel(&mut self, label: &str) {
        if self.fields().nth(POINT) != Some(label) {
            let relabelled = |(at, field)| if at == POINT { label } else { field };
            *self = Row::joined(self.fields().enumerate().map(relabelled));
        }
    }

    /// Whether another row of the same key has the same figures.
    pub(super) fn agrees(&self, other: &Row) -> bool {
        self.fields().skip(POINT + 1).eq(other.fields().skip(POINT + 1))
    }

    /// A field, by the name of its column.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = COLUMNS.iter().position(|(known, _)| *known == name)?;
        self.fields().nth(at)
    }

    /// A figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> u32 {
        self.fields().nth(CPUS).and_then(|cpus| cpus.parse().ok()).unwrap_or(0)
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
