//! CPUs that come, go, stay silent and are lost.

mod support;

use support::{CPU, Machine2, TestKernel};
use zonal_core::alloc::Request;
use zonal_core::policy::Policy;
use zonal_core::types::{CpuId, Order, ZoneId};
use zonal_core::zone::state::Zone;
use zonal_kernel::fence::FenceCell;
use zonal_kernel::hotplug::{self, HotplugError};

fn as_cpu<R>(cpu: u32, body: impl FnOnce() -> R) -> R {
    let was = CPU.replace(cpu);
    let out = body();
    CPU.set(was);
    out
}

#[test]
fn the_pages_of_a_cpu_that_left_come_back() {
    Machine2::default().with(TestKernel::default(), |on| {
        (0..2).for_each(|cpu| as_cpu(cpu, || hotplug::starts(on).unwrap()));
        let all = on.free_pages();
        as_cpu(1, || {
            let page = on.alloc(Request::new(Order::ZERO)).unwrap();
            on.free(page, Order::ZERO).unwrap();
        });
        assert!(on.pcp(ZoneId(2), CpuId(1)).count() > 0);
        assert_eq!(hotplug::dead(on, 1), Err(HotplugError::StillUp(1)));
        as_cpu(1, || hotplug::leaves(on).unwrap());
        hotplug::dead(on, 1).unwrap();
        assert_eq!(on.pcp(ZoneId(2), CpuId(1)).count(), 0);
        assert_eq!(on.free_pages(), all);
        // And comes again.
        assert_eq!(hotplug::online(on, 1), Err(HotplugError::NotUp(1)));
        as_cpu(1, || hotplug::starts(on).unwrap());
        hotplug::online(on, 1).unwrap();
    });
}

#[test]
fn a_cpu_that_does_not_exist_is_refused_by_name() {
    Machine2::default().with(TestKernel::default(), |on| {
        let none = Err(HotplugError::NoSuchCpu(2, 2));
        for act in [hotplug::online, hotplug::dead, hotplug::lost] {
            assert_eq!(act(on, 2), none);
        }
        assert_eq!(as_cpu(2, || hotplug::starts(on)), none);
        assert_eq!(as_cpu(2, || hotplug::leaves(on)), none);
    });
}

#[test]
fn a_cpu_without_a_cell_is_refused_by_name() {
    let machine = Machine2 { cells: vec![FenceCell::new()] };
    machine.with(TestKernel::default(), |on| {
        hotplug::starts(on).unwrap();
        let none = Err(HotplugError::NoCell(1, 1));
        assert_eq!(as_cpu(1, || hotplug::starts(on)), none);
        assert_eq!(as_cpu(1, || hotplug::leaves(on)), none);
        assert_eq!(hotplug::lost(on, 1), none);
    });
}

#[test]
fn a_cpu_counts_as_there_until_it_was_dead() {
    Machine2::default().with_policy(TestKernel::default(), Policy::KERNEL, |on| {
        let limits = |zone: &Zone| (zone.pcp_sizes(), zone.stat_threshold());
        let limits = || on.zones().iter().map(limits).collect::<Vec<_>>();
        (0..2).for_each(|cpu| as_cpu(cpu, || hotplug::starts(on).unwrap()));
        let of_all = limits();
        hotplug::online(on, 1).unwrap();
        assert_eq!(limits(), of_all, "it was counted at `setup`");
        as_cpu(1, || hotplug::leaves(on).unwrap());
        hotplug::dead(on, 1).unwrap();
        assert_ne!(limits(), of_all, "they follow from the CPUs that are left");
    });
}

#[test]
fn lists_of_a_cpu_that_never_answers_stay_until_it_is_lost() {
    let kernel = TestKernel { has_sections: true, ..TestKernel::default() };
    Machine2::default().with(kernel, |on| {
        (0..2).for_each(|cpu| as_cpu(cpu, || hotplug::starts(on).unwrap()));
        let fences = on.platform().fences();
        // CPU 1 fills its list and then says nothing any more.
        as_cpu(1, || {
            let page = on.alloc(Request::new(Order::ZERO)).unwrap();
            on.free(page, Order::ZERO).unwrap();
        });
        let all = on.free_pages();
        let cached = on.pcp(ZoneId(2), CpuId(1)).count();
        assert!(cached > 0);
        on.drain_all();
        assert!(fences.is_silent(1));
        assert_eq!(on.platform().kernel().interrupted.lock().unwrap()[0], 1);
        assert_eq!(on.pcp(ZoneId(2), CpuId(1)).count(), cached);
        assert_eq!(on.free_pages(), all);
        // Requests go on meanwhile.
        let page = on.alloc(Request::new(Order::ZERO)).unwrap();
        on.free(page, Order::ZERO).unwrap();
        // It answers at last: its lists can be drained again.
        as_cpu(1, || on.platform().on_interrupt());
        assert!(!fences.is_silent(1));
        // Silent again, and this time it crashed.
        on.drain(ZoneId(2), CpuId(1));
        assert!(fences.is_silent(1));
        hotplug::lost(on, 1).unwrap();
        assert_eq!(on.pcp(ZoneId(2), CpuId(1)).count(), 0);
        assert_eq!(on.free_pages(), all);
    });
}
