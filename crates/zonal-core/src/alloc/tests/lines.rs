//! Lines of page words: each is written by one CPU, as long as pages stay with the CPU that took
//! them from the zone.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::depot::{give, take};
use super::platform::{Script, Shape};
use crate::alloc::Allocator;
use crate::frame::{PageState, PageWord};
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::types::{CpuId, Order, ZoneId};

const CPUS: u32 = 4;

/// Lines of `words` words with pages of more than one owner: a CPU's lists, whoever took pages from
/// there, the depot.
fn shared_lines(pool: &Allocator<'_, Script>, words: usize) -> Vec<(usize, Vec<CpuId>)> {
    let mut owners = BTreeMap::<usize, Vec<CpuId>>::new();
    for (frame, word) in pool.words().iter().enumerate() {
        let (PageState::Cached { pcp, .. } | PageState::Allocated { pcp, .. }) =
            PageWord::from_bits(word.load(Relaxed)).state()
        else {
            continue;
        };
        let line = owners.entry(frame / words).or_default();
        if !line.contains(&pcp.cpu) {
            line.push(pcp.cpu);
        }
    }
    owners.into_iter().filter(|(_, cpus)| cpus.len() > 1).collect()
}

/// Each CPU in turn takes a few blocks and gives half of them back, so that refills of all CPUs
/// alternate.
fn churn(pool: &Allocator<'_, Script>, orders: &[u32], rounds: usize) {
    for round in 0..rounds {
        for cpu in 0..CPUS {
            let order = Order::new(orders[(round + cpu as usize) % orders.len()]).unwrap();
            let mut blocks = take(pool, cpu, order, 5 + round % 7);
            give(pool, cpu, order, blocks.split_off(blocks.len() / 2));
        }
    }
}

/// `pages` pages make the lists move 3, 7, 15 or 63 at a time; the last fill pairs of lines, which
/// some processors fetch together.
#[test]
fn no_line_of_page_words_has_pages_of_two_cpus_in_a_fresh_pool() {
    let all: [&[u32]; 5] = [&[0], &[1], &[2], &[3], &[0, 1, 2, 3]];
    // Of the smaller ones, bursts of mixed orders are streams, which leave for other CPUs.
    let sizes = [
        (1 << 14, 3, 8, &all[..1]),
        (1 << 15, 7, 8, &all[..4]),
        (1 << 16, 15, 8, &all[..4]),
        (1 << 18, 63, 16, &all),
    ];
    for (pages, batch, words, sets) in sizes {
        for orders in sets {
            let pool = Shape::uniform(1, pages, CPUS as usize).boot(Policy::ZONAL);
            assert_eq!(pool.zones()[0].pcp_sizes().0, batch);
            churn(&pool, orders, 40);
            assert_eq!(
                pool.zone_stats(ZoneId(0)).depot_puts,
                0,
                "batch {batch}, orders {orders:?}"
            );
            let shared = shared_lines(&pool, words);
            assert!(shared.is_empty(), "batch {batch}, orders {orders:?}: {shared:?}");
            pool.validate().unwrap();
        }
    }
}
