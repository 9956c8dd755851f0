//! The lab: machines, single runs, sweeps, comparisons and published experiments.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use zonal_lab::LabError;
use zonal_lab::calibrate::{self, Effort};
use zonal_lab::experiment::{EXPERIMENTS, Experiment, Options};
use zonal_lab::machine::{Machine as Inner, split_size};
use zonal_lab::recipe::Recipe;
use zonal_lab::report;
use zonal_lab::run::{FIGURES, Figures};
use zonal_lab::sweep::{Axis, Column, Row, Sweep, column, columns};
use zonal_lab::workload::KINDS;

use crate::fault::Fault;
use crate::long::{OnStop, long};

/// A machine of the lab.
#[pyclass(frozen, module = "zonal._native", subclass)]
#[derive(Debug)]
pub struct Machine {
    inner: Inner,
}

#[pymethods]
impl Machine {
    /// A machine from the text of its description.
    #[new]
    fn new(toml: &str) -> PyResult<Machine> {
        Ok(Machine { inner: Inner::parse(toml).map_err(Fault::from)? })
    }

    /// Its description.
    fn to_toml(&self) -> String {
        self.inner.to_toml()
    }

    /// Its description as JSON.
    fn to_json(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.inner).map_err(Fault::from)?)
    }

    /// Each figure with its source, as JSON.
    fn figures_json(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.inner.figures()).map_err(Fault::from)?)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    #[getter]
    fn about(&self) -> &str {
        &self.inner.about
    }

    #[getter]
    fn cpus(&self) -> u32 {
        self.inner.cpus()
    }

    #[getter]
    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }
}

/// The description of the preset of this name, `NAME@CPUS` or `NAME@CPUS/NODES`.
#[pyfunction]
pub fn machine_named(name: &str) -> PyResult<String> {
    Ok(Inner::named(name).map_err(Fault::from)?.to_toml())
}

/// The description in this file, checked.
#[pyfunction]
pub fn machine_load(path: PathBuf) -> PyResult<String> {
    Ok(Inner::load(&path).map_err(Fault::from)?.to_toml())
}

/// A description as TOML, from JSON. No check but that of the form.
#[pyfunction]
pub fn machine_from_json(text: &str) -> PyResult<String> {
    let wrong = |why: &dyn std::fmt::Display| Fault::new("MachineError", format!("machine: {why}"));
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    Ok(toml::to_string(&value).map_err(|error| wrong(&error))?)
}

/// The two parts of `NAME@SIZE`.
#[pyfunction]
pub fn machine_split(name: &str) -> (&str, Option<&str>) {
    split_size(name)
}

/// The description of a machine with so many CPUs, or CPUs/NODES.
#[pyfunction]
pub fn machine_sized(toml: &str, size: &str) -> PyResult<String> {
    let machine = Inner::parse(toml).map_err(Fault::from)?;
    Ok(machine.sized(size).map_err(Fault::from)?.to_toml())
}

/// The description of this machine, measured.
#[pyfunction]
#[pyo3(signature = (quick, progress=None))]
pub fn machine_host(py: Python<'_>, quick: bool, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let effort = if quick { Effort::Quick } else { Effort::Full };
    // Measuring has no place to stop at.
    long(py, progress, OnStop::Leave, move |hook| {
        let measured = calibrate::measure(effort, &mut |done, all| hook.note(done, all));
        let machine = measured.map_err(|error| Fault::of("MachineError", &error))?;
        Ok(calibrate::text(&machine))
    })
}

/// Names of the machines that there are.
#[pyfunction]
pub fn machine_names() -> Vec<String> {
    Inner::presets().into_iter().map(|machine| machine.name).collect()
}

/// The machine that a call came with, if it is no preset.
pub struct Own(Option<Inner>);

impl Own {
    /// From its description.
    pub fn parse(toml: Option<&str>) -> Result<Own, Fault> {
        Ok(Own(toml.map(Inner::parse).transpose()?))
    }

    /// The machine of this name: the call's own in its size or another, or a preset. A preset never
    /// stands for a size of the call's own.
    pub fn machine(&self, name: &str) -> Result<Inner, LabError> {
        let (base, size) = split_size(name);
        let Some(own) = self.0.as_ref().filter(|own| split_size(&own.name).0 == base) else {
            return Ok(Inner::named(name)?);
        };
        match size {
            _ if own.name == name => Ok(own.clone()),
            Some(size) => Ok(own.sized(size)?),
            None => Err(LabError::Plan(format!(
                "machine {name}: the machine that was given is {}; expected {name}@CPUS",
                own.name
            ))),
        }
    }
}

/// A run's text: what `zonal.lab` gives to each call.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
pub struct Run {
    /// Name of the machine in results and commands.
    machine: String,
    /// Its description, where it is no preset.
    toml: Option<String>,
    policy: String,
    workload: String,
    busy: Option<u32>,
    seed: u64,
    warm_us: u64,
    run_us: u64,
    set: Vec<(String, String)>,
}

/// A run's recipe, and the machine that it names.
pub struct Asked {
    pub recipe: Recipe,
    pub own: Own,
}

