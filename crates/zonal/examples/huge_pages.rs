//! Blocks of 2 MiB: memory that the system backs with huge pages where it can, and what a pool says
//! where it cannot.
//!
//! ```text
//! cargo run --release -p zonal --example huge_pages
//! ```

use zonal::{Backing, Order, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Huge2M asks for reserved pages (vm.nr_hugepages); without them a notice says what came.
    let pool = Pool::builder().size(64 << 20).backing(Backing::Huge2M).build()?;
    pool.notices().iter().for_each(|notice| println!("note: {notice}"));

    let order = Order::for_bytes(2 << 20).ok_or("above 4 MiB")?;
    let mut blocks: Vec<_> = (0..8).map(|_| pool.alloc(order)).collect::<Result<_, _>>()?;
    for block in &mut blocks {
        assert_eq!(block.as_ptr() as usize % (2 << 20), 0); // aligned to its size
        block.fill(7); // one page fault with huge pages, 512 without
    }
    drop(blocks);

    // What is free goes back to the system in whole blocks of 2 MiB.
    pool.drain_all();
    println!("{} MiB given back", pool.trim(16 << 20)? >> 20);
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
