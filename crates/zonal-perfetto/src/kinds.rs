//! Events in both forms.
//!
//! Events for which Perfetto has no message are its generic ones, under the kernel's names, as its
//! own recorder writes them. Two have names that no kernel has: `lost` (`events`) and `other`.

use prost::Message;
use zonal_trace::{
    CachedPage, EventKind, MIGRATETYPE_MAX, Notice, ORDER_MAX, PFN_LIMIT, ZONE_KINDS, gfp,
};

use crate::proto::{
    Alloc, Compaction, Extfrag, Fork, Free, FreeBatched, Ftrace, FtraceEvent, Generic,
    GenericField, GenericValue, KswapdSleep, KswapdWake, Moved, Print, ReclaimBegin, ReclaimEnd,
    WorkStart,
};

/// The number under which the statistics worker's symbol is written.
pub(crate) const VMSTAT_SYMBOL: u64 = 1;
/// The frame of an allocation that failed.
const NO_FRAME: u64 = u64::MAX;
/// Orders up to this one are on per-CPU lists, and that of a huge page (LB E.1).
const COSTLY_ORDER: u8 = 3;
const HUGE_ORDER: u8 = 9;
/// The first release whose lists hold more than single pages.
const FIRST_WITH_ORDERS: (u32, u32) = (5, 14);
/// Migratetypes that per-CPU lists hold.
const LIST_TYPES: u8 = 3;
/// One more than the highest number of a node.
const NODES: u64 = 1024;

/// What is lost on a CPU, by a count of events.
const LOST: &str = "lost";
const OTHER: &str = "other";

/// Which orders the per-CPU lists of a kernel hold: Perfetto leaves out whether a block was taken
/// for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Single pages alone: kernels before 5.14.
    Order0,
    Orders,
}

impl Lists {
    /// Those of a release, such as `6.12.117+deb12-amd64`.
    pub(crate) fn of(release: Option<&str>) -> Lists {
        let mut numbers = release.unwrap_or_default().split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        match (number(), number()) {
            (Some(major), Some(minor)) if (major, minor) < FIRST_WITH_ORDERS => Lists::Order0,
            _ => Lists::Orders,
        }
    }

    fn hold(self, order: u8) -> bool {
        match self {
            Lists::Order0 => order == 0,
            Lists::Orders => order <= COSTLY_ORDER || order == HUGE_ORDER,
        }
    }
}

/// An event as Perfetto has it.
pub(crate) fn to_ftrace(kind: &EventKind) -> Ftrace {
    match kind {
        EventKind::Alloc { pfn, order, migratetype, gfp } => Ftrace::Alloc(Alloc {
            gfp_flags: Some(*gfp),
            migratetype: Some((*migratetype).into()),
            order: Some((*order).into()),
            pfn: Some(pfn.unwrap_or(NO_FRAME)),
        }),
        EventKind::Free { pfn, order } => {
            Ftrace::Free(Free { order: Some((*order).into()), pfn: Some(*pfn) })
        }
        EventKind::FreeBatched { pfn } => Ftrace::FreeBatched(FreeBatched { pfn: Some(*pfn) }),
        EventKind::ZoneLocked { pfn, order, migratetype, .. } => {
            Ftrace::ZoneLocked(moved(*pfn, *order, *migratetype))
        }
        EventKind::PcpuDrain { pfn, order, migratetype } => {
            Ftrace::PcpuDrain(moved(*pfn, *order, *migratetype))
        }
        EventKind::Extfrag {
            pfn,
            alloc_order,
            fallback_order,
            alloc_migratetype,
            fallback_migratetype,
            change_ownership,
        } => Ftrace::Extfrag(Extfrag {
            alloc_migratetype: Some((*alloc_migratetype).into()),
            alloc_order: Some((*alloc_order).into()),
            fallback_migratetype: Some((*fallback_migratetype).into()),
            fallback_order: Some((*fallback_order).into()),
            change_ownership: Some((*change_ownership).into()),
            pfn: Some(*pfn),
        }),
        EventKind::VmstatUpdate => Ftrace::WorkStart(WorkStart { function: Some(VMSTAT_SYMBOL) }),
        EventKind::Fork { child } => Ftrace::Fork(Fork { child_pid: Some(*child) }),
        EventKind::Marker(text) => Ftrace::Print(Print { buf: Some(text.as_bytes().to_vec()) }),
        EventKind::Lost { events } => generic(LOST, &[("events", *events)]),
        EventKind::Notice(notice) => of_notice(*notice),
        _ => generic(OTHER, &[]),
    }
}

