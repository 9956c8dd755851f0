//! Drops of owned blocks that are refused, for tests of pages and of ranges.

use std::sync::{Arc, Mutex};

use zonal::{FreeFault, Misuse, OnMisuse, Pool};

use super::is_mapped;

/// Drops three owners of one block: the first frees it, the second is told of while the pool has
/// its handle, and the third behind it. `keep` makes another owned block, which keeps the pool.
pub fn later_drops_are_told<K, T>(
    keep: impl FnOnce(&Pool) -> K,
    thrice: impl FnOnce(&Pool) -> [T; 3],
) {
    let told: Arc<Mutex<Vec<FreeFault>>> = Arc::default();
    let log = Arc::clone(&told);
    let hook = move |misuse: &Misuse| log.lock().unwrap().push(misuse.error.details());
    let builder = Pool::builder().size(16 << 20).on_misuse(OnMisuse::Call(Arc::new(hook)));
    let pool = builder.build().unwrap();
    let start = pool.base() as usize;
    let keep = keep(&pool);
    let [first, second, third] = thrice(&pool);
    drop(first);
    drop(second);
    assert_eq!((pool.misuses(), told.lock().unwrap().len()), (1, 1));
    drop(pool);
    drop(third);
    assert_eq!(told.lock().unwrap().len(), 2);
    assert!(is_mapped(start), "a block is left");
    drop(keep);
    assert!(!is_mapped(start));
}
