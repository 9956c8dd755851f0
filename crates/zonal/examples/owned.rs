//! A server whose workers own what they work on: requests travel between threads in pages of the
//! pool, and nothing borrows it.
//!
//! ```text
//! cargo run --release -p zonal --example owned
//! ```

use std::sync::mpsc;

use zonal::{Order, OwnedPages, Pool};

const REQUESTS: usize = 10_000;

/// A request in a page of its own.
struct Request {
    page: OwnedPages,
    len: usize,
}

/// Reads requests into pages: a handle of the pool is all that it needs.
fn reader(pool: Pool, requests: mpsc::SyncSender<Request>) -> Result<(), zonal::AllocError> {
    for number in 0..REQUESTS {
        let mut page = pool.alloc(Order::ZERO)?.into_owned();
        let text = format!("request {number}");
        page[..text.len()].copy_from_slice(text.as_bytes());
        if requests.send(Request { page, len: text.len() }).is_err() {
            break;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(64 << 20).build()?;
    let (send, receive) = mpsc::sync_channel(256);
    let handle = pool.clone();
    let reader = std::thread::spawn(move || reader(handle, send));
    let worker = std::thread::spawn(move || {
        let answered = receive.into_iter().filter(|request| {
            // Freed here, by another thread than the one that took it.
            request.page[..request.len].starts_with(b"request ")
        });
        answered.count()
    });
    reader.join().expect("the reader does not panic")?;
    let answered = worker.join().expect("the worker does not panic");
    println!("{}: {answered} answered", pool.mode());
    assert_eq!(answered, REQUESTS);
    assert_eq!(pool.free_page_count() as usize * zonal::PAGE_SIZE, pool.bytes());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
