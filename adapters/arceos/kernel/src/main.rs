//! A kernel of ArceOS' crates whose page allocator is `zonal-core`.
//!
//! ```text
//!  axplat-x86-pc  boots, tells of memory ──► Pages (ours) ──► programs, pages
//!                                               │ more bytes
//!                                               ▼
//!                                            TLSF (ArceOS') ──► `alloc`: boxes, vectors, maps
//! ```
//! That is how ArceOS joins its two allocators: what allocates bytes asks the page allocator for
//! more when it has none left.
#![no_std]
#![no_main]

extern crate alloc;
// The platform: it has the entry of the image.
extern crate axplat_x86_pc;

mod count;
mod heap;
mod memory;
mod programs;

use ax_allocator::PageAllocator;
use axplat::console_println;

#[axplat::main]
fn kernel_main(cpu: usize, info: usize) -> ! {
    axcpu::init::init_percpu(cpu);
    axplat::init::init_early(cpu, info);
    axplat::init::init_later(cpu, info);
    let free = memory::free();
    heap::bring_up(&free);
    let pages = heap::with_pages(|pages| pages.available_pages());
    console_println!("passed: boot: {} pages in {} ranges", pages, free.iter().count());
    programs::pages();
    programs::bytes();
    count::run();
    console_println!("END OK");
    axplat::power::system_off()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    console_println!("PANIC {}", info);
    axplat::power::system_off()
}
