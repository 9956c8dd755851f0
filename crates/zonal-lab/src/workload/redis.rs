//! Pairs of a server that keeps values in memory and a client that loads it over TCP on the machine
//! itself, as `redis-server` and `redis-benchmark` with values of some KiB.
//!
//! As recorded under 6.18 (`-t set,get,lpush -n 90000 -r 60000 -d 2048 -c 40 -P 4`):
//!
//! - Sent data lies in fragments, blocks of order 3. The one side allocates them, the other frees
//!   every one of them.
//! - The client has a fixed number of requests in flight: it fills ten fragments, the server reads
//!   them, and so on. A life is three phases: values set under random keys, values read, values
//!   pushed to lists.
//! - The server keeps values in new memory, page by page. Nothing is freed before the pair ends;
//!   then everything is, and the pair starts again.
//!
//! Left out: the start of both programs, pages of files, and of heads of buffers, which slabs keep.

use std::collections::VecDeque;

use zonal_core::alloc::Request;
use zonal_core::gfp::Gfp;
use zonal_core::types::{Order, Pfn};

use super::kind::{Kind, Param};
use super::pairs::{self, Crew, FRAGMENT, Pairs, copy};
use super::tasks::Tasks;
use crate::cost::contents::Access;
use crate::cost::kernel::{FAULT_NS, RECEIVE_NS, SEND_NS, UNMAP_NS};
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{PAGE_BYTES, PAGE_LINES};

pub(super) const KIND: Kind = Kind {
    name: "redis",
    about: "servers that keep values, each with a client over TCP: blocks of order 3 that change \
            hands, and new pages until the server exits",
    params: &[
        Param {
            name: "pairs",
            about: "servers",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::estimated("as unix-stream has"),
        },
        Param {
            name: "requests",
            about: "requests of each of the three phases of a server's life",
            default: 9_000,
            min: 1,
            max: 1 << 30,
            from: Provenance::estimated(
                "a tenth of the recorded -n 90000, for each of three phases",
            ),
        },
        Param {
            name: "value",
            about: "bytes of a value",
            default: 2048,
            min: 1,
            max: FRAGMENT_BYTES,
            from: Provenance::measured("the recorded redis-benchmark: -d 2048"),
        },
        Param {
            name: "flight",
            about: "requests on their way at a time: connections times those in a row",
            default: 160,
            min: 1,
            max: 1 << 20,
            from: Provenance::measured("the recorded redis-benchmark: -c 40 -P 4"),
        },
        Param {
            name: "work",
            about: "nanoseconds of work on a request, on each side",
            default: 4_000,
            min: 0,
            max: 1_000_000_000,
            from: Provenance::estimated("parsing a request and building its answer"),
        },
    ],
    make: |values, cpus| Box::new(Redis::new(cpus, values)),
};

/// Bytes of a fragment: a block of order 3.
const FRAGMENT_BYTES: u64 = 32_768;
given! {
    /// What a value takes under a key, in percent: allocators of programs have four sizes to a
    /// power of two (jemalloc), and a value of 2048 bytes with its head needs the next one, 2560.
    KEPT_PERCENT: u64 = 125,
        Provenance::sourced(
            "jemalloc: four sizes to a power of two; 2048 bytes and a head take 2560",
        );
}
const PAGE: Request = Request::new(Order::ZERO).gfp(Gfp::HIGHUSER_MOVABLE.union(Gfp::ZERO));

/// Requests of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Set,
    Get,
    Push,
}

/// Requests, or their answers, that travel together.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    phase: Phase,
    requests: u64,
    /// The block that the values lie in, if there are any.
    block: Option<Pfn>,
    /// The last part of a life.
    last: bool,
}

/// Servers and clients at work.
#[derive(Debug)]
pub struct Redis {
    crew: Crew,
    requests: u64,
    value: u64,
    flight: u64,
    work_ns: u64,
    pairs: Vec<Pair>,
    /// Fragments allocated so far, by clients and by servers.
    pub fragments: [u64; 2],
    /// Pages that servers have touched so far.
    pub pages: u64,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    phase: Phase,
    /// Requests of this phase that were sent.
    sent: u64,
    /// Requests without an answer.
    flying: u64,
    asked: VecDeque<Part>,
    answered: VecDeque<Part>,
    /// Keys that have a value.
    keys: u64,
    /// Bytes that the server has to keep in new pages.
    bytes: u64,
    kept: Vec<Pfn>,
    /// The server gives everything back.
    exits: bool,
    /// Its answer once it has stored the data.
    answer: Option<Part>,
    client_sleeps: bool,
    server_sleeps: bool,
}

impl Redis {
    /// On `cpus` CPUs, with numbers in the order in which a workload has them.
    fn new(cpus: u32, values: &[u64]) -> Redis {
        let pairs = vec![Pair::default(); values[0] as usize];
        Redis {
            crew: Crew::new(cpus, values[0] as u32),
            requests: values[1],
            value: values[2],
            flight: values[3],
            work_ns: values[4],
            pairs,
            fragments: [0; 2],
            pages: 0,
        }
    }

