//! A kernel that serves its memory with `zonal-core`: it boots, starts its CPUs, runs programs
//! against a model, and turns the machine off. `cargo xtask kernel` builds it, boots it on machines
//! of many shapes, and reads what it prints.
//!
//! | file | does |
//! |--|--|
//! | `x86_64`, `aarch64`, `riscv64` | the machine: boot, interrupts, CPUs, firmware's tables |
//! | `image` | what all of them have: where the image lies, the switch of stacks |
//! | `tree` | memory, CPUs and distances from a device tree |
//! | `boot` | from firmware's tables to an allocator that serves |
//! | `kernel` | the kernel's side of `zonal-kernel`; `alloc` and `free`; handlers |
//! | `fast` | sections in front of the core, on x86-64 with the feature `sections` |
//! | `threads` | two threads on a CPU, switched by the timer |
//! | `model`, `programs` | a bitmap of who has what; random programs on all CPUs |
//! | `memory` | memory that comes late, leaves, and comes back |
//! | `faults`, `inject` | what goes wrong on purpose; interrupts at chosen instructions |
//! | `count` | instructions of calls |
#![no_std]
#![no_main]

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod arch;
#[cfg(target_arch = "riscv64")]
#[path = "riscv64/mod.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod arch;
mod boot;
mod count;
#[cfg(by_sections)]
mod fast;
mod faults;
mod image;
#[cfg(target_arch = "x86_64")]
mod inject;
mod kernel;
mod memory;
mod model;
mod out;
mod programs;
mod threads;
#[cfg(not(target_arch = "x86_64"))]
mod tree;

/// The first CPU arrives here, with the address that the boot protocol hands over.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(info: usize) -> ! {
    arch::become_cpu(0);
    say!("kernel on {}", arch::NAME);
    let mut boot = match boot::run(info) {
        Ok(boot) => boot,
        Err(error) => {
            say!("cannot boot: {error}");
            arch::exit(2)
        }
    };
    boot.start_cpus();
    boot.print();
    let command = boot.command;
    programs::set_period(&command);
    if kernel::core().is_growing() {
        memory::finish_growth(&boot, boot.online);
    }
    if command.has("count") {
        count::run();
    }
    #[cfg(target_arch = "x86_64")]
    if command.has("dimm") {
        memory::dimm(&boot, command.number("rounds", 3000));
    }
    if command.has("programs") {
        programs::run(&command);
    }
    if command.has("faults") {
        faults::run(&mut boot);
    }
    boot.print_texts();
    say!("END OK");
    arch::exit(0)
}

/// Every other CPU arrives here, on a stack of its own.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(cpu: usize) -> ! {
    arch::become_cpu(cpu as u32);
    if let Err(error) = zonal_kernel::hotplug::starts(kernel::core()) {
        say!("CPU {cpu}: {error}");
        arch::stop();
    }
    #[cfg(by_sections)]
    fast::tell();
    kernel::arrived(cpu as u32);
    arch::unmask_all();
    programs::follow(cpu as u32)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("PANIC on CPU {}: {info}", arch::this_cpu());
    arch::exit(1)
}
