//! Loads that map memory, send and page: they give back all pages, do what they say on one CPU and
//! on 1024, and end with any numbers.

use zonal_core::policy::Policy;
use zonal_lab::machine::Machine;
use zonal_lab::run::{Figures, Plan};
use zonal_lab::sim::{Outcome, Spec};
use zonal_lab::workload::{KINDS, Workload};

/// Loads that a run may stop anywhere, and which give back everything then.
const LOADS: &[&str] = &[
    "page-bench",
    "page-fault",
    "process-exit",
    "purge",
    "stress-vm",
    "udp-stream",
    "tcp-bandwidth",
    "kv-cache",
    "buffer-pool",
];

/// Numbers with which a load does all that it does within milliseconds.
fn short(load: &str) -> String {
    match load {
        "page-fault" => "page-fault:mib=4".to_owned(),
        "stress-vm" => "stress-vm:mib=1".to_owned(),
        "process-exit" => "process-exit:mib=4".to_owned(),
        "kv-cache" => "kv-cache:step_us=100".to_owned(),
        _ => load.to_owned(),
    }
}

fn machine(cpus: u32) -> Machine {
    let mut machine = Machine::named("broadwell-2017-88").unwrap().resized(cpus).unwrap();
    machine.memory_mib = 2048;
    machine
}

fn workload(text: &str) -> Workload {
    text.parse().unwrap()
}

/// Plays it for some cycles, stops it, and sees that nothing is left.
fn play(text: &str, machine: Machine, policy: Policy, cycles: u64) -> Outcome {
    let cpus = machine.cpus();
    let mut program = workload(text).program(cpus).unwrap();
    let spec = Spec { machine, policy, seed: 1 };
    let run = spec.run(|lab| {
        program.scatter(lab, cpus);
        lab.start(cpus, 0, cycles / 10);
        let outcome = lab.play(program.as_mut(), cycles);
        lab.allocator.validate().unwrap();
        lab.allocator.platform().turn(0, cycles);
        program.finish(lab);
        assert_eq!(lab.pages(), 0, "{text}: pages are left");
        lab.allocator.validate().unwrap();
        Ok(outcome)
    });
    run.unwrap()
}

fn figures(text: &str, machine: Machine, policy: Policy, run_us: u64) -> Figures {
    let plan = Plan { warm_us: run_us, run_us, ..Plan::new(machine, policy, workload(text), 1) };
    plan.run().unwrap()
}

fn of(figures: &Figures, name: &str) -> f64 {
    figures.get(name).unwrap_or_else(|| panic!("no figure is called {name}"))
}

#[test]
fn all_pages_come_back_from_one_cpu_and_from_many() {
    for load in LOADS {
        for cpus in [1, 2, 22] {
            let outcome = play(&short(load), machine(cpus), Policy::LINUX_6_18, 4_000_000);
            assert!(outcome.count.allocs > 100, "{load} on {cpus}: {outcome:?}");
            let got = outcome.load;
            let done = got.done + got.faults + got.sent;
            assert!(done > 0 || *load == "page-bench", "{load} on {cpus}: {outcome:?}");
        }
    }
}

#[test]
fn a_machine_of_1024_cpus_plays_each() {
    for load in LOADS {
        let mut machine = Machine::named("broadwell-2017-88@1024/16").unwrap();
        machine.memory_mib = 1024;
        let outcome = play(&short(load), machine, Policy::ZONAL, 200_000);
        assert!(outcome.count.calls() > 100, "{load}: {outcome:?}");
    }
}

#[test]
fn the_smallest_and_largest_numbers_end_too() {
    let kinds = KINDS.iter().filter(|kind| LOADS.contains(&kind.name));
    for kind in kinds {
        for param in kind.params {
            for value in [param.min, param.max] {
                let text = format!("{}:{}={value}", kind.name, param.name);
                let outcome = play(&text, machine(2), Policy::LINUX_6_18, 500_000);
                assert!(outcome.cycles > 0, "{text}");
            }
        }
    }
}

#[test]
fn a_machine_without_room_refuses_and_goes_on() {
    let mut small = machine(4);
    small.memory_mib = 128;
    for load in ["page-fault:mib=512", "page-fault:mib=512,file=1", "stress-vm:mib=1024,work=1"] {
        let outcome = play(load, small.clone(), Policy::LINUX_6_18, 300_000_000);
        assert!(outcome.count.refused > 0 && outcome.load.done > 1, "{load}: {outcome:?}");
    }
}

