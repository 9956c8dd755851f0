//! Bugs planted on purpose: what must find them is broken if it does not.

use std::sync::Barrier;

use clap::ValueEnum;
use zonal::{Order, Pool};

/// A bug that must be found.
#[derive(Clone, Copy, ValueEnum)]
pub enum Bug {
    /// Two threads write one page of a pool without any order between them (ThreadSanitizer).
    Race,
    /// A read behind the end of an allocation (AddressSanitizer).
    Overflow,
    /// A page that its owner did not free is freed by another (the owners' stamps).
    DoubleOwner,
}

/// Plants a bug. Returns where only a sanitizer would have stopped the process.
pub fn plant(bug: Bug) {
    match bug {
        Bug::Race => race(),
        Bug::Overflow => overflow(),
        Bug::DoubleOwner => double_owner(),
    }
}

fn race() {
    let pool = Pool::builder().size(16 << 20).build().expect("a pool");
    let page = pool.alloc(Order::ZERO).expect("a page");
    let word = page.as_ptr() as usize;
    // One that has ended before the other begins passes for it: a tool gives its place on.
    let both = &Barrier::new(2);
    std::thread::scope(|scope| {
        for value in 0..2_u64 {
            scope.spawn(move || {
                both.wait();
                for _ in 0..1000 {
                    // SAFETY: none. Two threads write the page at once: this is the planted bug.
                    unsafe { (word as *mut u64).write(value) };
                    std::hint::black_box(word);
                }
            });
        }
    });
}

fn overflow() {
    let bytes = vec![1_u8; 64].into_boxed_slice();
    let behind = std::hint::black_box(bytes.as_ptr().wrapping_add(64));
    // SAFETY: none. The byte is behind the allocation: this is the planted bug.
    std::hint::black_box(unsafe { behind.read_volatile() });
}

fn double_owner() {
    let pool = Pool::builder().size(16 << 20).build().expect("a pool");
    let owners = super::support::Owners::new(&pool);
    let page = pool.alloc_pages(Order::ZERO, zonal::Gfp::KERNEL).expect("a page");
    owners.claim(page.as_ptr() as usize, Order::ZERO, 1);
    // SAFETY: none. The page has an owner, who did not free it: this is the planted bug.
    unsafe { pool.free_pages(page, Order::ZERO) }.expect("the pool cannot know");
    let again = pool.alloc_pages(Order::ZERO, zonal::Gfp::KERNEL).expect("a page");
    owners.claim(again.as_ptr() as usize, Order::ZERO, 2);
    assert_eq!(owners.errors(), 0, "a page in two hands");
}
