//! Payloads of trace events, as rings and samples hold them, made into [`EventKind`]s.
//!
//! A payload begins with `common_type`, the id of its format. For each event that the crate knows,
//! the format is boiled down to a [`Plan`] once: where each field is. Then reading an event costs a
//! look-up by id and one load per field, and allocates nothing but the text of a marker.

use super::flags::FlagMap;
use super::format::EventFormat;
use super::symbols::Symbols;
use crate::bytes::Endian;
use crate::error::{Fault, TraceErrorKind, bad_field};
use crate::event::EventKind;
use crate::fields;
use crate::notice::{NUMBERS_MAX, Notice, ROWS, zone_number};

/// Bytes before the fields of every event: type, flags, preemption count, thread.
const COMMON_BYTES: usize = 8;

/// Longest text of a marker that is kept, in bytes: what `trace_marker` takes at once.
const MARKER_BYTES_MAX: usize = 4096;

/// Where a number is in a payload.
#[derive(Debug, Clone, Copy)]
struct Field {
    offset: u16,
    size: u8,
}

/// What to read out of one kind of event.
#[derive(Debug, Clone, Copy)]
enum Plan {
    Alloc { pfn: Field, order: Field, migratetype: Field, gfp: Field },
    Free { pfn: Field, order: Field },
    FreeBatched { pfn: Field },
    ZoneLocked { pfn: Field, order: Field, migratetype: Field, percpu_refill: Option<Field> },
    PcpuDrain { pfn: Field, order: Field, migratetype: Field },
    Extfrag { pfn: Field, orders: [Field; 2], migratetypes: [Field; 2], change: Field },
    Fork { child: Field },
    WorkStart { function: Field },
    Notice { tag: u8, fields: [Option<Field>; NUMBERS_MAX] },
    Marker { text: u16 },
}

/// Whether a payload of this event is understood beyond its time and thread.
pub(crate) fn is_known(event: &[u8]) -> bool {
    matches!(
        event,
        b"mm_page_alloc"
            | b"mm_page_free"
            | b"mm_page_free_batched"
            | b"mm_page_alloc_zone_locked"
            | b"mm_page_pcpu_drain"
            | b"mm_page_alloc_extfrag"
            | b"sched_process_fork"
            | b"workqueue_execute_start"
            | b"print"
    ) || Notice::tag_of(event).is_some()
}

/// The formats of one recording.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    endian: Endian,
    /// By id; ids of tracepoints are small numbers.
    plans: Vec<Option<Plan>>,
    symbols: Symbols,
    flags: FlagMap,
}

impl Decoder {
    pub(crate) fn new(endian: Endian, symbols: Symbols) -> Decoder {
        let flags = FlagMap::IDENTITY;
        Decoder { endian, plans: Vec::new(), symbols, flags }
    }

    pub(crate) fn set_symbols(&mut self, symbols: Symbols) {
        self.symbols = symbols;
    }

    /// Whether no event of pages is known, so that the recording holds none.
    pub(crate) fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Learns a format file. One of an event that the crate does not know is passed over.
    pub(crate) fn learn(&mut self, text: &[u8]) -> Result<(), Fault> {
        if !super::format::name_of(text).is_some_and(is_known) {
            return Ok(());
        }
        let format = EventFormat::parse(text)?;
        let plan = plan(&format)?;
        if matches!(plan, Plan::Alloc { .. }) {
            self.flags = FlagMap::parse(&format.print);
        }
        let index = usize::from(format.id);
        if index >= self.plans.len() {
            self.plans.resize(index + 1, None);
        }
        self.plans[index] = Some(plan);
        Ok(())
    }

    /// The thread and the event of a payload.
    pub(crate) fn decode(&self, payload: &[u8]) -> Result<(i32, EventKind), Fault> {
        let Some((common, _)) = payload.split_first_chunk::<COMMON_BYTES>() else {
            return Err(bad_field("event", "8 bytes and more", payload));
        };
        let [a, b, _, _, pid @ ..] = *common;
        let pid = self.endian.u32(pid) as i32;
        let kind = match self.plans.get(usize::from(self.endian.u16([a, b]))) {
            Some(Some(plan)) => self.kind(plan, payload)?,
            _ => EventKind::Other,
        };
        Ok((pid, kind))
    }