#[test]
fn many_processes_wait_for_locks_and_one_does_not() {
    let at = |busy: u32| {
        let plan = Plan {
            cpus: Some(busy),
            warm_us: 5000,
            run_us: 5000,
            ..Plan::new(machine(88), Policy::LINUX_6_6, workload("page-fault:mib=16"), 1)
        };
        plan.run().unwrap()
    };
    let (one, few, all) = (at(1), at(4), at(88));
    assert_eq!(of(&one, "lock_wait_percent"), 0.0);
    assert_eq!(of(&one, "kernel_lock_wait_percent"), 0.0);
    let zone = |figures: &Figures| of(figures, "lock_wait_percent");
    let waits = |figures: &Figures| zone(figures) + of(figures, "kernel_lock_wait_percent");
    assert!(waits(&few) < waits(&all) && waits(&all) > 20.0, "{} {}", waits(&few), waits(&all));
    assert!(of(&all, "free_lock_wait_percent") < zone(&all));
    assert!(of(&all, "free_lock_wait_percent") > 0.0);
    let rate = |figures: &Figures| of(figures, "faults_per_s");
    assert!(rate(&few) > 3.0 * rate(&one), "four processes get more done");
    assert!(rate(&all) < 44.0 * rate(&one), "88 get less than half of it each");
    // A second, in pages and in bytes.
    let bytes = of(&one, "faults_gb_s") * 1e9;
    assert!((bytes / rate(&one) - 4096.0).abs() < 1e-6);
    assert!(of(&one, "system_ns_per_fault") * rate(&one) <= 1e9 * 1.001, "one CPU has a second");
}

#[test]
fn a_file_a_group_and_a_shared_address_space_cost_what_they_should() {
    let run = |text: &str| figures(text, machine(16), Policy::LINUX_6_18, 3000);
    let rate = |text: &str| of(&run(text), "faults_per_s");
    let plain = rate("page-fault:mib=16,groups=0");
    assert!(rate("page-fault:mib=16,groups=0,file=1") < plain, "copies take longer");
    let groups = run("page-fault:mib=16,groups=8");
    assert!(of(&groups, "faults_per_s") < plain, "charges are counted on shared lines");
    assert!(of(&groups, "kernel_lock_wait_percent") > 0.0);
    let shared = run("page-fault:mib=16,groups=0,mmap_lock=1");
    assert!(of(&shared, "faults_per_s") < 0.8 * plain, "all threads change one line");
}

#[test]
fn more_processes_than_cpus_take_turns_and_get_no_more_done() {
    let rate = |processes: u32| {
        let text = format!("page-fault:mib=4,processes={processes}");
        of(&figures(&text, machine(4), Policy::LINUX_6_18, 20_000), "faults_per_s")
    };
    let (two, four, sixteen) = (rate(2), rate(4), rate(16));
    assert!(two < 0.9 * four, "two CPUs have none: {two} {four}");
    assert!((0.85..1.05).contains(&(sixteen / four)), "{sixteen} {four}");
}

#[test]
fn what_the_receiver_cannot_take_is_dropped_without_a_block() {
    let slow =
        figures("udp-stream:pairs=1,place=1,receive=40000", machine(4), Policy::LINUX_6_18, 5000);
    let (sent, received) = (of(&slow, "sent_mbps"), of(&slow, "received_mbps"));
    assert!(received > 0.0 && sent > 3.0 * received, "{sent} {received}");
    let fast =
        figures("udp-stream:pairs=1,place=1,receive=100", machine(4), Policy::LINUX_6_18, 5000);
    let (sent, received) = (of(&fast, "sent_mbps"), of(&fast, "received_mbps"));
    assert!((received / sent - 1.0).abs() < 0.02, "{sent} {received}");
    // A message takes two blocks of 32 KiB, or one and the sender's, once nothing else holds that.
    let blocks = |figures: &Figures| of(figures, "calls") / 2.0;
    let messages = |figures: &Figures, name| of(figures, name) * 5000.0 / 8.0 / 65_507.0;
    let each = blocks(&fast) / messages(&fast, "received_mbps");
    assert!((1.0..2.1).contains(&each), "{each}");
    let dropped = messages(&slow, "sent_mbps") - messages(&slow, "received_mbps");
    let most = 2.2 * messages(&slow, "received_mbps") + 1.1 * dropped;
    assert!(blocks(&slow) < most, "{} {most}", blocks(&slow));
}

