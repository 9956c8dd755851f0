//! The questions: which run stands for which measurement before and after its change.
//!
//! Kernels between presets are the preset that follows or precedes with the values that differ.
//! Loads are shaped by recordings and descriptions (`workload`), not by the figures that they
//! answer.

use super::{BLOCK_LINES, Fit, Question, Value};
use crate::recipe::Recipe;

/// 5.13 to 5.17: lists of orders 0 to 3 whose drains double, drained in turns and by work items.
const V5_17: &str = "linux-6.6+pcp.tuning=5.13+pcp.drain=growing+pcp.drain_remote=work+\
                     pcp.huge_lists=by-type";
/// 5.18: large frees empty the lists while drains double.
const V5_18: &str = "linux-6.6+pcp.drain_remote=work+pcp.huge_lists=by-type";

/// 6.18 whose lists decay in one hold, too: the change is described as one of both.
const V6_18: &str = "linux-6.18+pcp.drain_decay=whole";

/// Times of a run, in microseconds: before anything is measured, and measured.
type Times = (u64, u64);
const SHORT: Times = (2_000, 2_000);
const SOCKETS: Times = (50_000, 50_000);
/// Processes map 4 MiB at a time instead of 128, so that each goes through its round several times,
/// and as many map as unmap as would in the long run.
const FAULTS: Times = (20_000, 20_000);
/// Lists that tune themselves find their size in tens of milliseconds of this load.
const TUNED: Times = (60_000, 30_000);
/// Refreshes of statistics let lists decay, each CPU's once a second: all of them while lists grow,
/// then twice.
const BUILD: Times = (1_000_000, 2_000_000);
/// A refresh of every CPU: they come a second apart, the first after a tenth of one.
const SECOND: Times = (90_000, 1_000_000);

const FAULTS_PER_S: Value = Value::Of("faults_per_s", 1.0);
const SPINNING: Value = Value::Of("lock_wait_percent", 1.0);
const SPINNING_IN_FREES: Value = Value::Of("free_lock_wait_percent", 1.0);
const MEMORY_KB: Value = Value::Of("memory_pages_max", 4.0);
/// The same of processes that map 32 times as much.
const MAPPED_KB: Value = Value::Of("memory_pages_max", 32.0 * 4.0);
const CYCLES_OF_A_PAIR: Value = Value::Of("cycles_per_call", 2.0);
const RECEIVED: Value = Value::Of("received_mbps", 1.0);

/// A load on a machine.
fn load((warm_us, run_us): Times, machine: &str, policy: &str, workload: &str) -> Recipe {
    Recipe { warm_us, run_us, ..Recipe::new(machine, policy, workload) }
}

/// The same under another policy.
fn under(recipe: &Recipe, policy: &str) -> Recipe {
    Recipe { policy: policy.to_owned(), ..recipe.clone() }
}

/// The same with its kernel changed.
fn with(recipe: &Recipe, variant: &str) -> Recipe {
    Recipe { variant: variant.to_owned(), ..recipe.clone() }
}

/// The same as another load.
fn doing(recipe: &Recipe, workload: &str) -> Recipe {
    Recipe { workload: workload.to_owned(), ..recipe.clone() }
}

/// The same on the first CPUs alone.
fn busy(recipe: &Recipe, cpus: u32) -> Recipe {
    Recipe { busy: Some(cpus), ..recipe.clone() }
}

fn ask(id: &'static str, figure: &str, value: Value, [before, after]: [Recipe; 2]) -> Question {
    let figure = figure.to_owned();
    Question { id, figure, before, after, value, fit: None, missing: "", note: "" }
}

fn fit(parameter: &'static str, (least, most): (u64, u64), published: f64, value: Value) -> Fit {
    Fit { parameter: Some(parameter), least, most, published, value }
}

/// Every question, in the order of their identifiers.
pub fn questions() -> Vec<Question> {
    let parts: [fn() -> Vec<Question>; 8] =
        [counters, sockets, file_faults, builds, datagrams, faults, curves, refreshes];
    parts.into_iter().flat_map(|part| part()).collect()
}

