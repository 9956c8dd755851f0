//! A pool on real memory: every path, in both modes.

use std::ptr::NonNull;

use zonal::{
    Backing, CpuMap, FreeFault, Gfp, Mode, NodeId, Order, PAGE_SIZE, Policy, Pool, Request,
};

const MIB: usize = 1 << 20;

/// The same test in both modes.
fn in_both_modes(test: impl Fn(Pool)) {
    for rseq in [true, false] {
        // Without the refresh thread, nothing moves but what the test moves.
        let builder = Pool::builder().size(64 * MIB).rseq(rseq).refresh_every(None);
        let pool = builder.build().unwrap();
        eprintln!("mode: {}", pool.mode());
        test(pool);
    }
}

fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

#[test]
fn every_order_is_aligned_writable_and_comes_back() {
    in_both_modes(|pool| {
        for o in Order::all() {
            let mut blocks: Vec<_> = (0..3).map(|_| pool.alloc(o).unwrap()).collect();
            for (i, block) in blocks.iter_mut().enumerate() {
                assert_eq!(block.as_ptr() as usize % o.bytes(), 0);
                block.fill(i as u8 + 1);
            }
            for (i, block) in blocks.iter().enumerate() {
                assert!(block.iter().all(|byte| *byte == i as u8 + 1));
            }
        }
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes());
        pool.drain_all();
        pool.validate().unwrap();
    });
}

#[test]
fn a_hot_page_comes_back_at_once() {
    // Each CPU has its own hot page, so this thread must not be moved to another.
    let cpus = zonal::sys::affinity::allowed_cpus().unwrap();
    let _pinned = zonal::sys::affinity::Pinned::to(cpus[0]).unwrap();
    in_both_modes(|pool| {
        for o in [0, 3, 9].map(order) {
            let first = pool.alloc(o).unwrap().into_raw().0;
            for _ in 0..5000 {
                // SAFETY: (1) the block is not used.
                unsafe { pool.free_pages(first, o) }.unwrap();
                assert_eq!(pool.alloc_pages(o, Gfp::KERNEL).unwrap(), first);
            }
            // SAFETY: (1) the block is not used.
            unsafe { pool.free_pages(first, o) }.unwrap();
        }
        pool.validate().unwrap();
        let stats = pool.zone_stats().next().unwrap();
        assert_eq!(stats.allocs, 3 * 5001);
        assert_eq!(stats.freed_pages, 5001 * (1 + 8 + 512));
        assert_eq!(stats.allocated_pages, stats.freed_pages);
        assert_eq!(stats.numa.hit, stats.allocs);
    });
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
    in_both_modes(|pool| {
        let (page, _) = pool.alloc(order(0)).unwrap().into_raw();
        let free = |start: NonNull<u8>, o| {
            // SAFETY: (1) nothing here is used.
            unsafe { pool.free_pages(start, o) }.map_err(|error| error.details())
        };
        // SAFETY: (1) still inside the pool.
        let inside = unsafe { page.add(8) };
        assert!(matches!(free(inside, order(0)), Err(FreeFault::Unaligned { past: 8 })));
        let foreign = NonNull::new(0x1000 as *mut u8).unwrap();
        let start = pool.base() as usize;
        let memory = FreeFault::Foreign { start, end: start + pool.bytes() };
        assert_eq!(free(foreign, order(0)), Err(memory));
        assert!(matches!(free(page, order(1)), Err(FreeFault::WrongOrder { .. })));
        free(page, order(0)).unwrap();
        assert!(matches!(free(page, order(0)), Err(FreeFault::DoubleFree { .. })));
        pool.drain_all();
        // It is part of a larger free block now.
        let again = free(page, order(0));
        let merged =
            matches!(again, Err(FreeFault::DoubleFree { order, .. }) if order > Order::ZERO);
        assert!(merged, "{again:?}");
        let (block, _) = pool.alloc(order(3)).unwrap().into_raw();
        let fifth = block.map_addr(|start| start | (5 * PAGE_SIZE));
        let around = FreeFault::Inside { block: block.as_ptr() as usize, order: order(3) };
        assert_eq!(free(fifth, order(0)), Err(around));
        free(block, order(3)).unwrap();
        pool.validate().unwrap();
    });
}

