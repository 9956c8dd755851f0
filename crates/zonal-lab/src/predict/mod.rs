//! Predictions of published measurements that were not looked at: what a change does to a load on a
//! machine, simulated before and after, one row for each seed.
//!
//! | module | holds |
//! |--|--|
//! | `questions` | what is asked, by the identifiers of the measurements |
//! | `rows` | rows as text |
//!
//! A prediction is of the ratio after to before, and of the figure before it where that was not
//! used. Where a question allows the figure before the change, one number of the load is set by it
//! ([`Fit`]), once, from seed 1.

mod questions;
mod rows;

use crate::LabError;
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::run::Figures;

pub use self::questions::questions;
pub use self::rows::{COLUMNS, Row, text};

/// A question: two runs, and the figure that is asked for.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which measurement.
    pub id: &'static str,
    /// The figure, with its unit.
    pub figure: String,
    /// The run before the change. Its seed is set by who asks.
    pub before: Recipe,
    /// The run after it.
    pub after: Recipe,
    /// The figure of a run.
    pub value: Value,
    /// A number of the load that the figure before the change sets, where that is allowed.
    pub fit: Option<Fit>,
    /// What the model has no mechanism for; nothing if it has what it takes.
    pub missing: &'static str,
    /// For the reader.
    pub note: &'static str,
}

/// The figure of a run that is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// The figure of this name, times a factor.
    Of(&'static str, f64),
    /// 100 less the figure of this name.
    Rest(&'static str),
    /// A factor over the figure of this name.
    Over(&'static str, f64),
    /// The one times a percentage of this name.
    Product(&'static str, &'static str),
}

/// One parameter of the workload, between two values, is set so that the run before the change
/// comes to the published figure: the nearest that a few halvings of the interval give.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The parameter.
    pub parameter: &'static str,
    /// The least it may be.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// The published figure before the change.
    pub published: f64,
    /// What it is compared with.
    pub value: Value,
}

/// Halvings of the interval of a fit.
const HALVINGS: u32 = 7;

impl Value {
    /// Of a run.
    pub fn of(self, figures: &Figures) -> f64 {
        let get = |name| figures.get(name).unwrap_or_default();
        match self {
            Value::Of(name, factor) => factor * get(name),
            Value::Rest(name) => 100.0 - get(name),
            Value::Over(name, factor) => factor / get(name).max(f64::MIN_POSITIVE),
            Value::Product(name, percent) => get(name) * get(percent) / 100.0,
        }
    }
}

fn run(recipe: &Recipe) -> Result<Figures, LabError> {
    recipe.plan(&|name| Ok(Machine::named(name)?))?.run()
}

impl Question {
    /// Sets what the published figure before the change sets. Returns it, for the row.
    fn fitted(&mut self) -> Result<Option<String>, LabError> {
        let Some(Fit { parameter, mut least, mut most, published, value }) = self.fit else {
            return Ok(None);
        };
        let mut recipe = Recipe { seed: 1, ..self.before.clone() };
        let mut at = |number: u64| -> Result<f64, LabError> {
            recipe.set(&format!("workload.{parameter}"), &number.to_string())?;
            Ok(value.of(&run(&recipe)?))
        };
        let (mut low, mut high) = (at(least)?, at(most)?);
        let between = |a: f64, b: f64| (a.min(b)..=a.max(b)).contains(&published);
        if between(low, high) {
            for _ in 0..HALVINGS {
                let middle = least + (most - least) / 2;
                let came = at(middle)?;
                match between(low, came) {
                    true => (most, high) = (middle, came),
                    false => (least, low) = (middle, came),
                }
            }
        }
        let nearest = if (low - published).abs() < (high - published).abs() { least } else { most };
        for side in [&mut self.before, &mut self.after] {
            side.set(&format!("workload.{parameter}"), &nearest.to_string())?;
        }
        Ok(Some(format!("{parameter}={nearest} by the figure before")))
    }

    /// Its rows, one for each seed. `commit`: of the program that makes them.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn answer(&self, seeds: &[u64], commit: &str) -> Result<Vec<Row>, LabError> {
        let mut question = self.clone();
        let fitted = question.fitted()?;
        let mut made = Vec::new();
        for seed in seeds {
            let [before, after] = [&question.before, &question.after]
                .map(|side| Recipe { seed: *seed, ..side.clone() });
            let runs = [run(&before)?, run(&after)?];
            made.push(Row::new(&question, [&before, &after], &runs, fitted.as_deref(), commit));
        }
        Ok(made)
    }
}
