//! A policy that is fixed when compiled.

use std::boxed::Box;
use std::vec::Vec;

use super::platform::*;
use crate::alloc::{Allocator, Request};
use crate::gfp::Gfp;
use crate::machine::{Layout, MachineError};
use crate::platform::{FixedPolicy, Platform};
use crate::policy::Policy;
use crate::types::Order;

/// The policy `zonal`, compiled in.
#[derive(Default)]
struct OnlyZonal;

impl Behaviour for OnlyZonal {
    const POLICY: Option<FixedPolicy> = Some(Policy::fix(&Policy::ZONAL));
}

fn leaked() -> &'static Shape {
    Box::leak(Box::new(Shape::uniform(2, 8192, 1)))
}

/// The blocks that a program gets, its frees, and what is left where.
fn run<P: Platform>(core: &Allocator<'static, P>) -> (Vec<Option<u64>>, Vec<[u64; 2]>) {
    let mut blocks = Vec::new();
    let mut held = Vec::new();
    for step in 0..6000_u32 {
        let order = Order::new([0, 0, 0, 1, 0, 3, 0, 9][(step % 8) as usize]).unwrap();
        let gfp = [Gfp::KERNEL, Gfp::ATOMIC, Gfp::HIGHUSER_MOVABLE][(step % 3) as usize];
        let got = core.alloc(Request::new(order).gfp(gfp)).ok();
        blocks.push(got.map(|pfn| pfn.0));
        held.extend(got.map(|pfn| (pfn, order)));
        if step % 5 > 1 && !held.is_empty() {
            let (pfn, order) = held.swap_remove(step as usize * 7 % held.len());
            core.free(pfn, order).unwrap();
        }
    }
    core.validate().unwrap();
    let zones = core.zones().iter().map(|zone| core.zone_stats(zone.id()));
    (blocks, zones.map(|stats| [stats.free_pages, stats.cached_pages]).collect())
}

#[test]
fn a_policy_that_is_compiled_in_does_what_it_does_when_it_is_given() {
    on_cpu(0);
    let fixed = run(&leaked().boot_on(Policy::ZONAL, Stage::with(OnlyZonal)));
    let given = run(&Shape::uniform(2, 8192, 1).boot(Policy::ZONAL));
    assert!(fixed.0.iter().any(Option::is_none), "the program fills the machine");
    assert_eq!(fixed, given);
}

#[test]
fn another_policy_than_the_one_compiled_in_is_refused() {
    let shape = leaked();
    let mut changed = Policy::ZONAL;
    changed.numa_stat = !changed.numa_stat;
    for policy in [Policy::LINUX_6_12, changed] {
        let layout = Layout::of(&shape.machine(), &policy).unwrap();
        let refused = shape.try_make(policy, &layout, Stage::with(OnlyZonal)).unwrap_err();
        let expected = MachineError::Policy { fixed: "zonal", given: policy.name };
        assert_eq!(refused, expected, "{refused}");
    }
}