    /// Values that fit a fragment.
    fn part(&self) -> u64 {
        FRAGMENT_BYTES / self.value
    }

    /// A fragment with values in it.
    fn fill(&mut self, lab: &mut Lab<'_>, side: usize) -> Option<Pfn> {
        let block = lab.request(FRAGMENT);
        if let Some(block) = block {
            self.fragments[side] += 1;
            copy(lab, block, FRAGMENT.order, Access::Write);
        }
        block
    }

    /// Values of new keys among those that were set: keys are two for each three requests.
    fn new_keys(&mut self, lab: &mut Lab<'_>, at: usize, requests: u64) -> u64 {
        let keys = (self.requests * 2 / 3).max(1);
        let before = self.pairs[at].keys;
        for _ in 0..requests {
            let pair = &mut self.pairs[at];
            pair.keys += u64::from(lab.random_below(keys) >= pair.keys);
        }
        self.pairs[at].keys - before
    }
}

impl Pairs for Redis {
    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    /// The client: an answer read, or requests sent.
    fn send(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let (part, requests) = (self.part(), self.requests);
        let pair = &mut self.pairs[at];
        if let Some(answer) = pair.answered.pop_front() {
            pair.flying -= answer.requests;
            lab.kernel_ns(RECEIVE_NS);
            if let Some(block) = answer.block {
                copy(lab, block, FRAGMENT.order, Access::Read);
                lab.free(block, FRAGMENT.order);
            }
            return;
        }
        if pair.sent == requests {
            let next = match pair.phase {
                Phase::Set => Some(Phase::Get),
                Phase::Get => Some(Phase::Push),
                Phase::Push => None,
            };
            (pair.phase, pair.sent) = next.map_or((Phase::Push, requests + 1), |next| (next, 0));
            pair.asked.extend(next.is_none().then_some(Part { last: true, ..Part::default() }));
        }
        let more = pair.sent <= requests && pair.flying < self.flight;
        if more {
            let count = part.min(requests - pair.sent);
            let phase = pair.phase;
            (pair.sent, pair.flying) = (pair.sent + count, pair.flying + count);
            lab.kernel_ns(SEND_NS + count * self.work_ns);
            let block = if phase == Phase::Get { None } else { self.fill(lab, 0) };
            self.pairs[at].asked.push_back(Part { phase, requests: count, block, last: false });
        }
        let pair = &mut self.pairs[at];
        if !pair.asked.is_empty() && std::mem::take(&mut pair.server_sleeps) {
            tasks.wake(lab, pairs::receiver(at), cpu, !more);
        }
        if !more {
            pair.client_sleeps = true;
            tasks.sleep(cpu);
        }
    }

    /// The server: a page kept or given back, an answer, or requests read.
    fn receive(&mut self, lab: &mut Lab<'_>, tasks: &mut Tasks, cpu: u32, at: usize) {
        let pair = &mut self.pairs[at];
        if pair.exits {
            if let Some(page) = pair.kept.pop() {
                lab.kernel_ns(UNMAP_NS);
                return lab.free(page, Order::ZERO);
            }
            let client_sleeps = pair.client_sleeps;
            let answered = std::mem::take(&mut pair.answered);
            let flying = answered.iter().map(|answer| answer.requests).sum();
            *pair = Pair { answered, flying, ..Pair::default() };
            if client_sleeps {
                tasks.wake(lab, pairs::sender(at), cpu, true);
            }
            return;
        }
        if pair.bytes >= PAGE_BYTES {
            pair.bytes -= PAGE_BYTES;
            lab.kernel_ns(FAULT_NS);
            if let Some(page) = lab.request(PAGE) {
                // Zeroed, then written by the program.
                lab.touch(page, Order::ZERO, PAGE_LINES, Access::Write);
                lab.user_touch(page, Order::ZERO, PAGE_LINES, Access::Write);
                self.pairs[at].kept.push(page);
                self.pages += 1;
            }
            return;
        }
        if let Some(mut answer) = pair.answer.take() {
            lab.kernel_ns(SEND_NS);
            let all = (self.requests * 2 / 3).max(1);
            if answer.phase == Phase::Get && lab.random_below(all) < self.pairs[at].keys {
                answer.block = self.fill(lab, 1);
            }
            let pair = &mut self.pairs[at];
            pair.answered.push_back(answer);
            if std::mem::take(&mut pair.client_sleeps) {
                tasks.wake(lab, pairs::sender(at), cpu, pair.asked.is_empty());
            }
            return;
        }
        let Some(asked) = pair.asked.pop_front() else {
            pair.server_sleeps = true;
            return tasks.sleep(cpu);
        };
        if asked.last {
            pair.exits = true;
            return;
        }
        lab.kernel_ns(RECEIVE_NS + asked.requests * self.work_ns);
        if let Some(block) = asked.block {
            copy(lab, block, FRAGMENT.order, Access::Read);
            lab.free(block, FRAGMENT.order);
        }
        let bytes = match asked.phase {
            Phase::Set => self.new_keys(lab, at, asked.requests) * self.value * KEPT_PERCENT / 100,
            Phase::Get => 0,
            Phase::Push => asked.requests * self.value,
        };
        let pair = &mut self.pairs[at];
        pair.bytes += bytes;
        pair.answer = Some(Part { block: None, ..asked });
    }
}

