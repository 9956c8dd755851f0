//! A cache that lives in a pool and gives its pages up when others need them: it grows while there
//! is room, and the pool takes back what it is short of.
//!
//! ```text
//! cargo run --release -p zonal --example shrinker
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use zonal::reclaim::{Scanned, Shrinker};
use zonal::{Gfp, Order, Pages, Pool, Request};

/// Pages of decoded objects, the oldest first.
type Objects = Mutex<VecDeque<Pages<'static>>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The pool of a server lives as long as the process.
    let pool: &'static Pool = Box::leak(Box::new(Pool::builder().size(32 << 20).build()?));
    let cache = Arc::new(Objects::default());

    let (counted, scanned) = (Arc::clone(&cache), Arc::clone(&cache));
    let registered = pool.register_shrinker(Shrinker::new(
        "decoded objects",
        move |_| counted.try_lock().map_or(0, |objects| objects.len() as u64),
        // Called in the middle of an allocation: it must not wait. What it took of the pool would
        // come from the reserves.
        move |ask| {
            let Ok(mut objects) = scanned.try_lock() else { return Scanned::Stop };
            let count = objects.len().min(ask.objects as usize);
            objects.drain(..count); // dropped, so freed
            Scanned::Freed(count as u64)
        },
    ));

    // The cache takes what is there ...
    let spare = Request::new(Order::ZERO).gfp(Gfp::NOWAIT);
    while let Ok(page) = pool.alloc_with(spare) {
        cache.lock().unwrap().push_back(page);
    }
    let most = cache.lock().unwrap().len();
    // ... and gives up as much as the program needs.
    let work: Vec<_> = (0..2048).map(|_| pool.alloc(Order::ZERO)).collect::<Result<_, _>>()?;
    let left = cache.lock().unwrap().len();
    println!("cached {most} pages, {left} after the program took {}", work.len());
    assert!(left < most);
    for consumer in pool.reclaim_report() {
        println!("{consumer}");
    }
    drop(registered);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
