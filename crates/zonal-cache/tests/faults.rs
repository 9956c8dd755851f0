//! Requests for pages that fail on purpose, at every one that a cache makes.

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use support::{MemStore, PAGE, end, pattern};
use zonal::{FailAlloc, Pool};
use zonal_cache::Cache;

/// Reads, reads ahead, writes, writes back, pins and syncs, where the `nth` request for a page
/// fails. Returns whether there were that many.
fn with_failure(nth: u64) -> bool {
    let builder = Pool::builder().size(4 << 20).refresh_every(None);
    let pool = Arc::new(builder.fail_alloc(FailAlloc::nth(nth)).build().unwrap());
    let cache = Cache::builder(pool.clone())
        .max_pages(24)
        .read_ahead(4)
        .dirty_percent(10, 60)
        .writeback_every(Duration::from_secs(3600))
        .build()
        .unwrap();
    let mut model = pattern(1, 40 * PAGE as usize);
    let store = MemStore::new(model.clone());
    let file = cache.open_store(store.clone()).unwrap();
    for step in 0..60_u64 {
        let offset = step * 7 % 39 * PAGE + step * 10;
        match step % 4 {
            0 => {
                // What was refused is written again: it must not have been written in part.
                let bytes = pattern(step, 3000);
                let done = file.write_at(&bytes, offset).or_else(|error| {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    file.write_at(&bytes, offset)
                });
                let (done, offset) = (done.unwrap(), offset as usize);
                model.resize(model.len().max(offset + done), 0);
                model[offset..offset + done].copy_from_slice(&bytes[..done]);
            }
            1 => match file.pin(offset / PAGE) {
                Ok(page) => {
                    let from = (offset / PAGE * PAGE) as usize;
                    let len = page.len().min(model.len() - from);
                    assert_eq!(page[..len], model[from..from + len], "step {step}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
            },
            _ => {
                // A sequence now and then, which is read ahead of.
                let offset = if step % 16 < 8 { step % 8 * 5000 } else { offset };
                let mut buffer = vec![0; 5000];
                match file.read_at(&mut buffer, offset) {
                    Ok(done) => {
                        let from = &model[(offset as usize).min(model.len())..];
                        assert_eq!(buffer[..done], from[..done], "step {step}");
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
                }
            }
        }
        if step % 15 == 14 {
            file.sync().unwrap();
        }
    }
    file.sync().unwrap();
    assert!(store.bytes() == model, "failure {nth}: the store differs");
    let failed = pool.fail_counts().failed == 1;
    drop(file);
    end(cache, &pool);
    failed
}

#[test]
fn whichever_request_for_a_page_fails_nothing_is_lost() {
    let failures = (1..400).take_while(|nth| with_failure(*nth)).count();
    assert!(failures > 40, "only {failures} requests");
}

/// A cache whose pool has nothing for it tells so, and works again when it has.
#[test]
fn a_pool_that_refuses_everything_for_a_while_is_told_and_forgotten() {
    let builder = Pool::builder().size(4 << 20).refresh_every(None);
    let pool = Arc::new(builder.fail_alloc(FailAlloc::never()).build().unwrap());
    let cache = Cache::new(pool.clone()).unwrap();
    let store = MemStore::new(pattern(2, 10 * PAGE as usize));
    let file = cache.open_store(store.clone()).unwrap();
    pool.set_fail_alloc(FailAlloc::every(1));
    let mut buffer = vec![0; 100];
    for _ in 0..3 {
        // Past the cache; a page to pin or to write to has to be one.
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100);
        assert_eq!(file.pin(0).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(file.write_at(&[1; 50], 5000).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    cache.validate().unwrap();
    pool.set_fail_alloc(FailAlloc::never());
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 100);
    assert_eq!(buffer, pattern(2, 100));
    file.write_at(&[1; 50], 5000).unwrap();
    file.sync().unwrap();
    assert_eq!(store.bytes()[5000..5050], [1; 50]);
    drop(file);
    end(cache, &pool);
}
