//! Text of traces, as the kernel, `trace-cmd report` and `perf script` print it.
//!
//! ```text
//! # tracer: nop
//! # entries-in-buffer/entries-written: 288535/288535   #P:4
//! #           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
//!             init-1       [002] d..3.     8.406947: mm_page_alloc_zone_locked: page=0… pfn=0x4…
//! └── 16 columns ─┘└ pid     cpu  flags  sec.microsec  event                     fields
//!
//! cmp:          ls-1992  [001]  3940.605610067: mm_page_alloc:        page=0x3da24d pfn=…
//! └ trace-cmd's instance         nanoseconds with `report -t`
//!
//! cmp:       ls-1992    1d..1.  3940.605610: mm_page_alloc:        page=0x3da24d pfn=0x3da24d …
//!                       └ CPU and flags with `report -l`
//!
//!             perf  1989 [001]  3940.602010577:             kmem:mm_page_alloc: page=0x4a1f0b …
//!             └ perf: no dash                               system and event
//! ```
//!
//! `trace` and `trace_pipe` of tracefs print the same lines. A task's name may hold spaces, dashes
//! and brackets; the kernel right-aligns it in 16 columns, so the dash before the thread id is
//! first looked for there. Otherwise the first `[CPU]` with a thread before it and a time after it
//! counts. The flags column is absent when the option `irq-info` is off, and in perf's text; a
//! thread group in parentheses follows the thread id when `record-tgid` is on.
//!
//! The number of entries in the header is not checked against the stream: people filter such
//! files and keep the header.
//!
//! Fields are found by name. `page=` is the kernel's hashed pointer and means nothing here. Page
//! frames are hexadecimal with `0x`, or decimal as older kernels print them.

use crate::error::{Fault, TraceErrorKind, bad_field, excerpt};
use crate::event::{Event, EventKind};
use crate::fields;
use crate::gfp;
use crate::notice::Notice;

/// What stands in place of an event before a stack, whose lines begin with `=>`.
const STACKS: [&[u8]; 2] = [b"<stack trace>", b"<user stack trace>"];

/// Columns of the task's name.
const TASK_COLUMNS: usize = 16;

/// How many flags the latency format has: interrupts, rescheduling, context, depth of preemption
/// and, where the kernel has it, of migration.
const LATENCY_FLAGS: std::ops::RangeInclusive<usize> = 4..=6;

/// The kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// An event.
    Event(Event),
    /// The ring buffer of `cpu` overflowed.
    Lost { cpu: u32, events: u64 },
    /// A record of perf that tells nothing of pages.
    Nothing,
}

/// The beginning of a line, taken apart.
struct Prefix<'a> {
    pid: &'a [u8],
    cpu: &'a [u8],
    rest: &'a [u8],
}

/// Reads one line that is not a comment. `cpus` is the machine's number of CPUs.
pub(crate) fn parse(line: &[u8], cpus: u32) -> Result<Parsed, Fault> {
    let Some(prefix) = split_prefix(line) else {
        if let Some(lost) = lost_events(line) {
            let (cpu, events) = lost;
            return Ok(Parsed::Lost { cpu: fields::cpu(cpu, cpus)?, events });
        }
        return Err(bad_field("line", "`TASK-PID [cpu] flags time: event: fields`", line));
    };
    let pid = fields::pid(prefix.pid)?;
    let cpu = fields::cpu(prefix.cpu, cpus)?;
    let (time_ns, rest) = timestamp(prefix.rest)?;
    if let Some(record) = rest.strip_prefix(b"PERF_RECORD_") {
        let lost = perf_lost(record).map(|events| Parsed::Lost { cpu, events });
        return Ok(lost.unwrap_or(Parsed::Nothing));
    }
    if STACKS.iter().any(|stack| rest.starts_with(stack)) {
        return Ok(Parsed::Event(Event { time_ns, cpu, pid, kind: EventKind::Other }));
    }
    let (name, rest) =
        split_name(rest).ok_or_else(|| bad_field("event name", "a name that ends in `:`", rest))?;
    let kind = kind(name, rest.trim_ascii_start())?;
    Ok(Parsed::Event(Event { time_ns, cpu, pid, kind }))
}

/// What perf says that it lost: `LOST lost 12`, `LOST_SAMPLES lost 12`.
fn perf_lost(record: &[u8]) -> Option<u64> {
    let (kind, rest) = split_word(record);
    let (word, number) = split_word(rest);
    let is_lost = kind.starts_with(b"LOST") && word == b"lost";
    fields::decimal(split_word(number).0).filter(|_| is_lost)
}

/// Whether `line` could be a line of this form.
pub(crate) fn looks_like(line: &[u8]) -> bool {
    split_prefix(line).is_some_and(|prefix| timestamp(prefix.rest).is_ok())
        || lost_events(line).is_some()
}

