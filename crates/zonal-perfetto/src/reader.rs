//! Perfetto to recordings, in two passes: where the bundles of each CPU are, then their events,
//! merged by time. A bundle holds what was read at once from one CPU's ring, so the bundles of a
//! CPU are in order, and those of two CPUs overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;
use std::vec;

use prost::Message;
use zonal_trace::{
    Event, EventKind, MachineDescription, MachineFiles, Part, Parts, TraceWriter, WriterOptions,
};

use crate::error::Error;
use crate::found::{Bundle, Found};
use crate::kinds::{Lists, to_ftrace, to_kind};
use crate::packets::Packets;
use crate::proto::{BundlePacket, FtraceEvent};

/// Packets and events between two calls of a progress callback.
const TICK: u64 = 1 << 14;
/// Most that an event may be earlier than the one before it on its CPU. A ring has some
/// microseconds where an interrupt came between; more is a packet that is twice in the file or at
/// another place.
const LATE_MAX_NS: u64 = 10_000_000;

/// A trace that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Events in the recording.
    pub events: u64,
    /// Events of other kinds, which tell nothing about pages: left out.
    pub left_out: u64,
    /// Events that were a little earlier than the one before them on their CPU, and got its time.
    pub late: u64,
    /// The clock of the times, where it is not the one since boot.
    pub clock: Option<&'static str>,
}

impl Read {
    /// What somebody who converts the trace should know of it, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(clock) = self.clock {
            notes.push(format!("times are of the clock {clock}, not of the time since boot"));
        }
        if self.late > 0 {
            notes.push(format!(
                "{} events were earlier than the one before them on their CPU: they got its time",
                self.late
            ));
        }
        if self.left_out > 0 {
            notes.push(format!("{} events tell nothing about pages: left out", self.left_out));
        }
        notes
    }
}

/// Writes the page events of a Perfetto trace as a `.zonal` file at `output`, with the machine's
/// files if the trace was made here. `progress` gets the number of events so far, and stops the
/// work by `Break`. An error leaves no file.
///
/// # Errors
/// A damaged file, an event that cannot be or is much too late, clocks that cannot be compared, no
/// event of pages, or an output that cannot be written; or [`Error::Stopped`].
pub fn read_trace(
    path: &Path,
    output: &Path,
    level: i32,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Read, Error> {
    let mut packets = Packets::open(path)?;
    let found = first_pass(path, &mut packets, progress)?;
    if found.cpus.is_empty() && !found.is_recording() {
        return Err(Error::NoPages(path.to_owned()));
    }
    let files = found.machine_files();
    let file = File::create_new(output).map_err(Error::io(output))?;
    let read = second_pass(path, packets, found, &files, (file, output, level), progress);
    if read.is_err() {
        // What could not become the recording is of no use.
        let _ = fs::remove_file(output);
    }
    read
}

fn second_pass(
    path: &Path,
    packets: Packets<'_>,
    found: Found,
    files: &MachineFiles,
    (file, output, level): (File, &Path, i32),
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Read, Error> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parts = files.iter().map(|(name, content)| Part::new(name, content.to_vec()));
    let parts = Parts::new(path.to_string_lossy(), parts.collect());
    let machine = MachineDescription::read(&parts, &name)?;
    let lists = Lists::of(machine.kernel_release.as_deref());
    let (clock, is_recording) = (found.clock_name(), found.is_recording());
    let options = WriterOptions { level, ..WriterOptions::default() };
    let writer = TraceWriter::new(BufWriter::new(file), &machine, files, options);
    let mut writer = writer.map_err(Error::io(output))?;
    let mut merge = Merge::new(path, packets, found, lists)?;
    let (mut events, mut counted, mut pages) = (0, 0, false);
    while let Some(event) = merge.next()? {
        pages |= matches!(event.kind, EventKind::Alloc { .. } | EventKind::Free { .. });
        writer.push(&event).map_err(Error::io(output))?;
        events += 1;
        counted += u64::from(event.kind.is_counted());
        if events % TICK == 0 && progress(events).is_break() {
            return Err(Error::Stopped);
        }
    }
    if let Some(what) = machine.miscounted(counted) {
        return Err(Error::packet(path, 0, what));
    }
    let finished = writer.finish().and_then(|output| output.into_inner().map_err(Into::into));
    finished.map_err(Error::io(output))?;
    if !pages && !is_recording {
        return Err(Error::NoPages(path.to_owned()));
    }
    Ok(Read { events, left_out: merge.left_out, late: merge.late, clock })
}

fn first_pass(
    path: &Path,
    packets: &mut Packets<'_>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Found, Error> {
    let (mut found, mut buffer, mut seen) = (Found::default(), Vec::new(), 0_u64);
    let mut tick = || {
        seen += 1;
        match seen.is_multiple_of(TICK) && progress(0).is_break() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    };
    while let Some(place) = packets.next(&mut buffer)? {
        tick()?;
        if let Some(packed) = found.see(path, place, &buffer)? {
            packets.inflate(&packed, place.at, &mut |inner, bytes| {
                tick()?;
                found.see(path, inner, bytes).map(drop)
            })?;
        }
    }
    Ok(found)
}

/// Events of all CPUs in the order of time.
struct Merge<'a> {
    path: &'a Path,
    packets: Packets<'a>,
    cpus: Vec<Cpu>,
    /// The time and the place in `cpus` of each CPU's next event.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    buffer: Vec<u8>,
    lists: Lists,
    left_out: u64,
    late: u64,
}