#[test]
fn bulk_pages_are_distinct_and_come_back() {
    in_both_modes(|pool| {
        let mut pages = vec![std::ptr::null_mut(); 4096];
        let got = pool.alloc_bulk(Gfp::KERNEL, &mut pages).unwrap();
        assert_eq!(got, 4096);
        let mut sorted = pages.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 4096);
        pool.validate().unwrap();
        // SAFETY: (1) the pages are not used.
        unsafe { pool.free_bulk(&pages, Order::ZERO) }.unwrap();
        pool.validate().unwrap();
        // SAFETY: (1) as above.
        let again = unsafe { pool.free_bulk(&pages[..3], Order::ZERO) };
        let again = again.map_err(|(done, error)| (done, error.details()));
        assert!(matches!(again, Err((0, FreeFault::DoubleFree { .. }))), "{again:?}");
        // SAFETY: (1) there is nothing there.
        let nothing = unsafe { pool.free_bulk(&[std::ptr::null_mut()], Order::ZERO) };
        let (done, error) = nothing.unwrap_err();
        assert!(
            done == 0 && error.to_string().contains("0x0 was not freed: it is outside"),
            "{error}"
        );
    });
}

#[test]
fn zeroed_pages_are_zero_after_use() {
    in_both_modes(|pool| {
        for _ in 0..10 {
            let mut page = pool.alloc_zeroed(order(1)).unwrap();
            assert!(page.iter().all(|byte| *byte == 0));
            page.fill(0xff);
        }
    });
}

#[test]
fn fake_nodes_serve_their_own_cpus() {
    for cpus in [CpuMap::Contiguous, CpuMap::RoundRobin] {
        let pool = Pool::builder().size(64 * MIB).fake_nodes(2, cpus).build().unwrap();
        assert_eq!(pool.nodes(), 2);
        for node in [NodeId(0), NodeId(1)] {
            let page = pool.alloc_with(Request::new(Order::ZERO).on(node)).unwrap();
            assert_eq!(pool.node_of(page.as_ptr()), Some(node));
        }
        pool.validate().unwrap();
    }
    let map = CpuMap::Explicit(vec![0, 7]);
    let error = Pool::builder().size(MIB).fake_nodes(2, map).build().unwrap_err();
    assert!(error.to_string().contains("node"), "{error}");
}

#[test]
fn impossible_pools_say_why() {
    let error = Pool::builder().build().unwrap_err().to_string();
    assert!(error.contains("size"), "{error}");
    let mut policy = Policy::ZONAL;
    policy.watermark.scale_factor = 3001;
    let error = Pool::builder().size(MIB).policy(policy).build().unwrap_err().to_string();
    assert!(error.contains("scale_factor"), "{error}");
    let error = Pool::builder().size(1 << 50).build().unwrap_err().to_string();
    assert!(error.contains("16 TiB"), "{error}");
}

#[test]
fn huge_pages_fall_back_with_a_notice() {
    let pool = Pool::builder().size(32 * MIB).backing(Backing::Huge2M).build().unwrap();
    let reserved = zonal::sys::machine::Machine::read().huge_2m.free * 2 * MIB as u64;
    if reserved < 32 * MIB as u64 {
        assert!(pool.notices().iter().any(|n| n.0.contains("pages are not available")));
    }
    drop(pool.alloc_zeroed(order(9)).unwrap());
}

#[test]
fn trim_gives_resident_blocks_back() {
    let pool = Pool::builder().size(64 * MIB).prefault(true).build().unwrap();
    let given = pool.trim(usize::MAX).unwrap();
    assert!(given >= 56 * MIB, "{given}");
    assert_eq!(pool.trim(usize::MAX).unwrap(), 0, "nothing is resident any more");
    pool.validate().unwrap();
    let block = pool.alloc(order(9)).unwrap();
    assert!(block.iter().all(|byte| *byte == 0));
}

