//! A block: up to [`BLOCK_EVENTS_MAX`] events as columns.
//!
//! ```text
//!  head: unit, first time, CPUs with their events, shapes, threads, columns with their sizes
//!  columns, each a zstd frame of its own where that is smaller
//!  bits
//! ```
//! Three passes, the same for reading and writing:
//!
//! 1. CPU after CPU: shape and time of each event, and the thread where it changes.
//! 2. All CPUs by time; where several have the same time, which one comes first.
//! 3. In that order: the page of each event, guessed by the [`Model`].

use std::collections::HashMap;

use zonal_text::CPUS_MAX;

use super::columns::{COLUMNS, Column, Io, Reading, Writing, wrong};
use super::model::{self, Model};
use super::shape::Shape;
use super::varint::{Varints, put_signed, put_varint};
use crate::error::{Fault, TraceErrorKind};
use crate::event::{Event, EventKind};
use crate::notice::{NUMBERS_MAX, Notice, ROWS};

/// Most events of a block.
pub(super) const BLOCK_EVENTS_MAX: usize = 1 << 17;
/// Most bytes of a block's columns together, uncompressed.
const COLUMN_BYTES_MAX: u64 = 64 << 20;
/// Most shapes of a block.
const SHAPES_MAX: u64 = 1 << 16;

/// The symbol of a change of thread.
const SWITCH: u8 = 0;
/// Shapes with a symbol of their own: 1 to 253.
const FREQUENT: usize = 253;
/// The symbol of all other shapes.
const RARE: u8 = 254;

/// Time, thread and shape of an event, from the first pass.
#[derive(Debug, Clone, Copy)]
struct Stub {
    time: u64,
    pid: i32,
    shape: Shape,
}

/// The head.
struct Tables {
    unit: u64,
    first: u64,
    /// CPU and number of its events, by CPU.
    cpus: Vec<(u32, usize)>,
    shapes: Vec<Shape>,
    threads: Vec<i32>,
}

/// Writes a block. `step` is the clock's step, in nanoseconds.
pub(super) fn write(
    events: &[Event],
    step: u64,
    level: i32,
    model: &mut Model,
) -> Result<Vec<u8>, Fault> {
    let tables = tables(events, step);
    let mut io = Writing::new();
    let lanes: Vec<Vec<Stub>> = tables.cpus.iter().map(|(cpu, _)| stubs(events, *cpu)).collect();
    for lane in &lanes {
        first_pass(&mut io, &tables, lane.len(), lane)?;
    }
    let order: Vec<u32> = events.iter().map(|event| event.cpu).collect();
    merge(&mut io, &tables, &lanes, &order)?;
    for event in events {
        page(&mut io, model, event.cpu, &Shape::of(&event.kind), Some(&event.kind))?;
    }
    io.finish();
    let mut head = Vec::new();
    put_head(&mut head, &tables);
    let mut body = Vec::new();
    let used = io.columns.iter().enumerate().filter(|(_, column)| !column.is_empty());
    put_varint(&mut head, used.clone().count() as u64);
    for (index, column) in used {
        let packed = zstd::bulk::compress(column, level).ok();
        let packed = packed.filter(|packed| packed.len() < column.len());
        let stored = packed.as_deref().unwrap_or(column);
        for number in [index, column.len(), stored.len()] {
            put_varint(&mut head, number as u64);
        }
        body.extend_from_slice(stored);
    }
    put_varint(&mut head, io.bits.len() as u64);
    let mut block = Vec::new();
    put_varint(&mut block, head.len() as u64);
    block.append(&mut head);
    block.append(&mut body);
    block.append(&mut io.bits);
    Ok(block)
}

/// Reads a block.
pub(super) fn read(block: &[u8], model: &mut Model) -> Result<Vec<Event>, Fault> {
    let mut bytes = Varints::new(block);
    let head = bytes.varint()?;
    let mut head = Varints::new(bytes.take(head)?);
    let tables = read_head(&mut head)?;
    let mut io = read_columns(&mut head, &mut bytes)?;
    let mut lanes = Vec::with_capacity(tables.cpus.len());
    for (_, events) in &tables.cpus {
        lanes.push(first_pass(&mut io, &tables, *events, &[])?);
    }
    let order = merge(&mut io, &tables, &lanes, &[])?;
    let mut at = vec![0; lanes.len()];
    let mut events = Vec::with_capacity(order.len());
    for lane in order {
        let cpu = tables.cpus[lane].0;
        let Stub { time, pid, shape } = lanes[lane][at[lane]];
        at[lane] += 1;
        let kind = page(&mut io, model, cpu, &shape, None)?;
        events.push(Event { time_ns: time, cpu, pid, kind });
    }
    match io.is_used_up() {
        true => Ok(events),
        false => Err(wrong("length of a column")),
    }
}

