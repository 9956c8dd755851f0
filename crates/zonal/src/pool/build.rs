//! Construction of a pool from its configuration.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use zonal_core::alloc::Raw;
use zonal_core::machine::Layout;
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, PAGE_SIZE};
use zonal_core::vmstat::variant::NumaPolicy;

use super::builder::{BuildError, Builder, CpuMap, Notice};
use super::faults::Faults;
use super::gated::Owns;
use super::mode::Grants;
use super::plan::Plan;
use super::poison::Poison;
use super::records::Records;
use super::typed::{self, Typed};
use super::{Pool, Shared, fork, grow};
use crate::platform::{Mode, ProcessPlatform};
use crate::reclaim::{Place, Registry};
use crate::rseq::FastRef;
use crate::sys::affinity::possible_cpus_max;
use crate::sys::cgroup::CgroupFiles;
use crate::sys::membarrier::RseqFence;
use crate::sys::rseq_abi::RseqArea;
use crate::sys::topology::{
    CpuPlacement, SYSFS_CPU, SYSFS_NODE, Source, SysfsRoots, Topology, hidden,
};

/// Environment variable that turns restartable sequences off, and what it says then.
const RSEQ_SWITCH: &str = "ZONAL_RSEQ";
const RSEQ_OFF: &str = "off";

/// Says so where the variable has a value that says nothing.
fn unknown(value: Option<&OsStr>) -> Option<Notice> {
    let value = value.filter(|value| !value.is_empty() && *value != RSEQ_OFF)?;
    let value = value.to_string_lossy();
    let expected = "expected off, or unset: sequences may be used, as without it";
    Some(Notice(format!("{RSEQ_SWITCH} is {value:?} and turns nothing off; {expected}")))
}

/// Says so where the pool has one node because nobody can tell which ones there are.
fn one_node(topology: &Topology) -> Option<Notice> {
    let unknown = topology.source() == Source::SysfsWithoutNodes;
    let why = unknown.then(|| hidden(&SysfsRoots::default())).flatten()?;
    Some(Notice(format!(
        "{why}: the pool takes the machine to be one node, and cannot tell near memory from far; \
         let the process read {SYSFS_NODE} and {SYSFS_CPU}"
    )))
}

