//! Events in Arrow's columns: one row an event, a column for each field that any event has.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int32Type, UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use zonal_trace::{Event, EventKind, Events, Notice, Recording, TraceError};

use crate::fault::Fault;

/// Names of the kernel's events, in the order of their codes.
const NAMES: [&str; 21] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
    "vmstat_update",
    "sched_process_fork",
    "tracing_mark_write",
    "lost",
    "other",
    "mm_vmscan_kswapd_wake",
    "mm_vmscan_kswapd_sleep",
    "mm_vmscan_direct_reclaim_begin",
    "mm_vmscan_direct_reclaim_end",
    "mm_compaction_begin",
    "mm_compaction_end",
    "mm_setup_per_zone_wmarks",
    "contention_begin",
    "contention_end",
    "unknown",
];
const UNKNOWN: i8 = NAMES.len() as i8 - 1;

/// The fields of an event, whichever it is.
#[derive(Default)]
struct Fields<'e> {
    pfn: Option<u64>,
    order: Option<u8>,
    migratetype: Option<u8>,
    gfp: Option<u32>,
    percpu_refill: Option<bool>,
    fallback_order: Option<u8>,
    fallback_migratetype: Option<u8>,
    change_ownership: Option<bool>,
    child: Option<i32>,
    lost: Option<u64>,
    text: Option<&'e str>,
    node: Option<u32>,
    zone: Option<u8>,
    min: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    pages: Option<u64>,
    zone_start: Option<u64>,
    sync: Option<bool>,
    status: Option<u8>,
    lock: Option<u64>,
    flags: Option<u32>,
}

/// A row.
struct Row<'e> {
    event: &'e Event,
    fields: Fields<'e>,
}

impl<'e> Row<'e> {
    fn new(event: &'e Event) -> Row<'e> {
        let none = Fields::default();
        let fields = match &event.kind {
            EventKind::Alloc { pfn, order, migratetype, gfp } => Fields {
                pfn: *pfn,
                order: Some(*order),
                migratetype: Some(*migratetype),
                gfp: Some(*gfp),
                ..none
            },
            EventKind::Free { pfn, order } => {
                Fields { pfn: Some(*pfn), order: Some(*order), ..none }
            }
            EventKind::FreeBatched { pfn } => Fields { pfn: Some(*pfn), ..none },
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => Fields {
                pfn: Some(*pfn),
                order: Some(*order),
                migratetype: Some(*migratetype),
                percpu_refill: Some(*percpu_refill),
                ..none
            },
            EventKind::PcpuDrain { pfn, order, migratetype } => Fields {
                pfn: Some(*pfn),
                order: Some(*order),
                migratetype: Some(*migratetype),
                ..none
            },
            EventKind::Extfrag {
                pfn,
                alloc_order,
                fallback_order,
                alloc_migratetype,
                fallback_migratetype,
                change_ownership,
            } => Fields {
                pfn: Some(*pfn),
                order: Some(*alloc_order),
                migratetype: Some(*alloc_migratetype),
                fallback_order: Some(*fallback_order),
                fallback_migratetype: Some(*fallback_migratetype),
                change_ownership: Some(*change_ownership),
                ..none
            },
            EventKind::Fork { child } => Fields { child: Some(*child), ..none },
            EventKind::Marker(text) => Fields { text: Some(text), ..none },
            EventKind::Lost { events } => Fields { lost: Some(*events), ..none },
            EventKind::Notice(notice) => of_notice(*notice),
            _ => none,
        };
        Row { event, fields }
    }
}

fn of_notice<'e>(notice: Notice) -> Fields<'e> {
    let none = Fields::default();
    match notice {
        Notice::KswapdWake { node, order } => {
            Fields { node: Some(node), order: Some(order), ..none }
        }
        Notice::KswapdSleep { node } => Fields { node: Some(node), ..none },
        Notice::ReclaimBegin { order, gfp } => {
            Fields { order: Some(order), gfp: Some(gfp), ..none }
        }
        Notice::ReclaimEnd { pages } => Fields { pages: Some(pages), ..none },
        Notice::CompactionBegin { zone_start, sync } => {
            Fields { zone_start: Some(zone_start), sync: Some(sync), ..none }
        }
        Notice::CompactionEnd { zone_start, sync, status } => {
            Fields { zone_start: Some(zone_start), sync: Some(sync), status: Some(status), ..none }
        }
        Notice::Watermarks { node, zone, min, low, high } => Fields {
            node: Some(node),
            zone: Some(zone),
            min: Some(min),
            low: Some(low),
            high: Some(high),
            ..none
        },
        Notice::ContentionBegin { lock, flags } => {
            Fields { lock: Some(lock), flags: Some(flags), ..none }
        }
        Notice::ContentionEnd { lock } => Fields { lock: Some(lock), ..none },
        _ => none,
    }
}

/// The code of an event's name.
fn code(kind: &EventKind) -> i8 {
    match kind {
        EventKind::Alloc { .. } => 0,
        EventKind::Free { .. } => 1,
        EventKind::FreeBatched { .. } => 2,
        EventKind::ZoneLocked { .. } => 3,
        EventKind::PcpuDrain { .. } => 4,
        EventKind::Extfrag { .. } => 5,
        other => {
            let at = NAMES.iter().position(|name| *name == other.name());
            at.map_or(UNKNOWN, |at| at as i8)
        }
    }
}

/// A column that is being filled.
trait Column: Send {
    fn push(&mut self, row: &Row<'_>);
    fn finish(&mut self) -> ArrayRef;
}

struct Numbers<T: ArrowPrimitiveType> {
    cells: PrimitiveBuilder<T>,
    of: fn(&Row<'_>) -> Option<T::Native>,
}

impl<T: ArrowPrimitiveType> Column for Numbers<T> {
    fn push(&mut self, row: &Row<'_>) {
        self.cells.append_option((self.of)(row));
    }
    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.cells.finish())
    }
}

struct Flags {
    cells: BooleanBuilder,
    of: fn(&Row<'_>) -> Option<bool>,
}

impl Column for Flags {
    fn push(&mut self, row: &Row<'_>) {
        self.cells.append_option((self.of)(row));
    }
    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.cells.finish())
    }
}

