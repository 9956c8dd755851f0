//! The runs of a sweep: every combination of the axes' values.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::text::{Known, RowText, file_id};
use crate::LabError;
use crate::machine::Machine;
use crate::recipe::{Machines, Recipe, policy};
use crate::workload::Workload;

/// Most runs of one sweep.
pub const POINTS_MAX: usize = 1_000_000;

/// An axis of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What [`Recipe::set`] knows it by.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of each axis.
    pub values: Vec<String>,
    /// The run.
    pub recipe: Recipe,
}

/// Every run of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The varied setting.
    pub axes: Vec<Axis>,
    /// Every combination, the last axis changing fastest; of a shard, those that are its own.
    pub points: Vec<Point>,
    /// Machines of the points, by name.
    machines: BTreeMap<String, Known>,
    /// Ids of the files that workloads play, by workload.
    files: BTreeMap<String, String>,
}

/// A part of a sweep: of each `of` points that follow each other, the one at `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number + 1, self.of)
    }
}

impl FromStr for Shard {
    type Err = LabError;

    /// `I/N`, from `1/N` to `N/N`.
    fn from_str(text: &str) -> Result<Shard, LabError> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            let numbers = (number.parse::<usize>().ok()?, of.parse::<usize>().ok()?);
            Some(numbers).filter(|(number, of)| (1..=*of).contains(number))
        });
        let (number, of) = numbers.ok_or_else(|| {
            LabError::Plan(format!("shard '{text}'; expected I/N with I from 1 to N, as 3/8"))
        })?;
        Ok(Shard { number: number - 1, of })
    }
}

/// Axes from `KEY=VALUE,VALUE`. Values that hold commas are separated by semicolons; a key that
/// comes again gets more values.
///
/// # Errors
/// An axis without values, or a value that comes twice.
pub fn axes(texts: &[String]) -> Result<Vec<Axis>, LabError> {
    let mut axes: Vec<Axis> = Vec::new();
    for text in texts {
        let wrong = |what: &str| LabError::Plan(format!("--over {text}: {what}"));
        let (key, list) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected KEY=VALUE,VALUE, as pcp.tuning=0,5,9 or cpus=2,8,88"))?;
        let separator = if list.contains(';') { ';' } else { ',' };
        let values: Vec<&str> =
            list.split(separator).map(str::trim).filter(|value| !value.is_empty()).collect();
        if values.is_empty() {
            return Err(wrong("no values, so there is nothing to run; expected at least one"));
        }
        let at = axes.iter().position(|axis| axis.key == key).unwrap_or_else(|| {
            axes.push(Axis { key: key.to_owned(), values: Vec::new() });
            axes.len() - 1
        });
        for value in values {
            if axes[at].values.iter().any(|known| known == value) {
                return Err(wrong(&format!("{value} comes twice")));
            }
            axes[at].values.push(value.to_owned());
        }
    }
    Ok(axes)
}

impl Sweep {
    /// Every combination of the axes' values, each checked.
    ///
    /// # Errors
    /// No axis, too many combinations, or the first value that cannot be.
    pub fn new(base: &Recipe, axes: Vec<Axis>, machines: Machines<'_>) -> Result<Sweep, LabError> {
        if axes.is_empty() {
            let what = "an empty sweep: nothing is varied; expected --over KEY=VALUE,VALUE";
            return Err(LabError::Plan(what.into()));
        }
        // With an axis of policies no point has the base's, and a slip in it would not be seen.
        policy(&base.policy)?;
        base.workload.parse::<Workload>()?;
        let count = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
        let count = count.filter(|count| *count <= POINTS_MAX).ok_or_else(|| {
            LabError::Plan(format!("more than {POINTS_MAX} runs; expected fewer values"))
        })?;
        let mut sweep =
            Sweep { axes, points: Vec::new(), machines: BTreeMap::new(), files: BTreeMap::new() };
        for number in 0..count {
            let point = point(base, &sweep.axes, number)?;
            sweep
                .check(&point.recipe, machines)
                .map_err(|error| LabError::Plan(format!("at {}: {error}", sweep.label(&point))))?;
            sweep.points.push(point);
        }
        Ok(sweep)
    }

    /// Refuses a run that cannot be; finds its machine and its file.
    fn check(&mut self, recipe: &Recipe, machines: Machines<'_>) -> Result<(), LabError> {
        if !self.machines.contains_key(&recipe.machine) {
            let known = Known::new(&recipe.machine, machines(&recipe.machine)?);
            self.machines.insert(recipe.machine.clone(), known);
        }
        let machine: &Machine = &self.machines[&recipe.machine].machine;
        let plan = recipe.plan(&|_| Ok(machine.clone()))?;
        if plan.workload.file().is_some() && !self.files.contains_key(&recipe.workload) {
            self.files.insert(recipe.workload.clone(), file_id(&plan.workload)?);
        }
        Ok(())
    }

    /// The points of a shard alone. All shards of a sweep together have each point once.
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Sweep {
        let mut number = 0..;
        self.points.retain(|_| number.next().unwrap_or(0) % shard.of == shard.number);
        self
    }

    /// The text of a point's row.
    ///
    /// # Panics
    /// If there is no such point.
    pub fn text(&self, at: usize) -> RowText {
        let recipe = &self.points[at].recipe;
        let file = self.files.get(&recipe.workload).map_or("", String::as_str);
        RowText::new(recipe, &self.machines[&recipe.machine], file)
    }

    /// The texts of all rows, each a line of JSON that [`RowText::parse`] takes, in any process.
    ///
    /// # Panics
    /// Never: a row has a form in JSON.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let text = |at| serde_json::to_string(&self.text(at)).expect("a row has a text");
        (0..self.points.len()).map(text)
    }

    /// A point's values with their keys: `cpus=8 policy=zonal`.
    pub fn label(&self, point: &Point) -> String {
        let pair = |(axis, value): (&Axis, &String)| format!("{}={value}", axis.key);
        self.axes.iter().zip(&point.values).map(pair).collect::<Vec<_>>().join(" ")
    }
}

fn point(base: &Recipe, axes: &[Axis], number: usize) -> Result<Point, LabError> {
    let (mut rest, mut values) = (number, Vec::new());
    for axis in axes.iter().rev() {
        values.push(axis.values[rest % axis.values.len()].clone());
        rest /= axis.values.len();
    }
    values.reverse();
    let mut recipe = base.clone();
    // What names a whole comes before what changes a part of it.
    let part = |key: &str| !matches!(key, "machine" | "policy" | "workload");
    let mut set: Vec<(&str, &str)> =
        axes.iter().zip(&values).map(|(axis, value)| (&*axis.key, &**value)).collect();
    set.sort_by_key(|(key, _)| part(key));
    for (key, value) in set {
        let at = |error: LabError| LabError::Plan(format!("--over {key}={value}: {error}"));
        recipe.set(key, value).map_err(at)?;
    }
    Ok(Point { values, recipe })
}
