//! The worked examples E1 to E9 of LB K: whole machines, from zone sizes to every derived value.

use zonal_core::pcp::size::{BATCH_CAP_PAGES, HighFraction, HighInputs, batch, high_bounds};
use zonal_core::types::{PageRules, ZoneKind};
use zonal_core::vmstat::threshold::{drift_mark, normal, pressure};
use zonal_core::zone::watermark::{
    LOWMEM_RATIO_DEFAULT, MIN_FREE_KBYTES_CEILING, MovableMin, SCALE_FACTOR_DEFAULT,
    WatermarkInputs, Watermarks, lowmem_pages, lowmem_reserves, min_free_kbytes,
    min_free_kbytes_for_thp,
};

/// One machine and what a kernel derives from it.
struct Example {
    name: &'static str,
    /// CPUs of each node.
    node_cpus: &'static [u32],
    min_free_kbytes: u32,
    thp: bool,
    scale_factor: u32,
    fraction: i32,
    /// Columns: node, zone, managed, min, low, high, promo, batch, high_min, high_max, threshold,
    /// pressure threshold, drift mark (0: none), protection (only zones of the example).
    rows: &'static str,
}

const DEFAULT: Example = Example {
    name: "",
    node_cpus: &[],
    min_free_kbytes: 0,
    thp: false,
    scale_factor: SCALE_FACTOR_DEFAULT,
    fraction: 0,
    rows: "",
};

const EXAMPLES: &[Example] = &[
    // 1 node, 1 CPU, Normal only 131072 (512 MiB)
    Example {
        name: "E1",
        node_cpus: &[1],
        min_free_kbytes: 2896,
        rows: "
            0 Normal 131072 724 905 1086 1267 31 905 16384 8 125 0 [0]
        ",
        ..DEFAULT
    },
    // 1 node, 4 CPU, 8 GiB
    Example {
        name: "E2",
        node_cpus: &[4],
        min_free_kbytes: 11522,
        rows: "
            0 DMA 3840 5 8 11 14 1 4 120 6 1 35 [0,2968,8088,8088]
            0 DMA32 760000 1055 1815 2575 3335 63 453 23750 36 125 0 [0,0,5120,5120]
            0 Normal 1310720 1819 3129 4439 5749 63 782 40960 42 125 0 [0,0,0,0]
            0 Movable 0 32 32 32 32 1 8 4 6 1 56 [0,0,0,0]
        ",
        ..DEFAULT
    },
    // E2 plus the THP minimum
    Example {
        name: "E3",
        node_cpus: &[4],
        min_free_kbytes: 67584,
        thp: true,
        rows: "
            0 DMA 3840 31 38 45 52 1 9 120 6 1 69 [0,2968,8088,8088]
            0 DMA32 760000 6189 7736 9283 10830 63 1934 23750 36 125 0 [0,0,5120,5120]
            0 Normal 1310720 10674 13342 16010 18678 63 3335 40960 42 125 0 [0,0,0,0]
            0 Movable 0 32 32 32 32 1 8 4 6 1 56 [0,0,0,0]
        ",
        ..DEFAULT
    },
    // 2 nodes x 32 CPU, 64 GiB/node
    Example {
        name: "E4",
        node_cpus: &[32, 32],
        min_free_kbytes: 45945,
        rows: "
            0 DMA 3840 1 4 7 10 1 4 15 14 1 903 [0,1875,64375,64375]
            0 DMA32 480000 167 647 1127 1607 63 252 1875 70 7 5607 [0,0,62500,62500]
            0 Normal 16000000 5571 21571 37571 53571 63 674 62500 125 125 0 [0,0,0,0]
            0 Movable 0 32 32 32 32 1 4 4 14 1 928 [0,0,0,0]
            1 Normal 16500000 5745 22245 38745 55245 63 695 64453 125 125 0 [0,0]
            1 Movable 0 32 32 32 32 1 4 4 14 1 928 [0,0]
        ",
        ..DEFAULT
    },
    // 2 nodes, node1 CPU-less (16 CPU total), 8+64 GiB, Movable on node1
    Example {
        name: "E5",
        node_cpus: &[16, 0],
        min_free_kbytes: 25619,
        rows: "
            0 DMA 3840 2 5 8 11 1 4 30 10 1 168 [0,2968,8046,8046]
            0 DMA32 760000 474 1234 1994 2754 63 252 5937 60 47 2954 [0,0,5078,5078]
            0 Normal 1300000 811 2111 3411 4711 63 252 10156 70 81 0 [0,0,0,0]
            0 Movable 0 32 32 32 32 1 4 4 10 1 192 [0,0,0,0]
            1 Normal 8192000 5115 13307 21499 29691 63 831 64000 90 125 0 [0,256000]
            1 Movable 8192000 128 8320 16512 24704 63 520 64000 90 125 0 [0,0]
        ",
        ..DEFAULT
    },
    // 2 nodes x 44 CPU, ~126 GiB (seed 000's server)
    Example {
        name: "E6",
        node_cpus: &[44, 44],
        min_free_kbytes: 45854,
        rows: "
            0 DMA 3976 1 4 7 10 1 4 11 14 1 1239 [0,1757,63867]
            0 DMA32 450000 157 607 1057 1507 63 252 1278 70 5 7217 [0,0,62109]
            0 Normal 15900000 5547 21447 37347 53247 63 487 45170 125 125 0 [0,0,0]
            1 Normal 16500000 5756 22256 38756 55256 63 505 46875 125 125 0 [0]
        ",
        ..DEFAULT
    },
    // seed 001 kbuild box 2x112 CPU, 128 GiB/node
    Example {
        name: "E7",
        node_cpus: &[112, 112],
        min_free_kbytes: 64984,
        rows: "
            0 DMA 3840 0 3 6 9 1 4 4 16 1 3590 [0,1875,128828]
            0 DMA32 480000 118 598 1078 1558 63 252 535 80 2 18998 [0,0,126953]
            0 Normal 32500000 8001 40501 73001 105501 63 361 36272 125 125 0 [0,0,0]
            1 Normal 33000000 8124 41124 74124 107124 63 367 36830 125 125 0 [0]
        ",
        ..DEFAULT
    },
    // 1 node, 8 CPU, watermark_scale_factor=200
    Example {
        name: "E8",
        node_cpus: &[8],
        min_free_kbytes: 16119,
        scale_factor: 200,
        rows: "
            0 DMA32 760000 754 15954 31154 46354 63 1994 11875 48 125 0 [0,12890]
            0 Normal 3300000 3274 69274 135274 201274 63 8659 51562 64 125 0 [0,0]
        ",
        ..DEFAULT
    },
    // 1 node, 8 CPU, percpu_pagelist_high_fraction=8
    Example {
        name: "E9",
        node_cpus: &[8],
        min_free_kbytes: 16119,
        fraction: 8,
        rows: "
            0 DMA32 760000 754 1514 2274 3034 63 11875 11875 48 95 0 [0,12890]
            0 Normal 3300000 3274 6574 9874 13174 63 51562 51562 64 125 0 [0,0]
        ",
        ..DEFAULT
    },
];

