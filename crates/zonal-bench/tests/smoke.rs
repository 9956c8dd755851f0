//! Every bench at smoke size with every in-process subject, and a subject that must be caught.

use std::sync::Arc;
use std::sync::Mutex;
use zonal_bench::subjects::{self, MutexBuddy, ThreadVec};
use zonal_bench::{
    Bench, Cell, Cpus, Crew, LIMIT, Local, Options, PAGE, Report, Runner, Sizing, Skip, Subject,
    edge, owned, plan, prefault, ranges, run, table,
};

fn crew() -> Arc<Crew> {
    Arc::new(Crew::new(Cpus::of_process()))
}

#[test]
fn every_subject_gives_a_row_in_every_cell_and_does_the_same_work() {
    let crew = crew();
    let (runners, skipped) = subjects::all(&crew);
    let options = Options::smoke();
    let mut steps = 0;
    let report = run(&options, crew.cpus(), runners, skipped, |_| steps += 1);
    let cells = plan(&options, crew.cpus());
    assert_eq!(steps, cells.len() * options.visits as usize);
    // Where rseq is missing some subjects do not run at all; nothing else may be left out.
    let absent = |skip: &&Skip| skip.cell.is_none();
    for skip in &report.skipped {
        let no_rseq = skip.reason.contains("rseq") || skip.subject == LIMIT;
        let expected = if absent(&skip) { no_rseq } else { skip.reason == "it has no bulk calls" };
        assert!(expected, "unexpectedly skipped: {skip:?}");
    }
    let absent: Vec<&str> =
        report.skipped.iter().filter(absent).map(|skip| skip.subject.as_str()).collect();
    let skips_of = |name| report.skipped.iter().filter(|skip| skip.subject == name).count();
    let rows_of = |name| report.rows.iter().filter(|row| row.subject == name).count();
    for name in subjects::NAMES.into_iter().filter(|name| !absent.contains(name)) {
        assert_eq!(rows_of(name) + skips_of(name), cells.len(), "{name}");
        assert!(rows_of(name) > 0, "{name}");
    }
    assert!(report.rows.iter().all(|row| row.ns_per_op > 0.0 && row.rounds >= 3));
    if rows_of(LIMIT) > 0 {
        assert_eq!(rows_of(LIMIT), cells.len());
        assert!(report.rows.iter().all(|row| row.ratio_to_limit.is_some()));
    }
    let text = table::whole(&report);
    assert!(text.contains("buddy_system_allocator"), "{text}");
}

#[test]
fn the_result_hash_is_the_same_on_every_run() {
    let hash = || {
        let crew = crew();
        let subject = ThreadVec::new(Sizing::of(crew.cpus())).unwrap();
        let runners = vec![Local::boxed(subject, &crew)];
        run(&Options::smoke(), crew.cpus(), runners, Vec::new(), |_| ()).result_hash
    };
    assert_eq!(hash(), hash());
}

#[test]
fn the_edge_of_memory_is_measured_beside_room_to_spare() {
    let crew = crew();
    let options = Options { benches: vec![Bench::Edge], ..Options::smoke() };
    assert!(plan(&options, crew.cpus()).is_empty());
    let mut report = run(&options, crew.cpus(), Vec::new(), Vec::new(), |_| ());
    edge::measure(&options, &crew, &mut report);
    if crew.cpus().count() < 2 {
        assert_eq!((report.rows.len(), report.skipped.len()), (0, 1));
        return;
    }
    let benches: Vec<Bench> = report.rows.iter().map(|row| row.bench).collect();
    assert_eq!(benches, [Bench::Room, Bench::Edge], "{:?}", report.skipped);
    assert!(report.rows.iter().all(|row| row.rounds >= 3 && row.ns_per_op > 0.0));
    assert!(report.rows[0].ratio_to_limit.is_none() && report.rows[1].ratio_to_limit.is_some());
    assert!(table::whole(&report).contains("at the edge of memory: "));
    let others = Options { only: vec!["mutex-buddy".into()], ..options };
    let before = report.rows.len();
    edge::measure(&others, &crew, &mut report);
    assert_eq!(report.rows.len(), before, "only zonal runs it");
}