impl FtraceEvent {
    /// Whether it tells how many events are missing.
    pub(crate) fn is_lost(&self) -> bool {
        let Some(Ftrace::Generic(event)) = &self.event else { return false };
        Generic::decode(&**event)
            .is_ok_and(|event| event.event_name.as_deref() == Some(LOST.as_bytes()))
    }
}

fn moved(pfn: u64, order: u8, migratetype: u8) -> Moved {
    let migratetype = Some(migratetype.into());
    Moved { migratetype, order: Some(order.into()), pfn: Some(pfn) }
}

fn of_notice(notice: Notice) -> Ftrace {
    match notice {
        Notice::KswapdWake { node, order } => {
            Ftrace::KswapdWake(KswapdWake { nid: Some(node as i32), order: Some(order.into()) })
        }
        Notice::KswapdSleep { node } => Ftrace::KswapdSleep(KswapdSleep { nid: Some(node as i32) }),
        Notice::ReclaimBegin { order, gfp } => {
            Ftrace::ReclaimBegin(ReclaimBegin { order: Some(order.into()), gfp_flags: Some(gfp) })
        }
        Notice::ReclaimEnd { pages } => {
            Ftrace::ReclaimEnd(ReclaimEnd { nr_reclaimed: Some(pages) })
        }
        Notice::CompactionBegin { zone_start, sync } => {
            Ftrace::CompactionBegin(compaction(zone_start, sync, None))
        }
        Notice::CompactionEnd { zone_start, sync, status } => {
            Ftrace::CompactionEnd(compaction(zone_start, sync, Some(status.into())))
        }
        Notice::Watermarks { node, zone, min, low, high } => {
            let mut event = generic_of(
                notice.kernel_name(),
                &[
                    ("node_id", node.into()),
                    ("watermark_min", min),
                    ("watermark_low", low),
                    ("watermark_high", high),
                ],
            );
            let name = ZONE_KINDS.get(usize::from(zone)).copied().unwrap_or_default();
            let value = Some(GenericValue::Str(name.as_bytes().to_vec()));
            event.field.insert(1, GenericField { name: Some(b"name".to_vec()), value });
            Ftrace::Generic(event.encode_to_vec())
        }
        Notice::ContentionBegin { lock, flags } => {
            generic(notice.kernel_name(), &[("lock_addr", lock), ("flags", flags.into())])
        }
        Notice::ContentionEnd { lock } => {
            generic(notice.kernel_name(), &[("lock_addr", lock), ("ret", 0)])
        }
        Notice::CacheAdd(page) | Notice::CacheRemove(page) => generic(
            notice.kernel_name(),
            &[
                ("s_dev", page.device.into()),
                ("i_ino", page.inode),
                ("index", page.index),
                ("order", page.order.into()),
            ],
        ),
        _ => generic(OTHER, &[]),
    }
}

fn compaction(zone_start: u64, sync: bool, status: Option<i32>) -> Compaction {
    Compaction { zone_start: Some(zone_start), sync: Some(sync.into()), status }
}

fn generic(name: &str, numbers: &[(&str, u64)]) -> Ftrace {
    Ftrace::Generic(generic_of(name, numbers).encode_to_vec())
}

fn generic_of(name: &str, numbers: &[(&str, u64)]) -> Generic {
    let field = |(name, number): &(&str, u64)| GenericField {
        name: Some(name.as_bytes().to_vec()),
        value: Some(GenericValue::Uint(*number)),
    };
    Generic {
        event_name: Some(name.as_bytes().to_vec()),
        field: numbers.iter().map(field).collect(),
    }
}

