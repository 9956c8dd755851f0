//! What `zonal record --json` prints.

use std::path::Path;

use serde::Serialize;
use zonal_trace::make::Written;
use zonal_trace::record::{Recorded, Touched};

use crate::written;

/// A recording.
#[derive(Serialize)]
struct Made {
    events: u64,
    /// Of the file, or of the ring pages in a directory.
    bytes: Option<u64>,
    /// Events that had no room.
    dropped: u64,
}

/// Prints what was recorded.
///
/// # Errors
/// If standard output cannot be written.
pub fn made(output: &Path, written: Written, recorded: &Recorded) -> anyhow::Result<()> {
    let Written { events, bytes } = written;
    written::print(output, &Made { events, bytes, dropped: recorded.dropped })
}

/// What a recording would do.
#[derive(Serialize)]
struct Would<'a> {
    /// Why this host cannot be recorded as it is.
    refused: Option<&'a str>,
    lock: String,
    held_by: Option<&'a str>,
    state: String,
    /// What a recorder left that was killed.
    left: &'a [String],
    sysctl: Option<Sysctl<'a>>,
    instance: String,
    settings: Vec<Setting<'a>>,
    ring_bytes: u64,
    cpus: u64,
    replaces: bool,
    command: &'a [String],
}

/// A sysctl that is changed for a moment.
#[derive(Serialize)]
struct Sysctl<'a> {
    path: String,
    now: Option<&'a str>,
    meanwhile: &'a str,
}

/// A file of the instance, and what is written to it.
#[derive(Serialize)]
struct Setting<'a> {
    file: &'a str,
    value: &'a str,
}

/// Prints what would be touched.
///
/// # Errors
/// If standard output cannot be written.
pub fn dry_run(
    touched: &Touched,
    output: &Path,
    replaces: bool,
    command: &[String],
) -> anyhow::Result<()> {
    let shown = |path: &Path| path.display().to_string();
    let sysctl = touched.sysctl.as_ref().map(|sysctl| Sysctl {
        path: shown(&sysctl.path),
        now: sysctl.now.as_deref(),
        meanwhile: &sysctl.meanwhile,
    });
    let settings = touched.settings.iter().map(|(file, value)| Setting { file, value });
    let (ring_bytes, cpus) = touched.rings;
    let would = Would {
        refused: touched.refused.as_deref(),
        lock: shown(&touched.lock),
        held_by: touched.held_by.as_deref(),
        state: shown(&touched.state),
        left: &touched.left,
        sysctl,
        instance: shown(&touched.instance),
        settings: settings.collect(),
        ring_bytes,
        cpus,
        replaces,
        command,
    };
    written::print(output, &would)
}