/// The number of CPUs that a comment of the header tells: `#P:4`.
/// or of trace-cmd's `cpus=4`, or of perf's `# nrcpus avail : 4`.
pub(crate) fn header_cpus(line: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(line).ok()?;
    let of_trace_cmd = || text.strip_prefix("cpus=");
    let of_perf = || text.strip_prefix("# nrcpus avail : ");
    let kernel = text.rsplit_once("#P:").map(|(_, number)| number);
    kernel.or_else(of_trace_cmd).or_else(of_perf)?.trim_end().parse().ok()
}

fn kind(name: &[u8], text: &[u8]) -> Result<EventKind, Fault> {
    match name {
        b"mm_page_alloc" => alloc(text),
        b"mm_page_free" => {
            let fields = Keyed { event: "mm_page_free", expected: 3, text };
            Ok(EventKind::Free { pfn: fields.pfn()?, order: fields.order("order")? })
        }
        b"mm_page_free_batched" => {
            let fields = Keyed { event: "mm_page_free_batched", expected: 3, text };
            Ok(EventKind::FreeBatched { pfn: fields.pfn()? })
        }
        b"mm_page_alloc_zone_locked" => zone_locked(text),
        b"mm_page_pcpu_drain" => {
            let fields = Keyed { event: "mm_page_pcpu_drain", expected: 4, text };
            Ok(EventKind::PcpuDrain {
                pfn: fields.pfn()?,
                order: fields.order("order")?,
                migratetype: fields.migratetype("migratetype")?,
            })
        }
        b"mm_page_alloc_extfrag" => extfrag(text),
        b"sched_process_fork" => fork(text),
        b"workqueue_execute_start" if text.ends_with(b"function vmstat_update") => {
            Ok(EventKind::VmstatUpdate)
        }
        b"tracing_mark_write" => Ok(EventKind::Marker(String::from_utf8_lossy(text).into())),
        b"print" => {
            let text = text.strip_prefix(b"tracing_mark_write: ").unwrap_or(text);
            Ok(EventKind::Marker(String::from_utf8_lossy(text).into()))
        }
        name => match Notice::tag_of(name) {
            Some(tag) => Notice::parse(tag, text).map(EventKind::Notice),
            None => Ok(EventKind::Other),
        },
    }
}

fn alloc(text: &[u8]) -> Result<EventKind, Fault> {
    let fields = Keyed { event: "mm_page_alloc", expected: 5, text };
    Ok(EventKind::Alloc {
        pfn: fields.pfn_or_none()?,
        order: fields.order("order")?,
        migratetype: fields.migratetype("migratetype")?,
        gfp: gfp::parse_names(fields.get("gfp_flags")?)?,
    })
}

fn zone_locked(text: &[u8]) -> Result<EventKind, Fault> {
    let fields = Keyed { event: "mm_page_alloc_zone_locked", expected: 5, text };
    Ok(EventKind::ZoneLocked {
        pfn: fields.pfn()?,
        order: fields.order("order")?,
        migratetype: fields.migratetype("migratetype")?,
        percpu_refill: fields.flag("percpu_refill")?,
    })
}

fn extfrag(text: &[u8]) -> Result<EventKind, Fault> {
    let fields = Keyed { event: "mm_page_alloc_extfrag", expected: 9, text };
    Ok(EventKind::Extfrag {
        pfn: fields.pfn()?,
        alloc_order: fields.order("alloc_order")?,
        fallback_order: fields.order("fallback_order")?,
        alloc_migratetype: fields.migratetype("alloc_migratetype")?,
        fallback_migratetype: fields.migratetype("fallback_migratetype")?,
        change_ownership: fields.flag("change_ownership")?,
    })
}

fn fork(text: &[u8]) -> Result<EventKind, Fault> {
    // The names of the tasks stand before it and may hold anything, so look from the end.
    let key = b"child_pid=";
    let missing = || Keyed { event: "sched_process_fork", expected: 4, text }.missing("child_pid");
    let at = text.windows(key.len()).rposition(|window| window == key).ok_or_else(missing)?;
    let (value, _) = split_word(&text[at + key.len()..]);
    let child = hexadecimal(value).and_then(|pid| i32::try_from(pid).ok());
    Ok(EventKind::Fork { child: child.map_or_else(|| fields::pid(value), Ok)? })
}

/// A number as the kernel's option `fields` prints it: `0x3`, and ` (3)` after it.
fn hexadecimal(value: &[u8]) -> Option<u64> {
    fields::hexadecimal(value.strip_prefix(b"0x")?)
}

