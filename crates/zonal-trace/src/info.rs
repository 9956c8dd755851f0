//! The description of a trace, without its events.

use std::fmt;

use serde::Serialize;

use crate::{Recording, ZoneDescription};

/// Counts changes that break readers of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// What a trace says about itself, for people (`Display`) and for programs (`Serialize`).
///
/// ```
/// use zonal_trace::{Info, samples};
///
/// let recording = samples::zlib_make_j4()?;
/// let info = Info::of(&recording);
/// assert!(info.can_be_replayed && info.damage.is_none());
/// # Ok::<(), zonal_trace::TraceError>(())
/// ```
#[derive(Serialize, Debug, Clone)]
#[non_exhaustive]
pub struct Info<'a> {
    /// Version of these fields.
    pub schema_version: u32,
    /// The recording's name.
    pub name: &'a str,
    /// The form of the stream.
    pub form: String,
    /// The stream's file.
    pub file: String,
    /// Its bytes.
    pub bytes: Option<u64>,
    /// Whether the lab made it, and no host.
    pub simulated: bool,
    /// The kernel's release.
    pub kernel: Option<&'a str>,
    /// What ran.
    pub workload: Option<&'a str>,
    /// CPUs of the machine.
    pub cpus: Option<u32>,
    /// Nodes that are described.
    pub nodes: usize,
    /// Populated zones: node, kind, managed pages, free pages.
    pub zones: Vec<String>,
    /// The clock of the times.
    pub clock: Option<&'a str>,
    /// Resolution of times in nanoseconds.
    pub clock_step_ns: u32,
    /// Events, where the recorder counted them.
    pub events: Option<u64>,
    /// Events that the rings had no room for.
    pub events_dropped: Option<u64>,
    /// Time of the state at the start.
    pub start_ns: Option<u64>,
    /// Whether the machine is described well enough to be rebuilt, and there is more than moves.
    pub can_be_replayed: bool,
    /// Whether only moves between lists and buddies were recorded.
    pub moves_alone: bool,
    /// The part that a stream lacks that was cut short.
    pub damage: Option<String>,
}

impl Info<'_> {
    /// The description of a recording.
    pub fn of(recording: &Recording) -> Info<'_> {
        let machine = recording.description();
        let file = recording.stream_path();
        let populated = machine.zones.iter().filter(|zone| zone.is_populated());
        let zone = |zone: &ZoneDescription| {
            format!("{}/{}: {} pages, {} free", zone.node, zone.kind, zone.managed, zone.free)
        };
        Info {
            schema_version: SCHEMA_VERSION,
            name: &machine.name,
            form: format!("{:?}", recording.format()),
            bytes: std::fs::metadata(&file).ok().map(|metadata| metadata.len()),
            file: file.display().to_string(),
            simulated: machine.is_simulated,
            kernel: machine.kernel_release.as_deref(),
            workload: machine.workload.as_deref(),
            cpus: machine.cpus,
            nodes: machine.nodes.len(),
            zones: populated.map(zone).collect(),
            clock: machine.clock.name.as_deref(),
            clock_step_ns: machine.clock.step_ns,
            events: machine.events,
            events_dropped: machine.events_dropped,
            start_ns: machine.start.as_ref().map(|state| state.t_end_ns),
            can_be_replayed: machine.require_zones().is_ok() && !machine.has_moves_alone(),
            moves_alone: machine.has_moves_alone(),
            damage: recording.check_end().err().map(|error| error.to_string()),
        }
    }
}

impl fmt::Display for Info<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<u64>| value.map_or("not told".to_owned(), |n| n.to_string());
        let text = |value: Option<&str>| value.unwrap_or("not told").to_owned();
        let rows = [
            ("name", self.name.to_owned()),
            ("form", self.form.clone()),
            ("file", self.file.clone()),
            ("bytes", number(self.bytes)),
            (
                "kernel",
                text(self.kernel) + if self.simulated { ", simulated: of no host" } else { "" },
            ),
            ("workload", text(self.workload)),
            ("CPUs", number(self.cpus.map(u64::from))),
            ("nodes", self.nodes.to_string()),
            ("zones", self.zones.join("; ")),
            ("clock", format!("{}, step {} ns", text(self.clock), self.clock_step_ns)),
            ("events", number(self.events)),
            ("dropped", number(self.events_dropped)),
            ("start", number(self.start_ns)),
            (
                "replay",
                match (self.moves_alone, self.can_be_replayed) {
                    (true, _) => "no: moves alone were recorded (--moves), for `advise`".to_owned(),
                    (false, true) => "possible".to_owned(),
                    (false, false) => "needs the zones of the machine: --machine DIR".to_owned(),
                },
            ),
        ];
        rows.iter().try_for_each(|(name, value)| writeln!(f, "{name:<9} {value}"))?;
        match &self.damage {
            Some(damage) => writeln!(f, "{:<9} {damage}", "damage"),
            None => Ok(()),
        }
    }
}
