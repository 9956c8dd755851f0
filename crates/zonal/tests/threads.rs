//! Threads come, move between CPUs and go; pages stay where the counts say they are.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use support::{Owners, Rng, Watchdog, cpus, free, move_thread, order, pool, thread_id};
use zonal::{Gfp, Order, PAGE_SIZE, Pool};

const MIB: usize = 1 << 20;

fn get(pool: &Pool, o: Order) -> usize {
    pool.alloc_pages(o, Gfp::KERNEL).unwrap().as_ptr() as usize
}

/// Every page is free, and the counters agree.
fn assert_all_free(pool: &Pool) {
    pool.validate().unwrap();
    assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
    for stats in pool.zone_stats() {
        assert_eq!(stats.allocated_pages, stats.freed_pages);
        assert_eq!(stats.double_frees, 0);
    }
}

#[test]
fn threads_that_end_leave_no_page_behind() {
    let _watchdog = Watchdog::new("short threads", Duration::from_secs(180));
    for rseq in [true, false] {
        let pool = pool(64 * MIB, rseq);
        let owners = Owners::new(&pool);
        let mut estate = Vec::new();
        for id in 1..=40 {
            let (pool, owners) = (&pool, &owners);
            let mine = std::mem::take(&mut estate);
            estate = std::thread::scope(|scope| {
                let life = move || {
                    // Half of what the thread before left, freed on whatever CPU this one is.
                    let mut held: Vec<(usize, Order)> = mine;
                    for (block, o) in held.drain(..held.len() / 2) {
                        owners.release(block, o, u32::MAX);
                        free(pool, block, o).unwrap();
                    }
                    for n in 0..100 {
                        let o = order(n % 5);
                        let block = get(pool, o);
                        owners.claim(block, o, id);
                        owners.release(block, o, id);
                        owners.claim(block, o, u32::MAX);
                        held.push((block, o));
                    }
                    held
                };
                scope.spawn(life).join().unwrap()
            });
            let held: u64 = estate.iter().map(|(_, o)| o.pages()).sum();
            let free = pool.free_page_count();
            assert_eq!((free + held) as usize * PAGE_SIZE, pool.bytes(), "after thread {id}");
        }
        pool.validate().unwrap();
        estate.into_iter().for_each(|(block, o)| free(&pool, block, o).unwrap());
        assert_eq!(owners.errors(), 0);
        assert_all_free(&pool);
    }
}

#[test]
fn a_thread_that_moves_between_cpus_loses_nothing() {
    let _watchdog = Watchdog::new("a moving thread", Duration::from_secs(180));
    let cpus = cpus();
    for rseq in [true, false] {
        let pool = pool(16 * MIB, rseq);
        let mut rng = Rng::new(5);
        let mut held: Vec<(usize, Order)> = Vec::new();
        for step in 0..2000 {
            // Between any two operations, so that blocks are freed where they were not allocated.
            let cpu = cpus[step % cpus.len()];
            assert!(move_thread(thread_id(), &[cpu]));
            for _ in 0..rng.below(8) {
                let o = order(rng.below(4) as u32);
                held.push((get(&pool, o), o));
            }
            while held.len() > 100 || (rng.below(3) > 0 && !held.is_empty()) {
                let (block, o) = held.swap_remove(rng.below(held.len()));
                free(&pool, block, o).unwrap();
            }
        }
        held.into_iter().for_each(|(block, o)| free(&pool, block, o).unwrap());
        assert!(move_thread(thread_id(), cpus));
        assert_all_free(&pool);
    }
}

#[test]
fn a_thread_that_somebody_else_moves_has_each_page_once() {
    let _watchdog = Watchdog::new("a moved thread", Duration::from_secs(180));
    let pool = pool(16 * MIB, true);
    let owners = Owners::new(&pool);
    let cpus = cpus();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (pool, owners) = (&pool, &owners);
        let worker = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            let mut held = Vec::new();
            for round in 0..60_000 {
                let block = get(pool, Order::ZERO);
                owners.claim(block, Order::ZERO, 1);
                held.push(block);
                if round % 64 > 32 {
                    for block in held.drain(held.len() / 2..) {
                        owners.release(block, Order::ZERO, 1);
                        free(pool, block, Order::ZERO).unwrap();
                    }
                }
            }
            for block in held {
                owners.release(block, Order::ZERO, 1);
                free(pool, block, Order::ZERO).unwrap();
            }
        });
        let worker_id = told.recv().unwrap();
        let mut turn = 0;
        while !worker.is_finished() {
            move_thread(worker_id, &[cpus[turn % cpus.len()]]);
            turn += 1;
        }
    });
    assert_eq!(owners.errors(), 0);
    assert_eq!(owners.held(), 0);
    assert_all_free(&pool);
}

/// The kernel then keeps no CPU number for the thread, and never restarts a sequence of it.
#[test]
fn a_thread_without_a_registration_gets_real_pages_from_the_core() {
    let Ok(area) = zonal::sys::rseq_abi::RseqArea::find() else {
        eprintln!("skipped: no rseq here");
        return;
    };
    let pool = zonal::Pool::builder().size(16 << 20).build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Where libc registers nobody, the library does when a thread first needs it.
            assert_eq!(zonal::sys::rseq_abi::RseqArea::find(), Ok(area));
            let (address, signature) = (area.address(), zonal::sys::rseq_abi::RSEQ_SIGNATURE);
            // SAFETY: (1) takes back this thread's own registration; no sequence is running.
            let gone = unsafe { libc::syscall(libc::SYS_rseq, address, 32, 1, signature) };
            assert_eq!(gone, 0, "{}", std::io::Error::last_os_error());
            for order in zonal::Order::all() {
                let block = pool.alloc(order).unwrap();
                assert!(pool.node_of(block.as_ptr()).is_some(), "{order:?}: {:p}", block.as_ptr());
            }
        });
    });
    pool.validate().unwrap();
}

/// musl unmaps the stack of a detached thread, and the rseq area with it, before the thread's last
/// instruction: a thread that is preempted there with a registration dies, and the process with it.
#[test]
fn detached_threads_end_while_others_take_their_cpu() {
    const THREADS: usize = 3000;
    let _watchdog = Watchdog::new("detached threads", Duration::from_secs(180));
    let pool = std::sync::Arc::new(pool(16 * MIB, true));
    let (tell, told) = std::sync::mpsc::channel();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More threads than CPUs, so that some are preempted anywhere.
        for _ in 0..2 * cpus().len() {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..THREADS {
            let (pool, tell) = (pool.clone(), tell.clone());
            drop(std::thread::spawn(move || {
                let page = get(&pool, Order::ZERO);
                free(&pool, page, Order::ZERO).unwrap();
                drop(pool);
                tell.send(()).unwrap();
            }));
        }
        assert_eq!(told.iter().take(THREADS).count(), THREADS);
        stop.store(true, Relaxed);
    });
    assert_all_free(&pool);
}
