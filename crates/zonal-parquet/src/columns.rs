//! Events as numbers in columns, and back: the fields that a row of any table of events has.

use zonal_trace::{
    CPUS_MAX, CachedPage, Event, EventKind, MIGRATETYPE_MAX, Notice, ORDER_MAX, PFN_LIMIT,
};

/// What a column's numbers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// 0 or 1.
    Flag,
    /// Eight bits.
    U8,
    /// 32 bits with a sign.
    I32,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
}

/// Columns that every event has a number in.
pub const ALWAYS: [(&str, Width); 3] =
    [("time_ns", Width::U64), ("cpu", Width::U32), ("pid", Width::I32)];
/// Name of the column of names, which follows those in [`ALWAYS`].
pub const EVENT: &str = "event";
/// Name of the column of text.
pub const TEXT: &str = "text";

/// Columns of numbers that some kinds of events have.
pub const SOME: [(&str, Width); 24] = [
    ("pfn", Width::U64),
    ("order", Width::U8),
    ("migratetype", Width::U8),
    ("gfp", Width::U32),
    ("percpu_refill", Width::Flag),
    ("fallback_order", Width::U8),
    ("fallback_migratetype", Width::U8),
    ("change_ownership", Width::Flag),
    ("child", Width::I32),
    ("lost", Width::U64),
    ("node", Width::U32),
    ("zone", Width::U8),
    ("min", Width::U64),
    ("low", Width::U64),
    ("high", Width::U64),
    ("pages", Width::U64),
    ("zone_start", Width::U64),
    ("sync", Width::Flag),
    ("status", Width::U8),
    ("lock", Width::U64),
    ("flags", Width::U32),
    ("device", Width::U32),
    ("inode", Width::U64),
    ("index", Width::U64),
];

/// Places in [`SOME`].
const PFN: usize = 0;
const ORDER: usize = 1;
const MIGRATETYPE: usize = 2;
const GFP: usize = 3;
const REFILL: usize = 4;
const FALLBACK_ORDER: usize = 5;
const FALLBACK_MIGRATETYPE: usize = 6;
const OWNERSHIP: usize = 7;
const CHILD: usize = 8;
const LOST: usize = 9;
const NODE: usize = 10;
const ZONE: usize = 11;
const MIN: usize = 12;
const LOW: usize = 13;
const HIGH: usize = 14;
const PAGES: usize = 15;
const ZONE_START: usize = 16;
const SYNC: usize = 17;
const STATUS: usize = 18;
const LOCK: usize = 19;
const FLAGS: usize = 20;
const DEVICE: usize = 21;
const INODE: usize = 22;
const INDEX: usize = 23;

/// Names of all columns, in their order.
pub const COLUMNS: [&str; ALWAYS.len() + SOME.len() + 2] = {
    let mut names = [EVENT; ALWAYS.len() + SOME.len() + 2];
    let mut at = 0;
    while at < ALWAYS.len() {
        names[at] = ALWAYS[at].0;
        at += 1;
    }
    let mut at = 0;
    while at < SOME.len() {
        names[ALWAYS.len() + 1 + at] = SOME[at].0;
        at += 1;
    }
    names[names.len() - 1] = TEXT;
    names
};

/// An event's fields; numbers with a sign are kept as the bits of 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Its numbers, by their places in [`SOME`].
    pub some: [Option<u64>; SOME.len()],
    /// Its text.
    pub text: Option<Box<str>>,
}

/// An event's numbers, by their places in [`ALWAYS`]; the thread's as the bits of 64.
pub fn always(event: &Event) -> [u64; ALWAYS.len()] {
    [event.time_ns, event.cpu.into(), bits(event.pid)]
}

impl Cells {
    fn with(fields: &[(usize, u64)]) -> Cells {
        let mut cells = Cells::default();
        for (at, value) in fields {
            cells.some[*at] = Some(*value);
        }
        cells
    }

