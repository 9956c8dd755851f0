//! A kernel on OSTD that asks for frames, from all CPUs and in every size, with its default frame
//! allocator or with ours (feature `zonal`). `cargo xtask ostd` boots it and reads what it prints.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod count;
mod frames;
mod programs;

use ostd::prelude::*;

#[ostd::main]
fn kernel_main() {
    let body = || {
        let name = if cfg!(feature = "zonal") { "zonal" } else { "default" };
        println!("kernel on OSTD: {} CPUs, frame allocator {}", ostd::cpu::num_cpus(), name);
        if ostd::cpu::num_cpus() == 1 {
            count::run();
        }
        programs::run();
        println!("END OK");
        ostd::power::poweroff(ostd::power::ExitCode::Success);
    };
    ostd::task::TaskOptions::new(body).data(()).spawn().expect("a task");
}
