//! Pools whose memory comes online while they are used.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use zonal::{Order, Pool, Request};

const SECTION_BYTES: usize = 128 << 20;
/// As long as a machine with little to spare may take.
const PATIENCE: Duration = Duration::from_secs(180);

fn wait_until_grown(pool: &Pool) {
    let start = Instant::now();
    while pool.is_growing() {
        assert!(start.elapsed() < PATIENCE, "the pool's threads bring everything online");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn managed(pool: &Pool) -> usize {
    pool.view().zones().map(|zone| zone.managed() as usize * 4096).sum()
}

fn watermarks(pool: &Pool) -> Vec<(u64, u64, (u32, u32, u32))> {
    let zones = pool.view().zones();
    zones.map(|zone| (zone.watermarks().min, zone.watermarks().high, zone.pcp_sizes())).collect()
}

#[test]
fn a_deferred_pool_ends_as_one_that_was_complete() {
    for nodes in [1, 2] {
        let builder =
            || Pool::builder().size(6 * SECTION_BYTES).fake_nodes(nodes, Default::default());
        let complete = builder().build().unwrap();
        let pool = builder().deferred(true).build().unwrap();
        wait_until_grown(&pool);
        assert_eq!(managed(&pool), 6 * SECTION_BYTES);
        assert_eq!(watermarks(&pool), watermarks(&complete));
        pool.validate().unwrap();
    }
}

/// Requests of several threads while the pool grows in the background: each gets memory of its own,
/// which it can write.
#[test]
fn a_pool_serves_all_of_its_memory_while_it_grows() {
    let size = 8 * SECTION_BYTES;
    let pool = Pool::builder().size(size).deferred(true).build().unwrap();
    let order = Order::MAX;
    let per_thread = size / order.bytes() / 4;
    let blocks: Vec<Vec<usize>> = std::thread::scope(|scope| {
        let take = |_| {
            let pool = &pool;
            scope.spawn(move || {
                let mut starts = Vec::new();
                for _ in 0..per_thread {
                    let Ok(mut pages) = pool.alloc_with(Request::new(order)) else { break };
                    pages[0] = 1;
                    starts.push(pages.as_ptr() as usize);
                    std::mem::forget(pages);
                }
                starts
            })
        };
        let threads: Vec<_> = (0..4).map(take).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: Vec<usize> = blocks.into_iter().flatten().collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "no block twice");
    // What is not handed out is the reserve of the min watermark, once that is computed.
    assert!(all.len() * order.bytes() > size - size / 64, "{} blocks", all.len());
    pool.finish_growth().unwrap();
    assert_eq!(managed(&pool), size);
    pool.validate().unwrap();
}

#[test]
fn sections_are_faulted_in_before_anybody_has_them() {
    let pool =
        Pool::builder().size(2 * SECTION_BYTES).deferred(true).prefault(true).build().unwrap();
    wait_until_grown(&pool);
    let order = Order::MAX;
    let mut looked_at = 0;
    while let Ok(pages) = pool.alloc(order) {
        let start = pages.as_ptr().cast_mut().cast();
        let mut resident = vec![0_u8; order.pages() as usize];
        // SAFETY: (1) the block is mapped; (2) the answer has a byte for each of its pages.
        let asked = unsafe { libc::mincore(start, order.bytes(), resident.as_mut_ptr()) };
        assert_eq!(asked, 0);
        assert!(resident.iter().all(|page| page & 1 == 1), "block {looked_at} was not touched");
        looked_at += 1;
        std::mem::forget(pages);
    }
    assert!(looked_at > 60, "of 64 blocks");
}

/// A pool that goes while it grows takes its threads with it.
#[test]
fn a_pool_may_be_dropped_while_it_grows() {
    for _ in 0..5 {
        let pool = Pool::builder()
            .size(16 * SECTION_BYTES)
            .deferred(true)
            .prefault(false)
            .build()
            .unwrap();
        drop(pool.alloc(Order::ZERO).unwrap());
    }
}

#[test]
fn growing_and_poison_exclude_each_other() {
    let error = Pool::builder().size(1 << 20).deferred(true).poison(true).build().unwrap_err();
    assert!(error.to_string().contains("poison"), "{error}");
}

/// A forked child has no threads of the pool: its pool grows on demand and at once when asked.
#[test]
fn a_forked_child_grows_by_itself() {
    for _ in 0..3 {
        let pool = Pool::builder().size(8 * SECTION_BYTES).deferred(true).build().unwrap();
        // SAFETY: (1) the child calls only this pool, which is made for it, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let grown = pool.finish_growth().is_ok()
                && !pool.is_growing()
                && managed(&pool) == 8 * SECTION_BYTES
                && pool.view().nodes().all(|node| node.left_to_grow() == 0)
                && pool.alloc(Order::MAX).is_ok();
            // SAFETY: (1) ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!grown)) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: (1) `status` is a valid place for an int.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "the child's pool is complete");
        wait_until_grown(&pool);
    }
}