impl Builder {
    /// Makes the pool.
    ///
    /// # Errors
    /// [`BuildError`] names the invalid option, or what the operating system refused.
    pub fn build(mut self) -> Result<Pool, BuildError> {
        self.check()?;
        let topology = match &self.fake {
            Some((nodes, cpus)) => Topology::read()?.split(*nodes, &placement(cpus))?,
            None => Topology::read()?,
        };
        let plan = Plan::new(&self, &topology)?;
        self.check_plan(&plan)?;
        let mut notices = self.first_notices(&plan, &topology);
        let memory = self.map_memory(&plan, &topology, &mut notices)?;
        // SAFETY: (1) `plan` moves into the pool next to the allocator that borrows from it, is not
        // changed there, and is dropped after it (POOL-2); moving a vector does not move its items.
        let machine = unsafe { plan.machine() };
        let cpus = machine.cpus;
        let by_list = machine.grouping(&self.policy) || self.policy.numa.records();
        self.policy = in_a_pool(self.policy);
        let (mode, sequences) = self.mode(cpus.len(), by_list);
        let layout = Layout::of(&machine, &self.policy)?;
        let records = Records::map(&layout)?;
        // SAFETY: (1) `records` moves into the pool next to the allocator that uses the tables, and
        // is dropped after it (POOL-2); (2) called once.
        let (metadata, fast) = unsafe { records.tables(&layout) };
        let consumers = Registry::new(Place::of(&machine), self.last_resort.clone());
        let platform = ProcessPlatform::new(
            RseqArea::find().ok(),
            sequences,
            cpus.len() as u32,
            consumers,
            machine.nodes(),
        );
        let offset = platform.area().map_or(0, RseqArea::offset);
        let allocator = grow::bring_up(&machine, self.policy, metadata, platform, self.deferred)?;
        if self.prefault && self.deferred {
            grow::prefault_first(&allocator, &memory)?;
        }
        let offset = if mode == Mode::Rseq { offset } else { 0 };
        let header = plan.header(&allocator, memory.base().as_ptr() as usize, offset, by_list);
        // SAFETY: (1) `tables` made room for it there, and it is not shared yet.
        unsafe { fast.write(header) };
        // SAFETY: (1) it lies where `tables` has put it, in the mapping that `records` keeps; (2)
        // derived from the mapping's address.
        let fast = unsafe { FastRef::new(fast) };
        // SAFETY: (1) and (2) the types of pageblocks are read and not written.
        let blocks = unsafe { Raw::new(&allocator) }.blocks();
        let (fast, typed) = Typed::of((&plan, &self.policy), &allocator, (fast, by_list), blocks);
        let as_they_are = !self.poison && self.fail_alloc.is_none();
        let owns = match as_they_are {
            // SAFETY: (1) the pool keeps them beside this allocator.
            true => unsafe { Owns::of(&allocator) },
            false => Owns::default(),
        };
        let shared = Arc::new(Shared {
            fast,
            owns,
            typed,
            pages: layout.words,
            poison: self.poison.then(Poison::default),
            faults: self.fail_alloc.map(Faults::new),
            allocator,
            trimmed_bytes: AtomicU64::new(0),
            residency: super::resident::Residency::default(),
            trimming: std::sync::Mutex::default(),
            growth: grow::Growth::default(),
            misuses: super::misuse::Misuses::new(self.misuse.clone()),
            life: super::life::Life::new(),
            observer: self.observe.as_deref().map(super::observe::Observer::new),
            worker: std::sync::Mutex::default(),
            background: super::background::Background::default(),
            wants_background: self.background,
            budget: super::budget::Budget::default(),
            grants: Grants::new(mode, notices),
            memory,
            records,
            _plan: plan,
        });
        self.begin(Pool { fast, shared })
    }

    /// Starts what goes on beside the requests of a pool.
    fn begin(self, pool: Pool) -> Result<Pool, BuildError> {
        pool.shared.poison_all();
        if let Some(bytes) = self.budget {
            pool.shared.set_budget(bytes)?;
        }
        fork::register(&pool.shared);
        pool.shared.show_first()?;
        let failed = |thread| move |why| BuildError::Thread { thread, why };
        if let Some(interval) = self.refresh {
            pool.restart_worker(interval, self.trim_rate).map_err(failed("refresh"))?;
        }
        grow::start(&pool.shared, self.prefault).map_err(failed("growth"))?;
        Ok(pool)
    }

    /// What is to be said before anything was taken from the system.
    fn first_notices(&self, plan: &Plan, topology: &Topology) -> Vec<Notice> {
        let given = plan.pages as usize * PAGE_SIZE;
        let switch = unknown(std::env::var_os(RSEQ_SWITCH).as_deref());
        let limit = self.too_large(given, &CgroupFiles::default());
        let rounded = self.rounded_up(given, topology.nodes().len());
        let nothing = self.without_a_page();
        [switch, one_node(topology), rounded, limit, nothing].into_iter().flatten().collect()
    }

    /// Says so where the budget, in bytes, leaves not a page.
    fn without_a_page(&self) -> Option<Notice> {
        let bytes = self.budget.filter(|bytes| *bytes < PAGE_SIZE)?;
        Some(Notice(format!(
            "a budget of {bytes} bytes holds no page of {PAGE_SIZE}: every request is refused \
             until `set_budget` raises it"
        )))
    }

    /// Says so where the pool is larger than was asked for.
    fn rounded_up(&self, given: usize, nodes: usize) -> Option<Notice> {
        let asked = self.bytes;
        let each = match nodes {
            1 => String::new(),
            _ => format!(", the same number on each of {nodes} nodes"),
        };
        (self.zones.is_empty() && given > asked).then(|| {
            Notice(format!(
                "the pool has {given} bytes, {asked} were asked for: memory comes in blocks of \
                 4 MiB{each}"
            ))
        })
    }

