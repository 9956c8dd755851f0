//! A pool whose CPUs own pageblocks: real memory, threads that free each other's blocks.

use std::sync::mpsc;
use std::time::Duration;

use zonal::{CpuMap, Order, PAGE_SIZE, Policy, Pool, text::Layout};

const MIB: usize = 1 << 20;
const THREADS: usize = 4;
const ROUNDS: u64 = 4000;

fn pool() -> Pool {
    let builder = Pool::builder().size(128 * MIB).policy(Policy::OWNED_2026);
    let builder = builder.fake_nodes(2, CpuMap::RoundRobin);
    builder.refresh_every(Some(Duration::from_millis(1))).build().unwrap()
}

/// What a thread wrote to a block is still there when another one frees it: nobody else had it.
#[test]
fn blocks_that_other_threads_free_have_one_owner_at_a_time() {
    let pool = &pool();
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
        for (thread, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(thread + 1) % THREADS].clone();
            scope.spawn(move || {
                let mark = |round: u64| (thread as u64) << 32 | round;
                for round in 0..ROUNDS {
                    let order = Order::new((round % 6) as u32).unwrap();
                    if let Ok(mut pages) = pool.alloc(order) {
                        let bytes = mark(round).to_le_bytes();
                        pages.chunks_exact_mut(8).for_each(|at| {
                            at.copy_from_slice(&bytes);
                        });
                        drop(next.send((pages, bytes)));
                    }
                    while let Ok((pages, bytes)) = receiver.try_recv() {
                        assert!(pages.chunks_exact(8).all(|at| *at == bytes));
                    }
                }
                drop(next);
                while let Ok((pages, bytes)) = receiver.recv_timeout(Duration::from_secs(20)) {
                    assert!(pages.chunks_exact(8).all(|at| *at == bytes));
                }
            });
        }
        drop(senders);
    });
    pool.validate().unwrap();
    let zones: Vec<_> = pool.zone_stats().collect();
    assert!(zones.iter().any(|zone| zone.owned_claims > 0), "{zones:?}");
    assert!(zones.iter().all(|zone| zone.refills == 0), "there are no lists: {zones:?}");
}

#[test]
fn everything_can_be_had_again_when_all_was_freed() {
    let pool = Pool::builder().size(32 * MIB).policy(Policy::OWNED_2026).build().unwrap();
    for _ in 0..3 {
        let pages: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::ZERO).ok()).collect();
        assert!(pages.len() as u64 * 4096 >= 30 * MIB as u64, "{}", pages.len());
        drop(pages);
        let huge: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::new(9).unwrap()).ok()).collect();
        assert!(huge.len() >= 14, "{} blocks of 2 MiB", huge.len());
    }
    pool.validate().unwrap();
}

/// Free pages of an owned pageblock are the CPU's, as those on a list are.
#[test]
fn a_report_and_zoneinfo_count_the_free_pages_of_owned_pageblocks() {
    let builder = Pool::builder().size(32 * MIB).policy(Policy::OWNED_2026);
    let pool = builder.refresh_every(None).build().unwrap();
    let page = pool.alloc(Order::ZERO).unwrap();
    // The first request may take a pageblock for its type; the second has one.
    drop(pool.alloc(Order::ZERO).unwrap());
    drop(page);
    let owned: u64 = pool.zone_stats().map(|zone| zone.owned_pages).sum();
    assert!(owned >= 512, "{owned}");
    let held = pool.held();
    assert_eq!((held.lists, held.elsewhere, held.users), (owned * PAGE_SIZE as u64, 0, 0));
    assert_eq!(held.total(), pool.bytes() as u64 + held.metadata);
    let text = pool.state().zoneinfo(Layout::default()).to_string();
    let count = |line: &str| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok();
    assert_eq!(text.lines().filter_map(count).sum::<u64>(), owned, "{text}");
    pool.drain_all();
    assert_eq!((pool.held().lists, pool.held().elsewhere), (0, 0));
}
