//! Binary traces of every form, whole and damaged: cut, flipped, reordered, of a foreign machine.

mod forms;

use std::path::Path;

use forms::{Order, dat_v6, dat_v7, events, perf, perf_of, ring, ring_parts};
use proptest::prelude::*;
use zonal_trace::{
    Event, MachineDescription, MachineFiles, Part, Position, Recording, TraceError, TraceErrorKind,
    TraceWriter, WriterOptions,
};

const ORDERS: [Order; 2] = [Order::Little, Order::Big];

fn read_parts(parts: Vec<Part>) -> Result<Vec<Event>, TraceError> {
    Recording::from_parts("bad", parts)?.events().collect()
}

fn read(name: &str, bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
    read_parts(vec![Part::new(name, bytes.to_vec())])
}

/// The parts of a ring directory with these pages for CPU 0.
fn ring_with(pages: &[u8]) -> Vec<Part> {
    let mut parts = ring_parts(Order::Little);
    parts.truncate(parts.len() - 2);
    parts.push(Part::new("cpu0.raw", pages.to_vec()));
    parts
}

fn zonal() -> Vec<u8> {
    let (machine, files) = (MachineDescription::default(), MachineFiles::default());
    let options = WriterOptions { level: 3, block_events: 16 };
    let mut writer = TraceWriter::new(Vec::new(), &machine, &files, options).unwrap();
    events().iter().for_each(|event| writer.push(event).unwrap());
    writer.finish().unwrap()
}

/// Whole files of one form each, with the name they need.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("trace.dat", dat_v6(Order::Little)),
        ("trace.dat", dat_v7(Order::Little)),
        ("perf.data", perf(Order::Little)),
        ("trace.zonal", zonal()),
    ]
}

#[test]
fn all_forms_of_both_byte_orders_hold_the_same_events() {
    for order in ORDERS {
        assert_eq!(read_parts(ring_parts(order)).unwrap(), events(), "ring, {order:?}");
        assert_eq!(read("trace.dat", &dat_v6(order)).unwrap(), events(), "v6, {order:?}");
        assert_eq!(read("trace.dat", &dat_v7(order)).unwrap(), events(), "v7, {order:?}");
        assert_eq!(read("perf.data", &perf(order)).unwrap(), events(), "perf, {order:?}");
    }
    assert_eq!(read("trace.zonal", &zonal()).unwrap(), events());
}

#[test]
fn files_cut_anywhere_are_refused_with_their_offset() {
    for (name, bytes) in files() {
        for length in (0..bytes.len()).step_by(7) {
            match read(name, &bytes[..length]) {
                // What lies behind the last byte that is needed may be missing: sections that only
                // people read, and padding.
                Ok(found) => assert_eq!(found, events(), "{name} at {length}"),
                Err(error) => {
                    let has_place = !matches!(error.position(), Position::File);
                    assert!(has_place || length < 20, "{name} at {length}: {error}");
                }
            }
        }
    }
    let pages = ring(0, Order::Little, 7);
    for length in (1..pages.len()).step_by(11) {
        let result = read_parts(ring_with(&pages[..length]));
        match length % 4096 {
            0 => assert!(result.is_ok(), "{length}"),
            _ => assert!(matches!(
                result.unwrap_err().kind(),
                TraceErrorKind::CutShort { .. } | TraceErrorKind::BadField { .. }
            )),
        }
    }
}

#[test]
fn pages_in_another_order_are_noticed() {
    let pages = ring(0, Order::Little, 7);
    assert_eq!(pages.len(), 3 * 4096);
    let swapped = [&pages[4096..8192], &pages[..4096], &pages[8192..]].concat();
    let error = read_parts(ring_with(&swapped)).unwrap_err();
    assert!(matches!(error.kind(), TraceErrorKind::MisOrdered { same_cpu: true, .. }), "{error}");
    assert!(matches!(error.position(), Position::Byte(byte) if byte > 4096), "{error}");
}

#[test]
fn an_overflowed_ring_says_so_in_the_stream() {
    let mut pages = ring(0, Order::Little, 7);
    // Events were lost before the second page.
    pages[4096 + 11] |= 0x80;
    let found = read_parts(ring_with(&pages)).unwrap();
    let lost: Vec<&Event> = found
        .iter()
        .filter(|event| matches!(event.kind, zonal_trace::EventKind::Lost { events: 1 }))
        .collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(found.len(), 1 + events().iter().filter(|event| event.cpu == 0).count());
}

