//! The lab as its users see it: the same run twice, sense in what comes out, and its speed.

use zonal_core::policy::Policy;
use zonal_core::types::Order;
use zonal_lab::cost::shared_core::SHARED_PERCENT;
use zonal_lab::experiment::{EXPERIMENTS, Experiment, Options};
use zonal_lab::machine::Machine;
use zonal_lab::report;
use zonal_lab::run::Plan;
use zonal_lab::sim::{Outcome, Spec};
use zonal_lab::workload::{KINDS, Kind, PageBench, Workload};

fn machine(cpus: u32) -> Machine {
    let mut machine = Machine::named("broadwell-2017-88").unwrap().resized(cpus).unwrap();
    machine.memory_mib = 6144;
    machine
}

fn policy(storage: &str, threshold: u16) -> Policy {
    let mut policy = Policy::LINUX_6_18;
    policy.set("numa.storage", storage).unwrap();
    policy.set("numa.threshold", &threshold.to_string()).unwrap();
    policy
}

/// Cycles of a pair and the outcome, with every CPU at a random place in its counters.
fn pairs(cpus: u32, policy: Policy, seed: u64, each: u64) -> (f64, Outcome) {
    let machine = machine(cpus);
    Spec { machine: machine.clone(), policy, seed }
        .run(|lab| {
            let mut bench = PageBench::new(cpus, Order::ZERO);
            for cpu in 0..cpus {
                let before = lab.random_below(each);
                lab.warm(&mut bench, cpu, 2 * before);
            }
            let pair = machine.work.alloc + machine.work.free;
            lab.start(cpus, 0, pair);
            let outcome = lab.play(&mut bench, each * pair);
            lab.allocator.validate().unwrap();
            assert_eq!(outcome.count.refused, 0);
            Ok((2.0 * outcome.cycles as f64 / outcome.count.calls() as f64, outcome))
        })
        .unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| pairs(8, policy("s16_thr32765_overstep", 32), seed, 300).1;
    let (one, again, other) = (run(1), run(1), run(2));
    assert_eq!(one, again);
    assert_ne!(one.hash, other.hash);
}

#[test]
fn a_larger_threshold_never_costs_more_and_a_larger_machine_never_less() {
    let cycles =
        |cpus, threshold| pairs(cpus, policy("s16_thr32765_overstep", threshold), 1, 1500).0;
    let by_threshold: Vec<f64> = [16, 48, 100, 200, 700].map(|t| cycles(16, t)).to_vec();
    assert!(by_threshold.is_sorted_by(|a, b| a > b), "{by_threshold:?}");
    let by_size: Vec<f64> = [4, 8, 16, 32].map(|cpus| cycles(cpus, 48)).to_vec();
    assert!(by_size.is_sorted(), "{by_size:?}");
    let off = pairs(16, Policy::LINUX_6_18, 1, 1500).0;
    assert!(by_threshold.iter().all(|cycles| *cycles > off));
}

#[test]
fn later_storages_cost_less_and_exact_counting_nothing() {
    for cpus in [2, 12, 24] {
        let cycles = |storage, threshold| pairs(cpus, policy(storage, threshold), 1, 1200).0;
        let small = cycles("s16_thr32765_overstep", 70);
        let split = cycles("u16_thr65533", 0);
        let words = cycles("ulong_fold_on_read", 0);
        let exact = cycles("ulong_exact", 0);
        assert!(small > split && split > words && words > exact, "{small} {split} {words} {exact}");
        let mut off = policy("u16_thr65533", 0);
        off.set("numa.stat", "off").unwrap();
        let off = pairs(cpus, off, 1, 1200).0;
        assert!((exact - off).abs() < 0.001 * off, "{exact} {off}");
    }
}

#[test]
fn two_threads_of_a_core_pay_for_their_work_as_they_share_it_and_for_nothing_else() {
    let machine = machine(2);
    let exact = policy("ulong_exact", 0);
    let (cycles, outcome) = pairs(2, exact, 1, 2000);
    let alone = machine.work.alloc + machine.work.free;
    let work = (alone * SHARED_PERCENT / 100) as f64;
    assert!((cycles - work).abs() < 0.05 * work, "{cycles} for {work}");
    assert_eq!(outcome.spent.updates, 0, "exact counting costs no update");
    assert_eq!(outcome.happened.lock_contended, 0);
}

