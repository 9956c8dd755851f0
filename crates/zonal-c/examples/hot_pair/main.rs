//! What a page costs from C beside Rust: an allocation and its free in turn, by one thread, in the
//! same process. Rounds are short and in random order; each loop runs under two names, whose
//! difference is the error of the measurement. `cargo xtask capi` builds and runs it, because the C
//! loop (`pair.c`) has to be linked.

use std::arch::asm;
use std::time::Instant;

use zonal::{Gfp, Order, Pool};
use zonal_c::{zonal_options, zonal_pool};

const PAIRS: usize = 20_000;
const ROUNDS: usize = 4_000;
const NAMES: [&str; 8] = [
    "rust",
    "rust again",
    "rust, each by itself",
    "the same again",
    "C, pages",
    "C, pages again",
    "C, blocks of order 0",
    "C, blocks again",
];

#[allow(improper_ctypes, reason = "C sees the handle's address only")]
unsafe extern "C" {
    fn zonal_example_pairs(pool: *mut zonal_pool, pairs: usize) -> usize;
    fn zonal_example_block_pairs(pool: *mut zonal_pool, pairs: usize) -> usize;
}

/// Keeps the functions that the C loops call.
#[used]
static ALLOC: unsafe extern "C" fn(*mut zonal_pool) -> *mut std::ffi::c_void =
    zonal_c::zonal_alloc_page;
#[used]
static FREE: unsafe extern "C" fn(*mut zonal_pool, *mut std::ffi::c_void) -> i32 =
    zonal_c::zonal_free_page;
#[used]
static ALLOC_BLOCK: unsafe extern "C" fn(*mut zonal_pool, u32, u32) -> *mut std::ffi::c_void =
    zonal_c::zonal_alloc;
#[used]
static FREE_BLOCK: unsafe extern "C" fn(*mut zonal_pool, *mut std::ffi::c_void, u32) -> i32 =
    zonal_c::zonal_free;

/// Pairs in a loop. `KNOWN`: the compiler may keep what the pool's address leads to in registers
/// from one call to the next; otherwise it reads that anew, as C does, and as a caller does that
/// does not loop.
#[inline(never)]
fn rust_pairs<const KNOWN: bool>(mut pool: &Pool, pairs: usize) -> usize {
    let mut refused = 0;
    let forget = |pool: &mut &Pool| {
        if !KNOWN {
            let mut at: *const Pool = *pool;
            // SAFETY: (1) no instruction: the address stays what it is.
            unsafe { asm!("/* {0} */", inout(reg) at, options(nostack, preserves_flags)) };
            // SAFETY: (1) as it was.
            *pool = unsafe { &*at };
        }
    };
    for _ in 0..pairs {
        forget(&mut pool);
        let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) else { return pairs };
        // The compiler must take the address for used.
        // SAFETY: (1) no instruction.
        unsafe { asm!("/* {0} */", in(reg) page.as_ptr(), options(nostack, preserves_flags)) };
        forget(&mut pool);
        // SAFETY: (1) the page was just handed out, and nobody uses it.
        refused += usize::from(unsafe { pool.free_pages(page, Order::ZERO) }.is_err());
    }
    refused
}

fn main() {
    let rust = Pool::builder().size(64 << 20).build().expect("a pool");
    // SAFETY: (1) numbers, raw pointers and optional functions, of which zero is a value.
    let mut options: zonal_options = unsafe { std::mem::zeroed() };
    options.size = size_of::<zonal_options>() as u32;
    options.bytes = 64 << 20;
    // SAFETY: (1) the contract of the function: a struct of the size that it names.
    let c = unsafe { zonal_c::zonal_pool_create(&raw const options) };
    assert!(!c.is_null());
    let mut times: [Vec<f64>; 8] = Default::default();
    let mut state = 1_u64;
    for round in 0..ROUNDS + 16 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        // Each name first, then at random.
        let which = if round < 16 { round % 8 } else { (state >> 33) as usize % 8 };
        let start = Instant::now();
        let refused = match which {
            0 | 1 => rust_pairs::<true>(&rust, PAIRS),
            2 | 3 => rust_pairs::<false>(&rust, PAIRS),
            // SAFETY: (1) the handle is live.
            4 | 5 => unsafe { zonal_example_pairs(c, PAIRS) },
            // SAFETY: (1) the handle is live.
            _ => unsafe { zonal_example_block_pairs(c, PAIRS) },
        };
        let took = start.elapsed();
        assert_eq!(refused, 0);
        times[which].push(took.as_nanos() as f64 / PAIRS as f64);
    }
    let mut middle = [0.0; 8];
    for (which, times) in times.iter_mut().enumerate() {
        times.sort_by(f64::total_cmp);
        middle[which] = times[times.len() / 2];
        let (name, least, rounds) = (NAMES[which], times[0], times.len());
        println!("{name:<21} smallest {least:.2} ns, median {:.2} ns of {rounds}", middle[which]);
    }
    let pair = |first: usize| (middle[first] + middle[first + 1]) / 2.0;
    let again = |first: usize| middle[first + 1] / middle[first];
    println!(
        "mode {}; A/A {:.3}, {:.3}, {:.3}, {:.3}",
        rust.mode(),
        again(0),
        again(2),
        again(4),
        again(6)
    );
    println!(
        "medians, C against Rust: pages {:.3} in a loop, {:.3} each by itself; blocks {:.3}, {:.3}",
        pair(4) / pair(0),
        pair(4) / pair(2),
        pair(6) / pair(0),
        pair(6) / pair(2)
    );
}
