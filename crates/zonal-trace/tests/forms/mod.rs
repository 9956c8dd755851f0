//! Small traces of every binary form, made by hand: the same events in each.
//!
//! The tests damage them, and `fuzz/corpus` holds them as the seeds of the fuzzers.

use zonal_trace::{Event, EventKind, Part};

/// Byte order of the machine that recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }
}

const PAGE: usize = 4096;
const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const ALLOC: u16 = 653;
const FREE: u16 = 655;

/// Format files: system, event and text.
pub fn formats() -> [(&'static str, String); 2] {
    let common = "format:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n";
    let alloc = format!(
        "name: mm_page_alloc\nID: {ALLOC}\n{common}\
         \tfield:unsigned long gfp_flags;\toffset:24;\tsize:8;\tsigned:0;\n\
         \tfield:int migratetype;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"pfn=0x%lx\", 1\n"
    );
    let free = format!("name: mm_page_free\nID: {FREE}\n{common}\nprint fmt: \"pfn\", 1\n");
    [("kmem:mm_page_alloc", alloc), ("kmem:mm_page_free", free)]
}

/// The events of all forms.
pub fn events() -> Vec<Event> {
    let event = |index: u64| {
        let pfn = 0x10_0000 + index / 2;
        let kind = match index % 2 {
            0 => EventKind::Alloc { pfn: Some(pfn), order: 0, migratetype: 1, gfp: 0x14_0dca },
            _ => EventKind::Free { pfn, order: 0 },
        };
        Event { time_ns: 1_000_000 + index * 700, cpu: (index / 3 % 2) as u32, pid: 77, kind }
    };
    (0..40).map(event).collect()
}

fn payload(event: &Event, order: Order) -> Vec<u8> {
    let (id, pfn) = match event.kind {
        EventKind::Alloc { pfn: Some(pfn), .. } => (ALLOC, pfn),
        EventKind::Free { pfn, .. } => (FREE, pfn),
        _ => unreachable!("no other events are made"),
    };
    let mut bytes = order.u16(id).to_vec();
    bytes.extend([0; 2]);
    bytes.extend(order.u32(event.pid as u32));
    bytes.extend(order.u64(pfn));
    bytes.extend(order.u64(0));
    if let EventKind::Alloc { gfp, migratetype, .. } = event.kind {
        bytes.extend(order.u64(u64::from(gfp)));
        bytes.extend(order.u32(u32::from(migratetype)));
    }
    bytes
}

/// The ring pages of a CPU, `per_page` events to a page.
pub fn ring(cpu: u32, order: Order, per_page: usize) -> Vec<u8> {
    let events: Vec<Event> = events().into_iter().filter(|event| event.cpu == cpu).collect();
    let mut pages = Vec::new();
    for chunk in events.chunks(per_page) {
        let mut time = chunk[0].time_ns;
        let mut records = Vec::new();
        for event in chunk {
            let payload = payload(event, order);
            let (words, delta) = (payload.len() as u32 / 4, (event.time_ns - time) as u32);
            records.extend(order.u32(match order {
                Order::Little => delta << 5 | words,
                Order::Big => words << 27 | delta,
            }));
            records.extend(payload);
            time = event.time_ns;
        }
        let mut page = order.u64(chunk[0].time_ns).to_vec();
        page.extend(order.u64(records.len() as u64));
        page.extend(records);
        page.resize(PAGE, 0);
        pages.extend(page);
    }
    pages
}

/// A directory of ring pages.
pub fn ring_parts(order: Order) -> Vec<Part> {
    let mut parts: Vec<Part> = formats()
        .into_iter()
        .map(|(name, text)| Part::new(format!("formats/{name}"), text.into_bytes()))
        .collect();
    parts.push(Part::new("formats/header_page", HEADER_PAGE.as_bytes()));
    parts.extend((0..2).map(|cpu| Part::new(format!("cpu{cpu}.raw"), ring(cpu, order, 7))));
    parts
}

fn header_info(order: Order) -> Vec<u8> {
    let mut bytes = b"header_page\0".to_vec();
    bytes.extend(order.u64(HEADER_PAGE.len() as u64));
    bytes.extend(HEADER_PAGE.bytes());
    bytes.extend(b"header_event\0");
    bytes.extend(order.u64(4));
    bytes.extend(b"abc\n");
    bytes
}

fn event_formats(order: Order) -> Vec<u8> {
    let mut bytes = order.u32(1).to_vec();
    bytes.extend(b"kmem\0");
    bytes.extend(order.u32(2));
    for (_, text) in formats() {
        bytes.extend(order.u64(text.len() as u64));
        bytes.extend(text.bytes());
    }
    bytes
}

fn initial(version: &[u8], order: Order) -> Vec<u8> {
    let mut bytes = b"\x17\x08\x44tracing".to_vec();
    bytes.extend(version);
    bytes.extend([0, u8::from(order == Order::Big), 8]);
    bytes.extend(order.u32(PAGE as u32));
    bytes
}

/// A `trace.dat` of version 6.
pub fn dat_v6(order: Order) -> Vec<u8> {
    let mut bytes = initial(b"6", order);
    bytes.extend(header_info(order));
    bytes.extend(order.u32(0));
    bytes.extend(event_formats(order));
    let symbols = b"ffffffff81000000 t vmstat_update\n";
    bytes.extend(order.u32(symbols.len() as u32));
    bytes.extend(symbols);
    bytes.extend(order.u32(0));
    bytes.extend(order.u64(0));
    bytes.extend(order.u32(2));
    bytes.extend(b"options  \0");
    bytes.extend(order.u16(4));
    bytes.extend(order.u32(13));
    bytes.extend(b"local [mono]\0");
    bytes.extend(order.u16(0));
    bytes.extend(b"flyrecord\0");
    let pages = [ring(0, order, 7), ring(1, order, 7)];
    let mut offset = (bytes.len() + 32).next_multiple_of(PAGE);
    let start = offset;
    for ring in &pages {
        bytes.extend(order.u64(offset as u64));
        bytes.extend(order.u64(ring.len() as u64));
        offset += ring.len();
    }
    bytes.resize(start, 0);
    bytes.extend(pages.concat());
    bytes
}

fn section(id: u16, content: &[u8], order: Order) -> Vec<u8> {
    let packed = zstd::bulk::compress(content, 3).unwrap();
    let mut bytes = order.u16(id).to_vec();
    bytes.extend(order.u16(1));
    bytes.extend(order.u32(0));
    bytes.extend(order.u64(packed.len() as u64 + 8));
    bytes.extend(order.u32(packed.len() as u32));
    bytes.extend(order.u32(content.len() as u32));
    bytes.extend(packed);
    bytes
}

fn option(id: u16, data: &[u8], order: Order) -> Vec<u8> {
    let mut bytes = order.u16(id).to_vec();
    bytes.extend(order.u32(data.len() as u32));
    bytes.extend(data);
    bytes
}

/// A `trace.dat` of version 7, compressed.
pub fn dat_v7(order: Order) -> Vec<u8> {
    let mut bytes = initial(b"7", order);
    bytes.extend(b"zstd\x001.5.4\0");
    let first_options = bytes.len();
    bytes.extend([0; 8]);
    let mut options = Vec::new();
    for (id, content) in [(16, header_info(order)), (18, event_formats(order))] {
        options.extend(option(id, &order.u64(bytes.len() as u64), order));
        bytes.extend(section(id, &content, order));
    }
    let buffer_at = bytes.len() as u64;
    bytes.extend(order.u16(3));
    bytes.extend(order.u16(1));
    bytes.extend([0; 12]);
    let mut buffer = order.u64(buffer_at).to_vec();
    buffer.extend(b"\0mono\0");
    buffer.extend(order.u32(PAGE as u32));
    buffer.extend(order.u32(2));
    for cpu in 0..2 {
        let start = bytes.len() as u64;
        let pages = ring(cpu, order, 7);
        let chunks = pages.chunks(2 * PAGE);
        bytes.extend(order.u32(chunks.len() as u32));
        for chunk in chunks {
            let packed = zstd::bulk::compress(chunk, 3).unwrap();
            bytes.extend(order.u32(packed.len() as u32));
            bytes.extend(order.u32(chunk.len() as u32));
            bytes.extend(packed);
        }
        buffer.extend(order.u32(cpu));
        buffer.extend(order.u64(start));
        buffer.extend(order.u64(bytes.len() as u64 - start - 4));
    }
    options.extend(option(3, &buffer, order));
    options.extend(option(8, &order.u32(2), order));
    options.extend(option(0, &order.u64(0), order));
    let options_at = order.u64(bytes.len() as u64);
    bytes[first_options..first_options + 8].copy_from_slice(&options_at);
    bytes.extend(section(0, &options, order));
    bytes
}

/// A `perf.data`: each CPU's samples together, in rounds.
pub fn perf(order: Order) -> Vec<u8> {
    perf_of(order, &[])
}

/// The same, with records of these types and bodies before the samples.
pub fn perf_of(order: Order, before: &[(u32, Vec<u8>)]) -> Vec<u8> {
    const ATTR: usize = 64 + 16;
    // IDENTIFIER, IP, TID, TIME, CPU, PERIOD, RAW
    let sample_type = 1 << 16 | 1 | 2 | 4 | 1 << 7 | 1 << 8 | 1 << 10;
    let mut data = Vec::new();
    let record = |data: &mut Vec<u8>, kind: u32, body: &[u8]| {
        data.extend(order.u32(kind));
        data.extend(order.u16(0));
        data.extend(order.u16(body.len() as u16 + 8));
        data.extend(body);
    };
    before.iter().for_each(|(kind, body)| record(&mut data, *kind, body));
    for round in events().chunks(10) {
        for cpu in 0..2 {
            for event in round.iter().filter(|event| event.cpu == cpu) {
                let payload = payload(event, order);
                let mut body = order.u64(5).to_vec();
                body.extend(order.u64(0));
                body.extend([order.u32(70), order.u32(event.pid as u32)].concat());
                body.extend(order.u64(event.time_ns));
                body.extend([order.u32(cpu), order.u32(0)].concat());
                body.extend(order.u64(1));
                body.extend(order.u32(payload.len() as u32));
                body.extend(payload);
                body.resize(body.len().next_multiple_of(8), 0);
                record(&mut data, 9, &body);
            }
        }
        record(&mut data, 68, &[]);
    }
    let (attrs, ids) = (104, 104 + ATTR);
    let data_at = ids + 8;
    let features_at = data_at + data.len();
    let mut tracing = initial(b"0.6", order);
    tracing.extend(header_info(order));
    tracing.extend(order.u32(0));
    tracing.extend(event_formats(order));
    tracing.extend(order.u32(0));
    let mut bytes = if order == Order::Little { b"PERFILE2" } else { b"2ELIFREP" }.to_vec();
    let sections = [attrs, ATTR, data_at, data.len(), 0, 0];
    let words = [104, ATTR].into_iter().chain(sections);
    bytes.extend(words.flat_map(|word| order.u64(word as u64)));
    bytes.extend(order.u64(1 << 1));
    bytes.extend([0; 24]);
    bytes.extend([order.u32(2), order.u32(64)].concat());
    bytes.extend([order.u64(0), order.u64(1), order.u64(sample_type), order.u64(0)].concat());
    bytes.resize(attrs + 64, 0);
    bytes.extend([order.u64(ids as u64), order.u64(8)].concat());
    bytes.extend(order.u64(5));
    bytes.extend(data);
    bytes.extend([order.u64(features_at as u64 + 16), order.u64(tracing.len() as u64)].concat());
    bytes.extend(tracing);
    bytes
}
