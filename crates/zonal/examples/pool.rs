//! A pool, a page, a block.
//!
//! ```text
//! cargo run --release -p zonal --example pool
//! ```

use zonal::{Order, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(64 << 20).build()?; // from the system, once
    let mut page = pool.alloc(Order::ZERO)?; // 4 KiB of the near node; freed when dropped
    page[..5].copy_from_slice(b"hello");
    let block = pool.alloc_zeroed(Order::for_bytes(2 << 20).ok_or("above 4 MiB")?)?; // aligned
    println!("{}: {} pages free of {}", pool.mode(), pool.free_page_count(), pool.bytes() >> 12);

    assert!(block.iter().all(|byte| *byte == 0));
    drop((page, block));
    assert_eq!(pool.free_page_count() as usize * zonal::PAGE_SIZE, pool.bytes());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