#[test]
fn foreign_machines_and_versions_are_told_apart() {
    let mut bytes = dat_v6(Order::Little);
    for (at, value, part) in [
        (10, b'9', "bad version of a trace.dat: expected 6 or 7, found `9`"),
        (12, 7, "another architecture: expected byte order 0 (little) or 1 (big), found 7"),
        (13, 2, "another architecture: expected a long of 4 or 8 bytes, found 2"),
        (17, 99, "another architecture: expected pages of 64 bytes to 4 MiB"),
    ] {
        let before = std::mem::replace(&mut bytes[at], value);
        let message = read("trace.dat", &bytes).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        bytes[at] = before;
    }
    // Little-endian pages under a head that says big-endian.
    bytes[12] = 1;
    assert!(read("trace.dat", &bytes).is_err());
    let mut newer = zonal();
    newer[8] = 5;
    let message = read("trace.zonal", &newer).unwrap_err().to_string();
    assert!(message.contains("byte 8: bad version of a .zonal file: expected 1 to 4"), "{message}");
    let mut pipe = perf(Order::Little);
    pipe[8] = 16;
    let message = read("perf.data", &pipe).unwrap_err().to_string();
    assert!(message.contains("expected a file with sections"), "{message}");
}

/// `perf record` without `-a`: what others did is nowhere in the file.
#[test]
fn samples_of_one_program_are_no_trace() {
    const ID_INDEX: u32 = 69;
    const THREAD_MAP: u32 = 73;
    let name = [0; 16];
    for order in [Order::Little, Order::Big] {
        let message = |kind, words: &[i64], rest: &[u8]| {
            let mut body: Vec<u8> = words.iter().flat_map(|own| order.u64(*own as u64)).collect();
            body.extend(rest);
            read("perf.data", &perf_of(order, &[(kind, body)])).map_err(|error| error.to_string())
        };
        // Count; id, place, CPU and thread of each.
        assert!(message(ID_INDEX, &[1, 5, 0, 0, -1], &[]).is_ok());
        assert!(message(ID_INDEX, &[1, 5, 0, 0, -1, 0, 0], &[]).is_ok(), "and its guest");
        assert!(message(ID_INDEX, &[1, 9, 0, 0, 70], &[]).is_ok(), "the id of no tracepoint");
        assert!(message(THREAD_MAP, &[1, -1], &name).is_ok());
        for one in [message(ID_INDEX, &[1, 5, 0, 0, 70], &[]), message(THREAD_MAP, &[1, 70], &name)]
        {
            let one = one.unwrap_err();
            assert!(one.contains("`perf record -a`") && one.contains("thread 70"), "{one}");
        }
        for cut in [message(ID_INDEX, &[i64::MAX, 5], &[]), message(THREAD_MAP, &[-1, -1], &name)] {
            assert!(cut.is_err());
        }
        let mut command = perf(order);
        let on_exec = if order == Order::Little { 1_u64 << 12 } else { 1 << 51 };
        command[104 + 40..104 + 48].copy_from_slice(&order.u64(on_exec));
        let message = read("perf.data", &command).unwrap_err().to_string();
        assert!(message.contains("those of one command"), "{message}");
    }
}

/// A real file of perf 6.1.
#[test]
fn a_command_that_perf_ran_alone_is_refused() {
    let file = zstd::decode_all(&include_bytes!("data/perf/command.data.zst")[..]).unwrap();
    let message = read("perf.data", &file).unwrap_err().to_string();
    assert!(message.contains("`perf record -a`"), "{message}");
}

/// A real file of perf 6.1; and the text of another that has perf's header.
#[test]
fn what_a_filter_of_perf_left_is_refused() {
    let file = zstd::decode_all(&include_bytes!("data/perf/filter.data.zst")[..]).unwrap();
    let message = read("perf.data", &file).unwrap_err().to_string();
    assert!(message.contains("those that pass a filter"), "{message}");
    let text = |options: &str| {
        format!(
            "# ========\n# nrcpus avail : 2\n# cmdline : /usr/bin/perf record {options} \n#\n   \
             sh   535 [001] 15441.066013:   kmem:mm_page_free: page=0x29c4 pfn=0x29c4 order=0\n"
        )
    };
    let of = |options: &str| read("trace.txt", text(options).as_bytes());
    assert!(of("-a -R -e kmem:* -- make -j8").is_ok());
    for (options, found) in [
        ("-R -e kmem:* -- make -j8", "those of one command"),
        ("-a -R -e kmem:* --filter order > 0 -- make", "those that pass a filter"),
        ("-a -R -e kmem:* -G web", "those of groups of processes"),
    ] {
        let message = of(options).unwrap_err().to_string();
        assert!(message.contains(found) && message.contains("line 3"), "{message}");
    }
}

