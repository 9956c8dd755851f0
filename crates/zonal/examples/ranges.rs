//! Ranges of any number of pages: taken, grown, cut and given back.
//!
//! ```text
//! cargo run --release -p zonal --example ranges
//! ```

use zonal::{Pool, RangeRequest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(1 << 30).build()?;
    let free = pool.free_page_count();
    let mut buffer = pool.ranges().alloc(5)?; // 20 KiB; the block of 32 KiB gives 12 back at once
    buffer.try_grow(3)?; // the pages right behind, if they are free
    buffer.shrink(6)?; // the last two go back
    let (head, body) = buffer.split(1)?; // two owners
    let (front, back) = body.free_part(2..4)?; // the pages in the middle go back
    let table = pool.ranges().alloc_with(RangeRequest::new(76_800).aligned(512))?;

    println!("{} pages are in use", free - pool.free_page_count());
    drop((head, front, back, table));
    assert_eq!(free, pool.free_page_count());
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