#[test]
fn ranges_hand_out_what_is_asked_for_and_powers_of_two_more() {
    let crew = crew();
    let options = Options { benches: vec![Bench::Ranges], ..Options::smoke() };
    assert!(plan(&options, crew.cpus()).is_empty());
    let mut report = run(&options, crew.cpus(), Vec::new(), Vec::new(), |_| ());
    ranges::measure(&options, &crew, &mut report);
    let names: Vec<&str> = report.rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(names, ["zonal", "zonal-again", "zonal-pow2", "zonal-pow2-again"]);
    let pages: Vec<f64> = report.rows.iter().filter_map(|row| row.pages_for_each).collect();
    assert!(pages[0] == 1.0 && pages[1] == 1.0, "not a page is wasted: {pages:?}");
    assert!(pages[2] > 1.2 && pages[3] == pages[2], "{pages:?}");
    assert!(report.rows.iter().all(|row| row.rounds >= 3 && row.ns_per_op > 0.0));
    let text = table::whole(&report);
    assert!(text.contains("ranges of odd sizes: 0.0 % more pages than asked for"), "{text}");
    assert!(!table::summary(&report, table::Style::Markdown).contains("zonal-pow2"), "{text}");
    assert!(report.to_csv().lines().nth(1).unwrap().contains(",1.000,0,false,"));
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn a_pool_is_faulted_in_by_one_thread_beside_many() {
    let crew = crew();
    let options = Options { benches: vec![Bench::Prefault], ..Options::smoke() };
    assert!(plan(&options, crew.cpus()).is_empty());
    let mut report = run(&options, crew.cpus(), Vec::new(), Vec::new(), |_| ());
    prefault::measure(&options, &crew, &mut report);
    let threads: Vec<u32> = report.rows.iter().map(|row| row.threads).collect();
    let many = crew.cpus().count() as u32;
    assert_eq!(threads, [many, many, 1, 1], "{:?}", report.skipped);
    assert!(report.rows.iter().all(|row| row.touched && row.ns_per_op > 0.0));
    assert!(table::whole(&report).contains("a pool in memory: "));
    let others = Options { only: vec!["mutex-buddy".into()], ..options };
    prefault::measure(&others, &crew, &mut report);
    assert_eq!(report.rows.len(), 4, "only zonal runs it");
}

#[test]
fn a_page_that_owns_its_pool_is_held_against_one_that_borrows_it() {
    let crew = crew();
    let options = Options { benches: vec![Bench::Owned], ..Options::smoke() };
    assert!(plan(&options, crew.cpus()).is_empty());
    let mut report = run(&options, crew.cpus(), Vec::new(), Vec::new(), |_| ());
    owned::measure(&options, &crew, &mut report);
    let names: Vec<&str> = report.rows.iter().map(|row| row.subject.as_str()).collect();
    assert_eq!(names, ["zonal", "zonal-again", "zonal-borrowed", "zonal-borrowed-again"]);
    assert!(report.rows.iter().all(|row| row.rounds >= 3 && row.ns_per_op > 0.0));
    assert!(table::whole(&report).contains("a page that owns its pool: "));
    assert!(!table::summary(&report, table::Style::Markdown).contains("zonal-borrowed"));
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
}

#[test]
fn a_report_survives_json() {
    let crew = crew();
    let runners = vec![Local::boxed(MutexBuddy::new(Sizing::of(crew.cpus())).unwrap(), &crew)];
    let options = Options { benches: vec![Bench::Pair], ..Options::smoke() };
    let report = run(&options, crew.cpus(), runners, Vec::new(), |_| ());
    let back: Report = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(back, report);
    let lines: Vec<String> = report.to_csv().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), report.rows.len() + 1);
}

/// Hands every page out twice.
struct Twice {
    inner: MutexBuddy,
    last: Mutex<Option<usize>>,
}

// SAFETY: (1) blocks of the inner subject, which never gets one back. (2) is broken on purpose: the
// checked pass finds it, on one thread.
unsafe impl Subject for Twice {
    fn name(&self) -> &str {
        "twice"
    }
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let mut last = self.last.lock().unwrap();
        if let Some(block) = last.take() {
            return block as *mut u8;
        }
        // SAFETY: (1) and (2) the contract of this function.
        let block = unsafe { self.inner.alloc(order) };
        *last = Some(block as usize);
        block
    }
    unsafe fn free(&self, _: *mut u8, _: u32) {}
}