fn stubs(events: &[Event], cpu: u32) -> Vec<Stub> {
    let of_cpu = events.iter().filter(|event| event.cpu == cpu);
    of_cpu
        .map(|event| Stub { time: event.time_ns, pid: event.pid, shape: Shape::of(&event.kind) })
        .collect()
}

fn tables(events: &[Event], step: u64) -> Tables {
    let step = step.max(1);
    let unit = if events.iter().all(|event| event.time_ns % step == 0) { step } else { 1 };
    let mut cpus = std::collections::BTreeMap::new();
    let mut shapes: HashMap<Shape, u64> = HashMap::new();
    let mut threads = Vec::new();
    let mut known = std::collections::HashSet::new();
    for event in events {
        *cpus.entry(event.cpu).or_insert(0) += 1;
        *shapes.entry(Shape::of(&event.kind)).or_insert(0) += 1;
        if known.insert(event.pid) {
            threads.push(event.pid);
        }
    }
    let mut shapes: Vec<(Shape, u64)> = shapes.into_iter().collect();
    shapes.sort_unstable_by_key(|(shape, events)| (std::cmp::Reverse(*events), *shape));
    Tables {
        unit,
        first: events.first().map_or(0, |event| event.time_ns),
        cpus: cpus.into_iter().collect(),
        shapes: shapes.into_iter().map(|(shape, _)| shape).collect(),
        threads,
    }
}

fn put_head(head: &mut Vec<u8>, tables: &Tables) {
    put_varint(head, tables.unit);
    put_varint(head, tables.first / tables.unit);
    put_varint(head, tables.cpus.len() as u64);
    for (cpu, events) in &tables.cpus {
        put_varint(head, u64::from(*cpu));
        put_varint(head, *events as u64);
    }
    put_varint(head, tables.shapes.len() as u64);
    tables.shapes.iter().for_each(|shape| shape.write(head));
    put_varint(head, tables.threads.len() as u64);
    let mut before = 0;
    for thread in &tables.threads {
        put_signed(head, i64::from(*thread) - before);
        before = i64::from(*thread);
    }
}

fn read_head(head: &mut Varints<'_>) -> Result<Tables, Fault> {
    let unit = head.varint()?;
    let first = head.varint()?.checked_mul(unit).filter(|_| unit > 0);
    let first = first.ok_or_else(|| wrong("first time"))?;
    let mut cpus: Vec<(u32, usize)> = Vec::new();
    let mut total = 0;
    for _ in 0..head.count("number of CPUs", u64::from(CPUS_MAX))? {
        let cpu = u32::try_from(head.varint()?).ok().filter(|cpu| *cpu < CPUS_MAX);
        let cpu = cpu.filter(|cpu| cpus.last().is_none_or(|(before, _)| before < cpu));
        let cpu = cpu.ok_or_else(|| wrong("CPU"))?;
        let events = head.varint()?;
        total = events.saturating_add(total);
        if events == 0 || total > BLOCK_EVENTS_MAX as u64 {
            return Err(wrong("number of events"));
        }
        cpus.push((cpu, events as usize));
    }
    let shapes = head.count("number of shapes", SHAPES_MAX)?;
    let shapes = (0..shapes).map(|_| Shape::read(head)).collect::<Result<Vec<_>, Fault>>()?;
    let mut before = 0_i64;
    let mut threads = Vec::new();
    for _ in 0..head.count("number of threads", BLOCK_EVENTS_MAX as u64)? {
        before = before.wrapping_add(head.signed()?);
        threads.push(i32::try_from(before).map_err(|_| wrong("thread"))?);
    }
    Ok(Tables { unit, first, cpus, shapes, threads })
}

