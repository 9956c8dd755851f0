//! What holds for every document, and for every damaged text.

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use zonal_text::{
    Error, Layout, Stat, buddyinfo, cmdline, cpulist, distance, iomem, meminfo, pagetypeinfo,
    sysctl, vmstat, zoneinfo,
};

const ZONES: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z_0-9]{0,30}"
}

fn zone_name() -> impl Strategy<Value = String> {
    prop::sample::select(&ZONES[..]).prop_map(str::to_owned)
}

fn stats(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Stat>> {
    vec((name(), any::<u64>()).prop_map(|(name, value)| Stat::new(name, value)), sizes)
}

fn named(names: &'static [&'static str]) -> impl Strategy<Value = Vec<Stat>> {
    vec(any::<u64>(), names.len()).prop_map(|values| {
        names.iter().zip(values).map(|(name, value)| Stat::new(*name, value)).collect()
    })
}

/// The rows of a layout: pages of a zone, fields of a pageset, lines at the end of a zone.
type Rows = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

fn rows(layout: Layout) -> Rows {
    match layout {
        Layout::Linux6_1 => (
            &["free", "boost", "min", "cma"],
            &["count", "high", "batch"],
            &["node_unreclaimable", "start_pfn"],
        ),
        Layout::Linux6_12 => (
            &["free", "min", "promo", "spanned"],
            &["count", "high", "batch"],
            &["node_unreclaimable", "start_pfn"],
        ),
        Layout::Linux6_14 => (
            &["free", "promo", "managed"],
            &["count", "high", "batch", "high_min", "high_max"],
            &["node_unreclaimable", "start_pfn"],
        ),
        Layout::Linux7 => (
            &["free", "promo"],
            &["count", "high", "batch", "high_min", "high_max"],
            &["start_pfn", "reserved_highatomic", "free_highatomic"],
        ),
    }
}

fn pageset(layout: Layout) -> impl Strategy<Value = zoneinfo::PagesetInfo> {
    (0..8192_u32, named(rows(layout).1), any::<Option<u64>>()).prop_map(
        |(cpu, fields, stat_threshold)| zoneinfo::PagesetInfo { cpu, fields, stat_threshold },
    )
}

fn zone(layout: Layout) -> impl Strategy<Value = zoneinfo::ZoneInfo> {
    let (pages, _, tail) = rows(layout);
    let parts = (
        (0..1024_u32, zone_name(), prop::option::of(stats(0..4))),
        (named(pages), vec(any::<i64>(), 1..6), stats(0..4)),
        (vec(pageset(layout), 1..4), named(tail)),
    );
    parts.prop_map(|((node, name, node_stats), (pages, protection, items), (pagesets, tail))| {
        let pagesets = Some(pagesets);
        zoneinfo::ZoneInfo { node, name, node_stats, pages, protection, items, pagesets, tail }
    })
}

fn zoneinfo_document() -> impl Strategy<Value = zoneinfo::Document> {
    prop::sample::select(&Layout::ALL[..]).prop_flat_map(|layout| {
        (vec(zone(layout), 1..4), any::<bool>()).prop_map(move |(mut zones, empty)| {
            // A zone without pages ends after `protection`.
            if empty {
                let last = zones.last().cloned().unwrap();
                let (items, tail, pagesets) = (Vec::new(), Vec::new(), None);
                zones.push(zoneinfo::ZoneInfo { items, tail, pagesets, ..last });
            }
            zoneinfo::Document { zones, layout }
        })
    })
}

fn buddyinfo_document() -> impl Strategy<Value = buddyinfo::Document> {
    let row = (0..1024_u32, zone_name(), vec(any::<u64>(), 1..12))
        .prop_map(|(node, zone, free_blocks)| buddyinfo::BuddyInfo { node, zone, free_blocks });
    vec(row, 1..6).prop_map(|zones| buddyinfo::Document { zones })
}

fn free_row() -> impl Strategy<Value = pagetypeinfo::FreeRow> {
    let count = (any::<u64>(), any::<bool>())
        .prop_map(|(blocks, capped)| pagetypeinfo::Count { blocks, capped });
    let parts = (0..1024_u32, zone_name(), "[A-Z][a-z]{0,14}", vec(count, 1..12));
    parts.prop_map(|(node, zone, migratetype, counts)| pagetypeinfo::FreeRow {
        node,
        zone,
        migratetype,
        counts,
    })
}

fn block_rows(columns: usize) -> impl Strategy<Value = Vec<pagetypeinfo::BlocksRow>> {
    let row = (0..1024_u32, zone_name(), vec(any::<u64>(), columns))
        .prop_map(|(node, zone, counts)| pagetypeinfo::BlocksRow { node, zone, counts });
    vec(row, 1..4)
}

