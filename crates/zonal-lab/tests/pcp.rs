//! The workloads and experiments of 2023 on small machines: what each step of the per-CPU lists'
//! tuning changes, and that programs give back all they took.

use zonal_core::policy::Policy;
use zonal_core::types::CpuId;
use zonal_lab::machine::Machine;
use zonal_lab::recipe::policy;
use zonal_lab::run::{Figures, Plan};
use zonal_lab::sim::Spec;

fn machine(name: &str, cpus: u32) -> Machine {
    let mut machine = Machine::named(name).unwrap().resized(cpus).unwrap();
    machine.memory_mib = 16_384;
    machine
}

fn run(machine: &Machine, name: &str, workload: &str, ms: u64) -> Figures {
    let policy = policy(&format!("{name}+watermark.min_free=linux")).unwrap();
    let mut plan = Plan::new(machine.clone(), policy, workload.parse().unwrap(), 5);
    (plan.warm_us, plan.run_us) = (ms * 1000, ms * 1000);
    plan.run().unwrap()
}

fn per_call(figures: &Figures, name: &str) -> f64 {
    figures.get(name).unwrap() / figures.get("calls").unwrap()
}

#[test]
fn everything_that_was_allocated_is_freed_when_a_program_is_finished() {
    for workload in [
        "kbuild:groups=2,jobs=3,scale=50,user=500",
        "unix-stream:pairs=3",
        "sctp-many:work=20000",
        "redis:pairs=3,requests=600,work=500",
        "iperf:pairs=2",
    ] {
        let machine = machine("icelake-2023-128", 8);
        let plan = Plan::new(machine.clone(), Policy::LINUX_6_12, workload.parse().unwrap(), 3);
        let spec = Spec { machine, policy: Policy::LINUX_6_12, seed: 3 };
        spec.run(|lab| {
            let mut program = plan.workload.program(8)?;
            let figures = plan.measure(lab, 8, program.as_mut(), &mut || {});
            assert!(figures.get("calls").unwrap() > 500.0, "{workload}: {figures:?}");
            assert!(lab.pages() > 0, "{workload}");
            program.finish(lab);
            assert_eq!(lab.pages(), 0, "{workload}");
            lab.allocator.validate().unwrap();
            let free = |lab: &zonal_lab::sim::Lab<'_>| -> u64 {
                let buddies = lab.allocator.zones().iter().map(|zone| zone.free_counter());
                buddies.sum()
            };
            lab.allocator.drain_all();
            (0..8).for_each(|cpu| _ = lab.allocator.refresh(CpuId(cpu)));
            let managed: u64 = lab.allocator.zones().iter().map(|zone| zone.managed()).sum();
            assert_eq!(free(lab), managed, "{workload}");
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn streams_of_large_frees_empty_the_lists_less_often_with_each_step() {
    // A core for each task: who sends and receives on one CPU gets its own pages back.
    let machine = machine("icelake-2023-128", 48);
    let of = |name| run(&machine, name, "unix-stream:pairs=6", 4);
    let [base, one, three, nine] = ["linux-6.6", "pcp-patch1", "pcp-patch3", "pcp-patch9"].map(of);
    let forced = |figures: &Figures| per_call(figures, "forced_drains");
    // A message is four blocks of orders 3 to 0: three large frees, two of them behind a large one,
    // and 15 pages, of which a batch of 63 holds four.
    let ratio = |of: &Figures, to: &Figures| forced(of) / forced(to);
    assert!((0.6..0.75).contains(&ratio(&one, &base)), "{}", ratio(&one, &base));
    assert!((0.05..0.1).contains(&ratio(&three, &base)), "{}", ratio(&three, &base));
    assert!((0.05..0.1).contains(&ratio(&nine, &base)), "{}", ratio(&nine, &base));
    let speed = |figures: &Figures| figures.get("calls_per_s").unwrap();
    assert!(speed(&one) > speed(&base) && speed(&three) > speed(&one));
    let holds = |figures: &Figures| per_call(figures, "lock_holds");
    assert!(holds(&three) < 0.5 * holds(&base));
}

#[test]
fn messages_in_blocks_of_one_order_are_a_stream_from_the_first_on() {
    let machine = machine("icelake-2023-128", 8);
    let of = |name| run(&machine, name, "sctp-many:pairs=4", 10);
    let [base, one, three] = ["linux-6.6", "pcp-patch1", "pcp-patch3"].map(of);
    assert_eq!(base.get("forced_drains"), one.get("forced_drains"));
    // Eight pages at a time, or a batch.
    let ratio = per_call(&three, "forced_drains") / per_call(&base, "forced_drains");
    assert!((0.1..0.16).contains(&ratio), "{ratio}");
}

#[test]
fn a_build_refills_less_with_each_step_and_its_lists_hold_more() {
    let machine = machine("sapphire-2023-224", 16);
    let workload = "kbuild:groups=4,jobs=4,scale=100,user=2000";
    let of = |name| run(&machine, name, workload, 60);
    let [base, five, seven] = ["linux-6.6", "pcp-patch5", "pcp-patch7"].map(of);
    let refilled = |figures: &Figures| per_call(figures, "refilled_pages");
    assert!(refilled(&seven) < 0.7 * refilled(&base), "{seven:?} {base:?}");
    assert!(per_call(&five, "lock_holds") < 0.8 * per_call(&base, "lock_holds"));
    let listed = |figures: &Figures| figures.get("listed_pages_max").unwrap();
    assert!(listed(&seven) > 2.0 * listed(&base));
    let again = of("pcp-patch7");
    assert_eq!(seven, again, "the same run twice");
}

#[test]
fn pairs_spread_over_the_nodes_and_each_stays_on_one() {
    let machine = machine("icelake-2023-128", 32);
    let workload = "unix-stream:pairs=6";
    let plan = Plan::new(machine.clone(), Policy::LINUX_6_12, workload.parse().unwrap(), 4);
    let spec = Spec { machine, policy: Policy::LINUX_6_12, seed: 4 };
    let (figures, refills) = spec
        .run(|lab| {
            let mut program = plan.workload.program(32)?;
            let figures = plan.measure(lab, 32, program.as_mut(), &mut || {});
            let of = |zone| {
                let pcps = (0..32).flat_map(|cpu| lab.allocator.tables().pcps(zone, CpuId(cpu)));
                pcps.map(|pcp| pcp.totals().refilled_pages).sum::<u64>()
            };
            let zones = lab.allocator.zones().iter().map(|zone| (zone.node().0, of(zone.id())));
            Ok((figures, zones.collect::<Vec<_>>()))
        })
        .unwrap();
    let on = |node| refills.iter().filter(|of| of.0 == node).map(|of| of.1).sum::<u64>();
    assert!(on(0) > on(1) / 4 && on(1) > on(0) / 4, "{refills:?}");
    // A pair of which each end was on another node would copy every line from there.
    let lines = |name| figures.get(name).unwrap();
    assert!(lines("lines_remote") < 0.1 * lines("lines_core"), "{figures:?}");
}
