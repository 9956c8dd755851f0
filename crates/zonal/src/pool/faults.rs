//! Requests that fail on purpose, so that a program can test how it handles refusals (LB J.4).
//!
//! A request is judged before any zone is asked. The pool then has no fast path, so that the core
//! sees each request. A pool without this option has no test for it on the way of a request that
//! the fast path or a per-CPU list serves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal_core::alloc::{AllocError, Refusal, Request};
use zonal_core::gfp::Gfp;
use zonal_core::types::Order;

use super::{Builder, Pool, Shared};

/// Which requests fail. Conditions add up: a request fails if all of them say so.
///
/// ```
/// use zonal::{FailAlloc, Order, Pool};
///
/// let pool = Pool::builder().size(16 << 20).fail_alloc(FailAlloc::nth(2)).build()?;
/// let first = pool.alloc(Order::ZERO)?;
/// assert!(pool.alloc(Order::ZERO).is_err()); // the second fails
/// let third = pool.alloc(Order::ZERO)?;
/// assert_eq!((pool.fail_counts().asked, pool.fail_counts().failed), (3, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailAlloc {
    nth: Option<u64>,
    interval: u64,
    percent: u32,
    times: u64,
    space: u64,
    min_order: Order,
    max_order: Order,
    only: Gfp,
    spared: Gfp,
    seed: u64,
}

/// What became of the requests that could have failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FailCounts {
    /// Requests of an order and with flags that may fail.
    pub asked: u64,
    /// Requests that failed on purpose.
    pub failed: u64,
}

impl FailAlloc {
    const NONE: FailAlloc = FailAlloc {
        nth: None,
        interval: 1,
        percent: 0,
        times: u64::MAX,
        space: 0,
        min_order: Order::ZERO,
        max_order: Order::MAX,
        only: Gfp::from_bits(0),
        spared: Gfp::NOFAIL,
        seed: 0,
    };

    /// No request.
    pub const fn never() -> FailAlloc {
        FailAlloc::NONE
    }

    /// The `n`-th request from now on, counted from 1, and no other.
    pub const fn nth(n: u64) -> FailAlloc {
        FailAlloc { nth: Some(n), percent: 100, ..FailAlloc::NONE }
    }

    /// Each `interval`-th request; 1 is each. 0 is taken for 1.
    pub const fn every(interval: u64) -> FailAlloc {
        FailAlloc {
            interval: if interval == 0 { 1 } else { interval },
            ..FailAlloc::random(100, 0)
        }
    }

    /// This many requests in a hundred, drawn from this seed: one thread's requests fail the same
    /// way in each run. Above 100 is taken for 100.
    pub const fn random(percent: u32, seed: u64) -> FailAlloc {
        FailAlloc { percent, seed, ..FailAlloc::NONE }
    }

    /// At most this many failures.
    pub const fn times(self, times: u64) -> FailAlloc {
        FailAlloc { times, ..self }
    }

    /// A number of pages that are served first: a request that fits into the rest of them takes its
    /// pages off, and passes.
    pub const fn after_pages(self, space: u64) -> FailAlloc {
        FailAlloc { space, ..self }
    }

    /// Only requests of these orders, both included. Default: all.
    pub const fn orders(self, min_order: Order, max_order: Order) -> FailAlloc {
        FailAlloc { min_order, max_order, ..self }
    }

    /// Only requests with all of these flags. Default: requests with any flags.
    pub const fn only(self, only: Gfp) -> FailAlloc {
        FailAlloc { only, ..self }
    }

    /// Excludes requests with any of these flags, such as `Gfp::DIRECT_RECLAIM` for all that may
    /// wait. Requests with `NOFAIL` never fail.
    pub const fn spare(self, spared: Gfp) -> FailAlloc {
        FailAlloc { spared: Gfp::from_bits(spared.bits() | Gfp::NOFAIL.bits()), ..self }
    }

    fn may_fail(&self, request: &Request) -> bool {
        let Request { order, gfp, .. } = *request;
        order >= self.min_order
            && order <= self.max_order
            && gfp.contains(self.only)
            && gfp.bits() & self.spared.bits() == 0
    }
}

/// The option and its state, of a pool that has it.
#[derive(Debug)]
pub(super) struct Faults(Mutex<State>);

#[derive(Debug)]
pub(super) struct State {
    rule: FailAlloc,
    /// Requests judged since the rule is in force.
    seen: u64,
    space: u64,
    times: u64,
    random: u64,
    counts: FailCounts,
}

impl State {
    fn set(&mut self, rule: FailAlloc) {
        *self = State::new(rule, self.counts);
    }

    fn new(rule: FailAlloc, counts: FailCounts) -> State {
        let FailAlloc { space, times, seed, .. } = rule;
        State { rule, seen: 0, space, times, random: seed, counts }
    }

    /// Whether the request fails, in the kernel's order of conditions (LB J.4).
    fn fails(&mut self, request: &Request) -> bool {
        let rule = self.rule;
        if !rule.may_fail(request) {
            return false;
        }
        self.counts.asked += 1;
        if rule.percent == 0 || self.times == 0 {
            return false;
        }
        let pages = request.order.pages();
        if self.space > pages {
            self.space -= pages;
            return false;
        }
        self.seen += 1;
        let due = match rule.nth {
            Some(nth) => self.seen == nth,
            None => self.seen.is_multiple_of(rule.interval),
        };
        if !due || u64::from(rule.percent) <= self.draw() % 100 {
            return false;
        }
        self.times -= 1;
        self.counts.failed += 1;
        true
    }

    /// splitmix64: seedable, the same everywhere.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Faults {
    pub(super) fn new(rule: FailAlloc) -> Faults {
        Faults(Mutex::new(State::new(rule, FailCounts::default())))
    }

    /// Also keeps the state as it is, across a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Builder {
    /// Lets requests fail on purpose; see [`FailAlloc`]. In such a pool every request goes through
    /// the core. `FailAlloc::never()` makes a pool that can be told later
    /// ([`Pool::set_fail_alloc`]).
    pub fn fail_alloc(mut self, rule: FailAlloc) -> Builder {
        self.fail_alloc = Some(rule);
        self
    }
}

impl Pool {
    /// Changes which requests fail, and counts from the beginning again for `nth`, intervals and
    /// pages. `false`, and nothing done, for a pool that was made without
    /// [`Builder::fail_alloc`].
    pub fn set_fail_alloc(&self, rule: FailAlloc) -> bool {
        let faults = self.shared.faults.as_ref();
        faults.is_some_and(|faults| {
            faults.lock().set(rule);
            true
        })
    }

    /// Requests that could have failed and that did, since the pool was made.
    pub fn fail_counts(&self) -> FailCounts {
        let faults = self.shared.faults.as_ref();
        faults.map_or_else(FailCounts::default, |faults| faults.lock().counts)
    }
}

impl Shared {
    /// A request that is to fail on purpose is refused.
    #[inline]
    pub(super) fn inject(&self, request: &Request) -> Result<(), AllocError> {
        match &self.faults {
            Some(faults) if faults.lock().fails(request) => {
                Err(AllocError { order: request.order, why: Refusal::Injected })
            }
            _ => Ok(()),
        }
    }
}
