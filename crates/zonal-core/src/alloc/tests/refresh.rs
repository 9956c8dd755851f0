//! What a refresh of the statistics does (LB F.4), and metadata larger than asked for.

use std::sync::Barrier;
use std::vec::Vec;

use super::platform::{Script, Shape, on_cpu};
use crate::alloc::{Allocator, Request, Sysctl};
use crate::pcp::drain::{DrainPolicy, IdleDrain, RemoteDrain};
use crate::policy::{PcpPolicy, Policy};
use crate::sync::Ordering::Relaxed;
use crate::types::{Choice, CpuId, NodeId, Order, Pfn, ZoneId};

/// Frees `n` pages of node 0 on CPU 2, which is of node 1.
fn free_far_away(pool: &Allocator<'_, Script>, n: usize) {
    on_cpu(0);
    let pages: Vec<Pfn> = (0..n).map(|_| pool.alloc(Request::new(Order::ZERO)).unwrap()).collect();
    on_cpu(2);
    pages.into_iter().for_each(|pfn| pool.free(pfn, Order::ZERO).unwrap());
}

/// Two nodes under Linux 6.18 but for this; 20 pages of the first wait on CPU 2, of the second.
///
/// A batch is 7 pages, and the threshold 6: what is drained leaves no delta behind, which would
/// count as pages that moved.
fn far_away(idle: IdleDrain) -> Allocator<'static, Script> {
    let drain = DrainPolicy { idle, ..Policy::LINUX_6_18.pcp.drain };
    let pcp = PcpPolicy { drain, ..Policy::LINUX_6_18.pcp };
    let pool = Shape::uniform(2, 24_576, 2).boot(Policy { pcp, ..Policy::LINUX_6_18 });
    let zone = &pool.zones()[0];
    assert_eq!((zone.pcp_sizes().0, zone.stat_threshold()), (7, 6));
    free_far_away(&pool, 20);
    pool
}

/// Pages on CPU 2's lists of node 0 after each of so many refreshes.
fn counts(pool: &Allocator<'_, Script>, refreshes: usize) -> Vec<u32> {
    let after = |_| {
        pool.refresh(CpuId(2));
        pool.pcp(ZoneId(0), CpuId(2)).count()
    };
    (0..refreshes).map(after).collect()
}

#[test]
fn pages_of_another_node_return_a_batch_every_three_refreshes() {
    let pool = far_away(IdleDrain::Held);
    assert_eq!(counts(&pool, 8), [20, 20, 13, 13, 13, 6, 6, 6]);
    assert!(pool.refresh(CpuId(2)), "there is something to come back for");
    assert_eq!(pool.pcp(ZoneId(0), CpuId(2)).count(), 0);
    pool.refresh(CpuId(2));
    assert!(!pool.refresh(CpuId(2)), "the last deltas are folded, and then there is peace");
    pool.validate().unwrap();
}

#[test]
fn under_linux_they_return_once_for_each_time_that_pages_moved() {
    let pool = far_away(IdleDrain::Moved);
    assert_eq!(counts(&pool, 7), [20, 20, 13, 13, 13, 13, 13]);
    assert!(!pool.refresh(CpuId(2)), "what nobody uses is nothing to come back for");
    free_far_away(&pool, 1);
    assert_eq!(counts(&pool, 2), [14, 14]);
    // Pages that move meanwhile begin it anew.
    free_far_away(&pool, 1);
    assert_eq!(counts(&pool, 5), [15, 15, 8, 8, 8]);
    pool.validate().unwrap();
}

#[test]
fn pages_of_its_own_node_stay_with_a_cpu() {
    let pool = Shape::uniform(2, 24_576, 2).boot(Policy::LINUX_6_18);
    let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
    pool.free(page, Order::ZERO).unwrap();
    let count = pool.pcp(ZoneId(0), CpuId(0)).count();
    for _ in 0..20 {
        pool.refresh(CpuId(0));
    }
    assert_eq!(pool.pcp(ZoneId(0), CpuId(0)).count(), count);
}

#[test]
fn a_refresh_of_every_cpu_makes_the_counters_exact() {
    let pool = Shape::uniform(2, 1 << 14, 2).boot(Policy::ZONAL);
    for i in 0..2000u32 {
        on_cpu(i % 4);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        if i % 3 > 0 {
            on_cpu(i / 4 % 4);
            pool.free(page, Order::ZERO).unwrap();
        }
    }
    // A refresh may move pages and leave deltas for the next, until nothing is left to move.
    let moving = || (0..4).filter(|cpu| pool.refresh(CpuId(*cpu))).count();
    assert!((0..1000).any(|_| moving() == 0), "pages move for ever");
    for zone in pool.zones() {
        assert_eq!(zone.free_counter(), pool.zone_stats(zone.id()).free_pages);
    }
    pool.validate().unwrap();
}

