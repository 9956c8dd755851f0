//! `zonal trace convert`: the same trace in another form.

use super::args::ConvertArgs;
use super::sink::Sink;
use crate::output;

const TICK_EVENTS: u64 = 1 << 14;

pub fn run(args: &ConvertArgs) -> anyhow::Result<()> {
    let recording = args.input.open()?;
    let machine = recording.description();
    let mut sink = Sink::create(&args.output, machine, &recording.machine_files()?)?;
    let bar = output::progress("converting", "events", machine.events);
    for event in recording.events() {
        sink.push(&event?)?;
        if sink.events.is_multiple_of(TICK_EVENTS) {
            bar.set_position(sink.events);
        }
    }
    bar.finish_and_clear();
    finish(sink)
}

/// Ends the output and says how large it is.
pub fn finish(sink: Sink) -> anyhow::Result<()> {
    let events = sink.events;
    match sink.finish()? {
        Some(bytes) => {
            let each = bytes as f64 / events.max(1) as f64;
            output::note(&format!("{events} events, {bytes} bytes, {each:.3} per event"));
        }
        None => output::note(&format!("{events} events")),
    }
    Ok(())
}