    fn kind(&self, plan: &Plan, payload: &[u8]) -> Result<EventKind, Fault> {
        let number = |field: Field| self.number(payload, field);
        let order = |field| number(field).and_then(fields::check_order);
        Ok(match *plan {
            Plan::Alloc { pfn, order: order_at, migratetype, gfp } => {
                let bits = number(gfp)?;
                EventKind::Alloc {
                    pfn: self.pfn_or_none(number(pfn)?, pfn.size)?,
                    order: order(order_at)?,
                    migratetype: migratetype_of(number(migratetype)?)?,
                    gfp: self
                        .flags
                        .portable(bits)
                        .ok_or_else(|| bad_number("gfp flags", "a number of 32 bits", bits))?,
                }
            }
            Plan::Free { pfn, order: order_at } => {
                EventKind::Free { pfn: pfn_of(number(pfn)?)?, order: order(order_at)? }
            }
            Plan::FreeBatched { pfn } => EventKind::FreeBatched { pfn: pfn_of(number(pfn)?)? },
            Plan::ZoneLocked { pfn, order: order_at, migratetype, percpu_refill } => {
                let order = order(order_at)?;
                EventKind::ZoneLocked {
                    pfn: pfn_of(number(pfn)?)?,
                    order,
                    migratetype: migratetype_of(number(migratetype)?)?,
                    percpu_refill: match percpu_refill {
                        Some(field) => number(field)? != 0,
                        None => order == 0,
                    },
                }
            }
            Plan::PcpuDrain { pfn, order: order_at, migratetype } => EventKind::PcpuDrain {
                pfn: pfn_of(number(pfn)?)?,
                order: order(order_at)?,
                migratetype: migratetype_of(number(migratetype)?)?,
            },
            Plan::Extfrag { pfn, orders, migratetypes, change } => EventKind::Extfrag {
                pfn: pfn_of(number(pfn)?)?,
                alloc_order: order(orders[0])?,
                fallback_order: order(orders[1])?,
                alloc_migratetype: migratetype_of(number(migratetypes[0])?)?,
                fallback_migratetype: migratetype_of(number(migratetypes[1])?)?,
                change_ownership: number(change)? != 0,
            },
            Plan::Fork { child } => EventKind::Fork { child: number(child)? as u32 as i32 },
            Plan::WorkStart { function } => {
                match self.symbols.is_vmstat_update(number(function)?) {
                    true => EventKind::VmstatUpdate,
                    false => EventKind::Other,
                }
            }
            Plan::Notice { tag, fields } => EventKind::Notice(self.notice(payload, tag, fields)?),
            Plan::Marker { text } => marker(payload, text),
        })
    }

    fn notice(
        &self,
        payload: &[u8],
        tag: u8,
        fields: [Option<Field>; NUMBERS_MAX],
    ) -> Result<Notice, Fault> {
        let mut numbers = [0; NUMBERS_MAX];
        let names = ROWS[usize::from(tag)].fields;
        for ((number, field), name) in numbers.iter_mut().zip(fields).zip(names) {
            let Some(field) = field else { continue };
            let bits = self.number(payload, field)?;
            *number = match *name {
                "gfp_flags" => {
                    let portable = self.flags.portable(bits).map(u64::from);
                    portable.ok_or_else(|| bad_number("gfp flags", "a number of 32 bits", bits))?
                }
                // Where the text is, and how long: 16 bits each.
                "name" => {
                    let at = (bits & 0xffff) as usize;
                    let text = payload.get(at..).unwrap_or_default();
                    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                    zone_number(text)?
                }
                _ => bits,
            };
        }
        Notice::of(tag, numbers)
    }

    fn number(&self, payload: &[u8], field: Field) -> Result<u64, Fault> {
        let start = usize::from(field.offset);
        let bytes = payload.get(start..start + usize::from(field.size));
        bytes.and_then(|bytes| self.endian.number(bytes)).ok_or_else(|| {
            let found = format!("{} bytes", payload.len());
            bad_field("event", "as many bytes as its format has", found.as_bytes())
        })
    }

