//! Comparisons with made-up runs, and files that are none.

use zonal_bench::{
    Bench, CompareError, Cpus, Earlier, Machine, Options, Report, Row, SCHEMA_VERSION,
};

fn row(subject: &str, bench: Bench, ns: f64) -> Row {
    let of = |part: f64| (ns * part * 1000.0).round() / 1000.0;
    Row {
        bench,
        subject: subject.into(),
        threads: 1,
        order: 0,
        touched: false,
        ns_per_op: ns,
        p10_ns: of(0.9),
        p90_ns: of(1.1),
        p50_ns: 12.0,
        p99_ns: 34.5,
        p999_ns: 1234.0,
        free_p999_ns: 99.0,
        ratio_to_limit: None,
        pages_for_each: None,
        rounds: 61,
        rounds_discarded: 0,
        busy: false,
        low_ns: Some(of(0.99)),
        high_ns: Some(of(1.01)),
        max_ns: 0.0,
        free_p50_ns: 0.0,
        free_p99_ns: 0.0,
        free_max_ns: 0.0,
        latency_busy: false,
        list_pages: None,
        depot_pages: None,
        cpu_ns_per_op: None,
        visits_ns: Vec::new(),
    }
}

fn report(rows: Vec<Row>) -> Report {
    let machine = Machine {
        cpu: "Example CPU, 2 cores".into(),
        cpus: 2,
        kernel: "6.18.0".into(),
        commit: "0123456789ab".into(),
        ..Machine::default()
    };
    Report {
        schema_version: SCHEMA_VERSION,
        machine,
        quick: false,
        measured_s: 1.0,
        result_hash: String::new(),
        rows,
        skipped: Vec::new(),
        comparison: None,
    }
}

fn earlier() -> Report {
    report(vec![
        row("zonal", Bench::Pair, 10.0),
        row("mmap", Bench::Pair, 1000.0),
        row("zonal", Bench::Batch8, 10.0),
        row("zonal", Bench::Mix, 10.0),
        Row { busy: true, ..row("mmap", Bench::Mix, 10.0) },
        Row { rounds: 9, ..row("mmap", Bench::Stream, 10.0) },
        row("zonal", Bench::Bulk, 1.0),
    ])
}

fn now() -> Report {
    let mut now = report(vec![
        row("zonal", Bench::Pair, 11.0),
        row("mmap", Bench::Pair, 1300.0),
        row("zonal", Bench::Batch8, 5.0),
        row("zonal", Bench::Mix, 12.0),
        row("mmap", Bench::Mix, 90.0),
        row("mmap", Bench::Stream, 90.0),
        row("zonal", Bench::Singles, 3.0),
    ]);
    now.machine.commit = "ba9876543210".into();
    now
}

/// A row whose visits had these medians.
fn visited(bench: Bench, visits_ns: &[f64]) -> Row {
    let middle = visits_ns[visits_ns.len() / 2];
    // Its rounds spread far more.
    let spread = Row { p10_ns: middle * 0.5, p90_ns: middle * 2.0, ..row("zonal", bench, middle) };
    Row { visits_ns: visits_ns.to_vec(), ..spread }
}

#[test]
fn rows_are_judged_by_the_visits_of_their_cell_where_both_runs_have_some() {
    let benches = [Bench::Pair, Bench::Batch8, Bench::Mix, Bench::Bulk, Bench::Stream];
    let before: Vec<Row> =
        benches.iter().map(|bench| visited(*bench, &[9.9, 9.8, 10.0, 10.2, 10.1])).collect();
    let now = vec![
        visited(Bench::Pair, &[6.8, 6.9, 7.0, 7.2, 7.1]),
        // One moment was as slow as the earlier run.
        visited(Bench::Batch8, &[6.8, 6.9, 7.0, 9.9, 7.1]),
        // Apart, but by less than two runs of one program.
        visited(Bench::Mix, &[10.3, 10.3, 10.4, 10.4, 10.5]),
        visited(Bench::Bulk, &[15.0, 13.0, 13.5, 14.0, 13.1]),
        // Too few visits.
        visited(Bench::Stream, &[7.0, 7.0, 7.0]),
    ];
    for file in [report(before.clone()).to_csv(), report(before).to_json()] {
        let mut now = report(now.clone());
        now.compare(&Earlier::parse(&file).unwrap()).unwrap();
        let comparison = now.comparison.unwrap();
        let changed: Vec<(&str, f64, f64, f64)> = comparison
            .changed
            .iter()
            .map(|change| (&change.row[..4], change.ratio, change.ratio_low, change.ratio_high))
            .collect();
        assert_eq!(changed, [("pair", 0.7, 0.667, 0.735), ("bulk", 1.35, 1.275, 1.531)]);
        assert_eq!(comparison.unchanged, 2);
        assert_eq!(comparison.busy, ["stream order 0, 1 threads, untouched, zonal"]);
    }
    let one = report(vec![visited(Bench::Pair, &[7.0])]);
    let read = Earlier::parse(&one.to_csv()).unwrap();
    assert_eq!(read, Earlier::parse(&one.to_csv().replace("7.000\n", "\"7.000\"\n")).unwrap());
}