impl Program for Redis {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        pairs::step(self, lab, cpu)
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        for pair in std::mem::take(&mut self.pairs) {
            pair.kept.into_iter().for_each(|page| lab.free(page, Order::ZERO));
            let parts = pair.asked.into_iter().chain(pair.answered).chain(pair.answer);
            parts.filter_map(|part| part.block).for_each(|block| lab.free(block, FRAGMENT.order));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use zonal_core::policy::Policy;
    use zonal_trace::{EventKind, Recording};

    use super::*;
    use crate::machine::Machine;
    use crate::sim::Spec;

    /// What two programs did: fragments of the client and of the server, and the server's pages.
    #[derive(Debug)]
    struct Shares {
        fragments: [f64; 2],
        pages: f64,
    }

    impl Shares {
        fn order_3(&self) -> f64 {
            let fragments = self.fragments[0] + self.fragments[1];
            fragments / (fragments + self.pages)
        }
    }

    /// The recording, or a loud `None` on a machine without it.
    fn recorded() -> Option<Shares> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/redis");
        if !path.exists() {
            eprintln!("skipped: no {}", path.display());
            return None;
        }
        let recording = Recording::open(&path).unwrap();
        let mut owners: BTreeMap<u64, i32> = BTreeMap::new();
        let (mut fragments, mut pages) = (BTreeMap::<i32, u64>::new(), BTreeMap::new());
        let mut kept_by_owner = 0;
        for event in recording.events() {
            let event = event.unwrap();
            match event.kind {
                EventKind::Alloc { pfn: Some(pfn), order: 3, .. } => {
                    owners.insert(pfn, event.pid);
                    *fragments.entry(event.pid).or_default() += 1;
                }
                EventKind::Alloc { order: 0, gfp, .. } if gfp & Gfp::MOVABLE.bits() != 0 => {
                    *pages.entry(event.pid).or_default() += 1;
                }
                EventKind::Free { pfn, order: 3 } => {
                    kept_by_owner += u64::from(owners.remove(&pfn) == Some(event.pid));
                }
                _ => {}
            }
        }
        assert!(kept_by_owner < 10, "every fragment is freed by the other side");
        let most = |of: &BTreeMap<i32, u64>| {
            let most = of.iter().max_by_key(|of| of.1).map(|(pid, count)| (*pid, *count));
            most.unwrap()
        };
        let (client, by_client) = most(&fragments);
        fragments.remove(&client);
        let (server, by_server) = most(&fragments);
        assert_eq!(most(&pages).0, server);
        let pages = pages[&server] as f64;
        Some(Shares { fragments: [by_client as f64, by_server as f64], pages })
    }

    /// One life of a pair, with a number of requests in each phase.
    fn life(requests: u64) -> Shares {
        let machine = Machine::named("icelake-2023-128").unwrap().resized(4).unwrap();
        let spec = Spec { machine, policy: Policy::LINUX_6_12, seed: 1 };
        spec.run(|lab| {
            let mut redis = Redis::new(4, &[1, requests, 2048, 160, 4000]);
            lab.start(4, 0, 1);
            let (mut until, mut exits) = (0, false);
            while !exits {
                until += 1_000_000;
                lab.play(&mut redis, until);
                exits = redis.pairs[0].exits;
                assert!(redis.pages < requests, "a life ends");
            }
            let fragments = redis.fragments.map(|count| count as f64);
            let pages = redis.pages as f64;
            redis.finish(lab);
            assert_eq!(lab.pages(), 0);
            Ok(Shares { fragments, pages })
        })
        .unwrap()
    }

    #[test]
    fn a_life_has_the_recorded_shares_of_orders_and_sides() {
        let Some(recorded) = recorded() else { return };
        let lab = life(9_000);
        let near = |of: fn(&Shares) -> f64, by: f64| {
            let (lab, recorded) = (of(&lab), of(&recorded));
            assert!((lab / recorded - 1.0).abs() < by, "{lab} for {recorded} recorded");
        };
        // A tenth of the recorded requests: shares, not counts.
        near(|shares| shares.pages / shares.fragments[0], 0.2);
        near(Shares::order_3, 0.25);
        assert!(lab.fragments[1] < lab.fragments[0] / 2.0, "{lab:?}");
        assert!(recorded.fragments[1] < recorded.fragments[0] / 2.0, "{recorded:?}");
    }

    #[test]
    fn a_fragment_for_sixteen_values_and_pages_for_what_is_kept() {
        let lab = life(3_200);
        // Two phases send 200 fragments each.
        assert_eq!(lab.fragments[0], 400.0);
        // 3200 values pushed are 1600 pages. Of 2133 keys 1657 are set (1 - e^-1.5), in 1035 more.
        assert!((lab.pages - 2635.0).abs() < 60.0, "{lab:?}");
    }
}
