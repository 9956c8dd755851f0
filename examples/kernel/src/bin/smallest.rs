#![no_std]
#![no_main]
//! The smallest kernel with an allocator: the program of the tutorial "A kernel, step by step".

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use zonal_core::alloc::{Allocator, Request};
use zonal_core::early::{Early, Want};
use zonal_core::machine::{Layout, Machine};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, Order};
use zonal_kernel::fence::{FenceCell, Fences, Patience};
use zonal_kernel::zones::{self, Limits, NO_ZONE};
use zonal_kernel::{Kernel, KernelPlatform, hotplug, text};

// The boot protocol is PVH: QEMU starts the address of this note in 32-bit mode, with a pointer in
// ebx. The code maps the first 4 GiB at their own addresses and goes on in 64-bit mode.
global_asm!(
    ".section .note.Xen, \"a\", @note",
    ".long 4, 4, 18",
    ".asciz \"Xen\"",
    ".long pvh_start",
    ".text",
    ".code32",
    ".globl pvh_start",
    "pvh_start:",
    "mov edi, ebx",
    "mov esp, offset stack_top",
    "mov dword ptr [pages], offset pages + 4096 + 7",
    "xor ecx, ecx",
    "2: mov eax, ecx",
    "shl eax, 30",
    "or eax, 0x83",
    "mov [pages + 4096 + ecx * 8], eax",
    "inc ecx",
    "cmp ecx, 4",
    "jne 2b",
    "mov eax, offset pages",
    "mov cr3, eax",
    "mov eax, 0x20",
    "mov cr4, eax",
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, 0x100",
    "wrmsr",
    "mov eax, 0x80000011",
    "mov cr0, eax",
    "lgdt [gdt_pointer]",
    ".byte 0xea",
    ".long long_mode",
    ".word 8",
    ".code64",
    "long_mode:",
    "mov ax, 16",
    "mov ss, ax",
    "mov ds, ax",
    "call kernel_main",
    "gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff",
    "gdt_pointer: .word 23",
    ".long gdt",
    ".bss",
    ".balign 4096",
    "pages: .skip 8192",
    ".skip 65536",
    "stack_top:",
);

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: (1) the serial port touches no memory.
            unsafe { asm!("out dx, al", in("dx") 0x3f8, in("al") byte, options(nomem, nostack)) }
        }
        Ok(())
    }
}

fn stop(code: u8) -> ! {
    // SAFETY: (1) this port ends QEMU, with 2 * code + 1.
    unsafe { asm!("out dx, al", in("dx") 0xf4, in("al") code, options(nomem, nostack)) }
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "{info}");
    stop(1)
}

struct Smallest;

impl Kernel for Smallest {
    fn cpu(&self) -> u32 {
        0
    }
    fn mask(&self) -> usize {
        let flags: usize;
        // SAFETY: (1) masking interrupts breaks nothing.
        unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
        flags
    }
    fn unmask(&self, was: usize) {
        if was & 0x200 != 0 {
            // SAFETY: (1) they were unmasked before.
            unsafe { asm!("sti") }
        }
    }
    fn interrupt(&self, _cpu: u32) {}
    fn now_ns(&self) -> u64 {
        // SAFETY: (1) reads a counter.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_end: u8;
}

fn memory(start_info: usize) -> Early<64> {
    let mut early = Early::new();
    // SAFETY: (1) PVH says that the start info is there: at 40 the address of the memory map, at
    // 48 the number of its entries, each of three numbers.
    let map = unsafe {
        let at = *((start_info + 40) as *const usize);
        let count = *((start_info + 48) as *const u32);
        core::slice::from_raw_parts(at as *const [u64; 3], count as usize)
    };
    for [start, bytes, kind] in map {
        if *kind == 1 && *start < 4 << 30 {
            early.add(*start..start + bytes, NodeId(0)).expect("room for a region");
        }
    }
    let image = (&raw const kernel_start) as u64..(&raw const kernel_end) as u64;
    early.reserve(image).expect("room for a region");
    early.reserve(0..0x10_0000).expect("room for a region");
    early
}

#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: usize) -> ! {
    let mut early = memory(start_info);
    let mut found = [NO_ZONE; 3];
    let count = zones::find(early.memory(), Limits::X86_64, &mut found).expect("memory").zones;
    let machine = Machine {
        distances: &[10],
        zones: &found[..count],
        cpus: &[NodeId(0)],
        cache_slice_bytes: 0,
        caches: &[],
    };

    let layout = Layout::of(&machine, &Policy::KERNEL).expect("a machine that can be");
    let bytes = layout.carve_bytes();
    let at = early.take(&Want::bytes(bytes as u64)).expect("memory for the records");
    // SAFETY: (1) `take` gives each byte once, and it is mapped at its own address.
    let records = unsafe { core::slice::from_raw_parts_mut(at as *mut MaybeUninit<u8>, bytes) };
    let metadata = layout.carve(records).expect("as many bytes as the layout asks for");

    let cells = [FenceCell::new()];
    let platform = KernelPlatform::new(Smallest, Fences::new(&cells, Patience::DEFAULT));
    let allocator =
        Allocator::new(&machine, Policy::KERNEL, metadata, platform).expect("the records fit");
    early.hand_over(&allocator).expect("nobody brought pages online before");
    allocator.setup();
    hotplug::starts(&allocator).expect("CPU 0 is described");

    let order = Order::new(3).expect("at most 10");
    let block = allocator.alloc(Request::new(order)).expect("8 pages");
    // SAFETY: (1) the block is ours, and mapped at its own address.
    unsafe { core::slice::from_raw_parts_mut((block.0 << 12) as *mut u8, 8 << 12) }.fill(0x5a);
    allocator.free(block, order).expect("the block that was handed out");
    allocator.validate().expect("nothing is wrong");
    let _ = text::buddyinfo(&mut Serial, &allocator);
    let _ = writeln!(Serial, "{} pages free\nEND OK", allocator.free_pages());
    stop(0x10)
}