#[test]
fn what_the_limit_of_the_cell_changed_too_is_the_machines() {
    let around = |middle: f64| [0.99, 0.98, 1.0, 1.02, 1.01].map(|part| part * middle);
    let run = |limits: [f64; 3], rows: [f64; 3]| {
        let benches = [Bench::Pair, Bench::Batch8, Bench::Mix];
        let rows = benches.into_iter().zip(limits.into_iter().zip(rows));
        report(
            rows.flat_map(|(bench, (limit, own))| {
                let limit = visited(bench, &around(limit));
                let limit = Row { subject: "rseq-bare".into(), ..limit };
                [limit, visited(bench, &around(own))]
            })
            .collect(),
        )
    };
    let before = run([2.0, 2.0, 2.0], [4.0, 4.0, 4.0]);
    // A slower machine, a slower machine and program, and a machine that got faster while the
    // program took longer by more than that.
    let mut now = run([3.0, 3.0, 1.8], [6.1, 9.0, 4.8]);
    now.compare(&Earlier::parse(&before.to_csv()).unwrap()).unwrap();
    let comparison = now.comparison.unwrap();
    let changed: Vec<(&str, f64)> =
        comparison.changed.iter().map(|change| (&change.row[..3], change.ratio)).collect();
    assert_eq!(changed, [("8+8", 2.25), ("mix", 1.2)]);
    assert_eq!(comparison.unchanged, 1);
    assert_eq!(
        comparison.notices[1],
        "the machine is not as fast as it was: rseq-bare takes 0.90 to 1.50 times what it took, \
          1.50 in the middle of 3 cells; rows are judged by what is more"
    );
}

#[test]
fn rows_beyond_the_spread_of_both_runs_have_changed_and_others_are_named() {
    for file in [earlier().to_csv(), earlier().to_json()] {
        let mut now = now();
        now.compare(&Earlier::parse(&file).unwrap()).unwrap();
        let comparison = now.comparison.clone().unwrap();
        let changed: Vec<(&str, f64)> =
            comparison.changed.iter().map(|change| (change.row.as_str(), change.ratio)).collect();
        let expected = [
            ("8+8 order 0, 1 threads, untouched, zonal", 0.5),
            ("pair order 0, 1 threads, untouched, mmap", 1.3),
        ];
        // Three rounds lie apart by chance. 12 against 10 is within the rounds of both, which
        // spread by a tenth.
        assert_eq!(changed, expected);
        assert_eq!(comparison.unchanged, 2);
        let few = [
            "mix order 0, 1 threads, untouched, mmap",
            "stream order 0, 1 threads, untouched, mmap",
        ];
        assert_eq!(comparison.busy, few);
        assert_eq!(comparison.only_before, ["bulk4096 order 0, 1 threads, untouched, zonal"]);
        assert_eq!(comparison.only_now, ["singles4096 order 0, 1 threads, untouched, zonal"]);
        assert!(comparison.notices.is_empty(), "{:?}", comparison.notices);
        let text = zonal_bench::table::whole(&now);
        let line = "faster: 8+8 order 0, 1 threads, untouched, zonal: 10.00 ns before, 5.00 now: \
                    0.50 x, rounds 0.41 to 0.61\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("commit 0123456789ab: 2 rows changed beyond noise, 2 did not\n"));
        assert!(text.contains("\nonly in the earlier run: bulk4096 order 0"), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&now.to_json()).unwrap(), now);
    }
}

