//! The runs of a sweep: every combination of the axes' values.

use crate::LabError;
use crate::recipe::{Machines, Recipe};
use crate::run::Plan;

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
    /// The same, with everything found.
    pub plan: Plan,
}

/// Every run of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The varied setting.
    pub axes: Vec<Axis>,
    /// Every combination, the last axis changing fastest.
    pub points: Vec<Point>,
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
        let count = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
        let count = count.filter(|count| *count <= POINTS_MAX).ok_or_else(|| {
            LabError::Plan(format!("more than {POINTS_MAX} runs; expected fewer values"))
        })?;
        let points: Result<Vec<Point>, LabError> =
            (0..count).map(|number| point(base, &axes, number, machines)).collect();
        Ok(Sweep { points: points?, axes })
    }

    /// A point's values with their keys: `cpus=8 policy=zonal`.
    pub fn label(&self, point: &Point) -> String {
        let pair = |(axis, value): (&Axis, &String)| format!("{}={value}", axis.key);
        self.axes.iter().zip(&point.values).map(pair).collect::<Vec<_>>().join(" ")
    }
}

fn point(
    base: &Recipe,
    axes: &[Axis],
    number: usize,
    machines: Machines<'_>,
) -> Result<Point, LabError> {
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
    let pairs = axes.iter().zip(&values).map(|(axis, value)| format!("{}={value}", axis.key));
    let pairs = pairs.collect::<Vec<_>>().join(" ");
    let label = |error: LabError| LabError::Plan(format!("at {pairs}: {error}"));
    let plan = recipe.plan(machines).map_err(label)?;
    Ok(Point { values, recipe, plan })
}