    /// What an event has. A kind that this version does not know has no fields.
    pub fn of(kind: &EventKind) -> Cells {
        match kind {
            EventKind::Alloc { pfn, order, migratetype, gfp } => {
                let mut cells = Cells::with(&[
                    (ORDER, (*order).into()),
                    (MIGRATETYPE, (*migratetype).into()),
                    (GFP, (*gfp).into()),
                ]);
                cells.some[PFN] = *pfn;
                cells
            }
            EventKind::Free { pfn, order } => Cells::with(&[(PFN, *pfn), (ORDER, (*order).into())]),
            EventKind::FreeBatched { pfn } => Cells::with(&[(PFN, *pfn)]),
            EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => Cells::with(&[
                (PFN, *pfn),
                (ORDER, (*order).into()),
                (MIGRATETYPE, (*migratetype).into()),
                (REFILL, (*percpu_refill).into()),
            ]),
            EventKind::PcpuDrain { pfn, order, migratetype } => Cells::with(&[
                (PFN, *pfn),
                (ORDER, (*order).into()),
                (MIGRATETYPE, (*migratetype).into()),
            ]),
            EventKind::Extfrag {
                pfn,
                alloc_order,
                fallback_order,
                alloc_migratetype,
                fallback_migratetype,
                change_ownership,
            } => Cells::with(&[
                (PFN, *pfn),
                (ORDER, (*alloc_order).into()),
                (MIGRATETYPE, (*alloc_migratetype).into()),
                (FALLBACK_ORDER, (*fallback_order).into()),
                (FALLBACK_MIGRATETYPE, (*fallback_migratetype).into()),
                (OWNERSHIP, (*change_ownership).into()),
            ]),
            EventKind::Fork { child } => Cells::with(&[(CHILD, bits(*child))]),
            EventKind::Marker(text) => Cells { text: Some(text.clone()), ..Cells::default() },
            EventKind::Lost { events } => Cells::with(&[(LOST, *events)]),
            EventKind::Notice(notice) => Cells::of_notice(*notice),
            _ => Cells::default(),
        }
    }

    fn of_notice(notice: Notice) -> Cells {
        match notice {
            Notice::KswapdWake { node, order } => {
                Cells::with(&[(NODE, node.into()), (ORDER, order.into())])
            }
            Notice::KswapdSleep { node } => Cells::with(&[(NODE, node.into())]),
            Notice::ReclaimBegin { order, gfp } => {
                Cells::with(&[(ORDER, order.into()), (GFP, gfp.into())])
            }
            Notice::ReclaimEnd { pages } => Cells::with(&[(PAGES, pages)]),
            Notice::CompactionBegin { zone_start, sync } => {
                Cells::with(&[(ZONE_START, zone_start), (SYNC, sync.into())])
            }
            Notice::CompactionEnd { zone_start, sync, status } => Cells::with(&[
                (ZONE_START, zone_start),
                (SYNC, sync.into()),
                (STATUS, status.into()),
            ]),
            Notice::Watermarks { node, zone, min, low, high } => Cells::with(&[
                (NODE, node.into()),
                (ZONE, zone.into()),
                (MIN, min),
                (LOW, low),
                (HIGH, high),
            ]),
            Notice::ContentionBegin { lock, flags } => {
                Cells::with(&[(LOCK, lock), (FLAGS, flags.into())])
            }
            Notice::ContentionEnd { lock } => Cells::with(&[(LOCK, lock)]),
            Notice::CacheAdd(page) | Notice::CacheRemove(page) => Cells::with(&[
                (DEVICE, page.device.into()),
                (INODE, page.inode),
                (INDEX, page.index),
                (ORDER, page.order.into()),
            ]),
            _ => Cells::default(),
        }
    }

    fn number(&self, at: usize, below: u64) -> Result<u64, String> {
        let name = SOME[at].0;
        match self.some[at] {
            Some(value) if value < below => Ok(value),
            Some(value) => Err(format!("{name}: {value}; expected a number below {below}")),
            None => Err(format!("{name}: nothing; expected a number")),
        }
    }

    fn pfn(&self) -> Result<u64, String> {
        self.number(PFN, PFN_LIMIT)
    }

    fn order(&self, at: usize) -> Result<u8, String> {
        Ok(self.number(at, u64::from(ORDER_MAX) + 1)? as u8)
    }

    fn migratetype(&self, at: usize) -> Result<u8, String> {
        Ok(self.number(at, u64::from(MIGRATETYPE_MAX) + 1)? as u8)
    }

    fn flag(&self, at: usize) -> Result<bool, String> {
        Ok(self.number(at, 2)? == 1)
    }

    fn bits32(&self, at: usize) -> Result<u32, String> {
        Ok(self.number(at, 1 << 32)? as u32)
    }