#[test]
fn metadata_larger_than_asked_for_changes_nothing() {
    let shape = Shape::uniform(2, 4096, 2);
    let look = |pool: &Allocator<'_, Script>| {
        assert_eq!(pool.nodes().len(), 2);
        assert_eq!(pool.tables().distance(NodeId(1), NodeId(0)), 20);
        assert_eq!(pool.tables().distance(NodeId(1), NodeId(1)), 10);
        assert!(pool.alloc(Request::new(Order::ZERO).on(NodeId(2))).is_err());
        let pages: Vec<Pfn> = (0..5000)
            .map(|i| {
                on_cpu(i % 4);
                pool.alloc(Request::new(Order::ZERO)).unwrap()
            })
            .collect();
        pool.validate().unwrap();
        pages
    };
    assert_eq!(
        shape.scoped(Policy::LINUX_6_18, 0, look),
        shape.scoped(Policy::LINUX_6_18, 3, look)
    );
}

/// LB E.4, E.9: a dead CPU's pages and deltas go back, and the others share its part.
#[test]
fn a_dead_cpu_leaves_nothing_behind_and_its_share_to_the_others() {
    let pool = Shape::uniform(2, 1 << 18, 2).boot(Policy::LINUX_6_18);
    let sizes = |zone: u16| pool.zones()[zone as usize].pcp_sizes();
    let (batch, low, high) = sizes(0);
    for cpu in 0..4 {
        on_cpu(cpu);
        let page = pool.alloc(Request::new(Order::ZERO)).unwrap();
        pool.free(page, Order::ZERO).unwrap();
    }
    let before = pool.free_pages();
    on_cpu(0);
    pool.cpu_dead(CpuId(1));
    assert!(!pool.tables().is_online(CpuId(1)) && pool.tables().online_cpus(None) == 3);
    for zone in pool.zones() {
        let pcp = pool.pcp(zone.id(), CpuId(1));
        assert_eq!((pcp.count(), pcp.free_diff.load(Relaxed)), (0, 0));
    }
    assert_eq!(pool.free_pages(), before);
    pool.validate().unwrap();
    // One CPU of two is left on node 0; on node 1 nothing has changed.
    let (alone, shared) = (sizes(0), sizes(1));
    assert_eq!(shared, (batch, low, high));
    let doubled = |share: u32, all: u32| all == 2 * share || all == 2 * share + 1;
    assert!(alone.0 == batch && doubled(low, alone.1) && doubled(high, alone.2), "{alone:?}");
    // While it comes back Linux counts one CPU more on both nodes; then each has its own.
    pool.cpu_dead(CpuId(1));
    pool.cpu_online(CpuId(1));
    assert_eq!(sizes(0), (batch, low, high));
    assert_eq!(sizes(1).2, (1 << 18) / 8 / 3);
    pool.cpu_online(CpuId(1));
    pool.set(Sysctl::HighFraction, 0).unwrap();
    assert_eq!((sizes(0), sizes(1)), ((batch, low, high), (batch, low, high)));
}

/// Whichever computes last counts both.
#[test]
fn cpus_that_come_at_once_are_all_counted() {
    let pool = Shape::uniform(2, 1 << 18, 4).boot(Policy::LINUX_6_18);
    on_cpu(0);
    let sizes = || [0, 1].map(|zone: usize| pool.zones()[zone].pcp_sizes());
    let of_pcps = || [0, 1].map(|cpu| pool.pcp(ZoneId(0), CpuId(cpu)).high_min.load(Relaxed));
    for _ in 0..300 {
        let leave = || [2, 3].map(|cpu| pool.cpu_dead(CpuId(cpu)));
        leave();
        assert_eq!([2, 3].map(|cpu| pool.cpu_online(CpuId(cpu))), [true, true]);
        let (one_by_one, pcps) = (sizes(), of_pcps());
        leave();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for cpu in [2, 3] {
                let (pool, barrier) = (&pool, &barrier);
                scope.spawn(move || {
                    on_cpu(cpu);
                    barrier.wait();
                    pool.cpu_online(CpuId(cpu))
                });
            }
        });
        assert_eq!((sizes(), of_pcps()), (one_by_one, pcps));
    }
}

/// LB E.9: who empties another CPU's lists is told to the platform, and nothing else differs.
#[test]
fn a_platform_sees_whether_work_items_or_the_caller_drain() {
    let mut moved = Vec::new();
    for &(name, remote) in RemoteDrain::ALL {
        let told = if name == "work" { [3, 0] } else { [0, 3] };
        let drain = DrainPolicy { remote, ..Policy::LINUX_6_18.pcp.drain };
        let pcp = PcpPolicy { drain, ..Policy::LINUX_6_18.pcp };
        let pool = Shape::uniform(2, 1 << 15, 2).boot(Policy { pcp, ..Policy::LINUX_6_18 });
        // CPUs 0, 1 and 2 have pages, 1 of both nodes; 0 is the one that drains.
        free_far_away(&pool, 5);
        for node in [0, 1] {
            on_cpu(1);
            let request = Request { node: Some(NodeId(node)), ..Request::new(Order::ZERO) };
            let page = pool.alloc(request).unwrap();
            pool.free(page, Order::ZERO).unwrap();
        }
        on_cpu(0);
        moved.push(pool.drain_all());
        let drains = [0, 1].map(|which| pool.platform().drains[which].load(Relaxed));
        assert_eq!(drains, told, "{remote:?}");
    }
    assert!(moved.windows(2).all(|two| two[0] == two[1]));
}