/// K1, K2 and B1: one block allocated and freed, over and over.
fn counters() -> Vec<Question> {
    let mut asked = Vec::new();
    let threshold =
        |at: u32| format!("linux-6.18+numa.storage=s16_thr32765_overstep+numa.threshold={at}");
    let k1 = load(SHORT, "skylake-2017-112", &threshold(125), "page-bench");
    let sides = [k1.clone(), under(&k1, &threshold(32_765))];
    asked.push(ask("K1", "cycles per pair", CYCLES_OF_A_PAIR, sides));
    let k2 = load(SHORT, "broadwell-2017-88", "linux-4.14", "page-bench");
    for (cpus, figure) in [(1, "page_bench01, one thread"), (88, "page_bench03, 88 threads")] {
        let sides = [
            busy(&k2, cpus),
            busy(&under(&k2, "linux-4.14+numa.enable=sysctl+numa.stat=off"), cpus),
        ];
        asked.push(Question {
            note: "work.alloc and work.free of this machine were set by the same loop under 4.13",
            ..ask("K2", &format!("cycles per pair, {figure}"), CYCLES_OF_A_PAIR, sides)
        });
    }
    let b1 = load(SHORT, "haswell-2013-8", "linux-4.13", "page-bench");
    // Orders 1 to 3 took 395, 433 and 503 cycles: 18 for each page of the block at 4 GHz.
    for order in 4..=9 {
        let of = |order: u32| busy(&doing(&b1, &format!("page-bench:order={order},page=4500")), 1);
        let value = CYCLES_OF_A_PAIR;
        let published = Fit { parameter: None, least: 0, most: 0, published: 395.0, value };
        asked.push(Question {
            fit: Some(published),
            note: "ratio to order 1; 18 cycles a page by the figures of orders 1 to 3",
            ..ask(
                "B1",
                &format!("cycles per pair, order {order}"),
                CYCLES_OF_A_PAIR,
                [of(1), of(order)],
            )
        });
    }
    for cpus in 2..=8 {
        let published = fit("work", (0, 200), 274.0, CYCLES_OF_A_PAIR);
        asked.push(Question {
            fit: Some(published),
            note: "ratio to one CPU",
            ..ask(
                "B1",
                &format!("cycles per pair, {cpus} CPUs"),
                CYCLES_OF_A_PAIR,
                [busy(&b1, 1), busy(&b1, cpus)],
            )
        });
    }
    asked
}

/// L1, L2 and L6: many pairs over sockets of the machine itself.
fn sockets() -> Vec<Question> {
    let mut asked = Vec::new();
    let machine = "icelake-2021-128";
    let l1 = load(SOCKETS, machine, "pcp-patch2", "sctp-many:pairs=256,bytes=10240");
    let mbps = Value::Of("received_mbps", 1.0 / 256.0);
    for (figure, value) in
        [("Mbps per stream", mbps), ("idle percent", Value::Rest("busy_percent"))]
    {
        asked.push(Question {
            fit: Some(fit("pairs", (4, 256), 53.93, Value::Rest("busy_percent"))),
            note: "of 256 streams as many send at a time as leave the published part idle; others \
                   wait for acknowledgements, which the model has none of",
            ..ask("L1", figure, value, [l1.clone(), under(&l1, "pcp-patch3")])
        });
    }
    let l2 = load(SOCKETS, machine, "pcp-patch2", "udp-stream:pairs=64");
    // Of a pair, on average.
    for (figure, value) in [
        ("received Mbps", Value::Of("received_mbps", 1.0 / 64.0)),
        ("sent Mbps", Value::Of("sent_mbps", 1.0 / 64.0)),
        ("memory used kB", MEMORY_KB),
    ] {
        asked.push(Question {
            note: "memory: the load's and the lists', without what the system had before",
            ..ask("L2", figure, value, [l2.clone(), under(&l2, "pcp-patch3")])
        });
    }
    let l6 = load(SOCKETS, "ivybridge-2013-48", "pcp-patch8", "tcp-bandwidth");
    let mb_s = Value::Of("received_mbps", 1.0 / 8.0);
    asked.push(Question {
        fit: Some(fit("work", (0, 200_000), 32_188.0, mb_s)),
        ..ask("L6", "MB/s", mb_s, [l6.clone(), under(&l6, "pcp-patch9")])
    });
    asked
}