fn read_columns(head: &mut Varints<'_>, bytes: &mut Varints<'_>) -> Result<Reading, Fault> {
    let mut columns = vec![Vec::new(); COLUMNS];
    let mut total = 0_u64;
    for _ in 0..head.count("number of columns", COLUMNS as u64)? {
        let index = usize::try_from(head.varint()?).unwrap_or(usize::MAX);
        let (whole, stored) = (head.varint()?, head.varint()?);
        let column = columns.get_mut(index).ok_or_else(|| wrong("column"))?;
        total = total.saturating_add(whole);
        if total > COLUMN_BYTES_MAX {
            return Err(Box::new(TraceErrorKind::TooLarge { limit: COLUMN_BYTES_MAX }));
        }
        let stored = bytes.take(stored)?;
        *column = match stored.len() as u64 == whole {
            true => stored.to_vec(),
            false => zstd::bulk::decompress(stored, whole as usize).map_err(|error| {
                let found = error.to_string();
                Box::new(TraceErrorKind::CompressionDamaged { found })
            })?,
        };
        if column.len() as u64 != whole {
            return Err(wrong("length of a column"));
        }
    }
    let bits = head.varint()?;
    let bits = bytes.take(bits)?.to_vec();
    if !head.is_at_end() || !bytes.is_at_end() {
        return Err(wrong("length of a block"));
    }
    Ok(Reading { columns, at: vec![0; COLUMNS], bits, bit: 0 })
}

/// Shape, time and thread of the events of one CPU.
fn first_pass<I: Io>(
    io: &mut I,
    tables: &Tables,
    events: usize,
    given: &[Stub],
) -> Result<Vec<Stub>, Fault> {
    let indices: HashMap<Shape, usize> = match I::WRITES {
        true => tables.shapes.iter().enumerate().map(|(index, shape)| (*shape, index)).collect(),
        false => HashMap::new(),
    };
    let threads: HashMap<i32, usize> = match I::WRITES {
        true => tables.threads.iter().enumerate().map(|(index, pid)| (*pid, index)).collect(),
        false => HashMap::new(),
    };
    let mut stubs = Vec::with_capacity(events);
    let (mut time, mut thread, mut kind) = (tables.first, None, u8::MAX);
    for index in 0..events {
        let stub = given.get(index);
        let place = stub.map_or(0, |stub| indices[&stub.shape]);
        let symbol = |io: &mut I, thread: Option<i32>| {
            io.byte(Column::Symbol, || match stub {
                Some(stub) if Some(stub.pid) != thread => SWITCH,
                _ if place < FREQUENT => place as u8 + 1,
                _ => RARE,
            })
        };
        let mut found = symbol(io, thread)?;
        if found == SWITCH {
            let index =
                io.number(Column::Thread, || stub.map_or(0, |stub| threads[&stub.pid] as u64))?;
            let pid = usize::try_from(index).ok().and_then(|index| tables.threads.get(index));
            thread = Some(*pid.ok_or_else(|| wrong("thread"))?);
            found = symbol(io, thread)?;
        }
        let place = match found {
            RARE => {
                let rare = io.number(Column::RareSymbol, || (place - FREQUENT) as u64)?;
                usize::try_from(rare).unwrap_or(usize::MAX).saturating_add(FREQUENT)
            }
            symbol => usize::from(symbol).wrapping_sub(1),
        };
        let shape = *tables.shapes.get(place).ok_or_else(|| wrong("shape"))?;
        let column = Column::Time as usize
            + 2 * usize::from(shape.kind())
            + usize::from(shape.kind() == kind);
        kind = shape.kind();
        let delta =
            io.number_at(column, || stub.map_or(0, |stub| (stub.time - time) / tables.unit))?;
        let delta = delta.checked_mul(tables.unit);
        time = delta.and_then(|delta| time.checked_add(delta)).ok_or_else(|| wrong("time"))?;
        let pid = thread.ok_or_else(|| wrong("thread"))?;
        stubs.push(Stub { time, pid, shape });
    }
    Ok(stubs)
}

/// The order of the events of all CPUs, as indices of CPUs.
fn merge<I: Io>(
    io: &mut I,
    tables: &Tables,
    lanes: &[Vec<Stub>],
    given: &[u32],
) -> Result<Vec<usize>, Fault> {
    let total = lanes.iter().map(Vec::len).sum();
    let mut order = Vec::with_capacity(total);
    // Next event and index of each CPU that has more.
    let mut left: Vec<(usize, usize)> = (0..lanes.len()).map(|lane| (0, lane)).collect();
    let mut equal: Vec<usize> = Vec::new();
    while !left.is_empty() {
        let earliest = left.iter().map(|(at, lane)| lanes[*lane][*at].time).min();
        equal.clear();
        let is_first = |(at, lane): &(usize, usize)| Some(lanes[*lane][*at].time) == earliest;
        equal.extend((0..left.len()).filter(|place| is_first(&left[*place])));
        let mut chosen = 0;
        if equal.len() > 1 {
            let tie = io.number(Column::Tie, || {
                let cpu = given[order.len()];
                let is_next = |place: &usize| tables.cpus[left[*place].1].0 == cpu;
                equal.iter().position(is_next).unwrap_or(0) as u64
            })?;
            chosen = usize::try_from(tie).unwrap_or(usize::MAX);
        }
        let place = *equal.get(chosen).ok_or_else(|| wrong("choice among CPUs"))?;
        let (at, lane) = &mut left[place];
        order.push(*lane);
        *at += 1;
        if *at == lanes[*lane].len() {
            left.remove(place);
        }
    }
    Ok(order)
}

