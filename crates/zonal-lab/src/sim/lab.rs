//! A virtual machine with all its memory online, and the operations of a program on it.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use zonal_core::alloc::{Allocator, Request};
use zonal_core::platform::Platform;
use zonal_core::types::{Order, Pfn};

use super::outcome::{Count, Load};
use super::turns::Turns;
use crate::cost::contents::Access;
use crate::cost::lock::{LINES_OF_A_LOCK, LockClock};
use crate::machine::Machine;
use crate::mechanism::Mechanism;
use crate::platform::VirtualPlatform;
use crate::tape::events::{Call, Kind, Tape};
use crate::units::{MIB_PAGES, PAGE_LINES, scaled};
use crate::variant::{Refresh, Variant};

/// A virtual machine with all its memory online.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The core, with the virtual machine as its platform.
    pub allocator: Allocator<'a, VirtualPlatform>,
    /// The machine.
    pub machine: &'a Machine,
    random: Pcg64Mcg,
    /// The CPUs that have something to do, by their clocks.
    pub(super) turns: Turns,
    /// Clock of each CPU that is idle until another wakes it.
    pub(super) idle: Vec<Option<u64>>,
    /// CPUs that were woken by the step that is being made.
    pub(super) woken: Vec<u32>,
    /// Until when the last play went, and when the steps end that went beyond it.
    pub(super) played: u64,
    pub(super) beyond: Vec<u64>,
    /// When each CPU's statistics are refreshed next, in cycles.
    pub(super) refresh_at: Vec<u64>,
    pub(super) refresh_every: u64,
    /// Refreshes keep to their times, whatever comes between.
    pub(super) aligned: bool,
    pub(super) count: Count,
    /// What the program says that it got done.
    pub load: Load,
    /// Base pages that are handed out.
    pages: u64,
    /// Its calls as events, if they are recorded.
    pub(crate) tape: Option<Box<Tape>>,
}

impl<'a> Lab<'a> {
    /// A booted machine; CPUs refresh their statistics at different times.
    pub(super) fn new(
        allocator: Allocator<'a, VirtualPlatform>,
        machine: &'a Machine,
        seed: u64,
    ) -> Lab<'a> {
        let second = (machine.ghz * 1e9) as u64;
        let cpus = machine.cpus() as usize;
        let mut lab = Lab {
            allocator,
            machine,
            random: Pcg64Mcg::seed_from_u64(seed),
            turns: Turns::new(machine.cpus()),
            idle: vec![None; cpus],
            woken: Vec::new(),
            played: 0,
            beyond: Vec::new(),
            refresh_at: vec![0; cpus],
            refresh_every: second,
            aligned: false,
            count: Count::default(),
            load: Load::default(),
            pages: 0,
            tape: None,
        };
        for cpu in 0..cpus {
            lab.refresh_at[cpu] = lab.random_below(second.max(1));
        }
        if machine.without.has(Mechanism::Refresh) {
            lab.refresh_at.fill(u64::MAX);
        }
        lab
    }
}

