//! The compact form: one event per line, columns separated by one space.
//!
//! ```text
//! # time_ns(CLOCK_MONOTONIC) cpu pid event pfn(hex) order [migratetype] [gfp|percpu_refill|…]
//! 2562165463624 0 17282 alloc 245c9f 0 1 140dca
//! ```
//!
//! | event | columns after the event's name |
//! |--|--|
//! | `alloc` | pfn order migratetype gfp(hex) |
//! | `free` | pfn order |
//! | `free_batched` | pfn 0 |
//! | `zone_locked` | pfn order migratetype percpu_refill |
//! | `pcpu_drain` | pfn order migratetype |
//! | `extfrag` | pfn order migratetype fallback(hex) |
//! | `vmstat_update` | 0 |
//! | `fork` | thread id of the child (decimal) |
//! | `kswapd_wake`, `reclaim_end` and others of `notice` | its numbers (decimal) |
//! | `marker` | the text, to the end of the line, with `\\` and `\n` for what cannot stand there |
//! | `lost` | how many events |
//! | anything else of small letters, digits and `_` | not read: [`EventKind::Other`] |
//!
//! `fallback` packs three fields of `mm_page_alloc_extfrag`: the order of the block that was taken
//! in bits 0 to 7, its migratetype in bits 8 to 15, and whether the pageblock changed its
//! migratetype in bit 16.
//!
//! The columns are slices of the line, without allocation: five million lines a second and more,
//! with decompression (`examples/count.rs`, 2-core Xeon).

use std::fmt::{self, Write};

use crate::error::{Fault, TraceErrorKind, bad_field, excerpt};
use crate::event::{Event, EventKind};
use crate::fields;
use crate::gfp;
use crate::notice::{NUMBERS_MAX, Notice, ROWS};

/// Columns before those that depend on the event: time, cpu, thread and the event's name.
const COLUMNS_COMMON: usize = 4;

/// Reads one line. `cpus` is the machine's number of CPUs.
pub(crate) fn parse(line: &[u8], cpus: u32) -> Result<Event, Fault> {
    let mut columns =
        Columns { rest: Some(line), taken: 0, event: "event", expected: COLUMNS_COMMON };
    let time = columns.next("time")?;
    let time_ns = fields::decimal(time)
        .ok_or_else(|| bad_field("time", "a decimal number of nanoseconds", time))?;
    let cpu = fields::cpu(columns.next("cpu")?, cpus)?;
    let pid = fields::pid(columns.next("thread id")?)?;
    let name = columns.next("event name")?;
    let kind = match name {
        b"alloc" => alloc(columns.of("alloc", 8))?,
        b"free" => free(columns.of("free", 6))?,
        b"free_batched" => free_batched(columns.of("free_batched", 6))?,
        b"zone_locked" => zone_locked(columns.of("zone_locked", 8))?,
        b"pcpu_drain" => pcpu_drain(columns.of("pcpu_drain", 7))?,
        b"extfrag" => extfrag(columns.of("extfrag", 8))?,
        b"vmstat_update" => vmstat_update(columns.of("vmstat_update", 5))?,
        b"fork" => fork(columns.of("fork", 5))?,
        b"marker" => EventKind::Marker(unescape(columns.rest.unwrap_or_default())),
        b"lost" => lost(columns.of("lost", 5))?,
        other => match ROWS.iter().position(|row| row.name.as_bytes() == other) {
            Some(tag) => notice(columns, tag)?,
            None => other_event(other)?,
        },
    };
    Ok(Event { time_ns, cpu, pid, kind })
}

/// Whether `line` could be a line of this form: three numbers and a name.
pub(crate) fn looks_like(line: &[u8]) -> bool {
    let mut parts = line.split(|&byte| byte == b' ');
    let numbers = parts.by_ref().take(3).filter(|part| fields::decimal(part).is_some()).count();
    numbers == 3 && parts.next().is_some_and(is_event_name)
}