/// L3 and L4: private copies of a file's pages.
fn file_faults() -> Vec<Question> {
    let mut asked = Vec::new();
    let machine = "skylake-2017-104";
    let l3 = load(TUNED, machine, "pcp-patch4", "page-fault:mib=4,file=1,lru_batch=15");
    for (figure, value) in [
        ("pages per second", FAULTS_PER_S),
        ("percent of cycles spinning in frees", SPINNING_IN_FREES),
        ("cache-miss rate", Value::Of("cache_miss_percent", 1.0)),
    ] {
        asked.push(Question {
            fit: Some(fit("fault", (50, 20_000), 8_592_059.0, FAULTS_PER_S)),
            ..ask("L3", figure, value, [busy(&l3, 52), busy(&under(&l3, "pcp-patch5"), 52)])
        });
    }
    let l4 = load(TUNED, machine, "pcp-patch6", "page-fault:mib=4,file=1,lru_batch=15,mmap_lock=1");
    for (figure, value) in [("pages per second", FAULTS_PER_S), ("memory used kB", MAPPED_KB)] {
        asked.push(Question {
            fit: Some(fit("fault", (50, 100_000), 2_787_817.0, FAULTS_PER_S)),
            note: "threads of one process share the lock of its address space; memory: the load's \
                   and the lists', without what the system had before",
            ..ask("L4", figure, value, [l4.clone(), under(&l4, "pcp-patch7")])
        });
    }
    asked
}

/// L5, H2's build and M1: builds of a kernel.
fn builds() -> Vec<Question> {
    let mut asked = Vec::new();
    let time = Value::Over("calls_per_s", 1e6);
    let l5 = load(BUILD, "sapphire-2023-224", "pcp-patch6", "kbuild");
    for (figure, value) in [("time, relative", time), ("percent of cycles spinning", SPINNING)] {
        asked.push(Question {
            note: "the load's work between two pages was set by the same series' base row (table \
                   pcp-kbuild, in view)",
            ..ask("L5", figure, value, [l5.clone(), under(&l5, "pcp-patch7")])
        });
    }
    let h2 = load(BUILD, "sapphire-2023-224", "linux-6.6", "kbuild:groups=1,jobs=224");
    asked.push(ask(
        "H2",
        "make -j224: percent of cycles on the zone lock",
        SPINNING,
        [h2.clone(), with(&h2, "zones=4")],
    ));
    for (machine, cpus) in [("host-2025-316", 316), ("host-2023-176", 176), ("host-2021-36", 36)] {
        let before = load(BUILD, machine, V6_18, &format!("kbuild:groups=1,jobs={cpus}"));
        for (figure, value) in [
            ("system time, relative", Value::Of("system_ns_per_fault", 1.0)),
            ("real time, relative", Value::Over("faults_per_s", 1e6)),
        ] {
            asked.push(Question {
                note: "processors are guessed: the description has none",
                ..ask(
                    "M1",
                    &format!("{cpus} CPUs: {figure}"),
                    value,
                    [before.clone(), under(&before, "linux-6.19")],
                )
            });
        }
    }
    asked
}

/// U1 to U3: one client, one server, datagrams in blocks of order 3.
fn datagrams() -> Vec<Question> {
    let mut asked = Vec::new();
    let bypassed = format!("{V5_17}+pcp.orders=0");
    // A CPU's part of its zone over the pages that its lists may hold.
    let sizes = [
        (
            "U1",
            "icelake-2021-128",
            100_662.0,
            [
                ("L2 (320 pages)", 1587),
                ("2 x L2", 794),
                ("half LLC (6144 pages)", 83),
                ("more than LLC (16384 pages)", 31),
            ],
        ),
        (
            "U2",
            "skylake-2015-8",
            86_780.0,
            [
                ("L2 (64 pages)", 6144),
                ("2 x L2", 3072),
                ("half LLC (1024 pages)", 384),
                ("more than LLC (4096 pages)", 96),
            ],
        ),
    ];
    for (id, machine, published, highs) in sizes {
        let before = load(SOCKETS, machine, &bypassed, "udp-stream:pairs=1,place=1,receive=1000");
        for (high, fraction) in highs {
            let after = format!("{V5_17}+pcp.high_fraction={fraction}");
            asked.push(Question {
                fit: Some(fit("send", (0, 20_000), published, RECEIVED)),
                ..ask(
                    id,
                    &format!("Mbps, high = {high}"),
                    RECEIVED,
                    [before.clone(), under(&before, &after)],
                )
            });
        }
    }
    for (place, figure) in [(1, "two cores of a node"), (2, "two threads of a core")] {
        let workload = format!("udp-stream:pairs=1,place={place}");
        let before = load(SOCKETS, "icelake-2021-128", V5_17, &workload);
        let sides = [before.clone(), under(&before, V5_18)];
        asked.push(ask("U3", &format!("Mbps, {figure}"), RECEIVED, sides));
    }
    asked
}

