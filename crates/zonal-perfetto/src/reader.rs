//! Perfetto to recordings, in two passes: where the bundles of each CPU are, then their events,
//! merged by time. A bundle holds what was read at once from one CPU's ring, so the bundles of a
//! CPU are in order, and those of two CPUs overlap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;
use std::vec;

use prost::Message;
use zonal_trace::{
    CPUS_MAX, Event, EventKind, MachineDescription, MachineFiles, Part, Parts, TraceWriter,
    WriterOptions,
};

use crate::error::Error;
use crate::kinds::{to_ftrace, to_kind};
use crate::packets::{Packets, Place};
use crate::proto::{CLEARED, FtraceEvent, PacketHead, SystemInfo, TracePacket, TrackEvent};
use crate::{BYTES_KEY, FILE_KEY, VMSTAT_UPDATE};

/// Packets and events between two calls of a progress callback.
const TICK: u64 = 1 << 14;
/// Files that are made out of a trace where it has none of ours.
const META: &str = "meta.json";
const COMMS: &str = "comms";

/// A trace that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Events in the recording.
    pub events: u64,
    /// Events of other kinds, which tell nothing about pages: left out.
    pub left_out: u64,
    /// Events that were a little earlier than the one before them on their CPU, and got its time.
    pub late: u64,
}

/// Where a bundle is.
struct Bundle {
    place: Place,
    /// The number of the statistics worker's symbol in its sequence, at that packet.
    vmstat: Option<u64>,
}

/// What the first pass finds.
#[derive(Default)]
struct Found {
    bundles: BTreeMap<u32, Vec<Bundle>>,
    /// By sequence.
    symbols: HashMap<u32, u64>,
    files: MachineFiles,
    system: Option<SystemInfo>,
    comms: BTreeMap<i32, String>,
}