/// Fields of the form `name=value`, separated by spaces.
struct Keyed<'a> {
    event: &'static str,
    expected: usize,
    text: &'a [u8],
}

impl<'a> Keyed<'a> {
    fn get(&self, key: &'static str) -> Result<&'a [u8], Fault> {
        for field in self.text.split(|&byte| byte == b' ') {
            if let Some(value) = field.strip_prefix(key.as_bytes())
                && let Some(value) = value.strip_prefix(b"=")
            {
                return Ok(value);
            }
        }
        Err(self.missing(key))
    }

    fn order(&self, key: &'static str) -> Result<u8, Fault> {
        let value = self.get(key)?;
        hexadecimal(value).map_or_else(|| fields::order(value), fields::check_order)
    }

    fn migratetype(&self, key: &'static str) -> Result<u8, Fault> {
        let value = self.get(key)?;
        let known = hexadecimal(value).and_then(fields::check_migratetype);
        known.map_or_else(|| fields::migratetype(value), Ok)
    }

    fn flag(&self, key: &'static str) -> Result<bool, Fault> {
        let value = self.get(key)?;
        fields::flag(key, value.strip_prefix(b"0x").unwrap_or(value))
    }

    fn pfn(&self) -> Result<u64, Fault> {
        let value = self.get("pfn")?;
        match value.strip_prefix(b"0x") {
            Some(digits) => fields::pfn(digits),
            None => match fields::decimal(value) {
                Some(pfn) => fields::check_pfn(pfn, value),
                None => Err(Box::new(TraceErrorKind::PfnNotHex { found: excerpt(value) })),
            },
        }
    }

    fn pfn_or_none(&self) -> Result<Option<u64>, Fault> {
        match self.get("pfn")? {
            b"-1" | b"0xffffffffffffffff" | b"18446744073709551615" => Ok(None),
            _ => Ok(Some(self.pfn()?).filter(|&pfn| pfn != 0)),
        }
    }

    #[cold]
    fn missing(&self, key: &'static str) -> Fault {
        let found = self.text.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).count();
        Box::new(TraceErrorKind::TooFewFields {
            event: self.event,
            missing: key,
            expected: self.expected,
            found,
        })
    }
}

/// Takes `TASK-PID [cpu] ` off the line.
fn split_prefix(line: &[u8]) -> Option<Prefix<'_>> {
    if line.get(TASK_COLUMNS) == Some(&b'-')
        && let Some(prefix) = prefix_at(line, TASK_COLUMNS)
    {
        return Some(prefix);
    }
    // Another width: trace-cmd's instances, perf, names that were not cut. A task may be called
    // anything, so a bracket counts only with a thread before it and a time after it.
    let brackets = line.iter().enumerate().filter(|(_, byte)| **byte == b'[').take(TASK_COLUMNS);
    brackets.map(|(at, _)| at).find_map(|at| prefix_before(line, at)).or_else(|| latency(line))
}

/// The prefix of `trace-cmd report -l`: the CPU stands at the front of the flags, `ls-1992 1d..1.`.
fn latency(line: &[u8]) -> Option<Prefix<'_>> {
    let dashes = line.iter().enumerate().filter(|(_, byte)| **byte == b'-').take(TASK_COLUMNS);
    dashes.map(|(at, _)| at).find_map(|at| {
        let (pid, rest) = split_digits(&line[at + 1..])?;
        let (cpu, rest) = split_digits(rest.strip_prefix(b" ")?.trim_ascii_start())?;
        let (flags, _) = split_word(rest);
        let is_flags = flags.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        let is_prefix = LATENCY_FLAGS.contains(&flags.len()) && is_flags;
        (is_prefix && timestamp(rest).is_ok()).then_some(Prefix { pid, cpu, rest })
    })
}

/// The prefix, if `line[at]` is the dash before the thread id.
fn prefix_at(line: &[u8], at: usize) -> Option<Prefix<'_>> {
    let (pid, rest) = split_digits(&line[at + 1..])?;
    let mut rest = rest.trim_ascii_start();
    if let Some(group) = rest.strip_prefix(b"(") {
        let close = group.iter().position(|&byte| byte == b')')?;
        rest = group[close + 1..].trim_ascii_start();
    }
    let (cpu, rest) = split_digits(rest.strip_prefix(b"[")?)?;
    Some(Prefix { pid, cpu, rest: rest.strip_prefix(b"] ")?.trim_ascii_start() })
}

