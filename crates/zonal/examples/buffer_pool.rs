//! Buffers of a server: each worker takes a block for a request and drops it when it is answered.
//! The pool is the limit; a worker that gets no buffer says so at once instead of growing.
//!
//! ```text
//! cargo run --release -p zonal --example buffer_pool
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zonal::{Gfp, Order, Pool, Request};

const WORKERS: usize = 4;
const REQUESTS: usize = 10_000;

/// Answers a request in its buffer: the work of a real server.
fn answer(buffer: &mut [u8], request: usize) -> usize {
    let text = format!("answer {request}");
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(64 << 20).build()?;
    let order = Order::for_bytes(64 << 10).ok_or("above 4 MiB")?;
    let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                for request in 0..REQUESTS {
                    // NOWAIT: a full pool answers at once, so the client can be told to come back.
                    match pool.alloc_with(Request::new(order).gfp(Gfp::NOWAIT)) {
                        Ok(mut buffer) => {
                            assert!(answer(&mut buffer, request) > 0);
                            served.fetch_add(1, Relaxed);
                        }
                        Err(_) => {
                            refused.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (served, refused) = (served.into_inner(), refused.into_inner());
    println!("{}: {served} served, {refused} refused", pool.mode());
    assert_eq!(served + refused, (WORKERS * REQUESTS) as u64);
    assert_eq!(pool.free_page_count() as usize * zonal::PAGE_SIZE, pool.bytes());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