/// Writes the page events of a Perfetto trace as a `.zonal` file at `output`, with the machine's
/// files if the trace was made here. `progress` gets the number of events so far, and stops the
/// work by `Break`.
///
/// # Errors
/// A damaged file, an event that cannot be, no event of pages, or an output that cannot be written;
/// or [`Error::Stopped`].
pub fn read_trace(
    path: &Path,
    output: &Path,
    level: i32,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Read, Error> {
    let mut packets = Packets::open(path)?;
    let found = first_pass(path, &mut packets, progress)?;
    if found.bundles.is_empty() {
        return Err(Error::NoPages(path.to_owned()));
    }
    let files = found.machine_files();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parts = files.iter().map(|(name, content)| Part::new(name, content.to_vec()));
    let parts = Parts::new(path.to_string_lossy(), parts.collect());
    let machine = MachineDescription::read(&parts, &name)?;
    let file = File::create_new(output).map_err(Error::io(output))?;
    let options = WriterOptions { level, ..WriterOptions::default() };
    let writer = TraceWriter::new(BufWriter::new(file), &machine, &files, options);
    let mut writer = writer.map_err(Error::io(output))?;
    let mut merge = Merge::new(path, packets, found.bundles)?;
    let (mut events, mut pages) = (0, false);
    while let Some(event) = merge.next()? {
        pages |= matches!(event.kind, EventKind::Alloc { .. } | EventKind::Free { .. });
        writer.push(&event).map_err(Error::io(output))?;
        events += 1;
        if events % TICK == 0 && progress(events).is_break() {
            return Err(Error::Stopped);
        }
    }
    writer.finish().map_err(Error::io(output))?;
    if !pages {
        return Err(Error::NoPages(path.to_owned()));
    }
    Ok(Read { events, left_out: merge.left_out, late: merge.late })
}

fn first_pass(
    path: &Path,
    packets: &mut Packets<'_>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Found, Error> {
    let (mut found, mut buffer, mut seen) = (Found::default(), Vec::new(), 0_u64);
    while let Some(place) = packets.next(&mut buffer)? {
        seen += 1;
        if seen.is_multiple_of(TICK) && progress(0).is_break() {
            return Err(Error::Stopped);
        }
        if let Some(packed) = found.see(path, place, &buffer)? {
            packets.inflate(&packed, place.at, &mut |inner, bytes| {
                found.see(path, inner, bytes).map(drop)
            })?;
        }
    }
    Ok(found)
}

impl Found {
    /// Takes note of a packet. Returns packets that are compressed in it.
    fn see(&mut self, path: &Path, place: Place, bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let packet = PacketHead::decode(bytes).map_err(|error| {
            Error::packet(path, place.at, format!("no packet of a Perfetto trace: {error}"))
        })?;
        let sequence = packet.trusted_packet_sequence_id.unwrap_or(0);
        let flags = packet.sequence_flags.unwrap_or(0);
        if flags & CLEARED != 0 || packet.incremental_state_cleared == Some(true) {
            self.symbols.remove(&sequence);
        }
        for symbol in packet.interned_data.into_iter().flat_map(|data| data.kernel_symbols) {
            if symbol.str.as_deref() == Some(VMSTAT_UPDATE) {
                self.symbols.insert(sequence, symbol.iid.unwrap_or(0));
            }
        }
        if let Some(bundle) = packet.ftrace_events {
            let cpu = bundle.cpu.unwrap_or(0);
            if cpu >= CPUS_MAX {
                let what = format!("cpu: {cpu}; expected below {CPUS_MAX}");
                return Err(Error::packet(path, place.at, what));
            }
            let vmstat = self.symbols.get(&sequence).copied();
            self.bundles.entry(cpu).or_default().push(Bundle { place, vmstat });
        }
        for thread in packet.process_tree.into_iter().flat_map(|tree| tree.threads) {
            if let (Some(tid), Some(name)) = (thread.tid, thread.name) {
                self.comms.insert(tid, name.replace('\n', " "));
            }
        }
        self.system = packet.system_info.or(self.system.take());
        packet.track_event.into_iter().for_each(|event| self.machine_file(event));
        Ok(packet.compressed_packets)
    }

    /// A file of the machine, if the event holds one. Names of other kinds are passed over: names
    /// become files when a trace is unpacked.
    fn machine_file(&mut self, event: TrackEvent) {
        let plain = |name: &&str| {
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
        };
        for annotation in event.debug_annotations {
            let (Some(key), Some(text)) = (annotation.name, annotation.string_value) else {
                continue;
            };
            if let Some(name) = key.strip_prefix(FILE_KEY).filter(plain) {
                self.files.set(name, text.into_bytes());
            } else if let Some(name) = key.strip_prefix(BYTES_KEY).filter(plain)
                && let Ok(bytes) = text.chars().map(u8::try_from).collect()
            {
                self.files.set(name, bytes);
            }
        }
    }

    /// The files of the machine: ours, or what other traces tell.
    fn machine_files(&self) -> MachineFiles {
        let mut files = self.files.clone();
        if files.get(COMMS).is_none() && !self.comms.is_empty() {
            let lines = self.comms.iter().map(|(tid, name)| format!("{tid} {name}\n"));
            files.set(COMMS, lines.collect::<String>().into_bytes());
        }
        if files.get(META).is_none() {
            let uname = self.system.as_ref().and_then(|system| system.utsname.as_ref());
            let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
            let uname = uname.map(|name| {
                let words = [&name.sysname, &None, &name.release, &name.version, &name.machine];
                words.map(part).join(" ").replace(['"', '\\', '\n'], " ")
            });
            let uname = uname.map_or_else(String::new, |uname| format!(", \"uname\": \"{uname}\""));
            let cpus = self.bundles.keys().next_back().map_or(1, |cpu| cpu + 1);
            let meta = format!("{{\"clock\": \"boot\", \"cpus\": {cpus}{uname}}}\n");
            files.set(META, meta.into_bytes());
        }
        files
    }
}

/// Events of all CPUs in the order of time.
struct Merge<'a> {
    path: &'a Path,
    packets: Packets<'a>,
    cpus: Vec<Cpu>,
    /// The time and the place in `cpus` of each CPU's next event.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    buffer: Vec<u8>,
    left_out: u64,
    late: u64,
}