#[test]
fn a_file_of_before_the_discarded_rounds_is_read() {
    let csv = "bench,subject,threads,order,touched,ns_per_op,p10_ns,p90_ns,p50_ns,p99_ns,p999_ns,\
               free_p999_ns,ratio_to_limit,rounds,cpu,cpus,kernel,commit\n\
               pair,zonal,1,0,false,4.090,3.881,4.286,8,9,10,8,,61,\
               \"Example CPU, 2 cores\",2,6.1,a\n";
    let mut now = now();
    now.compare(&Earlier::parse(csv).unwrap()).unwrap();
    let comparison = now.comparison.unwrap();
    assert_eq!(comparison.changed[0].before_ns, 4.09);
    assert_eq!(comparison.notices, ["the kernel was Linux 6.1 and is 6.18.0"]);
}

#[test]
fn files_that_are_no_report_say_what_was_expected() {
    let csv = earlier().to_csv();
    let (head, rows) = csv.split_once('\n').unwrap();
    let first = rows.lines().next().unwrap();
    let with = |row: &str| format!("{head}\n{row}\n");
    let files = [
        (String::new(), "it has no rows"),
        (format!("{head}\n"), "it has no rows"),
        ("a,b\n1,2\n".into(), "missing field `bench`"),
        ("not a report".into(), "it has no rows"),
        ("{".into(), "EOF while parsing"),
        (r#"{"schema_version":1,"events":[]}"#.into(), "missing field"),
        (with(&first.replace("pair,", "triple,")), "unknown variant `triple`"),
        (with(&first.replace("10.000", "NaN")), "are not ascending times"),
        (with(&first.replace(",9.000", ",-9.000")), "are not ascending times"),
        (with(&first.replace("11.000", "inf")), "are not ascending times"),
        (format!("{csv}{first}\n"), "there are two such rows"),
        (format!("{csv}{}\n", first.replace("6.18.0", "6.19.0")), "its rows are of several runs"),
        (with("pair,zonal"), "found record with 2 fields"),
    ];
    for (file, what) in files {
        let error = Earlier::parse(&file).unwrap_err().to_string();
        assert!(error.contains(what), "{file}: {error}");
        assert!(error.contains("expected what `zonal bench --csv FILE`"), "{error}");
    }
    let version = earlier().to_json().replace("\"schema_version\": 1", "\"schema_version\": 7");
    let error = Earlier::parse(&version).unwrap_err();
    assert!(matches!(error, CompareError::Version(7)), "{error}");
    assert!(Earlier::read("/nonexistent/file".as_ref()).is_err());
    assert!(Earlier::read("/".as_ref()).is_err());
}

#[test]
fn another_machine_is_refused_before_anything_is_measured() {
    let options = Options::full();
    let cpus = Cpus::of_process();
    let mut file = Earlier::parse(&earlier().to_json()).unwrap();
    let here = earlier().machine;
    file.restrict(&options, &cpus, &here).unwrap();
    for other in
        [Machine { cpu: "Another CPU".into(), ..here.clone() }, Machine { cpus: 4, ..here.clone() }]
    {
        let error = file.restrict(&options, &cpus, &other).unwrap_err().to_string();
        assert!(error.contains("was measured on Example CPU, 2 cores with 2 CPUs"), "{error}");
    }
}

#[test]
fn a_comparison_that_matches_no_row_is_an_error() {
    let cpus = Cpus::of_process();
    let here = earlier().machine;
    let file = || Earlier::parse(&earlier().to_csv()).unwrap();
    let options = Options { benches: vec![Bench::Stream], ..Options::full() };
    let error = file().restrict(&options, &cpus, &here).unwrap_err();
    assert!(matches!(error, CompareError::NothingShared), "{error}");
    let options = Options { only: vec!["glibc-malloc".into()], ..Options::full() };
    assert!(file().restrict(&options, &cpus, &here).is_err());
    let mut other = report(vec![row("peer", Bench::Pair, 1.0)]);
    assert!(other.compare(&file()).is_err() && other.comparison.is_none());
    // What was not asked for is not missed.
    let options = Options { benches: vec![Bench::Pair], ..Options::full() };
    let mut restricted = file();
    restricted.restrict(&options, &cpus, &here).unwrap();
    let mut pairs = report(vec![row("zonal", Bench::Pair, 10.0)]);
    pairs.compare(&restricted).unwrap();
    let only_before = pairs.comparison.unwrap().only_before;
    assert_eq!(only_before, ["pair order 0, 1 threads, untouched, mmap"]);
}