    /// The event of this name.
    pub(crate) fn kind(&self, name: &str) -> Result<EventKind, String> {
        Ok(match name {
            "mm_page_alloc" => EventKind::Alloc {
                pfn: self.some[PFN].map(|_| self.pfn()).transpose()?,
                order: self.order(ORDER)?,
                migratetype: self.migratetype(MIGRATETYPE)?,
                gfp: self.bits32(GFP)?,
            },
            "mm_page_free" => EventKind::Free { pfn: self.pfn()?, order: self.order(ORDER)? },
            "mm_page_free_batched" => EventKind::FreeBatched { pfn: self.pfn()? },
            "mm_page_alloc_zone_locked" => EventKind::ZoneLocked {
                pfn: self.pfn()?,
                order: self.order(ORDER)?,
                migratetype: self.migratetype(MIGRATETYPE)?,
                percpu_refill: self.flag(REFILL)?,
            },
            "mm_page_pcpu_drain" => EventKind::PcpuDrain {
                pfn: self.pfn()?,
                order: self.order(ORDER)?,
                migratetype: self.migratetype(MIGRATETYPE)?,
            },
            "mm_page_alloc_extfrag" => EventKind::Extfrag {
                pfn: self.pfn()?,
                alloc_order: self.order(ORDER)?,
                fallback_order: self.order(FALLBACK_ORDER)?,
                alloc_migratetype: self.migratetype(MIGRATETYPE)?,
                fallback_migratetype: self.migratetype(FALLBACK_MIGRATETYPE)?,
                change_ownership: self.flag(OWNERSHIP)?,
            },
            "vmstat_update" => EventKind::VmstatUpdate,
            "sched_process_fork" => EventKind::Fork { child: signed("child", self.some[CHILD])? },
            "tracing_mark_write" => EventKind::Marker(
                self.text.clone().ok_or("text: nothing; expected the text of a marker")?,
            ),
            "lost" => EventKind::Lost { events: self.number(LOST, u64::MAX)? },
            "other" => EventKind::Other,
            _ => EventKind::Notice(self.notice(name)?),
        })
    }

    fn cached_page(&self) -> Result<CachedPage, String> {
        let number = |at: usize| self.some[at].ok_or_else(|| format!("{}: nothing", SOME[at].0));
        Ok(CachedPage {
            device: self.bits32(DEVICE)?,
            inode: number(INODE)?,
            index: number(INDEX)?,
            order: self.order(ORDER)?,
        })
    }

    fn notice(&self, name: &str) -> Result<Notice, String> {
        let any = |at| self.number(at, u64::MAX).or(self.some[at].ok_or_else(String::new));
        let number = |at: usize| any(at).map_err(|_| format!("{}: nothing", SOME[at].0));
        let byte = |at| Ok::<u8, String>(self.number(at, 256)? as u8);
        // As many as the kernel has.
        let node = || Ok::<u32, String>(self.number(NODE, 1024)? as u32);
        let start = || self.number(ZONE_START, PFN_LIMIT);
        Ok(match name {
            "mm_vmscan_kswapd_wake" => {
                Notice::KswapdWake { node: node()?, order: self.order(ORDER)? }
            }
            "mm_vmscan_kswapd_sleep" => Notice::KswapdSleep { node: node()? },
            "mm_vmscan_direct_reclaim_begin" => {
                Notice::ReclaimBegin { order: self.order(ORDER)?, gfp: self.bits32(GFP)? }
            }
            "mm_vmscan_direct_reclaim_end" => Notice::ReclaimEnd { pages: number(PAGES)? },
            "mm_compaction_begin" => {
                Notice::CompactionBegin { zone_start: start()?, sync: self.flag(SYNC)? }
            }
            "mm_compaction_end" => Notice::CompactionEnd {
                zone_start: start()?,
                sync: self.flag(SYNC)?,
                status: byte(STATUS)?,
            },
            "mm_setup_per_zone_wmarks" => Notice::Watermarks {
                node: node()?,
                zone: self.number(ZONE, zonal_trace::ZONE_KINDS.len() as u64)? as u8,
                min: number(MIN)?,
                low: number(LOW)?,
                high: number(HIGH)?,
            },
            "contention_begin" => {
                Notice::ContentionBegin { lock: number(LOCK)?, flags: self.bits32(FLAGS)? }
            }
            "contention_end" => Notice::ContentionEnd { lock: number(LOCK)? },
            "mm_filemap_add_to_page_cache" => Notice::CacheAdd(self.cached_page()?),
            "mm_filemap_delete_from_page_cache" => Notice::CacheRemove(self.cached_page()?),
            _ => return Err(format!("event: '{name}'; expected a name of the kernel's events")),
        })
    }
}

/// A number with a sign as bits.
pub(crate) fn bits(number: i32) -> u64 {
    i64::from(number) as u64
}

fn signed(name: &str, bits: Option<u64>) -> Result<i32, String> {
    let number = bits.ok_or_else(|| format!("{name}: nothing; expected a number"))? as i64;
    i32::try_from(number).map_err(|_| format!("{name}: {number}; expected a number of 32 bits"))
}

/// The event of a row.
pub(crate) fn event(
    always: [u64; ALWAYS.len()],
    name: &str,
    cells: &Cells,
) -> Result<Event, String> {
    let [time_ns, cpu, pid] = always;
    let fits = |cpu: &u32| *cpu < CPUS_MAX;
    let cpu = u32::try_from(cpu).ok().filter(fits);
    let cpu = cpu.ok_or_else(|| format!("cpu: {}; expected below {CPUS_MAX}", always[1]))?;
    Ok(Event { time_ns, cpu, pid: signed("pid", Some(pid))?, kind: cells.kind(name)? })
}