/// A CPU's events.
struct Cpu {
    cpu: u32,
    bundles: vec::IntoIter<Bundle>,
    /// What is left of the bundle that is read, and where that is.
    events: vec::IntoIter<FtraceEvent>,
    vmstat: Option<u64>,
    at: u64,
    latest_ns: u64,
    /// The next event.
    next: Option<(i32, EventKind)>,
}

impl<'a> Merge<'a> {
    fn new(
        path: &'a Path,
        packets: Packets<'a>,
        bundles: BTreeMap<u32, Vec<Bundle>>,
    ) -> Result<Merge<'a>, Error> {
        let cpus = bundles.into_iter().map(|(cpu, bundles)| Cpu {
            cpu,
            bundles: bundles.into_iter(),
            events: Vec::new().into_iter(),
            vmstat: None,
            at: 0,
            latest_ns: 0,
            next: None,
        });
        let (next, buffer) = (BinaryHeap::new(), Vec::new());
        let cpus: Vec<Cpu> = cpus.collect();
        let count = cpus.len();
        let mut merge = Merge { path, packets, cpus, next, buffer, left_out: 0, late: 0 };
        for index in 0..count {
            merge.advance(index)?;
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<Event>, Error> {
        let Some(Reverse((time_ns, index))) = self.next.pop() else { return Ok(None) };
        let cpu = self.cpus[index].cpu;
        let next = self.cpus[index].next.take();
        self.advance(index)?;
        Ok(next.map(|(pid, kind)| Event { time_ns, cpu, pid, kind }))
    }

    /// Finds a CPU's next event.
    fn advance(&mut self, index: usize) -> Result<(), Error> {
        loop {
            let cpu = &mut self.cpus[index];
            let Some(event) = cpu.events.next() else {
                match cpu.bundles.next() {
                    Some(bundle) => self.open(index, &bundle)?,
                    None => return Ok(()),
                }
                continue;
            };
            let wrong = |what| Error::packet(self.path, cpu.at, what);
            let time_ns = event.timestamp.unwrap_or(0);
            let kind = match event.event {
                Some(kind) => to_kind(kind, cpu.vmstat).map_err(wrong)?,
                None => None,
            };
            let Some(kind) = kind else {
                self.left_out += 1;
                continue;
            };
            self.late += u64::from(time_ns < cpu.latest_ns);
            cpu.latest_ns = cpu.latest_ns.max(time_ns);
            cpu.next = Some((event.pid.unwrap_or(0) as i32, kind));
            self.next.push(Reverse((cpu.latest_ns, index)));
            return Ok(());
        }
    }

    fn open(&mut self, index: usize, bundle: &Bundle) -> Result<(), Error> {
        self.packets.read(bundle.place, &mut self.buffer)?;
        let at = bundle.place.at;
        let packet = TracePacket::decode(&*self.buffer).map_err(|error| {
            Error::packet(self.path, at, format!("no bundle of ftrace events: {error}"))
        })?;
        let bundle_of = packet.ftrace_events.unwrap_or_default();
        let mut events = bundle_of.event;
        let cpu = &mut self.cpus[index];
        // A count is in no bundle of Perfetto's: it was one event at least. Ours tell it.
        let is_told = events.first().is_some_and(FtraceEvent::is_lost);
        if bundle_of.lost_events == Some(true) && !is_told {
            let timestamp = events.first().and_then(|event| event.timestamp);
            let lost = to_ftrace(&EventKind::Lost { events: 1 });
            let time = Some(timestamp.unwrap_or(cpu.latest_ns));
            events.insert(0, FtraceEvent { timestamp: time, pid: Some(0), event: Some(lost) });
        }
        (cpu.events, cpu.vmstat, cpu.at) = (events.into_iter(), bundle.vmstat, at);
        Ok(())
    }
}
