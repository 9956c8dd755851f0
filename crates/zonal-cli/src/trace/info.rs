//! `zonal trace info`: what a trace says about itself.

use serde::Serialize;
use zonal_trace::Recording;

use super::args::ReadArgs;
use crate::output;

#[derive(Serialize)]
struct Info<'a> {
    schema_version: u32,
    name: &'a str,
    form: String,
    file: String,
    bytes: Option<u64>,
    kernel: Option<&'a str>,
    workload: Option<&'a str>,
    cpus: Option<u32>,
    nodes: usize,
    zones: Vec<String>,
    clock: Option<&'a str>,
    clock_step_ns: u32,
    events: Option<u64>,
    events_dropped: Option<u64>,
    start_ns: Option<u64>,
    can_be_replayed: bool,
}

pub fn run(args: &ReadArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let info = Info::new(&recording);
    output::data(&if args.json { serde_json::to_string(&info)? + "\n" } else { info.text() })?;
    Ok(())
}

impl Info<'_> {
    fn new(recording: &Recording) -> Info<'_> {
        let machine = recording.description();
        let file = recording.stream_path();
        let populated = machine.zones.iter().filter(|zone| zone.is_populated());
        let zone = |zone: &zonal_trace::ZoneDescription| {
            format!("{}/{}: {} pages, {} free", zone.node, zone.kind, zone.managed, zone.free)
        };
        Info {
            schema_version: 1,
            name: &machine.name,
            form: format!("{:?}", recording.format()),
            bytes: std::fs::metadata(&file).ok().map(|metadata| metadata.len()),
            file: file.display().to_string(),
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
            can_be_replayed: machine.require_zones().is_ok(),
        }
    }

    fn text(&self) -> String {
        let number = |value: Option<u64>| value.map_or("not told".to_owned(), |n| n.to_string());
        let text = |value: Option<&str>| value.unwrap_or("not told").to_owned();
        let rows = [
            ("name", self.name.to_owned()),
            ("form", self.form.clone()),
            ("file", self.file.clone()),
            ("bytes", number(self.bytes)),
            ("kernel", text(self.kernel)),
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
                match self.can_be_replayed {
                    true => "possible".to_owned(),
                    false => "needs the zones of the machine: --machine DIR".to_owned(),
                },
            ),
        ];
        rows.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
    }
}
