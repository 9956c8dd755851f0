//! Pops and pushes by sections, in a process, where GS is free: what they do while nothing
//! interrupts them. What interrupts do to them is tested in the booted kernel.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support;

use std::arch::asm;

use support::{CPU, Machine2, Pages, TestKernel};
use zonal_core::alloc::{Request, ZoneStats};
use zonal_core::gfp::Gfp;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, Order, Pfn, ZoneId};
use zonal_kernel::sections::fast::{FastError, FastPages, OwnCell, RunsSections};

/// What GS points to.
#[repr(C)]
struct PerCpu {
    number: u64,
    own: OwnCell,
}

// SAFETY: (1) a test lets GS point to the memory of the CPU that its thread plays; (2) no code of a
// test runs in a handler; (3) nor is there anything to mask; (4) `play` sets both.
unsafe impl RunsSections for TestKernel {
    const OWN: i32 = std::mem::offset_of!(PerCpu, own) as i32;
}

/// The thread plays this CPU.
fn play(cpu: u32, per_cpu: &PerCpu) {
    const ARCH_PRCTL: usize = 158;
    const SET_GS: usize = 0x1001;
    CPU.set(cpu);
    let result: isize;
    // SAFETY: (1) nothing of a process on Linux uses GS; (2) the call changes nothing else.
    unsafe {
        asm!(
            "syscall",
            inout("rax") ARCH_PRCTL => result,
            in("rdi") SET_GS,
            in("rsi") std::ptr::from_ref(per_cpu),
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    assert_eq!(result, 0);
}

type Fast<'a> = FastPages<'a, TestKernel>;

/// Tells a CPU its cell.
fn tell(fast: &Fast<'_>, (cpu, per_cpu): (u32, &PerCpu)) -> Result<(), FastError> {
    // SAFETY: (1) `play` lets GS point to the memory of the CPU; (2) a test has one `FastPages`;
    // (3) one thread plays all CPUs of a test, and is in no section when it fences.
    unsafe { fast.tell(CpuId(cpu), &per_cpu.own) }
}

fn kernel(has_sections: bool) -> TestKernel {
    TestKernel { has_sections, ..TestKernel::default() }
}

/// What does not depend on how often somebody looked.
fn figures(stats: ZoneStats) -> ZoneStats {
    ZoneStats { lock_holds: 0, lock_contended: 0, ..stats }
}

/// Until memory is short, so that blocks of one type are taken from pageblocks of another, and are
/// freed to lists other than they came from; from both CPUs, which free each other's blocks.
#[test]
fn the_same_calls_get_the_same_pages_by_sections_as_under_gates() {
    for policy in [Policy::KERNEL, Policy::ZONAL] {
        Machine2::default().with_policy(kernel(true), policy, |on| {
            let fast = FastPages::new(on).unwrap();
            let cpus = [0, 1].map(|number| PerCpu { number, own: OwnCell::new() });
            for cpu in &cpus {
                tell(&fast, (cpu.number as u32, cpu)).unwrap();
            }
            let none = tell(&fast, (2, &cpus[0]));
            assert_eq!(none, Err(FastError::NoSuchCpu(CpuId(2))));
            Machine2::default().with_policy(kernel(false), policy, |gates| {
                assert_eq!(FastPages::new(gates).err(), Some(FastError::NoSections));
                same_pages(&fast, &cpus, gates);
            });
        });
    }
}

fn same_pages(fast: &Fast<'_>, cpus: &[PerCpu; 2], gates: &Pages<'_>) {
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    let (mut random, mut hits, mut refused) = (7u64, 0, 0);
    let kinds = [Gfp::NONE, Gfp::MOVABLE, Gfp::RECLAIMABLE];
    for step in 0..60_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (draw, at) = (random >> 33, random >> 40);
        let cpu = (u32::from(draw >> 20 & 7 == 0) + step / 512) % 2;
        play(cpu, &cpus[cpu as usize]);
        let order = [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 9][(draw % 16) as usize];
        let order = Order::new(order).unwrap();
        // Many more of one type than of the others for a while: that one falls back.
        let kind = if draw >> 5 & 7 != 0 { step / 6_000 % 3 } else { (draw >> 8) as u32 % 3 };
        let gfp = Gfp::KERNEL | kinds[kind as usize];
        let frees = draw >> 12 & 15 < if step / 4_000 % 3 == 0 { 6 } else { 9 };
        if frees && !held.is_empty() {
            let (pfn, order) = held.swap_remove(at as usize % held.len());
            assert_eq!(gates.free(pfn, order), Ok(()));
            match fast.free(pfn, order) {
                Ok(()) => hits += 1,
                Err((pfn, order)) => assert_eq!(fast.free_missed(pfn, order), Ok(())),
            }
            assert!(fast.free(pfn, order).is_err() && fast.free_missed(pfn, order).is_err());
            continue;
        }
        let got = match fast.alloc(order, gfp) {
            Some(pfn) => {
                hits += 1;
                Ok(pfn)
            }
            None => fast.alloc_missed(order, gfp),
        };
        let request = Request::new(order).gfp(gfp);
        let expected = gates.alloc(request);
        assert_eq!(got.ok(), expected.ok(), "step {step}: {order:?} {gfp:?} on CPU {cpu}");
        match got {
            Ok(pfn) => held.push((pfn, order)),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && hits > 5_000, "{refused} refused, {hits} by sections");
    for zone in (0..3).map(ZoneId) {
        let stats = [fast.core().zone_stats(zone), gates.zone_stats(zone)].map(figures);
        assert_eq!(stats[0], stats[1], "{zone:?}");
    }
    for (pfn, order) in held {
        fast.free(pfn, order).or_else(|(pfn, order)| fast.free_missed(pfn, order)).unwrap();
        gates.free(pfn, order).unwrap();
    }
    fast.core().validate().unwrap();
    fast.core().drain_all();
    gates.drain_all();
    assert_eq!(fast.core().free_pages(), gates.free_pages());
}

/// A policy that records each allocation.
#[test]
fn where_sections_would_serve_nothing_there_are_none() {
    Machine2::default().with_policy(kernel(true), Policy::LINUX_6_18, |on| {
        assert_eq!(FastPages::new(on).err(), Some(FastError::Policy));
    });
}

/// Pages that no zone has, and numbers that are none.
#[test]
fn what_is_no_block_of_the_machine_is_refused() {
    Machine2::default().with_policy(kernel(true), Policy::KERNEL, |on| {
        let fast = FastPages::new(on).unwrap();
        let cpu = PerCpu { number: 0, own: OwnCell::new() };
        play(0, &cpu);
        // Nobody told the CPU yet.
        assert_eq!(fast.alloc(Order::ZERO, Gfp::KERNEL), None);
        let early = fast.alloc_missed(Order::ZERO, Gfp::KERNEL).unwrap();
        assert!(fast.free(early, Order::ZERO).is_err());
        tell(&fast, (0, &cpu)).unwrap();
        fast.free(early, Order::ZERO).unwrap();
        let all = on.free_pages();
        for pfn in [0, 0xfff, 0x1000, 0xf_ffff, 0x10_5000, 1 << 51, 1 << 63, u64::MAX] {
            for order in [Order::ZERO, Order::COSTLY] {
                assert!(fast.free(Pfn(pfn), order).is_err(), "{pfn:#x}");
                assert!(fast.free_missed(Pfn(pfn), order).is_err(), "{pfn:#x}");
            }
        }
        assert_eq!(on.free_pages(), all);
    });
}
