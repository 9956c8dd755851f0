//! The events of a stream, one after the other, checked.
//!
//! Every form passes the same checks: the event is on a CPU of the machine, and not earlier than
//! the event before. Lines of text are also complete and UTF-8. What a stream that was cut short
//! looks like depends on where the cut is:
//!
//! | cut | noticed by |
//! |--|--|
//! | in a line of plain text | the last line has no newline |
//! | inside a zstd frame | the decompressor, after all whole lines before the cut came out |
//! | in a ring page, a chunk or a record | its size, which stands before it |
//! | between two lines of plain text | the number of events in `meta.json`, if there is one |
//!
//! After an error there are no more events.

use std::path::PathBuf;

use crate::error::{Fault, Position, TraceError, TraceErrorKind, excerpt};
use crate::event::{Event, EventKind};
use crate::format::TraceFormat;
use crate::ftrace::Parsed;
use crate::limits::order_max;
use crate::lines::{Line, LineReader};
use crate::perf::PerfEvents;
use crate::ring::RingEvents;
use crate::zt::ZonalEvents;
use crate::{compact, ftrace, meta};

/// Iterator over the events of a [`Recording`](crate::Recording).
pub struct Events {
    state: State,
}

enum State {
    Reading(Box<Reading>),
    Failed(TraceError),
    Done,
}

struct Reading {
    input: Input,
    cpus: u32,
    order: TimeOrder,
    /// Earlier events are passed over.
    from_ns: u64,
    events: u64,
    events_declared: Option<u64>,
}

/// Where events come from, by form.
pub(crate) enum Input {
    /// Lines of text.
    Lines(Box<TextInput>),
    /// Pages of the kernel's rings, from a directory or a `trace.dat`.
    Ring(Box<RingEvents>),
    /// Samples of a `perf.data`.
    Perf(Box<PerfEvents>),
    /// Blocks of a `.zonal` file.
    Zonal(Box<ZonalEvents>),
}

/// A stream of text.
pub(crate) struct TextInput {
    pub(crate) reader: LineReader,
    pub(crate) file: PathBuf,
    pub(crate) format: TraceFormat,
}

impl Events {
    /// `cpus` and `page_size` are the machine's.
    pub(crate) fn new(
        input: Input,
        (cpus, page_size): (u32, u32),
        events_declared: Option<u64>,
    ) -> Self {
        let order = TimeOrder { order_max: order_max(page_size), ..TimeOrder::default() };
        let reading = Reading { input, cpus, order, from_ns: 0, events: 0, events_declared };
        Events { state: State::Reading(Box::new(reading)) }
    }

    /// The same, without the events before `time_ns`.
    pub(crate) fn starting_at(mut self, time_ns: u64) -> Self {
        if let State::Reading(reading) = &mut self.state {
            reading.from_ns = time_ns;
        }
        self
    }

    pub(crate) fn failed(error: TraceError) -> Self {
        Events { state: State::Failed(error) }
    }

    /// The number of the line that the last event came from, counted from 1; 0 before the first
    /// event and after the last, and where the form has no lines.
    pub fn line(&self) -> u64 {
        match self.position() {
            Position::Line(line) => line,
            _ => 0,
        }
    }

    /// Where the last event came from.
    pub fn position(&self) -> Position {
        match &self.state {
            State::Reading(reading) => reading.place().1,
            _ => Position::File,
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let State::Reading(reading) = &mut self.state {
            match reading.next_event() {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => self.state = State::Done,
                Err(error) => self.state = State::Failed(error),
            }
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Failed(error) => Some(Err(error)),
            _ => None,
        }
    }
}

impl std::iter::FusedIterator for Events {}

impl Reading {
    fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let event = self.any_event()?;
            if event.as_ref().is_none_or(|event| event.time_ns >= self.from_ns) {
                return Ok(event);
            }
        }
    }

    fn any_event(&mut self) -> Result<Option<Event>, TraceError> {
        let event = match &mut self.input {
            Input::Lines(text) => text.next_event(&mut self.order, self.cpus)?,
            Input::Ring(ring) => ring.next_event()?,
            Input::Perf(perf) => perf.next_event()?,
            Input::Zonal(zonal) => zonal.next_event()?,
        };
        let Some(event) = event else {
            return self.check_count().map(|()| None);
        };
        if !matches!(self.input, Input::Lines(_))
            && let Err(fault) = self.order.check_with_cpu(&event, self.cpus)
        {
            let (file, position) = self.place();
            return Err(TraceError::new(file, position, fault));
        }
        self.events += u64::from(event.kind.is_counted());
        Ok(Some(event))
    }

    /// The file and the place in it that the last event came from.
    fn place(&self) -> (PathBuf, Position) {
        match &self.input {
            Input::Lines(text) => (text.file.clone(), Position::Line(text.reader.line_number())),
            Input::Ring(ring) => ring.place(),
            Input::Perf(perf) => (perf.file(), Position::Byte(perf.event_offset())),
            Input::Zonal(zonal) => zonal.place(),
        }
    }

    fn check_count(&self) -> Result<(), TraceError> {
        match self.events_declared {
            Some(expected) if expected != self.events => {
                let declared_by = meta::FILE;
                let found = self.events;
                let kind = TraceErrorKind::EventCountDiffers { expected, declared_by, found };
                let (file, position) = self.place();
                Err(TraceError::new(file, position, kind))
            }
            _ => Ok(()),
        }
    }
}