#[test]
fn a_machine_of_1024_cpus_and_16_nodes_runs() {
    let mut machine = Machine::named("broadwell-2017-88@1024/16").unwrap();
    machine.memory_mib = 1024;
    let machine = Machine::parse(&machine.to_toml()).unwrap();
    assert_eq!((machine.cpus(), machine.nodes()), (1024, 16));
    let spec = Spec { machine, policy: Policy::LINUX_6_18, seed: 1 };
    let count = spec.run(|lab| {
        let mut bench = PageBench::new(1024, Order::ZERO);
        lab.start(1024, 0, 1000);
        let outcome = lab.play(&mut bench, 300_000);
        lab.allocator.validate().unwrap();
        Ok(outcome.count)
    });
    let count = count.unwrap();
    assert_eq!(count.refused, 0);
    assert!(count.calls() > 1024 * 100);
}

#[test]
fn experiments_know_their_names_and_say_which_there_are() {
    for experiment in EXPERIMENTS {
        assert_eq!(Experiment::named(experiment.name).unwrap().name, experiment.name);
    }
    let error = Experiment::named("nonsense").unwrap_err().to_string();
    assert!(error.contains("vmstat-update-cost"), "{error}");
}

#[test]
fn vmstat_update_cost_is_near_every_published_cell_and_its_page_shows_them() {
    let experiment = Experiment::named("vmstat-update-cost").unwrap();
    let options = Options::seeded(1);
    let table = experiment.run(&options, &mut |_, _| ()).unwrap();
    assert_eq!(table.misses().count(), 0, "{:?}", table.misses().collect::<Vec<_>>());
    assert_eq!(table.cells.iter().filter(|cell| cell.published.is_some()).count(), 9);
    let page = report::html(&table);
    assert_eq!(page.matches("<svg").count(), 3, "a plot for each column");
    let fetches = ["src=", "href=", "url(", "@import", "<script", "<link"];
    assert!(!fetches.iter().any(|fetch| page.contains(fetch)), "nothing is fetched");
    assert_eq!(report::csv(&table).lines().count(), table.cells.len() + 1);
}

/// A workload that does all that it does within a millisecond.
fn short(kind: &'static Kind) -> Workload {
    let mut workload = Workload::of(kind);
    match kind.name {
        "stress-vm" => workload.set("mib", "1").unwrap(),
        "kv-cache" => workload.set("step_us", "200").unwrap(),
        _ => {}
    }
    workload
}

#[test]
fn every_workload_runs_twice_alike_and_differs_by_seed_and_policy() {
    for kind in KINDS.iter().filter(|kind| !kind.takes_file()) {
        let plan = |seed, policy| Plan {
            cpus: Some(7),
            warm_us: 1500,
            run_us: 1000,
            ..Plan::new(machine(8), policy, short(kind), seed)
        };
        let run = |seed, policy| plan(seed, policy).run().unwrap();
        let (one, again) = (run(1, Policy::LINUX_6_18), run(1, Policy::LINUX_6_18));
        assert_eq!(one, again, "{}", kind.name);
        assert_ne!(one.hash, run(2, Policy::LINUX_6_18).hash, "{}", kind.name);
        assert_ne!(one.hash, run(1, Policy::ZONAL).hash, "{}", kind.name);
        assert!(one.get("calls").unwrap() > 100.0, "{one:?}");
        assert_eq!(one.get("refused"), Some(0.0), "{}", kind.name);
        let busy = one.get("busy_percent").unwrap();
        assert!((40.0..=100.5).contains(&busy), "{}: {busy}", kind.name);
    }
}