/// A CPU's events.
struct Cpu {
    cpu: u32,
    bundles: vec::IntoIter<Bundle>,
    /// Whether events are missing behind the last bundle.
    is_lost_behind: bool,
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
        found: Found,
        lists: Lists,
    ) -> Result<Merge<'a>, Error> {
        let cpus = found.cpus.into_iter().map(|(cpu, found)| Cpu {
            cpu,
            bundles: found.bundles.into_iter(),
            is_lost_behind: found.is_lost,
            events: Vec::new().into_iter(),
            vmstat: None,
            at: 0,
            latest_ns: 0,
            next: None,
        });
        let (next, buffer) = (BinaryHeap::new(), Vec::new());
        let cpus: Vec<Cpu> = cpus.collect();
        let count = cpus.len();
        let mut merge = Merge { path, packets, cpus, next, buffer, lists, left_out: 0, late: 0 };
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
                    None if std::mem::take(&mut cpu.is_lost_behind) && cpu.latest_ns > 0 => {
                        cpu.next = Some((0, EventKind::Lost { events: 1 }));
                        self.next.push(Reverse((cpu.latest_ns, index)));
                        return Ok(());
                    }
                    None => return Ok(()),
                }
                continue;
            };
            let wrong = |what| Error::packet(self.path, cpu.at, what);
            let time_ns = event.timestamp.unwrap_or(0);
            let kind = match event.event {
                Some(kind) => to_kind(kind, cpu.vmstat, self.lists).map_err(wrong)?,
                None => None,
            };
            let Some(kind) = kind else {
                self.left_out += 1;
                continue;
            };
            let late_ns = cpu.latest_ns.saturating_sub(time_ns);
            if late_ns > LATE_MAX_NS {
                return Err(wrong(format!(
                    "an event of CPU {} at {time_ns} ns, {} ms before the one in front of it; \
                     expected the packets of a CPU in order, each once: has the trace been joined \
                     of several?",
                    cpu.cpu,
                    late_ns / 1_000_000
                )));
            }
            self.late += u64::from(late_ns > 0);
            cpu.latest_ns = cpu.latest_ns.max(time_ns);
            cpu.next = Some((event.pid.unwrap_or(0) as i32, kind));
            self.next.push(Reverse((cpu.latest_ns, index)));
            return Ok(());
        }
    }

    fn open(&mut self, index: usize, bundle: &Bundle) -> Result<(), Error> {
        self.packets.read(bundle.place, &mut self.buffer)?;
        let at = bundle.place.at;
        let packet = BundlePacket::decode(&*self.buffer).map_err(|error| {
            Error::packet(self.path, at, format!("no bundle of ftrace events: {error}"))
        })?;
        let mut events = packet.ftrace_events.unwrap_or_default().event;
        let cpu = &mut self.cpus[index];
        // A count is in no bundle of Perfetto's: it was one event at least. Ours tell it.
        let is_told = events.first().is_some_and(FtraceEvent::is_lost);
        if bundle.is_lost && !is_told {
            let timestamp = events.first().and_then(|event| event.timestamp);
            let lost = to_ftrace(&EventKind::Lost { events: 1 });
            let time = Some(timestamp.unwrap_or(cpu.latest_ns));
            events.insert(0, FtraceEvent { timestamp: time, pid: Some(0), event: Some(lost) });
        }
        (cpu.events, cpu.vmstat, cpu.at) = (events.into_iter(), bundle.vmstat, at);
        Ok(())
    }
}