/// The event that Perfetto's is; `None` for one that tells nothing about pages. `vmstat` is the
/// number of the statistics worker's symbol.
///
/// # Errors
/// What was found and expected.
pub(crate) fn to_kind(
    event: Ftrace,
    vmstat: Option<u64>,
    lists: Lists,
) -> Result<Option<EventKind>, String> {
    Ok(Some(match event {
        Ftrace::Alloc(event) => EventKind::Alloc {
            pfn: match event.pfn {
                Some(NO_FRAME) => None,
                pfn => Some(frame(pfn)?),
            },
            order: order(event.order)?,
            migratetype: migratetype(event.migratetype)?,
            // The numbers of the kernel, which have been those of 6.12 for long (LB D.1).
            gfp: gfp::normalise(event.gfp_flags.unwrap_or(0).into()).unwrap_or(0),
        },
        Ftrace::Free(event) => {
            EventKind::Free { pfn: frame(event.pfn)?, order: order(event.order)? }
        }
        Ftrace::FreeBatched(event) => EventKind::FreeBatched { pfn: frame(event.pfn)? },
        Ftrace::ZoneLocked(event) => {
            let (order, migratetype) = (order(event.order)?, migratetype(event.migratetype)?);
            let percpu_refill = lists.hold(order) && migratetype < LIST_TYPES;
            EventKind::ZoneLocked { pfn: frame(event.pfn)?, order, migratetype, percpu_refill }
        }
        Ftrace::PcpuDrain(event) => EventKind::PcpuDrain {
            pfn: frame(event.pfn)?,
            order: order(event.order)?,
            migratetype: migratetype(event.migratetype)?,
        },
        Ftrace::Extfrag(event) => EventKind::Extfrag {
            pfn: frame(event.pfn)?,
            alloc_order: order(event.alloc_order)?,
            fallback_order: order(event.fallback_order)?,
            alloc_migratetype: migratetype(event.alloc_migratetype)?,
            fallback_migratetype: migratetype(event.fallback_migratetype)?,
            change_ownership: event.change_ownership.unwrap_or(0) != 0,
        },
        Ftrace::WorkStart(event) => match event.function {
            Some(function) if Some(function) == vmstat => EventKind::VmstatUpdate,
            _ => return Ok(None),
        },
        Ftrace::Fork(event) => EventKind::Fork { child: event.child_pid.unwrap_or(0) },
        Ftrace::Print(event) => {
            let text = event.buf.unwrap_or_default();
            EventKind::Marker(String::from_utf8_lossy(&text).into_owned().into())
        }
        Ftrace::Generic(event) => {
            let event = Generic::decode(&*event);
            return of_generic(&event.map_err(|error| format!("generic: {error}"))?);
        }
        event => return Ok(to_notice(event)?.map(EventKind::Notice)),
    }))
}

/// What events of reclaim and compaction say; `None` for others.
fn to_notice(event: Ftrace) -> Result<Option<Notice>, String> {
    Ok(Some(match event {
        Ftrace::KswapdWake(event) => {
            Notice::KswapdWake { node: node(event.nid)?, order: order(event.order)? }
        }
        Ftrace::KswapdSleep(event) => Notice::KswapdSleep { node: node(event.nid)? },
        Ftrace::ReclaimBegin(event) => Notice::ReclaimBegin {
            order: order(event.order)?,
            gfp: gfp::normalise(event.gfp_flags.unwrap_or(0).into()).unwrap_or(0),
        },
        Ftrace::ReclaimEnd(event) => Notice::ReclaimEnd { pages: event.nr_reclaimed.unwrap_or(0) },
        Ftrace::CompactionBegin(event) => Notice::CompactionBegin {
            zone_start: frame(event.zone_start)?,
            sync: event.sync.unwrap_or(0) != 0,
        },
        Ftrace::CompactionEnd(event) => Notice::CompactionEnd {
            zone_start: frame(event.zone_start)?,
            sync: event.sync.unwrap_or(0) != 0,
            status: below("status", event.status, 256)? as u8,
        },
        _ => return Ok(None),
    }))
}

