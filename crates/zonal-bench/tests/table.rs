//! The text forms are snapshots: a change shows in review.

use zonal_bench::{Bench, Machine, Report, Row, SCHEMA_VERSION, Skip, table};

fn row(subject: &str, bench: Bench, threads: u32, ns: f64) -> Row {
    Row {
        bench,
        subject: subject.into(),
        threads,
        order: 0,
        touched: false,
        ns_per_op: ns,
        p10_ns: ns * 0.9,
        p90_ns: ns * 1.1,
        p50_ns: 12.0,
        p99_ns: 34.5,
        p999_ns: 1234.0,
        free_p999_ns: 99.0,
        ratio_to_limit: (subject != "mmap").then_some(ns / 2.0),
        pages_for_each: None,
        rounds: 9,
        rounds_discarded: if threads == 2 { 4 } else { 0 },
        busy: threads == 2,
        low_ns: Some(ns * 0.97),
        high_ns: Some(ns * 1.02),
        cpu_ns_per_op: (threads == 1).then_some(ns),
        max_ns: 5678.0,
        free_p50_ns: 11.0,
        free_p99_ns: 22.0,
        free_max_ns: 33_333.0,
        latency_busy: threads == 2,
        list_pages: (subject != "mmap").then_some(64),
        depot_pages: (threads == 1).then_some(126),
        visits_ns: if threads == 1 { vec![ns, ns * 1.5] } else { Vec::new() },
    }
}

fn report() -> Report {
    Report {
        schema_version: SCHEMA_VERSION,
        machine: Machine {
            cpu: "Example CPU, 2 cores".into(),
            cpus: 2,
            memory_mib: 1024,
            kernel: "6.18.0".into(),
            huge_pages: "madvise".into(),
            commit: "0123456789ab".into(),
        },
        quick: true,
        measured_s: 1.25,
        result_hash: "00000000deadbeef".into(),
        rows: vec![
            row("rseq-bare", Bench::Pair, 1, 2.0),
            row("mmap", Bench::Pair, 1, 1234.5),
            row("rseq-bare", Bench::Stream, 2, 3.456),
        ],
        skipped: vec![
            Skip::subject("dpdk", "libdpdk was not found by pkg-config"),
            Skip {
                subject: "mmap".into(),
                cell: Some("bulk4096 order 0, 1 threads, untouched".into()),
                reason: "it has no bulk calls".into(),
                fault: false,
            },
        ],
        comparison: None,
    }
}

#[test]
fn the_tables_look_as_committed() {
    let report = report();
    let text = [
        table::whole(&report),
        table::latencies(&report, table::Style::Terminal),
        table::summary(&report, table::Style::Markdown),
    ]
    .map(|text| text + "\n")
    .concat();
    assert_eq!(text, include_str!("table.txt"), "\n{text}");
}

#[test]
fn the_csv_looks_as_committed() {
    assert_eq!(report().to_csv(), include_str!("table.csv"), "\n{}", report().to_csv());
}
