//! What slow calls of a pool note. In a process of its own: zones of several pools share places, so
//! pools of other tests would be seen as holders of these locks.
#![cfg(feature = "stalls")]

use zonal::stalls::{Waits, holds, take, watch};
use zonal::{Order, Pool};

#[test]
fn a_refill_a_drain_and_who_had_the_lock_are_on_the_account_of_their_thread() {
    let pool = Pool::builder().size(64 << 20).refresh_every(None).build().unwrap();
    watch(true);
    take();
    let page = pool.alloc(Order::ZERO).unwrap();
    let refill = take();
    assert!(refill.moved_pages > 0 && refill.holds > 0, "{refill:?}");
    drop(page);
    take();
    pool.drain_all();
    let drain = take();
    assert!(drain.moved_pages >= refill.moved_pages && drain.hold_pages > 0, "{drain:?}");
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            take();
            drop((0..500).map(|_| pool.alloc(Order::ZERO).unwrap()).collect::<Vec<_>>());
            pool.drain_all();
            take()
        });
        other.join().unwrap()
    });
    assert!(take() == Waits::default(), "what others do is theirs");
    assert!(other.moved_pages > 0 && other.holds > 0, "{other:?}");
    assert_eq!((refill.holder, drain.holder, other.holder), (0, 0, 0), "nobody had the lock");
    let holds = holds();
    assert!(holds.by_size.iter().sum::<u64>() + holds.preempted >= 2, "{holds:?}");
    watch(false);
    drop(pool.alloc(Order::MAX).unwrap());
    assert!(take() == Waits::default(), "nothing is counted when it is off");
}