fn of_generic(event: &Generic) -> Result<Option<EventKind>, String> {
    let find = |name: &str| {
        let named = |field: &&GenericField| field.name.as_deref() == Some(name.as_bytes());
        event.field.iter().find(named)?.value.as_ref()
    };
    let number = |name: &str| match find(name) {
        Some(GenericValue::Uint(number)) => Ok(*number),
        Some(GenericValue::Int(number)) => Ok(*number as u64),
        _ => Err(format!("{name}: nothing; expected a number")),
    };
    let cached_page = || {
        Ok::<CachedPage, String>(CachedPage {
            device: below("s_dev", Some(number("s_dev")?), 1 << 32)? as u32,
            inode: number("i_ino")?,
            index: number("index")?,
            // Not of every kernel.
            order: order(Some(number("order").unwrap_or(0)))?,
        })
    };
    let name = event.event_name.as_deref().unwrap_or_default();
    Ok(Some(match std::str::from_utf8(name).unwrap_or_default() {
        "contention_begin" => EventKind::Notice(Notice::ContentionBegin {
            lock: number("lock_addr")?,
            flags: u32::try_from(number("flags")?)
                .map_err(|_| "flags: expected a number of 32 bits")?,
        }),
        // One that gave up did not get the lock, but no longer waits for it either.
        "contention_end" => EventKind::Notice(Notice::ContentionEnd { lock: number("lock_addr")? }),
        "mm_filemap_add_to_page_cache" => EventKind::Notice(Notice::CacheAdd(cached_page()?)),
        "mm_filemap_delete_from_page_cache" => {
            EventKind::Notice(Notice::CacheRemove(cached_page()?))
        }
        "mm_setup_per_zone_wmarks" => {
            let zone = match find("name") {
                Some(GenericValue::Str(name)) => {
                    ZONE_KINDS.iter().position(|kind| kind.as_bytes() == name)
                }
                _ => None,
            };
            EventKind::Notice(Notice::Watermarks {
                node: below("node_id", Some(number("node_id")?), NODES)? as u32,
                zone: zone.ok_or("name: expected a zone, such as Normal")? as u8,
                min: number("watermark_min")?,
                low: number("watermark_low")?,
                high: number("watermark_high")?,
            })
        }
        LOST => EventKind::Lost { events: number("events")? },
        OTHER => EventKind::Other,
        _ => return Ok(None),
    }))
}

fn below<T: TryInto<u64> + std::fmt::Display + Copy>(
    name: &str,
    value: Option<T>,
    limit: u64,
) -> Result<u64, String> {
    // proto2 leaves out nothing that was set, but other encoders leave out zeros.
    let Some(value) = value else { return Ok(0) };
    let number = value.try_into().ok().filter(|number| *number < limit);
    number.ok_or_else(|| format!("{name}: {value}; expected a number below {limit}"))
}

fn frame(pfn: Option<u64>) -> Result<u64, String> {
    below("pfn", pfn, PFN_LIMIT)
}

fn order<T: TryInto<u64> + std::fmt::Display + Copy>(order: Option<T>) -> Result<u8, String> {
    below("order", order, u64::from(ORDER_MAX) + 1).map(|order| order as u8)
}

fn migratetype(migratetype: Option<i32>) -> Result<u8, String> {
    let limit = u64::from(MIGRATETYPE_MAX) + 1;
    below("migratetype", migratetype, limit).map(|migratetype| migratetype as u8)
}

fn node(node: Option<i32>) -> Result<u32, String> {
    below("nid", node, NODES).map(|node| node as u32)
}

#[cfg(test)]
mod tests {
    use super::Lists;

    #[test]
    fn lists_of_old_kernels_hold_single_pages_alone() {
        for (release, lists) in [
            (Some("5.4.0-91-generic"), Lists::Order0),
            (Some("5.13"), Lists::Order0),
            (Some("4.19.325"), Lists::Order0),
            (Some("5.14.0-rc1"), Lists::Orders),
            (Some("6.1.0"), Lists::Orders),
            (Some("unknown"), Lists::Orders),
            (None, Lists::Orders),
        ] {
            assert_eq!(Lists::of(release), lists, "{release:?}");
        }
        assert!(Lists::Order0.hold(0) && !Lists::Order0.hold(1) && !Lists::Order0.hold(9));
        assert!(Lists::Orders.hold(3) && !Lists::Orders.hold(4) && Lists::Orders.hold(9));
    }
}