fn alloc(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let pfn = fields::pfn_or_none(columns.next("pfn")?)?;
    let order = fields::order(columns.next("order")?)?;
    let migratetype = fields::migratetype(columns.next("migratetype")?)?;
    let gfp = gfp::parse_number(columns.last("gfp")?)?;
    Ok(EventKind::Alloc { pfn, order, migratetype, gfp })
}

fn free(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let pfn = fields::pfn(columns.next("pfn")?)?;
    let order = fields::order(columns.last("order")?)?;
    Ok(EventKind::Free { pfn, order })
}

fn free_batched(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let pfn = fields::pfn(columns.next("pfn")?)?;
    let order = columns.last("order")?;
    if order != b"0" {
        return Err(bad_field("order", "0, as batches hold single pages", order));
    }
    Ok(EventKind::FreeBatched { pfn })
}

fn zone_locked(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let pfn = fields::pfn(columns.next("pfn")?)?;
    let order = fields::order(columns.next("order")?)?;
    let migratetype = fields::migratetype(columns.next("migratetype")?)?;
    let percpu_refill = fields::flag("percpu_refill", columns.last("percpu_refill")?)?;
    Ok(EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill })
}

fn pcpu_drain(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let pfn = fields::pfn(columns.next("pfn")?)?;
    let order = fields::order(columns.next("order")?)?;
    let migratetype = fields::migratetype(columns.last("migratetype")?)?;
    Ok(EventKind::PcpuDrain { pfn, order, migratetype })
}

fn extfrag(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    const EXPECTED: &str = "order | migratetype << 8 | change << 16, in hexadecimal";
    let pfn = fields::pfn(columns.next("pfn")?)?;
    let alloc_order = fields::order(columns.next("order")?)?;
    let alloc_migratetype = fields::migratetype(columns.next("migratetype")?)?;
    let packed = columns.last("fallback")?;
    let bad = || bad_field("fallback", EXPECTED, packed);
    let bits = fields::hexadecimal(packed).filter(|bits| *bits < 1 << 17).ok_or_else(bad)?;
    Ok(EventKind::Extfrag {
        pfn,
        alloc_order,
        fallback_order: fields::check_order(bits & 0xff)?,
        alloc_migratetype,
        fallback_migratetype: fields::check_migratetype(bits >> 8 & 0xff).ok_or_else(bad)?,
        change_ownership: bits >> 16 != 0,
    })
}

fn vmstat_update(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let unused = columns.last("argument")?;
    match fields::decimal(unused) {
        Some(_) => Ok(EventKind::VmstatUpdate),
        None => Err(bad_field("argument", "a decimal number", unused)),
    }
}

fn fork(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let child = fields::pid(columns.last("child")?)?;
    Ok(EventKind::Fork { child })
}

fn notice(columns: Columns<'_>, tag: usize) -> Result<EventKind, Fault> {
    let row = &ROWS[tag];
    let mut columns = columns.of(row.name, COLUMNS_COMMON + row.fields.len());
    let mut numbers = [0; NUMBERS_MAX];
    let last = row.fields.len() - 1;
    for (index, name) in row.fields.iter().enumerate() {
        let column = if index == last { columns.last(name)? } else { columns.next(name)? };
        let number = fields::decimal(column);
        numbers[index] = number.ok_or_else(|| bad_field(name, "a decimal number", column))?;
    }
    Notice::of(tag as u8, numbers).map(EventKind::Notice)
}

fn lost(mut columns: Columns<'_>) -> Result<EventKind, Fault> {
    let number = columns.last("events")?;
    let events = fields::decimal(number);
    let events = events.ok_or_else(|| bad_field("lost events", "a decimal number", number))?;
    Ok(EventKind::Lost { events })
}

fn unescape(bytes: &[u8]) -> Box<str> {
    let mut text = String::new();
    let mut escaped = false;
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            'n' if escaped => text.push('\n'),
            other => text.push(other),
        }
        escaped = false;
    }
    text.into()
}

