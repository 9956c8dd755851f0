//! Recordings to Perfetto.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use prost::Message;
use prost::encoding::encode_varint;
use zonal_trace::{Event, MachineFiles, Recording};

use crate::counters::{Counters, MACHINE_TRACK};
use crate::error::Error;
use crate::kinds::{VMSTAT_SYMBOL, to_ftrace};
use crate::packets::PACKET_KEY;
use crate::proto::{
    CLEARED, DebugAnnotation, FtraceEvent, FtraceEventBundle, INSTANT, InternedData,
    InternedString, NEEDS_STATE, ProcessTree, SystemInfo, Thread, TracePacket, TrackDescriptor,
    TrackEvent, Utsname,
};
use crate::{BYTES_KEY, FILE_KEY, VMSTAT_UPDATE};

/// Events that are held.
const HELD: usize = 1 << 15;
/// Events of a bundle.
const BUNDLE: usize = 1 << 12;
/// The sequence of ftrace events, and that of tracks.
const FTRACE: u32 = 1;
const TRACKS: u32 = 2;

/// Writes a recording as a Perfetto trace. `progress` gets the number of events so far, and stops
/// the work by `Break`. Returns the number of events.
///
/// Times are those of the recording's clock, which Perfetto takes for the time since boot.
///
/// # Errors
/// The recording is damaged, or the output cannot be written; or [`Error::Stopped`].
pub fn write_trace(
    recording: &Recording,
    output: impl Write,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<u64, Error> {
    let files = recording.machine_files()?;
    let mut writer = Writer { output, buffer: Vec::new() };
    let mut counters = Counters::default();
    let mut events = recording.events();
    let first = events.next().transpose()?;
    let start_ns = first.as_ref().map_or(0, |event| event.time_ns);
    writer.head(recording, &files, start_ns)?;
    let (polls, machine) = (recording.polls()?, recording.description());
    // Without samples in between, those of the start and the end.
    let ends = [&machine.start, &machine.end].into_iter().flatten();
    let ends = ends.filter(|_| polls.is_empty());
    for sample in polls.iter().chain(ends) {
        counters.sample(sample);
        writer.tracks(&mut counters)?;
    }
    let (mut held, mut count, mut latest) = (Held::default(), 0_u64, start_ns);
    for event in first.map(Ok).into_iter().chain(events) {
        let event = event?;
        counters.event(&event);
        held.push(&event);
        (count, latest) = (count + 1, event.time_ns);
        if count.is_multiple_of(HELD as u64) {
            writer.bundles(&mut held)?;
            writer.tracks(&mut counters)?;
            if progress(count).is_break() {
                return Err(Error::Stopped);
            }
        }
    }
    counters.moves(latest);
    writer.bundles(&mut held)?;
    writer.tracks(&mut counters)?;
    writer.output.flush().map_err(Error::Output)?;
    Ok(count)
}

/// Events by CPU.
#[derive(Default)]
struct Held(BTreeMap<u32, Vec<FtraceEvent>>);

impl Held {
    fn push(&mut self, event: &Event) {
        self.0.entry(event.cpu).or_default().push(FtraceEvent {
            timestamp: Some(event.time_ns),
            pid: Some(event.pid as u32),
            event: Some(to_ftrace(&event.kind)),
        });
    }
}

struct Writer<W> {
    output: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    fn put(&mut self, packet: &TracePacket) -> Result<(), Error> {
        self.buffer.clear();
        self.buffer.push(PACKET_KEY);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        let encoded = packet.encode(&mut self.buffer).map_err(io::Error::other);
        encoded.and_then(|()| self.output.write_all(&self.buffer)).map_err(Error::Output)
    }

    /// What comes before the events.
    fn head(
        &mut self,
        recording: &Recording,
        files: &MachineFiles,
        start_ns: u64,
    ) -> Result<(), Error> {
        let symbol = InternedString { iid: Some(VMSTAT_SYMBOL), str: Some(VMSTAT_UPDATE.to_vec()) };
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(FTRACE),
            sequence_flags: Some(CLEARED),
            interned_data: Some(InternedData { kernel_symbols: vec![symbol] }),
            ..TracePacket::default()
        })?;
        let system = recording.description().uname.as_deref().map(system_info);
        let tree = files.get("comms").map(|_| process_tree(files.thread_names()));
        if system.is_some() || tree.is_some() {
            self.put(&TracePacket { system_info: system, ..TracePacket::default() })?;
            self.put(&TracePacket {
                timestamp: Some(start_ns),
                process_tree: tree,
                ..TracePacket::default()
            })?;
        }
        let track = TrackDescriptor {
            uuid: Some(MACHINE_TRACK),
            name: Some("zonal: files of the machine".to_owned()),
            ..TrackDescriptor::default()
        };
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(TRACKS),
            sequence_flags: Some(CLEARED),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })?;
        for (name, content) in files.iter() {
            let event = TrackEvent {
                r#type: Some(INSTANT),
                track_uuid: Some(MACHINE_TRACK),
                name: Some(name.as_bytes().to_vec()),
                debug_annotations: vec![annotation(name, content)],
                ..TrackEvent::default()
            };
            self.put(&TracePacket {
                timestamp: Some(start_ns),
                trusted_packet_sequence_id: Some(TRACKS),
                track_event: Some(event),
                ..TracePacket::default()
            })?;
        }
        Ok(())
    }

    fn bundles(&mut self, held: &mut Held) -> Result<(), Error> {
        for (cpu, events) in std::mem::take(&mut held.0) {
            let mut rest = events.into_iter().peekable();
            while rest.peek().is_some() {
                let event: Vec<FtraceEvent> = rest.by_ref().take(BUNDLE).collect();
                let lost_events = event.first().is_some_and(FtraceEvent::is_lost).then_some(true);
                self.put(&TracePacket {
                    trusted_packet_sequence_id: Some(FTRACE),
                    sequence_flags: Some(NEEDS_STATE),
                    ftrace_events: Some(FtraceEventBundle { cpu: Some(cpu), event, lost_events }),
                    ..TracePacket::default()
                })?;
            }
        }
        Ok(())
    }

    fn tracks(&mut self, counters: &mut Counters) -> Result<(), Error> {
        for mut packet in counters.packets.drain(..) {
            packet.trusted_packet_sequence_id = Some(TRACKS);
            self.put(&packet)?;
        }
        Ok(())
    }
}