    /// How pcps are kept consistent, with what that takes. Where no sequence ever runs the core
    /// need not keep any out of a pcp, and its own fast path is on.
    fn mode(&self, cpus: usize, by_list: bool) -> (Mode, Option<RseqFence>) {
        let off = |why: &str| (Mode::Lock(why.to_owned()), None);
        if (cpus as u32) < possible_cpus_max() {
            return off(&format!(
                "a CPU may come up that nobody tells of; expected the CPUs that there can be in \
                 {SYSFS_CPU}/possible"
            ));
        }
        if !self.rseq {
            return off("turned off by the program");
        }
        if std::env::var_os(RSEQ_SWITCH).is_some_and(|value| value == RSEQ_OFF) {
            return off("turned off by ZONAL_RSEQ");
        }
        if self.poison {
            return off("poison is on: each block is looked at, which no sequence does");
        }
        if self.fail_alloc.is_some() {
            return off("requests fail on purpose (fail_alloc), which no sequence does");
        }
        if by_list && !typed::may_serve(&self.policy) {
            return off("the policy groups pages by mobility, or is a kernel's, and writes NUMA \
                        events down, keeps cold pages apart, has owners of pageblocks or remembers \
                        full zones");
        }
        if let Err(why) = RseqArea::find() {
            return off(&why.to_string());
        }
        // A thread's last sequence is looked at by the kernel after the pool is gone (FAST-6).
        if !crate::sys::stay_loaded() {
            return off("the shared library that has the sequences cannot be kept loaded");
        }
        match RseqFence::register() {
            Ok(fence) => (Mode::Rseq, Some(fence)),
            Err(why) => off(&why.to_string()),
        }
    }
}

/// The policy as a pool keeps it. The words of 5.14 tell what the exact storage tells, but for a
/// race of their readers, and each request would have to write to them.
fn in_a_pool(policy: Policy) -> Policy {
    match policy.numa == NumaPolicy::V5_14 {
        true => Policy { numa: NumaPolicy::EXACT, ..policy },
        false => policy,
    }
}

fn placement(map: &CpuMap) -> CpuPlacement {
    match map {
        CpuMap::Contiguous => CpuPlacement::Contiguous,
        CpuMap::RoundRobin => CpuPlacement::RoundRobin,
        CpuMap::Explicit(nodes) => CpuPlacement::Map(nodes.iter().map(|n| NodeId(*n)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use zonal_core::platform::Platform as _;

    use super::*;

    #[test]
    fn a_value_that_turns_nothing_off_is_told() {
        for known in [None, Some("off"), Some("")] {
            assert_eq!(unknown(known.map(OsStr::new)), None);
        }
        for other in ["0", "OFF", "no", "false"] {
            let text = unknown(Some(OsStr::new(other))).unwrap().to_string();
            assert!(text.contains(&format!("ZONAL_RSEQ is {other:?}")), "{text}");
            assert!(text.contains("expected off"), "{text}");
        }
    }

    #[test]
    fn a_pool_in_which_no_sequence_runs_says_why_and_has_none_to_keep_out() {
        let plain = || Pool::builder().size(64 << 20);
        if *plain().build().unwrap().mode() != Mode::Rseq {
            eprintln!("note: SKIPPED: there are no restartable sequences here");
            return;
        }
        let builders = [
            (plain(), "rseq"),
            (plain().poison(true), "lock (poison is on"),
            (plain().policy(Policy::KERNEL), "rseq"),
            (plain().policy(Policy::LINUX_6_18), "rseq"),
            (plain().policy(Policy::OWNED_2026), "lock (the policy groups pages by mobility"),
        ];
        for (builder, mode) in builders {
            let pool = builder.build().unwrap();
            assert!(pool.mode().to_string().starts_with(mode), "{}", pool.mode());
            let has_sequences = pool.shared.allocator.platform().has_sequences();
            assert_eq!(has_sequences, *pool.mode() == Mode::Rseq);
            assert!(pool.notices().is_empty(), "nothing was refused: {:?}", pool.notices());
        }
    }
}