impl TextInput {
    fn next_event(
        &mut self,
        order: &mut TimeOrder,
        cpus: u32,
    ) -> Result<Option<Event>, TraceError> {
        loop {
            let line = match self.reader.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err(fault) => return Err(self.read_error(fault)),
            };
            match order.event_of(&line, self.format, cpus) {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(fault) => {
                    let position = Position::Line(self.reader.line_number());
                    return Err(TraceError::new(&self.file, position, fault));
                }
            }
        }
    }

    fn read_error(&self, fault: Fault) -> TraceError {
        let position = match &*fault {
            TraceErrorKind::LineTooLong { .. } => Position::Line(self.reader.line_number()),
            _ => Position::Byte(self.reader.byte_offset()),
        };
        TraceError::new(&self.file, position, fault)
    }
}

/// What each event is checked against: the latest time so far, of all CPUs and of each, and the
/// largest order.
#[derive(Default)]
struct TimeOrder {
    order_max: u8,
    latest_ns: u64,
    /// Grows to the highest CPU seen, which is below 8192.
    latest_ns_of_cpu: Vec<u64>,
}

impl TimeOrder {
    /// The event of `line`, or `None` if it is a comment.
    fn event_of(
        &mut self,
        line: &Line<'_>,
        format: TraceFormat,
        cpus: u32,
    ) -> Result<Option<Event>, Fault> {
        if !line.complete {
            return Err(cut_short(line.bytes));
        }
        check_utf8(line.bytes)?;
        // Of files that went over a Windows machine.
        let bytes = line.bytes.strip_suffix(b"\r").unwrap_or(line.bytes);
        if bytes.first() == Some(&b'#') {
            return Ok(None);
        }
        let event = match format {
            TraceFormat::Compact => compact::parse(bytes, cpus)?,
            _ if ftrace::is_remark(bytes) => return Ok(None),
            _ => match ftrace::parse(bytes, cpus)? {
                Parsed::Event(event) => event,
                Parsed::Nothing => return Ok(None),
                Parsed::Lost { cpu, events } => {
                    let kind = EventKind::Lost { events };
                    return Ok(Some(Event { time_ns: self.latest_ns, cpu, pid: 0, kind }));
                }
            },
        };
        self.check(&event)?;
        Ok(Some(event))
    }

    fn check_with_cpu(&mut self, event: &Event, cpus: u32) -> Result<(), Fault> {
        if event.cpu >= cpus {
            let cpu = u64::from(event.cpu);
            return Err(Box::new(TraceErrorKind::CpuOutOfRange { cpu, cpus }));
        }
        self.check(event)
    }

    fn check(&mut self, event: &Event) -> Result<(), Fault> {
        let order = event.kind.order_most();
        if order > self.order_max {
            let (most, found) = (self.order_max, order.into());
            return Err(Box::new(TraceErrorKind::OrderOutOfRange { most, found }));
        }
        let cpu = event.cpu as usize;
        if cpu >= self.latest_ns_of_cpu.len() {
            self.latest_ns_of_cpu.resize(cpu + 1, 0);
        }
        let of_cpu = &mut self.latest_ns_of_cpu[cpu];
        if event.time_ns < self.latest_ns {
            let same_cpu = event.time_ns < *of_cpu;
            return Err(Box::new(TraceErrorKind::MisOrdered {
                cpu: event.cpu,
                same_cpu,
                previous_ns: if same_cpu { *of_cpu } else { self.latest_ns },
                found_ns: event.time_ns,
            }));
        }
        *of_cpu = event.time_ns;
        self.latest_ns = event.time_ns;
        Ok(())
    }
}

fn check_utf8(bytes: &[u8]) -> Result<(), Fault> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(error) => {
            let column = error.valid_up_to();
            let found = excerpt(&bytes[column..]);
            Err(Box::new(TraceErrorKind::NotUtf8 { column, found }))
        }
    }
}

#[cold]
fn cut_short(line: &[u8]) -> Fault {
    Box::new(TraceErrorKind::CutShort {
        expected: "the last line to end in a newline".to_owned(),
        found: format!("`{}`", excerpt(line)),
    })
}
