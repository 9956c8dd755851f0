//! A kernel's texts are, byte for byte, those that the library of processes prints of the same
//! allocator.

mod support;

use support::{Machine2, TestKernel};
use zonal::text::{Layout, State};
use zonal_core::alloc::Request;
use zonal_core::types::Order;
use zonal_kernel::text;

#[test]
fn every_text_is_that_of_a_pool_in_every_layout() {
    let machine = Machine2::default();
    machine.with(TestKernel::default(), |on| {
        let orders = [0, 0, 1, 3, 0, 9, 2, 0, 10, 0];
        let held: Vec<_> = orders
            .iter()
            .cycle()
            .take(100)
            .map(|order| {
                let order = Order::new(*order).unwrap();
                (on.alloc(Request::new(order)).unwrap(), order)
            })
            .collect();
        for (pfn, order) in held.iter().step_by(3) {
            on.free(*pfn, *order).unwrap();
        }
        let state = State::of(on);
        for layout in Layout::ALL {
            let mut out = String::new();
            text::zoneinfo(&mut out, on, layout, |_| true).unwrap();
            assert_eq!(out, state.zoneinfo(layout).to_string(), "{layout}");
            out.clear();
            text::vmstat(&mut out, on, layout).unwrap();
            assert_eq!(out, state.vmstat(layout).to_string(), "{layout}");
        }
        let mut out = String::new();
        text::buddyinfo(&mut out, on).unwrap();
        assert_eq!(out, state.buddyinfo().to_string());
        out.clear();
        text::pagetypeinfo(&mut out, on).unwrap();
        assert_eq!(out, state.pagetypeinfo().to_string());
    });
}

#[test]
fn a_cpu_that_is_not_up_is_not_printed() {
    let machine = Machine2::default();
    machine.with(TestKernel::default(), |on| {
        let mut out = String::new();
        text::zoneinfo(&mut out, on, Layout::Linux6_14, |cpu| cpu == 1).unwrap();
        assert!(out.contains("    cpu: 1\n") && !out.contains("    cpu: 0\n"), "{out}");
    });
}

#[test]
fn an_error_of_the_output_is_passed_on() {
    struct Full(usize);
    impl std::fmt::Write for Full {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(std::fmt::Error)?;
            Ok(())
        }
    }
    let machine = Machine2::default();
    machine.with(TestKernel::default(), |on| {
        for room in [0, 10, 500, 3000] {
            assert!(text::zoneinfo(&mut Full(room), on, Layout::Linux7, |_| true).is_err());
        }
    });
}