/// The page of an event, and what else only this kind has.
fn page<I: Io>(
    io: &mut I,
    model: &mut Model,
    cpu: u32,
    shape: &Shape,
    given: Option<&EventKind>,
) -> Result<EventKind, Fault> {
    let cpu = cpu as usize;
    let known = match given {
        Some(
            EventKind::Alloc { pfn: Some(pfn), .. }
            | EventKind::Free { pfn, .. }
            | EventKind::FreeBatched { pfn }
            | EventKind::ZoneLocked { pfn, .. }
            | EventKind::PcpuDrain { pfn, .. }
            | EventKind::Extfrag { pfn, .. },
        ) => *pfn,
        _ => 0,
    };
    let block = |order, migratetype| model::Shape { order, migratetype };
    Ok(match *shape {
        Shape::Alloc { order, migratetype, gfp } => {
            let pfn = model.alloc(io, cpu, block(order, migratetype), known)?;
            EventKind::Alloc { pfn: Some(pfn), order, migratetype, gfp }
        }
        Shape::AllocFailed { order, migratetype, gfp } => {
            EventKind::Alloc { pfn: None, order, migratetype, gfp }
        }
        Shape::Free { order } => EventKind::Free { pfn: model.free(io, cpu, order, known)?, order },
        Shape::FreeBatched => EventKind::FreeBatched { pfn: model.free_batched(io, cpu, known)? },
        Shape::ZoneLocked { order, migratetype, percpu_refill } => {
            let pfn = model.zone_locked(io, cpu, block(order, migratetype), known)?;
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill }
        }
        Shape::PcpuDrain { order, migratetype } => {
            let pfn = model.drain(io, cpu, block(order, migratetype), known)?;
            EventKind::PcpuDrain { pfn, order, migratetype }
        }
        Shape::Extfrag { orders, migratetypes, change_ownership } => EventKind::Extfrag {
            pfn: model.other(io, known)?,
            alloc_order: orders[0],
            fallback_order: orders[1],
            alloc_migratetype: migratetypes[0],
            fallback_migratetype: migratetypes[1],
            change_ownership,
        },
        Shape::VmstatUpdate => EventKind::VmstatUpdate,
        Shape::Fork => {
            let child = match given {
                Some(EventKind::Fork { child }) => u64::from(*child as u32),
                _ => 0,
            };
            let child = io.number(Column::Child, || child)?;
            let child = u32::try_from(child).map_err(|_| wrong("child"))?;
            EventKind::Fork { child: child as i32 }
        }
        Shape::Marker => EventKind::Marker(text(io, given)?),
        Shape::Lost => {
            let events = match given {
                Some(EventKind::Lost { events }) => *events,
                _ => 0,
            };
            EventKind::Lost { events: io.number(Column::Number, || events)? }
        }
        Shape::Other => EventKind::Other,
        Shape::Notice(tag) => EventKind::Notice(notice(io, tag, given)?),
    })
}

fn notice<I: Io>(io: &mut I, tag: u8, given: Option<&EventKind>) -> Result<Notice, Fault> {
    let given = match given {
        Some(EventKind::Notice(notice)) => notice.numbers(),
        _ => [0; NUMBERS_MAX],
    };
    let mut numbers = [0; NUMBERS_MAX];
    for index in 0..ROWS[usize::from(tag)].fields.len() {
        numbers[index] = io.number(Column::Number, || given[index])?;
    }
    Notice::of(tag, numbers)
}

fn text<I: Io>(io: &mut I, given: Option<&EventKind>) -> Result<Box<str>, Fault> {
    let given = match given {
        Some(EventKind::Marker(text)) => text.as_bytes(),
        _ => &[],
    };
    let length = io.number(Column::Number, || given.len() as u64)?;
    let mut bytes = Vec::new();
    for index in 0..length {
        bytes.push(io.byte(Column::Text, || given[index as usize])?);
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("text of a marker"))?;
    Ok(text.into())
}
