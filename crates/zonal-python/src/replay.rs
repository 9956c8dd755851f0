//! Recordings replayed, advice about them, and what kernels printed judged.

use std::ops::ControlFlow;
use std::path::PathBuf;

use pyo3::prelude::*;
use zonal_conform::{Source, judge_all};
use zonal_replay::advise::Options;
use zonal_replay::fidelity::page;
use zonal_replay::{Extras, Pace, Progress, Recorded, Replay};

use crate::fault::Fault;
use crate::long::{Hook, OnStop, long};
use crate::policy::parse;
use crate::recording::Recording;

/// How a recording is to be replayed.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
pub struct Asked {
    policy: String,
    /// On real memory, or on none.
    real: bool,
    /// As fast as recorded, on real memory.
    as_recorded: bool,
    limit: Option<u64>,
    /// Number of an allocation to explain.
    explain: Option<u64>,
    fidelity: bool,
    /// Names of recorded facts that the model uses.
    told: Vec<String>,
}

/// A watch that tells the hook.
fn watch(hook: &Hook) -> impl FnMut(Progress) -> ControlFlow<()> {
    let hook = hook.clone();
    move |progress| hook.tell(progress.done, progress.of)
}

fn recorded(names: &[String]) -> Result<Recorded, Fault> {
    let mut told = Recorded::default();
    for name in names {
        let flag = match name.as_str() {
            "decay" => &mut told.decay,
            "blocktypes" => &mut told.blocktypes,
            "lists" => &mut told.lists,
            "untraced" => &mut told.untraced,
            _ => {
                let expected = "expected decay, blocktypes, lists or untraced";
                return Err(Fault::new(
                    "ArgumentError",
                    format!("use_recorded: '{name}'; {expected}"),
                ));
            }
        };
        *flag = true;
    }
    Ok(told)
}

/// A replay: the report as JSON, and its page if fidelity was asked for.
#[pyfunction]
#[pyo3(signature = (recording, asked, progress=None))]
pub fn replay(
    py: Python<'_>,
    recording: &Recording,
    asked: Asked,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Option<String>)> {
    let recording = recording.inner();
    long(py, progress, OnStop::Wait, move |hook| {
        let told = recorded(&asked.told)?;
        let mut replay = Replay::new(&recording).policy(parse(&asked.policy)?);
        if let Some(limit) = asked.limit {
            replay = replay.limit(limit);
        }
        let report = if asked.real {
            let pace = if asked.as_recorded { Pace::Recorded } else { Pace::Max };
            replay.on_pool(pace, &mut watch(hook))?
        } else {
            let extras = Extras { told, explain: asked.explain, over_time: asked.fidelity };
            replay.without_memory(&extras, &mut watch(hook))?
        };
        let page = report.fidelity.as_ref().map(|fidelity| {
            let title = format!("{} under {}", report.trace.name, report.policy);
            page::html(&title, "", fidelity)
        });
        Ok((serde_json::to_string(&report)?, page))
    })
}

/// Advice, as JSON.
#[pyfunction]
#[pyo3(signature = (recording, only, limit, progress=None))]
pub fn advise(
    py: Python<'_>,
    recording: &Recording,
    only: Vec<String>,
    limit: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let recording = recording.inner();
    long(py, progress, OnStop::Wait, move |hook| {
        let options = Options { limit, only: &only };
        let advice = zonal_replay::advise(&recording, &options, &mut watch(hook))?;
        Ok(serde_json::to_string(&advice)?)
    })
}

/// Captures judged, and the running kernel if `live`: the report as JSON.
#[pyfunction]
#[pyo3(signature = (captures, live, progress=None))]
pub fn conform(
    py: Python<'_>,
    captures: Vec<PathBuf>,
    live: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    // A capture takes milliseconds and is only read: what is left may end by itself.
    long(py, progress, OnStop::Leave, move |hook| {
        let directories = captures.into_iter().map(Source::Directory);
        let sources: Vec<Source> = directories.chain(live.then_some(Source::Live)).collect();
        let report = judge_all(&sources, &mut |step| {
            hook.note(step.done as u64, step.total as u64);
        });
        Ok(serde_json::to_string(&report)?)
    })
}