/// H1, H2, A1 and A2: page_fault1 on many CPUs.
fn faults() -> Vec<Question> {
    let mut asked = Vec::new();
    let h1 = load(TUNED, "sapphire-2023-112", "linux-6.6", "page-fault:mib=4,lru_batch=15");
    let gb_s = Value::Of("faults_gb_s", 1.0);
    for policy in ["linux-6.12", "zonal"] {
        for (figure, value) in [("GB/s", gb_s), ("percent of cycles spinning", SPINNING)] {
            asked.push(Question {
                fit: Some(fit(BLOCK_LINES, (1, 1000), 34.3, gb_s)),
                ..ask(
                    "H1",
                    &format!("{figure} ({policy})"),
                    value,
                    [busy(&h1, 56), busy(&under(&h1, policy), 56)],
                )
            });
        }
    }
    let workload = "page-fault:mib=4,processes=16,lru_batch=15";
    let h2 = busy(&load(FAULTS, "sapphire-2023-224", "linux-6.6", workload), 16);
    asked.push(Question {
        note: "16 processes on 16 cores of one node; its four zones take turns by the number of \
               the CPU. The figure before was in view when lines of a block were counted",
        ..ask(
            "H2",
            "16 processes: percent of cycles on the zone lock",
            SPINNING,
            [h2.clone(), with(&h2, "zones=4")],
        )
    });
    let machines = [
        ("broadwell-2017-88", 9_034_215.0),
        ("skylake-2017-112", 7_971_818.0),
        ("broadwell-2016-192", 13_667_135.0),
        ("skylake-2017-224", 15_677_465.0),
    ];
    for (machine, published) in machines {
        let before = load(FAULTS, machine, "linux-4.14", "page-fault:mib=4,lru_batch=15");
        for variant in ["chosen-before", "prefetched"] {
            asked.push(Question {
                fit: Some(fit(BLOCK_LINES, (20, 1000), published, FAULTS_PER_S)),
                note: "the figure before is taken as pages in a second",
                ..ask(
                    "A1",
                    &format!("pages, {machine}, {variant}"),
                    FAULTS_PER_S,
                    [before.clone(), with(&before, variant)],
                )
            });
        }
    }
    let policy = "linux-4.14+pcp.batch_cap=256";
    let a2 = load(FAULTS, "skylake-2017-112", policy, "page-fault:mib=4,lru_batch=15");
    for (figure, value) in [("all", SPINNING), ("in frees", SPINNING_IN_FREES)] {
        let sides = [a2.clone(), with(&a2, "singles-apart")];
        asked.push(ask(
            "A2",
            &format!("percent of cycles on the zone lock, {figure}"),
            value,
            sides,
        ));
    }
    asked
}

/// G1 and G2: page_fault1 by the number of processes.
fn curves() -> Vec<Question> {
    let mut asked = Vec::new();
    let machines =
        [("G1", "cascadelake-2019-80", 2_694_662.0), ("G2", "zen1-2017-128", 3_087_765.0)];
    let counts = [5, 8, 12, 21, 30, 48, 79, 110, 172, 234, 320];
    for (id, machine, published) in machines {
        for count in counts {
            let of = |count: u32| {
                let workload = format!("page-fault:mib=4,processes={count},lru_batch=15");
                load(FAULTS, machine, V5_17, &workload)
            };
            asked.push(Question {
                fit: Some(fit("fault", (50, 20_000), published, FAULTS_PER_S)),
                note: "ratio to 2 processes",
                ..ask(id, &format!("pages/s, {count} processes"), FAULTS_PER_S, [of(2), of(count)])
            });
        }
    }
    asked
}

/// M2: what all CPUs' refreshes in one moment cost.
fn refreshes() -> Vec<Question> {
    let before = with(&load(SECOND, "altra-2020-72", "linux-6.18", "stress-vm"), "refresh-aligned");
    let mut asked = Vec::new();
    for (figure, value) in [
        ("contentions of frees to the zone", Value::Of("free_lock_contended", 1.0)),
        ("wait of frees to the zone, ms", Value::Of("free_lock_wait_ms", 1.0)),
    ] {
        asked.push(Question {
            note: "a run of two seconds; the published one's length is not known",
            ..ask("M2", figure, value, [before.clone(), with(&before, "refresh-staggered")])
        });
    }
    asked
}