fn pagetypeinfo_document() -> impl Strategy<Value = pagetypeinfo::Document> {
    let node = vec("[A-Z][A-Za-z]{0,14}", 1..7).prop_flat_map(|migratetypes| {
        let columns = migratetypes.len();
        let mixed = prop::option::of(block_rows(columns));
        (any::<[u64; 2]>(), vec(free_row(), 0..6), block_rows(columns), mixed).prop_map(
            move |([pageblock_order, pages_per_block], free, blocks, mixed_blocks)| {
                pagetypeinfo::PageTypeInfo {
                    pageblock_order,
                    pages_per_block,
                    free,
                    migratetypes: migratetypes.clone(),
                    blocks,
                    mixed_blocks,
                }
            },
        )
    });
    vec(node, 1..3).prop_map(|nodes| pagetypeinfo::Document { nodes })
}

fn meminfo_document() -> impl Strategy<Value = meminfo::Document> {
    let fixed = prop::sample::select(&["FileHugePages", "FilePmdMapped", "HugePages_Total"][..]);
    let name = prop_oneof!["[A-Z][A-Za-z_()]{0,20}", fixed.prop_map(str::to_owned)];
    let amount = (name, any::<u64>(), any::<bool>())
        .prop_map(|(name, value, in_kib)| meminfo::Amount { name, value, in_kib });
    let narrow = meminfo::Amount { name: "FileHugePages".to_owned(), value: 0, in_kib: true };
    (prop::option::of(0..1024_u32), vec(amount, 1..40), any::<bool>()).prop_map(
        move |(node, mut amounts, is_narrow)| {
            amounts.retain(|amount| amount.in_kib || !amount.name.starts_with("File"));
            amounts.push(narrow.clone());
            let layout = match node {
                Some(_) if is_narrow => Layout::Linux6_1,
                _ => Layout::Linux6_12,
            };
            meminfo::Document { node, layout, amounts }
        },
    )
}

fn iomem_document() -> impl Strategy<Value = iomem::Document> {
    let region = (any::<[u64; 2]>(), any::<bool>(), "[A-Za-z][A-Za-z :0-9]{0,20}");
    vec(region, 1..12).prop_map(|regions| {
        let mut depth = 0;
        let region = |([a, b], inner, name): ([u64; 2], bool, String)| {
            let region = iomem::Region { depth, start: a.min(b), end: a.max(b), name };
            depth = if inner { depth + 1 } else { 0 };
            region
        };
        iomem::Document { regions: regions.into_iter().map(region).collect() }
    })
}

fn sysctl_document() -> impl Strategy<Value = sysctl::Document> {
    let setting = (name(), "([0-9a-z\\[\\]=]([ \t0-9a-z\\[\\]=]{0,20}[0-9a-z])?)?", any::<bool>())
        .prop_map(|(key, value, spaced)| sysctl::Setting { key, value, spaced });
    vec(setting, 0..8).prop_map(|settings| sysctl::Document { settings })
}