    /// A page frame number where all ones and 0 say that the allocation failed (LB-I.6).
    fn pfn_or_none(&self, value: u64, size: u8) -> Result<Option<u64>, Fault> {
        let ones = if size >= 8 { u64::MAX } else { (1 << (8 * u64::from(size))) - 1 };
        match value {
            0 => Ok(None),
            value if value == ones => Ok(None),
            value => pfn_of(value).map(Some),
        }
    }
}

fn pfn_of(value: u64) -> Result<u64, Fault> {
    fields::check_pfn(value, format!("{value:#x}").as_bytes())
}

fn migratetype_of(value: u64) -> Result<u8, Fault> {
    fields::check_migratetype(value)
        .ok_or_else(|| bad_number("migratetype", "a number from 0 to 7", value))
}

#[cold]
fn bad_number(field: &'static str, expected: &'static str, value: u64) -> Fault {
    bad_field(field, expected, format!("{value:#x}").as_bytes())
}

/// The text of a `print` event: up to the first zero byte, without the newline at its end.
fn marker(payload: &[u8], text: u16) -> EventKind {
    let text = payload.get(usize::from(text)..).unwrap_or_default();
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = &text[..text.len().min(MARKER_BYTES_MAX)];
    EventKind::Marker(String::from_utf8_lossy(text).into())
}

fn plan(format: &EventFormat) -> Result<Plan, Fault> {
    let number = |name: &'static str| number_field(format, name);
    Ok(match format.name.as_str() {
        "mm_page_alloc" => Plan::Alloc {
            pfn: number("pfn")?,
            order: number("order")?,
            migratetype: number("migratetype")?,
            gfp: number("gfp_flags")?,
        },
        "mm_page_free" => Plan::Free { pfn: number("pfn")?, order: number("order")? },
        "mm_page_free_batched" => Plan::FreeBatched { pfn: number("pfn")? },
        "mm_page_alloc_zone_locked" => Plan::ZoneLocked {
            pfn: number("pfn")?,
            order: number("order")?,
            migratetype: number("migratetype")?,
            percpu_refill: number("percpu_refill").ok(),
        },
        "mm_page_pcpu_drain" => Plan::PcpuDrain {
            pfn: number("pfn")?,
            order: number("order")?,
            migratetype: number("migratetype")?,
        },
        "mm_page_alloc_extfrag" => Plan::Extfrag {
            pfn: number("pfn")?,
            orders: [number("alloc_order")?, number("fallback_order")?],
            migratetypes: [number("alloc_migratetype")?, number("fallback_migratetype")?],
            change: number("change_ownership")?,
        },
        "sched_process_fork" => Plan::Fork { child: number("child_pid")? },
        "workqueue_execute_start" => Plan::WorkStart { function: number("function")? },
        name if let Some(tag) = Notice::tag_of(name.as_bytes()) => {
            let mut fields = [None; NUMBERS_MAX];
            let row = &ROWS[usize::from(tag)];
            for (field, name) in fields.iter_mut().zip(row.fields) {
                *field = match row.may_lack(name) {
                    true => number(name).ok(),
                    false => Some(number(name)?),
                };
            }
            Plan::Notice { tag, fields }
        }
        _ => Plan::Marker {
            text: format.field("buf").map_or(COMMON_BYTES as u16, |field| field.offset),
        },
    })
}