impl Lab<'_> {
    /// A random number below `end`.
    pub fn random_below(&mut self, end: u64) -> u64 {
        // The bias is below 2^-32 for every end used here.
        ((u128::from(self.random.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A block for the CPU whose turn it is; `None` if it was refused.
    pub fn alloc(&mut self, order: Order) -> Option<Pfn> {
        self.request(Request::new(order))
    }

    /// Records from now on.
    pub(crate) fn record(&mut self, tape: Tape) {
        self.tape = Some(Box::new(tape));
    }

    /// The call that begins now, if the run is recorded.
    pub(super) fn call(&self) -> Option<Call> {
        self.tape.as_ref().map(|_| Call::begin(self.allocator.platform()))
    }

    /// The call of `cpu` is over.
    pub(super) fn called(&mut self, call: Option<Call>, cpu: u32, kind: Kind) {
        if let (Some(call), Some(tape)) = (call, &mut self.tape) {
            tape.tell(&self.allocator, call, cpu, kind);
        }
    }

    /// What is asked for, for the CPU whose turn it is; `None` if it was refused.
    pub fn request(&mut self, request: Request) -> Option<Pfn> {
        self.allocator.platform().call_work(self.machine.work.alloc);
        let call = self.call();
        let block = self.allocator.alloc(request).ok();
        self.called(call, self.allocator.platform().cpu().0, Kind::Alloc(request, block));
        self.pages += block.map_or(0, |_| request.order.pages());
        self.count.allocs += u64::from(block.is_some());
        self.count.refused += u64::from(block.is_none());
        block
    }

    /// A block back from the CPU whose turn it is.
    ///
    /// # Panics
    /// If the block is not handed out.
    pub fn free(&mut self, block: Pfn, order: Order) {
        let platform = self.allocator.platform();
        platform.call_work(self.machine.work.free);
        platform.set_frees(true);
        let call = self.call();
        self.allocator.free(block, order).expect("a program frees what it was given");
        self.called(call, self.allocator.platform().cpu().0, Kind::Free(block, order));
        self.allocator.platform().set_frees(false);
        self.count.frees += 1;
        self.pages -= order.pages();
    }

    /// What the kernel does that no policy says, from now on.
    pub fn set_variant(&mut self, variant: Variant) {
        self.allocator.platform().set_variant(variant);
        if self.machine.without.has(Mechanism::Refresh) {
            return;
        }
        let (every, cpus) = (self.refresh_every, self.refresh_at.len() as u64);
        let refresh = match variant.refresh {
            _ if self.allocator.policy().stat.stagger => Refresh::Staggered,
            refresh => refresh,
        };
        self.aligned = refresh != Refresh::Scattered;
        for (cpu, at) in (0..).zip(&mut self.refresh_at) {
            match refresh {
                Refresh::Scattered => {}
                Refresh::Aligned => *at = every,
                Refresh::Staggered => *at = every + every * cpu / cpus,
            }
        }
    }

    /// Base pages that programs hold.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The CPU whose turn it is touches the first `lines` lines of a block (all 64 of each page, if
    /// it has no more) for the kernel: zeroes, copies or looks at them.
    pub fn touch(&mut self, block: Pfn, order: Order, lines: u64, access: Access) {
        self.allocator.platform().touch(block, lines.min(PAGE_LINES << order.get()), access, false);
    }

    /// The same for a program, as part of its user time.
    pub fn user_touch(&mut self, block: Pfn, order: Order, lines: u64, access: Access) {
        self.allocator.platform().touch(block, lines.min(PAGE_LINES << order.get()), access, true);
    }

    /// The CPU whose turn it is works for a program, for as long as this takes alone.
    pub fn user_ns(&mut self, ns: u64) {
        let cycles = scaled(ns, self.machine.ghz);
        self.allocator.platform().shared_work(cycles, true);
    }

    /// The same for the kernel.
    pub fn kernel_ns(&mut self, ns: u64) {
        let cycles = scaled(ns, self.machine.ghz);
        self.allocator.platform().shared_work(cycles, false);
    }

    /// The CPU whose turn it is takes a lock of the kernel that is no zone's, whose lines come from
    /// who held it last, works for so long and releases it.
    pub fn hold(&mut self, lock: &mut LockClock, ns: u64) {
        let cycles = scaled(ns, self.machine.ghz);
        self.allocator.platform().hold(lock, LINES_OF_A_LOCK, cycles);
    }

    /// The CPU whose turn it is changes a line that all share by a locked instruction.
    pub fn change(&mut self, line: &mut LockClock) {
        self.allocator.platform().change(line);
    }

    /// The node of a block's memory.
    pub fn node_of(&self, block: Pfn) -> usize {
        let node = block.0 / (self.machine.memory_mib * MIB_PAGES);
        node.min(u64::from(self.machine.all_nodes()) - 1) as usize
    }

    /// Lets a CPU that waits go on from now. Does nothing to one that does not wait.
    pub fn wake(&mut self, cpu: u32) {
        if self.idle[cpu as usize].is_some() {
            self.woken.push(cpu);
        }
    }
}