/// Refuses the allocation after the first 100.
struct RunsDry {
    inner: ThreadVec,
    left: Mutex<u32>,
}

// SAFETY: (1) and (2) as the inner subject.
unsafe impl Subject for RunsDry {
    fn name(&self) -> &str {
        "runs-dry"
    }
    unsafe fn alloc(&self, order: u32) -> *mut u8 {
        let mut left = self.left.lock().unwrap();
        if *left == 0 {
            return std::ptr::null_mut();
        }
        *left -= 1;
        // SAFETY: (1) and (2) the contract of this function.
        unsafe { self.inner.alloc(order) }
    }
    unsafe fn free(&self, block: *mut u8, order: u32) {
        // SAFETY: the caller passes a block of `alloc` with its order, once.
        unsafe { self.inner.free(block, order) }
    }
    fn thread_init(&self) {
        self.inner.thread_init();
    }
}

#[test]
fn a_block_handed_out_twice_is_found_and_not_measured() {
    let crew = crew();
    let inner = MutexBuddy::new(Sizing::of(crew.cpus())).unwrap();
    let mut runner = Local::new(Twice { inner, last: Mutex::new(None) }, Arc::clone(&crew));
    let cell = Cell { bench: Bench::Batch32, threads: 1, pinned: true, order: 0, touched: false };
    let error = runner.check(&cell).unwrap_err().to_string();
    assert!(error.contains("overlaps") && error.contains("which is held"), "{error}");
    let options = Options { benches: vec![Bench::Batch32], ..Options::smoke() };
    let report = run(&options, crew.cpus(), vec![Box::new(runner)], Vec::new(), |_| ());
    assert!(report.rows.is_empty());
    assert!(report.skipped.iter().all(|skip| skip.reason.contains("overlaps")));
    assert_eq!(report.faults().count(), report.skipped.len());
}

#[test]
fn a_cell_that_the_loops_do_not_know_is_refused_before_anything_is_written() {
    let crew = crew();
    let mut runners = subjects::all(&crew).0;
    assert!(runners.len() > 3);
    for runner in &mut runners {
        let (bench, order) = (Bench::Pair, zonal_bench::ORDER_MAX + 1);
        let mut cell = Cell { bench, threads: 1, pinned: true, order, touched: true };
        let error = runner.burst(&cell, 1, 1).unwrap_err().to_string();
        assert!(error.contains("no loop asks for order 10"), "{error}");
        assert!(runner.check(&cell).is_err() && runner.latency(&cell, 1).is_err());
        (cell.bench, cell.order) = (Bench::Edge, 0);
        assert!(runner.burst(&cell, 1, 0).is_err());
        // Blocks of another size than was asked for would be written to behind their end.
        (cell.bench, cell.order) = (Bench::Bulk, 3);
        if runner.name().starts_with("zonal") {
            let expected = match runner.name() {
                "zonal-pages" | "zonal-owned" => "it has no bulk calls",
                _ => "its bulk calls are for single pages",
            };
            let error = runner.burst(&cell, 1, 0).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn refused_allocations_are_reported_and_not_averaged() {
    let crew = crew();
    let inner = ThreadVec::new(Sizing::of(crew.cpus())).unwrap();
    let mut runner = Local::new(RunsDry { inner, left: Mutex::new(100) }, Arc::clone(&crew));
    let cell = Cell { bench: Bench::Pair, threads: 1, pinned: true, order: 0, touched: true };
    assert!(runner.burst(&cell, 60, 0).is_ok());
    let error = runner.burst(&cell, 60, 0).unwrap_err().to_string();
    assert_eq!(error, "20 of 60 allocations failed");
}

#[test]
fn a_pool_of_the_advised_size_never_runs_dry() {
    let sizing = Sizing { threads: 4, cpus: 2 };
    assert!(sizing.pages() * PAGE >= 4 * 4096 * PAGE);
    assert!(sizing.pages().is_power_of_two());
}