#[test]
fn bound_ends_share_a_cache_or_not() {
    let lines = |place: u32, name: &str| {
        let text = format!("udp-stream:pairs=1,place={place}");
        let figures = figures(&text, machine(88), Policy::LINUX_6_18, 2000);
        of(&figures, name)
    };
    assert_eq!(lines(1, "lines_remote"), 0.0, "two cores of a socket");
    assert_eq!(lines(2, "lines_core"), 0.0, "two threads have one cache");
    assert!(lines(3, "lines_remote") > 1000.0, "two sockets");
}

#[test]
fn large_messages_pass_through_memory_and_small_ones_do_not() {
    let misses = |message: u32| {
        let text = format!("tcp-bandwidth:pairs=8,message={message},kib=64");
        let figures = figures(&text, machine(16), Policy::LINUX_6_18, 8000);
        of(&figures, "cache_misses") / of(&figures, "received_mbps")
    };
    let (small, large) = (misses(64), misses(10_240));
    assert!(large > 3.0 * small, "{small} {large}");
}

#[test]
fn many_blocks_at_a_time_go_beyond_the_lists_and_interrupts_take_their_time() {
    let run = |text: &str| figures(text, machine(2), Policy::LINUX_6_6, 20_000);
    let (one, many) = (run("page-bench:tick=0"), run("page-bench:tick=0,hold=8192"));
    assert_eq!(of(&one, "lock_holds"), 0.0);
    assert!(of(&many, "lock_holds") > 20.0, "{many:?}");
    let slow = run("page-bench:tick=400000");
    let ratio = of(&slow, "cycles_per_call") / of(&one, "cycles_per_call");
    assert!((1.05..1.2).contains(&ratio), "0.4 of each 4 ms: {ratio}");
    assert!(of(&slow, "system_percent") > 99.0);
}

#[test]
fn an_exit_empties_on_one_cpu_what_many_have_filled() {
    let text = "process-exit:mib=16,work=0";
    let run = figures(text, machine(16), Policy::LINUX_6_18, 20_000);
    assert!(of(&run, "done_per_s") > 50.0, "{run:?}");
    assert!(of(&run, "refilled_pages") > 4096.0 && of(&run, "drained_pages") > 4096.0);
    assert!(of(&run, "lock_contended") > 0.0);
    // The next process grows while the last one goes.
    assert!(of(&run, "memory_pages_max") > 4096.0 * 1.1, "{run:?}");
}

#[test]
fn a_purge_takes_pages_from_the_cpus_that_touched_them() {
    let run = |purgers: u32, policy| {
        let text = format!("purge:purgers={purgers},extent=16,dirty=4,work=100");
        figures(&text, machine(16), policy, 5000)
    };
    let (own, other) = (run(0, Policy::LINUX_6_18), run(4, Policy::LINUX_6_18));
    assert!(of(&own, "done_per_s") > 0.0 && of(&other, "done_per_s") > 0.0);
    let holds = |figures: &Figures| of(figures, "lock_holds") / of(figures, "calls");
    assert!(holds(&other) > 3.0 * holds(&own), "{} {}", holds(&other), holds(&own));
    let depots = run(4, Policy::ZONAL);
    assert!(holds(&depots) < holds(&other), "depots carry pages back: {}", holds(&depots));
}

#[test]
fn a_server_out_of_memory_preempts_and_goes_on() {
    let mut small = machine(4);
    small.memory_mib = 256;
    let text = "kv-cache:step_us=100,prompt=40,output=40";
    let run = figures(text, small, Policy::LINUX_6_18, 20_000);
    assert!(of(&run, "refused") > 0.0 && of(&run, "done_per_s") > 0.0, "{run:?}");
    let large = figures(text, machine(4), Policy::LINUX_6_18, 20_000);
    assert_eq!(of(&large, "refused"), 0.0);
    assert!(of(&large, "done_per_s") > of(&run, "done_per_s"));
}

#[test]
fn a_pool_of_buffers_keeps_its_size_under_a_scan() {
    let run = figures("buffer-pool:mib=64", machine(8), Policy::LINUX_6_18, 10_000);
    let most = of(&run, "memory_pages_max") - of(&run, "listed_pages_max");
    assert!((16_384.0..1.1 * 16_384.0).contains(&most), "{most}");
    let quiet = figures("buffer-pool:mib=64,scanners=0", machine(8), Policy::LINUX_6_18, 10_000);
    assert!(of(&run, "calls") > 2.0 * of(&quiet, "calls"), "a scan replaces more");
}