#[test]
fn a_plan_that_cannot_be_says_what_would_do() {
    let good = Plan::new(machine(8), Policy::LINUX_6_18, "burst".parse().unwrap(), 1);
    for (plan, expected) in [
        (Plan { cpus: Some(9), ..good.clone() }, "1 to 8"),
        (Plan { cpus: Some(0), ..good.clone() }, "1 to 8"),
        (Plan { run_us: 0, ..good.clone() }, "run_us: 0; expected 1"),
        (Plan { warm_us: u64::MAX, ..good.clone() }, "warm_us"),
    ] {
        let error = plan.run().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn lists_sized_before_the_memory_was_there_come_out_and_cost_what_they_did() {
    let experiment = Experiment::named("deferred-init").unwrap();
    let options = Options::seeded(3);
    let table = experiment.run(&options, &mut |_, _| ()).unwrap();
    let of = |column: &str| {
        let cells = table.cells.iter().filter(|cell| cell.column.starts_with(column));
        cells.map(|cell| cell.error_percent.unwrap()).collect::<Vec<f64>>()
    };
    assert_eq!(of("pagesets"), [0.0; 5], "exactly");
    let fitted = table.cells.iter().filter(|cell| cell.column == "vanilla");
    let fitted: Vec<f64> = fitted.map(|cell| cell.error_percent.unwrap()).collect();
    assert!(fitted.len() == 3 && fitted.iter().all(|error| error.abs() <= 5.0), "{fitted:?}");
    // Lines of a zone lock are those of every machine, and how far cores are from each other was
    // measured on two of this table's processors. These cells are what that costs the table, as
    // docs/explanation/lab.md says: by how many percent each is off.
    let expected = [
        ("system_amean", "resetpcpu", -72.0..=-67.0),
        ("user_amean", "change_percent", 22.0..=40.0),
        ("system_amean", "change_percent", 27.0..=33.0),
        ("elapsed_amean", "change_percent", 18.0..=28.0),
    ];
    let missed: Vec<_> = table.misses().collect();
    assert_eq!(missed.len(), expected.len(), "{missed:?}");
    for (cell, (row, column, error)) in missed.into_iter().zip(expected) {
        assert_eq!((cell.row.as_str(), cell.column.as_str()), (row, column));
        assert!(error.contains(&cell.error_percent.unwrap()), "{cell:?}");
    }
    let calibrated: Vec<&str> =
        table.cells.iter().filter(|c| c.calibrated).map(|c| c.column.as_str()).collect();
    assert_eq!(calibrated, ["vanilla"; 3], "the other column was in view");
}

#[test]
fn emptying_other_cpus_lists_costs_both_sides() {
    let machine = machine(8);
    let policy = |remote: &str| {
        let mut policy = Policy::LINUX_6_18;
        policy.set("pcp.drain_remote", remote).unwrap();
        policy
    };
    let run = |policy: Policy| {
        let spec = Spec { machine: machine.clone(), policy, seed: 1 };
        let run = spec.run(|lab| {
            let mut bench = PageBench::new(8, Order::ZERO);
            lab.start(8, 0, 1000);
            lab.play(&mut bench, 100_000);
            let quiet = lab.play(&mut bench, 200_000);
            lab.allocator.platform().turn(0, 200_000);
            let before = lab.allocator.platform().totals().0;
            lab.allocator.drain_all();
            let took = lab.allocator.platform().clock() - 200_000;
            let spent = lab.allocator.platform().totals().0.since(&before);
            let after = lab.play(&mut bench, 300_000);
            Ok((took, spent.pages, after.cycles as i64 - quiet.cycles as i64, after.count.calls()))
        });
        run.unwrap()
    };
    for remote in ["work", "direct"] {
        let (took, pages, more, calls) = run(policy(remote));
        assert_eq!((took, pages, more, calls), run(policy(remote)), "{remote}: the same again");
        assert!(took > 0 && pages > 0, "{remote}: {took} {pages}");
        assert!(pages <= took, "{remote}: {pages} of {took}");
    }
    let (work, direct) = (run(policy("work")), run(policy("direct")));
    assert!(work.0 > direct.0, "a work item for each CPU takes longer: {work:?} {direct:?}");
    // How much other CPUs get done meanwhile depends on how the holds of the zone lock fall.
    assert!(work.1 > direct.1, "queueing is charged besides moving: {work:?} {direct:?}");
}

#[test]
fn who_looks_at_deltas_takes_their_line_from_their_cpu() {
    use zonal_core::platform::{Instruction, Platform, Step};
    use zonal_core::types::{CpuId, ZoneId};
    let machine = machine(8);
    let platform = zonal_lab::platform::VirtualPlatform::new(&machine, 1);
    let cost = |cpu: u32, step: Step| {
        platform.turn(cpu, 1000);
        platform.cost(step);
        platform.clock() - 1000
    };
    let update = Step::Update { zone: ZoneId(0), by: Instruction::Plain, times: 1 };
    let look = |taken| Step::Collect { zone: ZoneId(0), cpu: CpuId(1), taken };
    let (line, work) = (&machine.line, &machine.work);
    let quiet = machine.content.unwrap();
    let (core, remote) = (quiet.core.unwrap(), quiet.remote.unwrap());
    assert_eq!(cost(1, update), work.update);
    assert_eq!(cost(1, look(true)), work.update + line.locked, "its own");
    assert_eq!(cost(0, look(false)), core + work.update, "a neighbour's");
    assert_eq!(cost(1, update), core + work.update, "it comes back");
    assert_eq!(cost(1, update), work.update, "once");
    assert_eq!(cost(2, look(true)), remote + work.update + line.locked, "the other socket");
    assert_eq!(cost(5, update), work.update, "the sibling has deltas of its own");
    assert_eq!(cost(1, update), remote + work.update);
}

/// A run of the page benchmark as `zonal lab once` makes it, quick and coarse.
fn coarse(machine: &Machine, policy: Policy, run_us: u64) -> zonal_lab::run::Figures {
    let workload = "page-bench".parse().unwrap();
    let plan = Plan { warm_us: run_us, run_us, ..Plan::new(machine.clone(), policy, workload, 1) };
    plan.run().unwrap()
}

#[test]
fn thresholds_and_sizes_that_are_in_no_table_make_sense() {
    let thresholds = [8, 20, 50, 90, 150, 700, 3000];
    // Both threads of each core are there: a thread that has its core to itself is quicker.
    let sizes = [2, 4, 12, 24, 32, 64, 100];
    let mut before: Option<Vec<f64>> = None;
    for cpus in sizes {
        let mut machine = machine(cpus);
        machine.memory_mib = 8192;
        let cycles = |threshold| {
            let figures = coarse(&machine, policy("s16_thr32765_overstep", threshold), 100);
            for (figure, value) in figures.each() {
                assert!(value.is_finite() && value >= 0.0, "{}: {value}", figure.name);
                let most = if figure.name.ends_with("_percent") { 100.0 } else { f64::INFINITY };
                assert!(value <= most, "{}: {value}", figure.name);
            }
            figures.get("cycles_per_call").unwrap()
        };
        let row: Vec<f64> = thresholds.iter().map(|threshold| cycles(*threshold)).collect();
        let about = |less: f64, more: f64| less <= 1.03 * more;
        assert!(row.windows(2).all(|two| about(two[1], two[0])), "{cpus} CPUs: {row:?}");
        assert!(row[0] > row[3] && row[3] > row[6], "{cpus} CPUs: {row:?}");
        if let Some(before) = &before {
            let grows = before.iter().zip(&row).all(|(smaller, larger)| about(*smaller, *larger));
            assert!(grows, "{cpus} CPUs: {row:?} after {before:?}");
        }
        before = Some(row);
    }
}

#[test]
fn the_largest_thresholds_fold_too() {
    let folds = |storage, threshold| {
        let figures = coarse(&machine(6), policy(storage, threshold), 2000);
        figures.get("folds").unwrap() / figures.get("calls").unwrap()
    };
    let known: Vec<f64> =
        [5000, 12_000, 32_765].map(|t| folds("s16_thr32765_overstep", t)).to_vec();
    assert!(known.is_sorted_by(|a, b| a > b) && known[2] > 0.0, "{known:?}");
    let u16 = [9000, 65_533].map(|threshold| folds("u16_thr65533", threshold));
    assert!(u16[0] > u16[1] && u16[1] > 0.0, "{u16:?}");
}

/// The recording of a build that comes with the project.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../zonal-trace/samples/zlib-make-j4");

#[test]
fn a_recording_is_played_in_copies_the_same_way_each_time() {
    let run = |workload: &str, cpus, seed| {
        let workload: Workload = workload.parse().unwrap();
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
        let machine = machine(cpus);
        let plan = Plan {
            warm_us: 0,
            run_us: 1_000_000,
            ..Plan::new(machine, Policy::LINUX_6_18, workload, seed)
        };
        plan.run().unwrap()
    };
    let one = run(&format!("trace:{SAMPLE},copies=1"), 8, 1);
    assert_eq!(one, run(&format!("trace:{SAMPLE},copies=1"), 8, 1));
    let calls = one.get("calls").unwrap();
    assert!(calls > 1000.0 && one.get("refills").unwrap() > 10.0, "{one:?}");
    assert!(one.get("busy_percent").unwrap() < 25.0, "two CPUs of eight: {one:?}");
    assert!(one.get("lines_l2").unwrap() > 0.0 && one.get("cache_misses").unwrap() > 0.0);
    let workload = format!("trace:{SAMPLE},copies=1").parse().unwrap();
    let plan = Plan::new(machine(8), Policy::LINUX_6_18, workload, 1);
    let shorter = plan.run().unwrap().unplayed;
    assert!(0 < one.unplayed && one.unplayed < shorter, "{} and {shorter}", one.unplayed);
    let four = run(&format!("trace:{SAMPLE}"), 8, 1);
    let grown = four.get("calls").unwrap() / calls;
    assert!((3.9..4.1).contains(&grown), "as many copies as there are CPUs for: {grown}");
    assert_ne!(four.hash, run(&format!("trace:{SAMPLE}"), 8, 2).hash, "copies begin at random");
    let small = run(&format!("trace:{SAMPLE}"), 1, 1);
    let all = small.get("calls").unwrap() / calls;
    assert!((0.97..1.03).contains(&all), "one CPU plays what two did: {all}");
}

#[test]
fn a_recording_that_cannot_be_played_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.txt");
    std::fs::write(&file, "nonsense\n").unwrap();
    let refused = |workload: &str| {
        let workload: Workload = workload.parse().unwrap();
        let plan = Plan::new(machine(2), Policy::LINUX_6_18, workload, 1);
        plan.run().unwrap_err().to_string()
    };
    assert!(refused("trace").contains("expected trace:FILE"), "{}", refused("trace"));
    assert!(refused("trace:nowhere.zonal").contains("nowhere.zonal"));
    let damaged = refused(&format!("trace:{}", file.display()));
    assert!(damaged.contains("events.txt"), "{damaged}");
    let many = refused(&format!("trace:{SAMPLE},copies=9"));
    assert!(many.contains("9 copies of 2 CPUs; on 2 CPUs are at most 1"), "{many}");
}

#[test]
fn far_memory_is_a_node_without_cpus_that_is_taken_last_and_comes_slowly() {
    let mut machine = Machine::named("sapphire-cxl-2023-112").unwrap().resized(2).unwrap();
    assert_eq!((machine.nodes(), machine.all_nodes()), (1, 2));
    (machine.memory_mib, machine.far.as_mut().unwrap().memory_mib) = (2048, 512);
    let run = |machine: &Machine, hold: u64| {
        let workload = format!("burst:hold={hold}").parse().unwrap();
        let mut plan = Plan::new(machine.clone(), Policy::LINUX_6_18, workload, 1);
        (plan.cpus, plan.warm_us, plan.run_us) = (Some(1), 0, 1_000_000);
        plan.run().unwrap()
    };
    let (few, most) = (run(&machine, 64), run(&machine, 570_000));
    assert_eq!(few.get("lines_memory_remote"), Some(0.0), "it fits into the near node");
    assert!(most.get("lines_memory_remote").unwrap() > 100_000.0, "{most:?}");
    assert_eq!(most.get("refused"), Some(0.0));
    let mut slower = machine.clone();
    slower.far.as_mut().unwrap().line = 50_000;
    assert!(run(&slower, 570_000).get("calls") < most.get("calls"));
    machine.far.as_mut().unwrap().line = 5;
    let error = Machine::parse(&machine.to_toml()).unwrap_err().to_string();
    assert!(error.contains("far.line: 5; expected"), "{error}");
}