impl Run {
    /// What the call asks for.
    pub fn asked(&self) -> Result<Asked, Fault> {
        let own = Own::parse(self.toml.as_deref())?;
        let mut recipe = Recipe::new(&self.machine, &self.policy, &self.workload);
        (recipe.busy, recipe.seed) = (self.busy, self.seed);
        (recipe.warm_us, recipe.run_us) = (self.warm_us, self.run_us);
        for (key, value) in &self.set {
            recipe.set(key, value)?;
        }
        Ok(Asked { recipe, own })
    }
}

/// One run, as JSON.
#[pyfunction]
#[pyo3(signature = (run, progress=None))]
pub fn lab_once(py: Python<'_>, run: Run, progress: Option<Py<PyAny>>) -> PyResult<String> {
    long(py, progress, OnStop::Wait, move |hook| {
        let asked = run.asked()?;
        let recipe = &asked.recipe;
        let machine = |name: &str| asked.own.machine(name);
        let figures = hook.in_lab(|| {
            let plan = recipe.plan(&machine)?;
            plan.run_watched(&mut |done, of| hook.note(done, of))
        })?;
        Ok(once(recipe, &figures))
    })
}

/// A run's figures, as the program's `--json` has them.
pub fn once(recipe: &Recipe, figures: &Figures) -> String {
    let Recipe { machine, policy, workload, seed, .. } = recipe;
    let once = json!({
        "schema_version": 1,
        "kind": "simulated",
        "machine": machine,
        "policy": policy,
        "workload": workload,
        "seed": seed,
        "figures": figures,
        "unplayed": figures.unplayed,
        "command": recipe.command(),
    });
    once.to_string()
}

/// Two policies on one workload, as JSON.
#[pyfunction]
#[pyo3(signature = (run, other, progress=None))]
pub fn lab_compare(
    py: Python<'_>,
    run: Run,
    other: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    long(py, progress, OnStop::Wait, move |hook| {
        let asked = run.asked()?;
        let machine = |name: &str| asked.own.machine(name);
        let policies = [asked.recipe.policy.as_str(), other.as_str()];
        let compared =
            hook.in_lab(|| zonal_lab::compare::compare(&asked.recipe, policies, &machine))?;
        Ok(serde_json::to_string(&compared)?)
    })
}

/// A published experiment: its table as JSON, and its page.
#[pyfunction]
#[pyo3(signature = (name, seed, cpus, progress=None))]
pub fn lab_run(
    py: Python<'_>,
    name: String,
    seed: u64,
    cpus: Vec<u32>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    long(py, progress, OnStop::Wait, move |hook| {
        let options = Options { cpus, ..Options::seeded(seed) };
        let table = hook.in_lab(|| {
            Experiment::named(&name)?.run(&options, &mut |done, of| hook.note(done, of))
        })?;
        Ok((serde_json::to_string(&table)?, report::html(&table)))
    })
}

/// Runs for every combination of values: the rows as JSON, and their page.
#[pyfunction]
#[pyo3(signature = (run, axes, path, jobs, progress=None))]
pub fn lab_sweep(
    py: Python<'_>,
    run: Run,
    axes: Vec<(String, Vec<String>)>,
    path: PathBuf,
    jobs: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    long(py, progress, OnStop::Wait, move |hook| {
        let asked = run.asked()?;
        let machine = |name: &str| asked.own.machine(name);
        let axes = axes.into_iter().map(|(key, values)| Axis { key, values }).collect();
        let (sweep, rows, done) = hook.in_lab(|| {
            let sweep = Sweep::new(&asked.recipe, axes, &machine)?;
            let total = sweep.points.len() as u64;
            let (rows, done) = sweep.run(&path, jobs, &|runs| hook.add(runs as u64, total))?;
            Ok((sweep, rows, done))
        })?;
        let page = report::sweep_html(&sweep, &rows, "zonal.lab.sweep(...)");
        let rows: Vec<Map<String, Value>> = rows.iter().map(fields).collect();
        let swept = json!({
            "schema_version": 1,
            "kind": "simulated",
            "made": done.made,
            "found": done.found,
            "points": rows,
        });
        Ok((swept.to_string(), page))
    })
}

/// A row with counts and figures as numbers; an empty one is null.
fn fields(row: &Row) -> Map<String, Value> {
    let value = |name: &str, text: &str| match column(name) {
        Column::Count => text.parse::<u64>().map_or(Value::Null, Value::from),
        Column::Figure => text.parse::<f64>().map_or(Value::Null, Value::from),
        Column::Text => text.into(),
    };
    let header = columns();
    let pairs = header.names().zip(row.fields());
    pairs.map(|(name, text)| (name.to_owned(), value(name, text))).collect()
}

/// Experiments, workloads and figures by name, with what they are, as JSON.
#[pyfunction]
pub fn lab_lists() -> String {
    let experiments: Map<String, Value> =
        EXPERIMENTS.iter().map(|known| (known.name.into(), known.about.into())).collect();
    let workloads: Map<String, Value> =
        KINDS.iter().map(|kind| (kind.name.into(), kind.about.into())).collect();
    let figures: Map<String, Value> =
        FIGURES.iter().map(|figure| (figure.name.into(), figure.about.into())).collect();
    json!({ "experiments": experiments, "workloads": workloads, "figures": figures }).to_string()
}