/// `perf record -c 3` and `-F 1`: what is left out is nowhere in the file.
#[test]
fn samples_of_some_events_are_no_trace() {
    for order in [Order::Little, Order::Big] {
        let whole = perf(order);
        let (period_at, flags_at) = (104 + 16, 104 + 40);
        for (at, value) in
            [(period_at, 3), (flags_at, if order == Order::Little { 1_u64 << 10 } else { 1 << 53 })]
        {
            let mut some = whole.clone();
            some[at..at + 8].copy_from_slice(&order.u64(value));
            let message = read("perf.data", &some).unwrap_err().to_string();
            assert!(message.contains("perf record -c 1"), "{message}");
        }
        assert!(read("perf.data", &whole).is_ok());
    }
}

#[test]
fn each_clock_of_nanoseconds_is_read() {
    let bytes = dat_v6(Order::Little);
    let at = bytes.windows(6).position(|part| part == b"[mono]").unwrap();
    for (clock, is_read) in [(b"[perf]", true), (b"[boot]", true), (b"[tick]", false)] {
        let mut other = bytes.clone();
        other[at..at + 6].copy_from_slice(clock);
        assert_eq!(read("trace.dat", &other).is_ok(), is_read, "{clock:?}");
    }
}

#[test]
fn formats_that_are_missing_are_asked_for() {
    let error = read_parts(vec![Part::new("cpu0.raw", ring(0, Order::Little, 7))]).unwrap_err();
    assert!(error.to_string().contains("expected format files of kmem events"), "{error}");
}

/// The seeds of the fuzzers are these files. `UPDATE=1` writes them.
#[test]
fn the_corpus_is_what_these_tests_make() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let data = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        std::fs::read(path).unwrap()
    };
    let mut seeds = vec![
        ("text/trace", data("ftrace/trace.txt")),
        ("text/meta", data("compact/meta.json")),
        ("zonal/whole", zonal()),
    ];
    for (order, end) in [(Order::Little, "little"), (Order::Big, "big")] {
        let name = |target: &str| -> &'static str { format!("{target}-{end}").leak() };
        seeds.push((name("ring/pages"), ring(0, order, 7)));
        seeds.push((name("dat/v6"), dat_v6(order)));
        seeds.push((name("dat/v7"), dat_v7(order)));
        seeds.push((name("perf/data"), perf(order)));
    }
    let compressed_differently = |name: &str| name.contains("v7") || name.contains("zonal");
    for (name, bytes) in seeds {
        let path = fuzz.join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        let seed = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(seed == bytes || compressed_differently(name), "{name}: run with UPDATE=1");
    }
}

proptest! {
    #[test]
    fn damaged_files_are_survived(
        form in 0..4_usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let (name, mut bytes) = files().swap_remove(form);
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        drop(read(name, &bytes));
        bytes.truncate(cut.index(bytes.len()));
        drop(read(name, &bytes));
    }

    #[test]
    fn numbers_of_heads_may_be_anything(
        form in 0..4_usize,
        at in 0..600_usize,
        value in prop_oneof![Just(u64::MAX), Just(1 << 31), Just(1 << 62), any::<u64>()],
        width in 1..=8_usize,
    ) {
        let (name, mut bytes) = files().swap_remove(form);
        let at = at.min(bytes.len() - width);
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        drop(read(name, &bytes));
    }

    #[test]
    fn damaged_pages_are_survived(
        edits in proptest::collection::vec((0..600_usize, any::<u8>()), 1..8),
        pages in proptest::sample::subsequence(vec![0_usize, 1, 2], 1..=3).prop_shuffle(),
    ) {
        let mut bytes = ring(0, Order::Little, 7);
        for (index, byte) in edits {
            let at = index / 200 * 4096 + index % 200;
            bytes[at] = byte;
        }
        let shuffled: Vec<u8> =
            pages.iter().flat_map(|page| bytes[page * 4096..][..4096].to_vec()).collect();
        drop(read_parts(ring_with(&shuffled)));
    }
}