fn annotation(name: &str, content: &[u8]) -> DebugAnnotation {
    let (key, text) = match std::str::from_utf8(content) {
        Ok(text) => (FILE_KEY, text.to_owned()),
        Err(_) => (BYTES_KEY, content.iter().copied().map(char::from).collect()),
    };
    let name = Some(format!("{key}{name}").into_bytes());
    DebugAnnotation { name, string_value: Some(text.into_bytes()) }
}

/// `uname -a` in its parts: `sysname nodename release version… machine`.
fn system_info(uname: &str) -> SystemInfo {
    let words: Vec<&str> = uname.split_whitespace().collect();
    let word = |at: usize| words.get(at).map(|word| word.as_bytes().to_vec());
    let version =
        words.get(3..words.len().saturating_sub(1)).map(|words| words.join(" ").into_bytes());
    let machine = words.last().map(|word| word.as_bytes().to_vec());
    SystemInfo { utsname: Some(Utsname { sysname: word(0), version, release: word(2), machine }) }
}

/// Names of threads, as processes of their own: which process a thread is of was not recorded.
fn process_tree(names: Vec<(i32, String)>) -> ProcessTree {
    let thread = |(tid, name): (i32, String)| Thread {
        tid: Some(tid),
        name: Some(name.into_bytes()),
        tgid: Some(tid),
    };
    ProcessTree { threads: names.into_iter().map(thread).collect() }
}
