//! Results of a judgement: typed, to print and to serialise.

use std::fmt;

use serde::Serialize;

use crate::place::Place;

/// Most lines of one case that the text prints of each kind; JSON has all.
const LINES_MAX: usize = 40;

/// A value as a kernel prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// One number.
    Number(u64),
    /// Several.
    Numbers(Vec<i64>),
    /// Anything else.
    Text(String),
}

/// A value that the kernel printed and the core computed.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What messages call the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The kind of value.
    pub what: String,
    /// As the kernel printed it.
    pub expected: Value,
    /// As the core computed it.
    pub computed: Value,
}

/// Values not judged, and why.
#[derive(Debug, Clone, Serialize)]
pub struct NotJudged {
    /// Its name.
    pub what: String,
    /// How many values that leaves out; 0 where they were not counted.
    pub values: u64,
    /// Why it cannot be judged.
    pub reason: String,
}

/// A zone that had another size when its watermarks were computed.
#[derive(Debug, Clone, Serialize)]
pub struct SizeThen {
    /// Where the watermarks stand.
    pub file: String,
    /// The node's id.
    pub node: u32,
    /// The zone's kind.
    pub zone: String,
    /// Its managed pages now.
    pub managed: u64,
    /// What it managed then: one of the sizes from which the watermarks follow.
    pub managed_then: u64,
}

/// Result for one kernel.
#[derive(Debug, Default, Serialize)]
pub struct Case {
    /// The capture's name.
    pub name: String,
    /// The kernel's release.
    pub release: String,
    /// Values compared.
    pub values: u64,
    /// Those that differ.
    pub mismatches: Vec<Check>,
    /// Values not compared.
    pub not_judged: Vec<NotJudged>,
    /// Zones whose watermarks belong to other sizes than those beside them.
    pub sizes_then: Vec<SizeThen>,
    /// Where the values that were compared stand.
    #[serde(skip)]
    pub judged: Vec<Place>,
}

/// A capture that could not be read.
#[derive(Debug, Serialize)]
pub struct BadInput {
    /// The directory.
    pub name: String,
    /// The fault, with file and line.
    pub error: String,
}

/// Result for all.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// By capture.
    pub cases: Vec<Case>,
    /// Values compared, of all cases.
    pub values: u64,
    /// Those that differ, of all cases.
    pub mismatches: u64,
    /// Captures that could not be read.
    pub bad_input: Vec<BadInput>,
}

impl Check {
    /// Whether both agree.
    pub fn holds(&self) -> bool {
        self.expected == self.computed
    }
}

impl Case {
    /// Counts a comparison.
    pub(crate) fn check(&mut self, check: Check) {
        self.values += 1;
        self.judged.push(Place::new(&check.file, check.line));
        if !check.holds() {
            self.mismatches.push(check);
        }
    }

    /// Adds a value that was not compared.
    pub(crate) fn skip(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.skip_values(what, 0, reason);
    }

    /// Counts values that were not compared.
    pub(crate) fn skip_values(
        &mut self,
        what: impl Into<String>,
        values: u64,
        reason: impl Into<String>,
    ) {
        self.not_judged.push(NotJudged { what: what.into(), values, reason: reason.into() });
    }
}

impl Report {
    /// Adds a case.
    pub(crate) fn push(&mut self, case: Case) {
        self.values += case.values;
        self.mismatches += case.mismatches.len() as u64;
        self.cases.push(case);
    }

    /// Values not judged; once, if the same for all cases.
    fn not_judged(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What, why, how many values, of which cases.
        let mut skips: Vec<(&NotJudged, u64, Vec<&str>)> = Vec::new();
        for case in &self.cases {
            for skipped in &case.not_judged {
                let same = |(other, ..): &&mut (&NotJudged, u64, Vec<&str>)| {
                    (&other.what, &other.reason) == (&skipped.what, &skipped.reason)
                };
                match skips.iter_mut().find(same) {
                    Some((_, values, names)) => {
                        *values += skipped.values;
                        names.push(&case.name);
                    }
                    None => skips.push((skipped, skipped.values, vec![&case.name])),
                }
            }
        }
        if !skips.is_empty() {
            writeln!(f, "\nnot judged:")?;
        }
        for (skipped, values, names) in skips {
            let values = if values > 0 { format!(" ({values} values)") } else { String::new() };
            let cases = match names.len() {
                count if count == self.cases.len() => String::new(),
                1 => format!(" [{}]", names[0]),
                count => format!(" [{count} cases]"),
            };
            writeln!(f, "  {}{values}: {}{cases}", skipped.what, skipped.reason)?;
        }
        Ok(())
    }
}

/// As text: a line for each case, its mismatches, and values not judged.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:34} {:24} {:>7} {:>10}", "case", "release", "values", "mismatches")?;
        for case in &self.cases {
            let Case { name, release, values, .. } = case;
            let differ = case.mismatches.len();
            writeln!(f, "{name:34} {release:24} {values:>7} {differ:>10}")?;
            for check in case.mismatches.iter().take(LINES_MAX) {
                writeln!(f, "  {check}")?;
            }
            if differ > LINES_MAX {
                writeln!(f, "  … and {} more; --json prints all", differ - LINES_MAX)?;
            }
        }
        for bad in &self.bad_input {
            writeln!(f, "{:34} bad input: {}", bad.name, bad.error)?;
        }
        let bad = match self.bad_input.len() {
            0 => String::new(),
            bad => format!(", {bad} not judged: bad input"),
        };
        let (cases, values, mismatches) = (self.cases.len(), self.values, self.mismatches);
        let one_or_more = |is_one: bool, one: &'static str, more| if is_one { one } else { more };
        let case = one_or_more(cases == 1, "case", "cases");
        let value = one_or_more(values == 1, "value", "values");
        let mismatch = one_or_more(mismatches == 1, "mismatch", "mismatches");
        writeln!(f, "{cases} {case}, {values} {value}, {mismatches} {mismatch}{bad}")?;
        self.not_judged(f)
    }
}

/// `FILE:LINE: WHAT: expected X, computed Y`.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { file, line, what, expected, computed } = self;
        write!(f, "{file}:{line}: {what}: expected {expected}, computed {computed}")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Numbers(numbers) => {
                let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
                write!(f, "({})", words.join(", "))
            }
            Value::Text(text) => f.write_str(text),
        }
    }
}