/// The line of an event, with its newline.
pub(crate) fn write(event: &Event, line: &mut String) -> fmt::Result {
    let Event { time_ns, cpu, pid, kind } = event;
    write!(line, "{time_ns} {cpu} {pid} ")?;
    match kind {
        EventKind::Alloc { pfn, order, migratetype, gfp } => {
            let pfn = pfn.unwrap_or(0);
            writeln!(line, "alloc {pfn:x} {order} {migratetype} {gfp:x}")
        }
        EventKind::Free { pfn, order } => writeln!(line, "free {pfn:x} {order}"),
        EventKind::FreeBatched { pfn } => writeln!(line, "free_batched {pfn:x} 0"),
        EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
            let percpu_refill = u8::from(*percpu_refill);
            writeln!(line, "zone_locked {pfn:x} {order} {migratetype} {percpu_refill}")
        }
        EventKind::PcpuDrain { pfn, order, migratetype } => {
            writeln!(line, "pcpu_drain {pfn:x} {order} {migratetype}")
        }
        EventKind::Extfrag {
            pfn,
            alloc_order,
            fallback_order,
            alloc_migratetype,
            fallback_migratetype,
            change_ownership,
        } => {
            let fallback = u32::from(*fallback_order)
                | u32::from(*fallback_migratetype) << 8
                | u32::from(*change_ownership) << 16;
            writeln!(line, "extfrag {pfn:x} {alloc_order} {alloc_migratetype} {fallback:x}")
        }
        EventKind::VmstatUpdate => writeln!(line, "vmstat_update 0"),
        EventKind::Fork { child } => writeln!(line, "fork {child}"),
        EventKind::Notice(notice) => {
            let row = &ROWS[usize::from(notice.tag())];
            write!(line, "{}", row.name)?;
            for number in &notice.numbers()[..row.fields.len()] {
                write!(line, " {number}")?;
            }
            writeln!(line)
        }
        EventKind::Marker(text) => {
            let text = text.replace('\\', "\\\\").replace('\n', "\\n");
            writeln!(line, "marker {text}")
        }
        EventKind::Lost { events } => writeln!(line, "lost {events}"),
        EventKind::Other => writeln!(line, "other"),
    }
}

fn other_event(name: &[u8]) -> Result<EventKind, Fault> {
    if is_event_name(name) {
        return Ok(EventKind::Other);
    }
    Err(bad_field("event name", "small letters, digits and `_`", name))
}

fn is_event_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|&b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name[0].is_ascii_digit()
}

/// The columns of a line, one after the other.
struct Columns<'a> {
    /// What follows the columns taken so far, or `None` after the last.
    rest: Option<&'a [u8]>,
    taken: usize,
    event: &'static str,
    expected: usize,
}

impl<'a> Columns<'a> {
    /// The same columns, now that the event is known to have `expected` of them.
    fn of(mut self, event: &'static str, expected: usize) -> Self {
        self.event = event;
        self.expected = expected;
        self
    }