fn reads_back<D: Display + FromStr<Err = Error> + PartialEq + Debug>(document: &D) {
    let text = document.to_string();
    match text.parse::<D>() {
        Ok(read) => assert_eq!(read, *document, "printed as:\n{text}"),
        Err(error) => panic!("{error}, printed as:\n{text}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn zoneinfo_reads_back(document in zoneinfo_document()) {
        reads_back(&document);
    }

    #[test]
    fn buddyinfo_reads_back(document in buddyinfo_document()) {
        reads_back(&document);
    }

    #[test]
    fn pagetypeinfo_reads_back(document in pagetypeinfo_document()) {
        reads_back(&document);
    }

    #[test]
    fn vmstat_reads_back(stats in stats(1..20)) {
        reads_back(&vmstat::Document { stats });
    }

    #[test]
    fn meminfo_reads_back(document in meminfo_document()) {
        reads_back(&document);
    }

    #[test]
    fn cpulist_reads_back(ids in prop::collection::btree_set(0..8192_u32, 0..40)) {
        reads_back(&cpulist::Document { ids: ids.into_iter().collect() });
    }

    #[test]
    fn distance_reads_back(distances in vec(1..256_u32, 1..40)) {
        reads_back(&distance::Document { distances });
    }

    #[test]
    fn sysctl_reads_back(document in sysctl_document()) {
        reads_back(&document);
    }

    #[test]
    fn iomem_reads_back(document in iomem_document()) {
        reads_back(&document);
    }

    #[test]
    fn cmdline_reads_back(words in vec("[a-z=.0-9]{0,9}(=\"[a-z ]{0,9}\")?", 1..9)) {
        reads_back(&cmdline::Document { words });
    }
}

/// A text after a few edits of bytes and lines.
fn damaged(text: &str, edits: &[(Index, u8)], cut: Option<Index>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (index, byte) in edits {
        if bytes.is_empty() {
            break;
        }
        let at = index.index(bytes.len());
        match byte % 5 {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, b' '),
            2 => bytes.insert(at, b'\n'),
            3 => bytes[at] = *byte,
            _ => bytes[at] = b"0:9 ,\n(x>-\""[usize::from(*byte) % 11],
        }
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What is read of `text` prints as a text that reads the same; what is refused has a place.
fn is_read_or_refused<D: Display + FromStr<Err = Error> + PartialEq + Debug>(text: &str) {
    match text.parse::<D>() {
        Ok(document) => reads_back(&document),
        Err(error) => {
            let lines = text.split_inclusive('\n').count() as u64;
            assert!((1..=lines + 1).contains(&error.line()), "{error}");
            assert!(error.to_string().contains(": expected "), "{error}");
        }
    }
}

const SAMPLES: [&str; 4] = ["6.1-n1-1g-c1", "6.12-n2-2g-c4", "6.18-n1-1g-c1", "7.2-n3-memless1"];

fn data(sample: usize) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(SAMPLES[sample])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_texts_are_read_or_refused_with_a_line(
        sample in 0..SAMPLES.len(),
        edits in vec((any::<Index>(), any::<u8>()), 1..5),
        cut in prop::option::of(any::<Index>()),
    ) {
        let text = |name: &str| {
            let text = std::fs::read_to_string(data(sample).join(name)).unwrap();
            damaged(&text, &edits, cut)
        };
        is_read_or_refused::<zoneinfo::Document>(&text("zoneinfo.txt"));
        is_read_or_refused::<buddyinfo::Document>(&text("buddyinfo.txt"));
        is_read_or_refused::<pagetypeinfo::Document>(&text("pagetypeinfo.txt"));
        is_read_or_refused::<vmstat::Document>(&text("vmstat.txt"));
        is_read_or_refused::<vmstat::Document>(&text("numastat-node0.txt"));
        is_read_or_refused::<meminfo::Document>(&text("node0-meminfo.txt"));
        is_read_or_refused::<cpulist::Document>(&text("node0-cpulist.txt"));
        is_read_or_refused::<distance::Document>(&text("node0-distance.txt"));
        is_read_or_refused::<sysctl::Document>(&text("sysctl.txt"));
        is_read_or_refused::<iomem::Document>(&text("iomem.txt"));
        is_read_or_refused::<cmdline::Document>(&text("cmdline.txt"));
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_line(
        text in "(Node [0-9],|zone|DMA|Page block order:|[a-z_]{1,9}|[0-9]{1,21}|[ :,()\n-])*",
    ) {
        is_read_or_refused_by_all(&text);
    }
}

/// All formats on one text.
fn is_read_or_refused_by_all(text: &str) {
    is_read_or_refused::<zoneinfo::Document>(text);
    is_read_or_refused::<buddyinfo::Document>(text);
    is_read_or_refused::<pagetypeinfo::Document>(text);
    is_read_or_refused::<vmstat::Document>(text);
    is_read_or_refused::<meminfo::Document>(text);
    is_read_or_refused::<cpulist::Document>(text);
    is_read_or_refused::<distance::Document>(text);
    is_read_or_refused::<sysctl::Document>(text);
    is_read_or_refused::<iomem::Document>(text);
    is_read_or_refused::<cmdline::Document>(text);
}

/// Numbers that no counter has, in the place of each number of a text.
const NUMBERS: [&str; 6] =
    ["-1", "18446744073709551615", "18446744073709551616", "9e9", "0x1F", "\u{ff11}"];

#[test]
fn texts_of_a_megabyte_and_numbers_of_any_size_are_read_or_refused() {
    const LINE: usize = 1 << 20;
    const TEXT: usize = 1 << 16;
    is_read_or_refused_by_all(&"9".repeat(LINE));
    for unit in
        ["\0", "9", "\n", " ", ",", "\"", "0-8191,", "a=1 ", "Node 0, zone DMA 1\n", "x 1\n"]
    {
        is_read_or_refused_by_all(&unit.repeat(TEXT / unit.len()));
    }
    let longest = "9".repeat(999);
    for sample in [0, SAMPLES.len() - 1] {
        for file in std::fs::read_dir(data(sample)).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            is_read_or_refused_by_all(&text.replace('\n', "\r\n"));
            is_read_or_refused_by_all(&text.repeat(TEXT.div_ceil(text.len())));
            let Some(at) = text.find(|c: char| c.is_ascii_digit()) else { continue };
            is_read_or_refused_by_all(&text.replace(&text[at..=at], &longest));
            let is_part = |c: char| !c.is_ascii_digit();
            let numbers = text.split(is_part).filter(|part| !part.is_empty());
            let number = numbers.max_by_key(|number| number.len()).unwrap();
            NUMBERS.iter().for_each(|new| is_read_or_refused_by_all(&text.replace(number, new)));
        }
    }
}

/// Regions that a program nests deeper than any machine does.
#[test]
fn regions_of_any_depth_are_printed() {
    let region = |depth| iomem::Region { depth, start: 1, end: 2, name: "bus".to_owned() };
    let document = iomem::Document { regions: vec![region(0), region(40_000)] };
    assert_eq!(document.to_string().lines().last().unwrap().len(), 2 * 40_000 + 23);
}
