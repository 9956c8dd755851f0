//! An image without an operating system: a table of the calls, and what they need.
#![no_std]
#![no_main]

use minimal::Pages;
use zonal_core::gfp::Gfp;
use zonal_core::machine::{Layout, Machine, MachineError, Metadata};
use zonal_core::policy::Policy;
use zonal_core::types::{Order, Pfn};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// What a kernel calls.
pub struct Calls {
    pub layout: fn(&Machine<'_>, &Policy) -> Result<Layout, MachineError>,
    pub start: for<'a> unsafe fn(&Machine<'a>, &Policy, Metadata<'a>) -> Option<Pages<'a>>,
    pub alloc: fn(&Pages<'_>, Order, Gfp) -> Option<Pfn>,
    pub free: fn(&Pages<'_>, Pfn, Order) -> bool,
}

static CALLS: Calls = Calls {
    layout: minimal::layout,
    start: minimal::start,
    alloc: minimal::alloc,
    free: minimal::free,
};

/// The entry. What it returns keeps every call in the image.
// SAFETY: nothing else of the image has this name.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> &'static Calls {
    &CALLS
}
