//! A run as a recording, in the form that `zonal record` makes on a real machine: what reads
//! recordings can be tried on machines whose truth is known.
//!
//! ```text
//!  Lab: each call ─► Tape: the call, its waits, the pages that moved ─► FILE.zonal + meta.json
//! ```
//! The recording begins when the machine has booted, with every list empty, and has the warm-up
//! too. Its `meta.json` says under `lab` which run it is of, with the machine's file and the
//! figures: the truth.
//!
//! # What differs from a kernel's recording
//! - Which pages a refill or a drain moves is not recorded by the lab: their events name the block
//!   of the call that caused them. Zone, CPU, time and number of pages are right.
//! - A drain's pages are blocks of the call's order where they divide by it, single pages else.
//! - Calls of two CPUs overlap in time, and the core has them one after the other: an allocation,
//!   free or refresh is told no earlier than those that it had before, up to the length of a call
//!   later than its CPU's clock says. So a replay makes them in the same order. Waits and moved
//!   pages keep their times.
//! - Pages that a CPU gives back from the lists of others are told as drains by their own workers,
//!   as Linux did before 6.0.

pub(crate) mod events;
mod files;
mod zones;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use zonal_trace::{Event, MachineDescription, MachineFiles, Part, Parts};
use zonal_trace::{Recording, TraceWriter, WriterOptions, place};

pub use self::events::EVENTS_MAX;
use self::events::Tape;
use crate::LabError;
use crate::recipe::{Machines, Recipe};
use crate::run::Figures;
use crate::workload::Workload;

/// Level of zstd: the files are many and small.
const LEVEL: i32 = 3;

/// Makes the run and writes it as a recording. Returns its figures, which are those of the run
/// without one, and how many events there are.
///
/// # Errors
/// A run that cannot be, a policy that is no kernel's, a run of more than [`EVENTS_MAX`] events, or
/// a file that cannot be written.
pub fn record(
    recipe: &Recipe,
    machines: Machines<'_>,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Figures, u64), LabError> {
    let plan = recipe.plan(machines)?;
    if is_played(&plan.workload, path) {
        let path = path.display();
        return Err(LabError::Plan(format!("{path}: the workload is read from it; write another")));
    }
    let release = files::release(&recipe.policy)?;
    let (figures, tape) = plan.run_with(
        &mut |lab| lab.record(Tape::new(&lab.allocator, lab.machine.ghz)),
        progress,
        |lab| lab.tape.take(),
    )?;
    let tape = tape.ok_or_else(|| LabError::Plan("the run left no events".into()))?;
    if tape.is_full {
        let what = format!("more than {EVENTS_MAX} events; expected a shorter run, by --run-us");
        return Err(LabError::Plan(what));
    }
    let Tape { mut events, zones, .. } = *tape;
    // What is of one time stays in the order of the calls.
    events.sort_by_key(|event| event.time_ns);
    let files = files::files(recipe, &plan, &zones, &figures, (&release, &events))?;
    let fail = |error: &dyn std::fmt::Display| {
        let what = format!("{}: cannot be written: {error}", path.display());
        LabError::Plan(what + "; expected a file in an existing folder")
    };
    let path = &place::plain(path).map_err(|error| fail(&error))?;
    let part = place::part(path).unwrap_or_else(|| path.clone());
    write(&part, &files, &events)
        .and_then(|()| std::fs::rename(&part, path).map_err(|error| error.to_string()))
        .map_err(|error| {
            // What is no recording is of no use.
            let _ = std::fs::remove_file(&part);
            fail(&error)
        })?;
    Ok((figures, events.len() as u64))
}

/// Whether a workload plays the recording at `path`, or a file of it.
pub fn is_played(workload: &Workload, path: &Path) -> bool {
    let played = workload.file().map(Recording::open);
    played.is_some_and(|played| played.is_ok_and(|played| played.reads_from(path)))
}

fn write(path: &Path, files: &MachineFiles, events: &[Event]) -> Result<(), String> {
    let parts = files.iter().map(|(name, bytes)| Part::new(name, bytes.to_vec())).collect();
    let described = MachineDescription::read(&Parts::new("lab", parts), "lab");
    let described = described.map_err(|error| error.to_string())?;
    let write = || -> std::io::Result<()> {
        let output = BufWriter::new(File::create(path)?);
        let options = WriterOptions { level: LEVEL, ..WriterOptions::default() };
        let mut writer = TraceWriter::new(output, &described, files, options)?;
        events.iter().try_for_each(|event| writer.push(event))?;
        writer.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    };
    write().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