#[test]
fn poison_finds_a_write_after_free() {
    let pool = Pool::builder().size(8 * MIB).poison(true).build().unwrap();
    let (page, o) = pool.alloc(Order::ZERO).unwrap().into_raw();
    // SAFETY: (1) the page is not used, but for the deliberate write below.
    unsafe { pool.free_pages(page, o) }.unwrap();
    let byte = page.as_ptr().wrapping_add(100);
    // SAFETY: (1) mapped memory of the pool; that it is free is the point.
    unsafe { byte.write(7) };
    let other = pool.alloc(Order::ZERO).unwrap();
    assert_ne!(other.as_ptr(), page.as_ptr());
    assert_eq!(pool.poison_hits(), 1);
    let blocks: Vec<_> = pool.view().blocks().collect();
    assert_eq!(blocks, [(other.as_ptr(), Order::ZERO)], "what stays out of use is nobody's");
}

#[test]
fn out_of_memory_is_a_value_and_everything_was_used() {
    in_both_modes(|pool| {
        let mut pages = Vec::new();
        let error = loop {
            match pool.alloc(Order::ZERO) {
                Ok(page) => pages.push(page),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("watermark"), "{error}");
        // What is left is the reserve: 1/128 of the pool, and a refill's worth below it.
        assert!(pages.len() * 4096 >= pool.bytes() / 128 * 126, "{}", pages.len());
        drop(pages);
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count() as usize * 4096, pool.bytes());
    });
}

#[test]
fn metadata_is_a_quarter_of_a_percent() {
    let pool = Pool::builder().size(1 << 30).build().unwrap();
    let share = pool.metadata_bytes() as f64 / pool.bytes() as f64;
    eprintln!("metadata: {:.4} % of the pool, mode {:?}", share * 100.0, pool.mode());
    assert!(share <= 0.0025, "{share}");
    assert!(matches!(pool.mode(), Mode::Rseq | Mode::Lock(_)));
}

#[test]
fn a_pool_that_is_larger_than_asked_says_so() {
    let build = |bytes, nodes| {
        let builder = Pool::builder().size(bytes).refresh_every(None);
        builder.fake_nodes(nodes, Default::default()).build().unwrap()
    };
    let said = |pool: &Pool| {
        let notices = pool.notices().iter().map(ToString::to_string);
        notices.filter(|notice| notice.contains("were asked for")).collect::<Vec<_>>()
    };
    for (bytes, nodes, given) in [(1, 1, 4 * MIB), (64 * MIB, 64, 256 * MIB)] {
        let pool = build(bytes, nodes);
        assert_eq!(pool.bytes(), given);
        let notices = said(&pool);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].starts_with(&format!("the pool has {given} bytes, {bytes} were")));
    }
    assert_eq!(said(&build(64 * MIB, 2)), [""; 0]);
}

/// Before any work that grows with the nodes: 65535 would take hours.
#[test]
fn too_many_made_up_nodes_are_refused_with_the_limit() {
    for nodes in [0, 257, 1024, 65535] {
        let builder = Pool::builder().size(MIB).fake_nodes(nodes, Default::default());
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains("at most 256 in all"), "{error}");
    }
}

/// What is behind a page that is refused is still the caller's, with its bytes: where freed pages
/// are filled, too.
#[test]
fn a_bulk_free_that_stops_leaves_the_bytes_of_the_rest() {
    for poison in [false, true] {
        let pool = Pool::builder().size(16 << 20).poison(poison).build().unwrap();
        let pages = [(); 3].map(|()| pool.alloc_raw(Order::ZERO, Gfp::KERNEL));
        // SAFETY: (1) the page is ours.
        unsafe { pages[2].write_bytes(7, PAGE_SIZE) };
        let twice = [pages[0], pages[0], pages[2]];
        // SAFETY: (1) not kept, which is what is tested: the second one is free by then.
        let (done, error) = unsafe { pool.free_bulk(&twice, Order::ZERO) }.unwrap_err();
        assert_eq!(done, 1, "{error}");
        // SAFETY: (1) still ours, and initialised.
        let bytes = unsafe { std::slice::from_raw_parts(pages[2], PAGE_SIZE) };
        assert!(bytes.iter().all(|byte| *byte == 7), "poison: {poison}");
        // SAFETY: (1) ours, and not used any more.
        unsafe { pool.free_bulk(&pages[1..], Order::ZERO) }.unwrap();
        pool.validate().unwrap();
    }
}
