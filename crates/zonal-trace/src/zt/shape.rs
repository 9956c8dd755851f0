//! Shapes: what events have in common, apart from when, where and which page.
//!
//! A block lists each of its shapes once, the most frequent first; an event then says its shape in
//! one byte. `GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP` of order 0 and type 1 is one shape.

use super::columns::wrong;
use super::kinds::{KINDS, NOTICES};
use super::varint::{Varints, put_varint};
use crate::error::Fault;
use crate::event::EventKind;
use crate::fields::{check_migratetype, check_order};

/// Everything of an event but its time, CPU, thread and page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Shape {
    Alloc {
        order: u8,
        migratetype: u8,
        gfp: u32,
    },
    AllocFailed {
        order: u8,
        migratetype: u8,
        gfp: u32,
    },
    Free {
        order: u8,
    },
    FreeBatched,
    ZoneLocked {
        order: u8,
        migratetype: u8,
        percpu_refill: bool,
    },
    PcpuDrain {
        order: u8,
        migratetype: u8,
    },
    Extfrag {
        orders: [u8; 2],
        migratetypes: [u8; 2],
        change_ownership: bool,
    },
    VmstatUpdate,
    Fork,
    Marker,
    Lost,
    Other,
    /// By its tag.
    Notice(u8),
}

impl Shape {
    pub(super) fn of(kind: &EventKind) -> Shape {
        match *kind {
            EventKind::Alloc { pfn: Some(_), order, migratetype, gfp } => {
                Shape::Alloc { order, migratetype, gfp }
            }
            EventKind::Alloc { pfn: None, order, migratetype, gfp } => {
                Shape::AllocFailed { order, migratetype, gfp }
            }
            EventKind::Free { order, .. } => Shape::Free { order },
            EventKind::FreeBatched { .. } => Shape::FreeBatched,
            EventKind::ZoneLocked { order, migratetype, percpu_refill, .. } => {
                Shape::ZoneLocked { order, migratetype, percpu_refill }
            }
            EventKind::PcpuDrain { order, migratetype, .. } => {
                Shape::PcpuDrain { order, migratetype }
            }
            EventKind::Extfrag {
                alloc_order,
                fallback_order,
                alloc_migratetype,
                fallback_migratetype,
                change_ownership,
                ..
            } => Shape::Extfrag {
                orders: [alloc_order, fallback_order],
                migratetypes: [alloc_migratetype, fallback_migratetype],
                change_ownership,
            },
            EventKind::VmstatUpdate => Shape::VmstatUpdate,
            EventKind::Fork { .. } => Shape::Fork,
            EventKind::Marker(_) => Shape::Marker,
            EventKind::Lost { .. } => Shape::Lost,
            EventKind::Other => Shape::Other,
            EventKind::Notice(ref notice) => Shape::Notice(notice.tag()),
        }
    }

    /// The number of the kind: 0 to 18.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Shape::Alloc { .. } => 0,
            Shape::AllocFailed { .. } => 1,
            Shape::Free { .. } => 2,
            Shape::FreeBatched => 3,
            Shape::ZoneLocked { .. } => 4,
            Shape::PcpuDrain { .. } => 5,
            Shape::Extfrag { .. } => 6,
            Shape::VmstatUpdate => 7,
            Shape::Fork => 8,
            Shape::Marker => 9,
            Shape::Lost => 10,
            Shape::Other => 11,
            Shape::Notice(tag) => NOTICES + tag,
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.kind());
        match *self {
            Shape::Alloc { order, migratetype, gfp }
            | Shape::AllocFailed { order, migratetype, gfp } => {
                bytes.extend([order, migratetype]);
                put_varint(bytes, u64::from(gfp));
            }
            Shape::Free { order } => bytes.push(order),
            Shape::ZoneLocked { order, migratetype, percpu_refill } => {
                bytes.extend([order, migratetype, u8::from(percpu_refill)]);
            }
            Shape::PcpuDrain { order, migratetype } => bytes.extend([order, migratetype]),
            Shape::Extfrag { orders, migratetypes, change_ownership } => {
                bytes.extend(orders);
                bytes.extend(migratetypes);
                bytes.push(u8::from(change_ownership));
            }
            _ => {}
        }
    }

    pub(super) fn read(bytes: &mut Varints<'_>) -> Result<Shape, Fault> {
        let order = |bytes: &mut Varints<'_>| check_order(u64::from(bytes.byte()?));
        let migratetype = |bytes: &mut Varints<'_>| {
            check_migratetype(u64::from(bytes.byte()?)).ok_or_else(|| wrong("migratetype"))
        };
        let flag = |bytes: &mut Varints<'_>| match bytes.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong("flag of a shape")),
        };
        Ok(match bytes.byte()? {
            kind @ (0 | 1) => {
                let (order, migratetype) = (order(bytes)?, migratetype(bytes)?);
                let gfp = u32::try_from(bytes.varint()?).map_err(|_| wrong("gfp flags"))?;
                match kind {
                    0 => Shape::Alloc { order, migratetype, gfp },
                    _ => Shape::AllocFailed { order, migratetype, gfp },
                }
            }
            2 => Shape::Free { order: order(bytes)? },
            3 => Shape::FreeBatched,
            4 => Shape::ZoneLocked {
                order: order(bytes)?,
                migratetype: migratetype(bytes)?,
                percpu_refill: flag(bytes)?,
            },
            5 => Shape::PcpuDrain { order: order(bytes)?, migratetype: migratetype(bytes)? },
            6 => Shape::Extfrag {
                orders: [order(bytes)?, order(bytes)?],
                migratetypes: [migratetype(bytes)?, migratetype(bytes)?],
                change_ownership: flag(bytes)?,
            },
            7 => Shape::VmstatUpdate,
            8 => Shape::Fork,
            9 => Shape::Marker,
            10 => Shape::Lost,
            11 => Shape::Other,
            kind @ NOTICES..KINDS => Shape::Notice(kind - NOTICES),
            _ => return Err(wrong("kind of a shape")),
        })
    }
}