fn number_field(format: &EventFormat, name: &'static str) -> Result<Field, Fault> {
    let field = format.field(name).ok_or_else(|| {
        let event = crate::error::excerpt(format.name.as_bytes());
        Box::new(TraceErrorKind::NoSuchField { event, field: name })
    })?;
    let size = u8::try_from(field.size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8));
    let size = size.ok_or_else(|| {
        let found = format!("{} of {} bytes", field.name, field.size);
        bad_field("field of an event format", "a number of 1, 2, 4 or 8 bytes", found.as_bytes())
    })?;
    Ok(Field { offset: field.offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(endian: Endian) -> Decoder {
        let mut decoder = Decoder::new(endian, Symbols::Unknown);
        let free = "name: mm_page_free\nID: 513\nformat:\n\tfield:unsigned long pfn;\toffset:8;\t\
            size:8;\tsigned:0;\n\tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n";
        decoder.learn(free.as_bytes()).unwrap();
        decoder.learn(b"name: other_event\nnonsense").unwrap();
        decoder
    }

    fn payload(endian: Endian, id: u16, pfn: u64, order: u32) -> Vec<u8> {
        let mut bytes = match endian {
            Endian::Little => id.to_le_bytes().to_vec(),
            Endian::Big => id.to_be_bytes().to_vec(),
        };
        bytes.extend([0; 2]);
        match endian {
            Endian::Little => {
                bytes.extend(77_u32.to_le_bytes());
                bytes.extend(pfn.to_le_bytes());
                bytes.extend(order.to_le_bytes());
            }
            Endian::Big => {
                bytes.extend(77_u32.to_be_bytes());
                bytes.extend(pfn.to_be_bytes());
                bytes.extend(order.to_be_bytes());
            }
        }
        bytes
    }

    #[test]
    fn both_byte_orders_are_decoded() {
        for endian in [Endian::Little, Endian::Big] {
            let event = decoder(endian).decode(&payload(endian, 513, 0x1234, 3)).unwrap();
            assert_eq!(event, (77, EventKind::Free { pfn: 0x1234, order: 3 }));
        }
    }

    #[test]
    fn damaged_payloads_are_refused() {
        let decoder = decoder(Endian::Little);
        let bytes = payload(Endian::Little, 513, 1, 14);
        let message = decoder.decode(&bytes).unwrap_err().to_string();
        assert!(message.contains("order out of range"), "{message}");
        assert!(decoder.decode(&bytes[..18]).is_err());
        assert!(decoder.decode(&bytes[..7]).is_err());
        let bytes = payload(Endian::Little, 513, 1 << 52, 1);
        assert!(decoder.decode(&bytes).unwrap_err().to_string().contains("below 2^52"));
        assert_eq!(decoder.decode(&payload(Endian::Little, 9, 1, 1)).unwrap().1, EventKind::Other);
    }

    #[test]
    fn a_format_without_its_field_is_refused() {
        let mut decoder = Decoder::new(Endian::Little, Symbols::Unknown);
        let message = decoder.learn(b"name: mm_page_free\nID: 1\n").unwrap_err().to_string();
        assert!(message.contains("format of `mm_page_free` has no field `pfn`"), "{message}");
    }

    #[test]
    fn watermarks_have_their_zone_in_a_text_of_their_own() {
        let mut decoder = Decoder::new(Endian::Little, Symbols::Unknown);
        let format = "name: mm_setup_per_zone_wmarks\nID: 6\nformat:\n\
            \tfield:int node_id; offset:8; size:4;\n\
            \tfield:__data_loc char[] name; offset:12; size:4;\n\
            \tfield:unsigned long watermark_min; offset:16; size:8;\n\
            \tfield:unsigned long watermark_low; offset:24; size:8;\n\
            \tfield:unsigned long watermark_high; offset:32; size:8;\n";
        decoder.learn(format.as_bytes()).unwrap();
        let mut bytes = vec![6, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((40_u32 | 7 << 16).to_le_bytes());
        for pages in [13_u64, 16, 19] {
            bytes.extend(pages.to_le_bytes());
        }
        bytes.extend(b"Normal\0\0");
        let notice = Notice::Watermarks { node: 1, zone: 2, min: 13, low: 16, high: 19 };
        assert_eq!(decoder.decode(&bytes).unwrap().1, EventKind::Notice(notice));
        bytes[40] = b'X';
        assert!(decoder.decode(&bytes).unwrap_err().to_string().contains("bad name"));
        assert!(decoder.decode(&bytes[..24]).is_err());
    }

    #[test]
    fn markers_lose_their_newline() {
        let mut decoder = Decoder::new(Endian::Little, Symbols::Unknown);
        decoder.learn(b"name: print\nID: 5\nfield:char buf[]; offset:16; size:0;\n").unwrap();
        let mut bytes = vec![5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"hello\n\0\0");
        assert_eq!(decoder.decode(&bytes).unwrap().1, EventKind::Marker("hello".into()));
    }
}