/// Names of events: codes of one dictionary.
struct Codes {
    cells: Vec<i8>,
    names: ArrayRef,
}

impl Column for Codes {
    fn push(&mut self, row: &Row<'_>) {
        self.cells.push(code(&row.event.kind));
    }
    fn finish(&mut self) -> ArrayRef {
        let rows = self.cells.len();
        let keys = std::mem::replace(&mut self.cells, Vec::with_capacity(rows));
        let keys = PrimitiveArray::<Int8Type>::from(keys);
        Arc::new(DictionaryArray::new(keys, Arc::clone(&self.names)))
    }
}

struct Texts(StringBuilder);

impl Column for Texts {
    fn push(&mut self, row: &Row<'_>) {
        self.0.append_option(row.fields.text);
    }
    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

type Make = fn(usize) -> Box<dyn Column>;

/// A column that there can be.
struct Kind {
    name: &'static str,
    data_type: fn() -> DataType,
    nullable: bool,
    make: Make,
}

macro_rules! numbers {
    ($name:literal, $type:ty, $data:ident, $nullable:literal, $of:expr) => {
        Kind {
            name: $name,
            data_type: || DataType::$data,
            nullable: $nullable,
            make: |rows| {
                let cells = PrimitiveBuilder::<$type>::with_capacity(rows);
                Box::new(Numbers { cells, of: $of })
            },
        }
    };
}

macro_rules! flags {
    ($name:literal, $of:expr) => {
        Kind {
            name: $name,
            data_type: || DataType::Boolean,
            nullable: true,
            make: |rows| Box::new(Flags { cells: BooleanBuilder::with_capacity(rows), of: $of }),
        }
    };
}

/// Every column, in its order.
const KINDS: &[Kind] = &[
    numbers!("time_ns", UInt64Type, UInt64, false, |row| Some(row.event.time_ns)),
    numbers!("cpu", UInt32Type, UInt32, false, |row| Some(row.event.cpu)),
    numbers!("pid", Int32Type, Int32, false, |row| Some(row.event.pid)),
    Kind {
        name: "event",
        data_type: || DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        nullable: false,
        make: |rows| {
            let names: ArrayRef = Arc::new(StringArray::from(NAMES.to_vec()));
            Box::new(Codes { cells: Vec::with_capacity(rows), names })
        },
    },
    numbers!("pfn", UInt64Type, UInt64, true, |row| row.fields.pfn),
    numbers!("order", UInt8Type, UInt8, true, |row| row.fields.order),
    numbers!("migratetype", UInt8Type, UInt8, true, |row| row.fields.migratetype),
    numbers!("gfp", UInt32Type, UInt32, true, |row| row.fields.gfp),
    flags!("percpu_refill", |row| row.fields.percpu_refill),
    numbers!("fallback_order", UInt8Type, UInt8, true, |row| row.fields.fallback_order),
    numbers!("fallback_migratetype", UInt8Type, UInt8, true, |row| row.fields.fallback_migratetype),
    flags!("change_ownership", |row| row.fields.change_ownership),
    numbers!("child", Int32Type, Int32, true, |row| row.fields.child),
    numbers!("lost", UInt64Type, UInt64, true, |row| row.fields.lost),
    Kind {
        name: "text",
        data_type: || DataType::Utf8,
        nullable: true,
        make: |_| Box::new(Texts(StringBuilder::new())),
    },
    numbers!("node", UInt32Type, UInt32, true, |row| row.fields.node),
    numbers!("zone", UInt8Type, UInt8, true, |row| row.fields.zone),
    numbers!("min", UInt64Type, UInt64, true, |row| row.fields.min),
    numbers!("low", UInt64Type, UInt64, true, |row| row.fields.low),
    numbers!("high", UInt64Type, UInt64, true, |row| row.fields.high),
    numbers!("pages", UInt64Type, UInt64, true, |row| row.fields.pages),
    numbers!("zone_start", UInt64Type, UInt64, true, |row| row.fields.zone_start),
    flags!("sync", |row| row.fields.sync),
    numbers!("status", UInt8Type, UInt8, true, |row| row.fields.status),
    numbers!("lock", UInt64Type, UInt64, true, |row| row.fields.lock),
    numbers!("flags", UInt32Type, UInt32, true, |row| row.fields.flags),
];

/// Places of columns in [`KINDS`] by their names; all without names.
///
/// # Errors
/// A name that is none or is there twice, or no name.
pub fn check_columns(names: Option<Vec<String>>) -> Result<Vec<usize>, Fault> {
    let Some(names) = names else { return Ok((0..KINDS.len()).collect()) };
    let mut places = Vec::new();
    for name in names {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let Some(at) = known.iter().position(|known| *known == name) else {
            let what = format!("no column is called '{name}'; there are {}", known.join(", "));
            return Err(Fault::new("ArgumentError", what));
        };
        if places.contains(&at) {
            return Err(Fault::new("ArgumentError", format!("column '{name}' is asked for twice")));
        }
        places.push(at);
    }
    match places.is_empty() {
        true => Err(Fault::new("ArgumentError", "columns is empty; expected a name, or None")),
        false => Ok(places),
    }
}

/// Events that become batches.
pub struct Columns {
    events: Events,
    columns: Vec<Box<dyn Column>>,
    schema: SchemaRef,
    batch_rows: usize,
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Columns").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Columns {
    /// The columns at these places of [`KINDS`], `batch_rows` events at a time.
    pub fn new(
        recording: &Recording,
        places: &[usize],
        batch_rows: usize,
        from_ns: u64,
    ) -> Columns {
        let kinds = || places.iter().map(|at| &KINDS[*at]);
        let field = |kind: &Kind| Field::new(kind.name, (kind.data_type)(), kind.nullable);
        let fields: Vec<Field> = kinds().map(field).collect();
        Columns {
            events: recording.events_from(from_ns),
            columns: kinds().map(|kind| (kind.make)(batch_rows.min(1 << 16))).collect(),
            schema: Arc::new(Schema::new(fields)),
            batch_rows: batch_rows.max(1),
        }
    }

    /// Names and types.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; the last may have fewer events.
    ///
    /// # Errors
    /// The events cannot be read; what came before is lost with the batch, and nothing follows.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, TraceError> {
        let mut rows = 0;
        while rows < self.batch_rows {
            let Some(event) = self.events.next() else { break };
            let event = event?;
            let row = Row::new(&event);
            self.columns.iter_mut().for_each(|column| column.push(&row));
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let arrays = self.columns.iter_mut().map(|column| column.finish()).collect();
        let batch = RecordBatch::try_new(self.schema(), arrays);
        Ok(Some(batch.expect("the columns are made from the schema")))
    }
}
