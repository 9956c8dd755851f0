//! Fences that fail from some moment on: each pcp that is closed afterwards is sealed (PCP-7), and
//! what cannot be closed waits for its own CPU.

use std::collections::BTreeSet;
use std::vec::Vec;

use super::platform::{Fences, Script, Shape, fences, on_cpu};
use super::word_path;
use crate::alloc::held::Kind;
use crate::alloc::{Allocator, Request};
use crate::policy::Policy;
use crate::types::{CpuId, Order, Pfn, ZoneId};

const ZONE: ZoneId = ZoneId(0);
const PAGES: u64 = 4096;
const CPUS: u32 = 3;

/// Blocks on the lists of every CPU.
fn with_pages_on_lists() -> Allocator<'static, Script> {
    let pool = Shape::uniform(1, PAGES, CPUS as usize).boot(Policy::ZONAL);
    for cpu in 0..CPUS {
        on_cpu(cpu);
        let pages = [(); 8].map(|()| pool.alloc(Request::new(Order::ZERO)).unwrap());
        pages.into_iter().for_each(|page| pool.free(page, Order::ZERO).unwrap());
        assert!(pool.pcp(ZONE, CpuId(cpu)).count() > 0);
    }
    on_cpu(0);
    pool
}

fn on_list(pool: &Allocator<'_, Script>, cpu: u32) -> u64 {
    pool.pcp(ZONE, CpuId(cpu)).count().into()
}

#[test]
fn a_sealed_pcp_serves_no_sequence_again_and_needs_no_fence() {
    let pool = with_pages_on_lists();
    fences(Fences { left: 0, else_by_visit: true });
    assert!(pool.drain(ZONE, CpuId(1)) > 0);
    // No fence of any kind is left for anybody.
    fences(Fences { left: 0, else_by_visit: false });
    for round in 0..3 {
        on_cpu(1);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(page, Order::ZERO).unwrap();
        assert!(on_list(&pool, 1) > 0, "its lists are used as before, under the gate");
        assert_eq!(word_path::pop(&pool, ZONE, CpuId(1), 0), None, "round {round}");
        pool.refresh(CpuId(1));
        assert_eq!(word_path::pop(&pool, ZONE, CpuId(1), 0), None, "round {round}");
        on_cpu(0);
        assert!(pool.drain(ZONE, CpuId(1)) > 0);
        pool.validate().unwrap();
    }
}

#[test]
fn pages_behind_a_refused_fence_wait_for_their_own_cpu() {
    let pool = with_pages_on_lists();
    fences(Fences { left: 0, else_by_visit: false });
    let waiting = on_list(&pool, 1) + on_list(&pool, 2);
    pool.drain_all();
    assert_eq!((on_list(&pool, 0), on_list(&pool, 1) + on_list(&pool, 2)), (0, waiting));
    assert_eq!(pool.free_pages(), PAGES);
    pool.validate().unwrap();
    // A fork holds what it can, and lets go of all of it.
    let mut held = Vec::new();
    pool.hold_all(&mut |one| held.push(one));
    let gates = held.iter().filter(|one| matches!(one.0, Kind::Gate(_))).count();
    assert_eq!(gates, 2);
    while held.pop().is_some() {}
    for cpu in 1..CPUS {
        on_cpu(cpu);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(page, Order::ZERO).unwrap();
    }
    on_cpu(0);
    pool.drain_all();
    assert_eq!((on_list(&pool, 1), on_list(&pool, 2)), (0, 0));
    pool.validate().unwrap();
    assert_eq!(pool.free_pages(), PAGES);
}

/// One step of a program: on the CPU's fast path where that takes it, else through the core.
fn take(pool: &Allocator<'_, Script>, cpu: u32, order: Order) -> Option<Pfn> {
    on_cpu(cpu);
    let fast = word_path::alloc(pool, CpuId(cpu), order);
    fast.or_else(|| pool.alloc(Request::new(order)).ok())
}

fn give(pool: &Allocator<'_, Script>, cpu: u32, (page, order): (Pfn, Order)) {
    on_cpu(cpu);
    if !word_path::free(pool, ZONE, CpuId(cpu), (page, order)) {
        pool.free(page, order).unwrap();
    }
}

/// A program whose fences fail from the `left`-th on.
fn program(left: u64, else_by_visit: bool) {
    let pool = with_pages_on_lists();
    fences(Fences { left, else_by_visit });
    let mut held: BTreeSet<(Pfn, Order)> = BTreeSet::new();
    let mut state = left * 2 + u64::from(else_by_visit) + 0x9e37_79b9;
    for step in 0..400 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (cpu, order) = ((state >> 20) as u32 % CPUS, Order::new((state >> 30) as u32 % 4));
        let order = order.unwrap();
        match (state >> 40) % 16 {
            0..=6 => {
                if let Some(page) = take(&pool, cpu, order) {
                    let block = page.0..page.0 + order.pages();
                    let twice = held.iter().any(|(other, size)| {
                        other.0 < block.end && block.start < other.0 + size.pages()
                    });
                    assert!(!twice, "step {step}: {page:?} was handed out twice");
                    held.insert((page, order));
                }
            }
            7..=12 => {
                if let Some(block) = held.iter().nth(state as usize % held.len().max(1)).copied() {
                    held.remove(&block);
                    give(&pool, cpu, block);
                }
            }
            13 => {
                on_cpu(cpu);
                pool.drain_all();
            }
            14 => _ = pool.refresh(CpuId(cpu)),
            _ => pool.validate().unwrap_or_else(|fault| panic!("step {step}: {fault}")),
        }
    }
    held.into_iter().for_each(|block| give(&pool, 0, block));
    for cpu in 0..CPUS {
        on_cpu(cpu);
        // What its own CPU closes needs no fence.
        pool.drain(ZONE, CpuId(cpu));
    }
    pool.drain_all();
    pool.validate().unwrap();
    assert_eq!((pool.free_pages(), on_list(&pool, 1)), (PAGES, 0));
}

#[test]
fn nothing_is_lost_whichever_fence_is_the_first_to_fail() {
    for left in 0..40 {
        program(left, true);
        program(left, false);
    }
}
