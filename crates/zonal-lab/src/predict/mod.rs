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

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::LabError;
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::run::Figures;
use crate::variant::Variant;

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
}

/// What the published figure before the change sets: one parameter of the workload, between two
/// values, so that the run comes to the figure (the nearest that a few halvings of the interval
/// give), or a constant that both sides take more or less.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The parameter; none: a constant.
    pub parameter: Option<&'static str>,
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
        }
    }
}

/// The figures of a run, none before it was made. Who makes it holds the lock.
type Made = Arc<Mutex<Option<Figures>>>;

/// Runs that were made or are being made, by their commands: questions share many.
static MADE: Mutex<BTreeMap<String, Made>> = Mutex::new(BTreeMap::new());

/// Makes a run, or waits for the thread that makes it.
fn run(recipe: &Recipe) -> Result<Figures, LabError> {
    // What a panic left is as it was before or whole.
    let mut runs = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = runs.entry(recipe.command()).or_default().clone();
    drop(runs);
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(figures) = &*made {
        return Ok(figures.clone());
    }
    let figures = recipe.plan(&|name| Ok(Machine::named(name)?))?.run()?;
    Ok(made.insert(figures).clone())
}

/// Sets a number of the workload, or of the variant.
fn set(recipe: &mut Recipe, parameter: &str, number: u64) -> Result<(), LabError> {
    if parameter != BLOCK_LINES {
        return recipe.set(&format!("workload.{parameter}"), &number.to_string());
    }
    let mut variant: Variant = recipe.variant.parse()?;
    variant.block_lines = number as u32;
    recipe.variant = variant.to_string();
    Ok(())
}

/// Lines of a block, in percent: the number of a variant that a figure may set.
const BLOCK_LINES: &str = "block-lines";

impl Question {
    /// Sets what the published figure before the change sets. Returns the constant that both sides
    /// take more, and what was set, for the row.
    fn fitted(&mut self) -> Result<(f64, Option<String>), LabError> {
        let Some(Fit { parameter, mut least, mut most, published, value }) = self.fit else {
            return Ok((0.0, None));
        };
        let mut recipe = Recipe { seed: 1, ..self.before.clone() };
        let Some(parameter) = parameter else {
            let more = published - value.of(&run(&recipe)?);
            return Ok((more, Some(format!("{more:+.1} on both sides by the figure before"))));
        };
        let mut at = |number: u64| -> Result<f64, LabError> {
            set(&mut recipe, parameter, number)?;
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
            set(side, parameter, nearest)?;
        }
        Ok((0.0, Some(format!("{parameter}={nearest} by the figure before"))))
    }

    /// Its rows, one for each seed. `commit`: of the program that makes them.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn answer(&self, seeds: &[u64], commit: &str) -> Result<Vec<Row>, LabError> {
        let mut question = self.clone();
        let (more, fitted) = question.fitted()?;
        let mut made = Vec::new();
        for seed in seeds {
            let [before, after] = [&question.before, &question.after]
                .map(|side| Recipe { seed: *seed, ..side.clone() });
            let runs = [run(&before)?, run(&after)?];
            let figures = runs.each_ref().map(|run| more + question.value.of(run));
            let hashes = runs.each_ref().map(|run| run.hash.as_str());
            let sides = [&before, &after];
            made.push(Row::new(&question, sides, figures, hashes, (fitted.as_deref(), commit)));
        }
        Ok(made)
    }
}