/// A row of an example, taken apart.
struct Row {
    node: usize,
    kind: ZoneKind,
    managed: u64,
    /// The columns after `managed`, without protection.
    want: [u64; 10],
    protection: Vec<u64>,
}

fn rows(example: &Example) -> Vec<Row> {
    let row = |line: &str| {
        let mut columns = line.split_whitespace();
        let mut next = || columns.next().expect("a column");
        let node = next().parse().unwrap();
        let kind = ZoneKind::from_name(next()).expect("a zone name");
        let managed = next().parse().unwrap();
        let want = std::array::from_fn(|_| next().parse().unwrap());
        let list = next().trim_matches(['[', ']']);
        let protection = list.split(',').map(|pages| pages.parse().unwrap()).collect();
        Row { node, kind, managed, want, protection }
    };
    example.rows.trim().lines().map(row).collect()
}

/// The derived values of one zone, in the order of the columns.
fn derive(example: &Example, rows: &[Row], row: &Row) -> [u64; 10] {
    let low_zones = || rows.iter().filter(|r| r.kind <= ZoneKind::Normal);
    let watermarks = Watermarks::compute(&WatermarkInputs {
        kind: row.kind,
        managed: row.managed,
        lowmem_managed: low_zones().map(|r| r.managed).sum(),
        movable: MovableMin::Capped,
        min_free_kbytes: example.min_free_kbytes,
        scale_factor: example.scale_factor,
        page: PageRules::OWN,
    });
    let cpus = example.node_cpus.iter().sum();
    let chunk = batch(row.managed, BATCH_CAP_PAGES);
    let inputs = HighInputs {
        managed: row.managed,
        low_watermark: watermarks.low,
        node_cpus: example.node_cpus[row.node],
        machine_cpus: cpus,
        batch: chunk,
    };
    let bounds = high_bounds(&inputs, HighFraction::new(example.fraction).unwrap());
    let threshold = normal(row.managed, cpus);
    let drift = drift_mark(watermarks.min, watermarks.low, watermarks.high, threshold, cpus);
    [
        watermarks.min,
        watermarks.low,
        watermarks.high,
        watermarks.promo,
        chunk.into(),
        bounds.min.into(),
        bounds.max.into(),
        threshold.into(),
        pressure(watermarks.low, watermarks.min, cpus).into(),
        drift.unwrap_or(0),
    ]
}

#[test]
fn every_value_of_the_worked_examples_follows_from_the_zone_sizes() {
    assert_eq!(EXAMPLES.len(), 9);
    for example in EXAMPLES {
        let rows = rows(example);
        for row in &rows {
            let got = derive(example, &rows, row);
            assert_eq!(got, row.want, "{} node {} {}", example.name, row.node, row.kind);
        }
    }
}

#[test]
fn min_free_kbytes_of_the_worked_examples_follows_from_low_memory() {
    for example in EXAMPLES {
        let rows = rows(example);
        let low = || rows.iter().filter(|row| row.kind <= ZoneKind::Normal);
        // The first computation at boot: all high watermarks are still 0.
        let pages = lowmem_pages(low().map(|row| (row.managed, 0)));
        let mut kbytes =
            min_free_kbytes(pages, None, MIN_FREE_KBYTES_CEILING, PageRules::OWN).kbytes();
        if example.thp {
            let zones = low().filter(|row| row.managed != 0).count();
            kbytes = min_free_kbytes_for_thp(kbytes, zones as u32, pages, PageRules::OWN);
        }
        assert_eq!(kbytes, example.min_free_kbytes, "{}", example.name);
    }
}

#[test]
fn protection_of_the_worked_examples_follows_from_the_zones_above() {
    for example in EXAMPLES {
        let rows = rows(example);
        for row in &rows {
            let of_node = || rows.iter().filter(|other| other.node == row.node);
            let mut managed = [0; 5];
            for other in of_node() {
                managed[other.kind.index()] = other.managed;
            }
            let reserves = lowmem_reserves(&managed, &LOWMEM_RATIO_DEFAULT)[row.kind.index()];
            let got: Vec<u64> = of_node().map(|other| reserves[other.kind.index()]).collect();
            assert_eq!(got, row.protection, "{} node {} {}", example.name, row.node, row.kind);
        }
    }
}
