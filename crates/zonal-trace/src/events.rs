//! The events of a stream, one after the other, checked.
//!
//! Each line goes through the same gate whatever its form: complete, UTF-8, parsed, not earlier
//! than the line before. What a stream that was cut short looks like depends on where the cut is:
//!
//! | cut | noticed by |
//! |--|--|
//! | in a line of plain text | the last line has no newline |
//! | inside a zstd frame | the decompressor, after all whole lines before the cut came out |
//! | between two lines of plain text | the number of events in `meta.json`, if there is one |
//!
//! After an error there are no more events.

use std::path::PathBuf;

use crate::error::{Fault, Position, TraceError, TraceErrorKind, excerpt};
use crate::event::{Event, EventKind};
use crate::ftrace::Parsed;
use crate::lines::{Line, LineReader};
use crate::recording::TraceFormat;
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
    reader: LineReader,
    file: PathBuf,
    format: TraceFormat,
    cpus: u32,
    order: TimeOrder,
    events: u64,
    events_declared: Option<u64>,
}

impl Events {
    pub(crate) fn new(
        reader: LineReader,
        file: PathBuf,
        format: TraceFormat,
        cpus: u32,
        events_declared: Option<u64>,
    ) -> Self {
        let order = TimeOrder::default();
        let reading = Reading { reader, file, format, cpus, order, events: 0, events_declared };
        Events { state: State::Reading(Box::new(reading)) }
    }

    pub(crate) fn failed(error: TraceError) -> Self {
        Events { state: State::Failed(error) }
    }

    /// The number of the line that the last event came from, counted from 1; 0 before the first
    /// event and after the last.
    pub fn line(&self) -> u64 {
        match &self.state {
            State::Reading(reading) => reading.reader.line_number(),
            _ => 0,
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
            let line = match self.reader.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return self.check_count().map(|()| None),
                Err(fault) => return Err(self.read_error(fault)),
            };
            match self.order.event_of(&line, self.format, self.cpus) {
                Ok(Some(event)) => {
                    // Lost events are a remark about the stream, and no recorder counts it.
                    self.events += u64::from(!matches!(event.kind, EventKind::Lost { .. }));
                    return Ok(Some(event));
                }
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

    fn check_count(&self) -> Result<(), TraceError> {
        match self.events_declared {
            Some(expected) if expected != self.events => {
                let declared_by = meta::FILE;
                let found = self.events;
                let kind = TraceErrorKind::EventCountDiffers { expected, declared_by, found };
                let position = Position::Line(self.reader.line_number());
                Err(TraceError::new(&self.file, position, kind))
            }
            _ => Ok(()),
        }
    }
}

/// The latest time so far, of all CPUs and of each.
#[derive(Default)]
struct TimeOrder {
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
        if line.bytes.first() == Some(&b'#') {
            return Ok(None);
        }
        let event = match format {
            TraceFormat::Compact => compact::parse(line.bytes, cpus)?,
            TraceFormat::Ftrace => match ftrace::parse(line.bytes, cpus)? {
                Parsed::Event(event) => event,
                Parsed::Lost { cpu, events } => {
                    let kind = EventKind::Lost { events };
                    return Ok(Some(Event { time_ns: self.latest_ns, cpu, pid: 0, kind }));
                }
            },
        };
        self.check(&event)?;
        Ok(Some(event))
    }

    fn check(&mut self, event: &Event) -> Result<(), Fault> {
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