    fn next(&mut self, name: &'static str) -> Result<&'a [u8], Fault> {
        let Some(rest) = self.rest.filter(|rest| !rest.is_empty()) else {
            return Err(self.too_few(name));
        };
        let column = match rest.iter().position(|&byte| byte == b' ') {
            Some(at) => {
                self.rest = Some(&rest[at + 1..]);
                &rest[..at]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        self.taken += 1;
        Ok(column)
    }

    /// The last column: nothing may follow it.
    fn last(&mut self, name: &'static str) -> Result<&'a [u8], Fault> {
        let column = self.next(name)?;
        match self.rest {
            None => Ok(column),
            Some(rest) => Err(Box::new(TraceErrorKind::TooManyFields {
                event: self.event,
                expected: self.expected,
                found: excerpt(rest),
            })),
        }
    }

    #[cold]
    fn too_few(&self, missing: &'static str) -> Fault {
        Box::new(TraceErrorKind::TooFewFields {
            event: self.event,
            missing,
            expected: self.expected,
            found: self.taken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> EventKind {
        parse(line.as_bytes(), 2).unwrap().kind
    }

    fn message(line: &str) -> String {
        parse(line.as_bytes(), 2).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_is_read() {
        let event = parse(b"2562165463624 1 17282 alloc 245c9f 0 1 140dca", 2).unwrap();
        assert_eq!((event.time_ns, event.cpu, event.pid), (2562165463624, 1, 17282));
        assert_eq!(
            event.kind,
            EventKind::Alloc { pfn: Some(0x245c9f), order: 0, migratetype: 1, gfp: 0x14_0dca }
        );
        assert_eq!(kind("1 0 2 free 3ea8c2 9"), EventKind::Free { pfn: 0x3e_a8c2, order: 9 });
        assert_eq!(kind("1 0 2 free_batched 5 0"), EventKind::FreeBatched { pfn: 5 });
        assert_eq!(
            kind("1 0 2 zone_locked 439600 9 1 1"),
            EventKind::ZoneLocked { pfn: 0x43_9600, order: 9, migratetype: 1, percpu_refill: true }
        );
        assert_eq!(
            kind("1 0 2 pcpu_drain 4b11ac 0 1"),
            EventKind::PcpuDrain { pfn: 0x4b_11ac, order: 0, migratetype: 1 }
        );
        assert_eq!(
            kind("1 0 2 extfrag 416000 2 2 1010a"),
            EventKind::Extfrag {
                pfn: 0x41_6000,
                alloc_order: 2,
                fallback_order: 10,
                alloc_migratetype: 2,
                fallback_migratetype: 1,
                change_ownership: true
            }
        );
        assert_eq!(kind("1 0 2 vmstat_update 0"), EventKind::VmstatUpdate);
        assert_eq!(kind("1 0 2 fork 17729"), EventKind::Fork { child: 17729 });
        assert_eq!(kind("1 0 2 wmarks 1 2 3 4"), EventKind::Other);
    }

    #[test]
    fn a_failed_allocation_has_no_page() {
        for pfn in ["0", "-1", "ffffffffffffffff"] {
            let kind = kind(&format!("1 0 2 alloc {pfn} 3 0 400cc0"));
            assert!(matches!(kind, EventKind::Alloc { pfn: None, order: 3, .. }));
        }
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (line, part) in [
            ("1 0 2 alloc 245c9f 0 1", "too few fields in `alloc`: expected 8 fields, found 7"),
            ("1 0 2 alloc", "`pfn` is missing"),
            ("1 0", "too few fields in `event`: expected 4 fields, found 2"),
            ("", "`time` is missing"),
            ("1 0 2 free 5 0 1", "too many fields in `free`: expected 6 fields"),
            ("1 0 2 free 5 0 ", "too many fields"),
            ("1 0 2 free xyz 0", "not hexadecimal: expected hexadecimal digits, found `xyz`"),
            ("1 0 2 free  0", "not hexadecimal"),
            ("1 0 2 free 0x5 0", "not hexadecimal"),
            ("1 0 2 free 5 14", "expected an order from 0 to 13, found 14"),
            ("1 0 2 free 5 a", "bad order"),
            ("1 2 2 free 5 0", "expected a cpu below 2, found 2"),
            ("1 x 2 free 5 0", "bad cpu"),
            ("x 0 2 free 5 0", "bad time"),
            ("1 0 y free 5 0", "bad thread id"),
            ("1 0 2 FREE 5 0", "bad event name"),
            ("1 0 2 alloc 5 0 9 0", "bad migratetype"),
            ("1 0 2 alloc 5 0 0 zz", "bad gfp flags"),
            ("1 0 2 zone_locked 5 0 0 7", "bad percpu_refill"),
            ("1 0 2 extfrag 5 0 0 2010a", "bad fallback"),
            ("1 0 2 extfrag 5 0 0 1010e", "found 14"),
            ("1 0 2 free_batched 5 1", "batches hold single pages"),
            ("1 0 2 vmstat_update x", "bad argument"),
            ("1 0 2 fork x", "bad thread id"),
        ] {
            let message = message(line);
            assert!(message.contains(part), "{line:?}: {message}");
        }
    }

    #[test]
    fn own_lines_are_recognised() {
        assert!(looks_like(b"1 0 2 free 5 0"));
        assert!(!looks_like(b"1 0 2 5 0"));
        assert!(!looks_like(b"1 0 2"));
        assert!(!looks_like(b"Node 0, zone DMA"));
    }
}