/// The prefix, if `line[at]` is the bracket before the CPU.
fn prefix_before(line: &[u8], at: usize) -> Option<Prefix<'_>> {
    let (cpu, rest) = split_digits(&line[at + 1..])?;
    let rest = rest.strip_prefix(b"] ")?.trim_ascii_start();
    let mut before = line[..at].trim_ascii_end();
    if before.ends_with(b")") {
        let open = before.iter().rposition(|&byte| byte == b'(')?;
        before = before[..open].trim_ascii_end();
    }
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (task, pid) = before.split_at(before.len() - digits);
    // perf writes `TASK PID` or, with the process, `TASK PID/TID`.
    let separated = matches!(task.last(), Some(b'-' | b' ' | b'/'));
    (digits > 0 && separated && timestamp(rest).is_ok()).then_some(Prefix { pid, cpu, rest })
}

fn split_digits(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (length > 0).then(|| bytes.split_at(length))
}

/// Takes the event's name off: `mm_page_alloc:`, or with its system `kmem:mm_page_alloc:`. perf may
/// print a period before it, and `trace-cmd report --ts-diff` the time since the line before.
fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = split_word(bytes);
    let is_period = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let is_difference = word.starts_with(b"(+") && word.ends_with(b")");
    let is_between = is_period || is_difference;
    let (word, rest) = if is_between { split_word(rest) } else { (word, rest) };
    let name = word.strip_suffix(b":")?;
    let name = name.rsplit(|&byte| byte == b':').next()?;
    (!name.is_empty()).then_some((name, rest))
}

/// Takes `flags seconds.fraction: ` off; the flags may be absent.
fn timestamp(bytes: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let expected = "`seconds.microseconds:`, as of the trace_clock `mono`, `local` or `global`";
    let bad = |found| bad_field("time", expected, found);
    let (mut time, mut rest) = split_word(bytes);
    if !time.ends_with(b":") {
        (time, rest) = split_word(rest);
    }
    let digits = time.strip_suffix(b":").ok_or_else(|| bad(time))?;
    let time_ns = seconds(digits).ok_or_else(|| bad(time))?;
    Ok((time_ns, rest))
}

fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b' ') {
        Some(at) => (&bytes[..at], bytes[at..].trim_ascii_start()),
        None => (bytes, &[]),
    }
}

/// Nanoseconds of `seconds.fraction` with one to nine digits after the point.
fn seconds(bytes: &[u8]) -> Option<u64> {
    let point = bytes.iter().position(|&byte| byte == b'.')?;
    let (whole, fraction) = (&bytes[..point], &bytes[point + 1..]);
    if fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let nanoseconds = fields::decimal(fraction)? * scale;
    fields::decimal(whole)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// The CPU and number of `CPU:1 [LOST 1234 EVENTS]`, as the kernel prints it, or of trace-cmd's
/// `CPU:1 [1234 EVENTS DROPPED]`, which may lack the number.
fn lost_events(line: &[u8]) -> Option<(&[u8], u64)> {
    let (cpu, rest) = split_digits(line.strip_prefix(b"CPU:")?)?;
    let text = rest.strip_prefix(b" [")?.strip_suffix(b"]")?;
    if text == b"EVENTS DROPPED" {
        return Some((cpu, 1));
    }
    let dropped = text.strip_suffix(b" EVENTS DROPPED");
    let lost = || text.strip_prefix(b"LOST ")?.strip_suffix(b" EVENTS");
    Some((cpu, fields::decimal(dropped.or_else(lost)?)?))
}

/// Whether `line` is one of those that trace-cmd prints around the events, or of a stack: of the
/// kernel or trace-cmd with an arrow, of perf after a tab and with an empty line at its end.
pub(crate) fn is_remark(line: &[u8]) -> bool {
    let is_of_stack = line.trim_ascii_start().starts_with(b"=> ") || line.starts_with(b"\t");
    if line.is_empty() || (is_of_stack && split_prefix(line).is_none()) {
        return true;
    }
    let number_after =
        |start: &[u8]| line.strip_prefix(start).is_some_and(|rest| fields::decimal(rest).is_some());
    let empty = || {
        let (_, rest) = split_digits(line.strip_prefix(b"CPU ")?)?;
        Some(rest == b" is empty")
    };
    number_after(b"cpus=") || number_after(b"version = ") || empty().unwrap_or(false)
}

/// Resolution of times in `line` in nanoseconds, by the digits of its seconds.
pub(crate) fn step_ns(line: &[u8]) -> Option<u32> {
    let rest = split_prefix(line)?.rest;
    let (mut time, rest) = split_word(rest);
    if !time.ends_with(b":") {
        time = split_word(rest).0;
    }
    let point = time.iter().position(|&byte| byte == b'.')?;
    let digits = time.strip_suffix(b":")?.len().checked_sub(point + 1)?;
    Some(10_u32.pow(9_u32.checked_sub(u32::try_from(digits).ok()?)?))
}

#[cfg(test)]
#[path = "ftrace_tests.rs"]
mod tests;
