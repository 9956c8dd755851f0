//! Options of a pool with values that nobody means: each is refused by an error that names the
//! value, or makes a pool that works. None panics, and none takes longer the larger it is.

use std::time::Duration;

use proptest::prelude::*;
use zonal::{
    Backing, Builder, CpuMap, FailAlloc, NodeBinding, Order, Policy, Pool, ZoneKind, ZoneSize,
};

const MIB: usize = 1 << 20;

fn zone(node: u16, bytes: usize) -> ZoneSize {
    ZoneSize { node, kind: ZoneKind::Normal, bytes }
}

/// The refusal's text.
fn refusal(builder: Builder) -> String {
    builder.build().expect_err("the option cannot be").to_string()
}

#[test]
fn a_zone_on_a_node_that_does_not_exist_is_refused() {
    for nodes in [1, 2, 7] {
        for node in [nodes, nodes + 1, u16::MAX] {
            let builder = Pool::builder().fake_nodes(nodes, CpuMap::RoundRobin);
            let text = refusal(builder.zones(&[zone(0, MIB), zone(node, MIB)]));
            let named = text.contains(&format!("zone 1 is on node {node},"));
            assert!(named && text.contains(&format!("0 to {}", nodes - 1)), "{text}");
        }
    }
}

#[test]
fn a_size_that_cannot_be_is_named() {
    for bytes in [usize::MAX, (1 << 44) + 1] {
        let text = refusal(Pool::builder().size(bytes));
        assert!(text.contains(&bytes.to_string()) && text.contains("16 TiB"), "{text}");
        // Zones replace the size, so it is not looked at.
        Pool::builder().size(bytes).zones(&[zone(0, 4 * MIB)]).build().unwrap();
    }
    for bytes in [0, 1, 4095, 4 * MIB + 1, usize::MAX] {
        let text = refusal(Pool::builder().zones(&[zone(0, MIB), zone(0, bytes)]));
        assert!(text.contains("zone 1") && text.contains(&bytes.to_string()), "{text}");
    }
    let text = refusal(Pool::builder().zones(&[zone(0, MIB), zone(0, MIB)]));
    assert!(text.contains("zone 1") && text.contains("already"), "{text}");
    let text = refusal(Pool::builder().zones(&[]));
    assert!(text.contains("size()"), "{text}");
    let many: Vec<_> = (0..1 << 16).map(|_| zone(0, 4096)).collect();
    let text = refusal(Pool::builder().zones(&many));
    assert!(text.contains("65536 zones"), "{text}");
}

#[test]
fn memory_that_the_machine_does_not_have_is_not_filled() {
    if cfg!(zonal_portable) {
        return eprintln!("SKIPPED: nobody tells how much there is");
    }
    // A zone has at most 2 TiB.
    let huge = || Pool::builder().size(1 << 43).fake_nodes(8, CpuMap::RoundRobin);
    for (what, builder) in [("prefault", huge().prefault(true)), ("poison", huge().poison(true))] {
        let text = refusal(builder);
        assert!(text.contains(what) && text.contains(&(1u64 << 43).to_string()), "{text}");
    }
}

#[test]
fn values_of_a_policy_are_checked_however_they_were_written() {
    let with = |change: fn(&mut Policy)| {
        let mut policy = Policy::ZONAL;
        change(&mut policy);
        refusal(Pool::builder().size(4 * MIB).policy(policy))
    };
    let text = with(|policy| policy.pcp.scale_max = u8::MAX);
    assert!(text.contains("pcp.scale_max=255") && text.contains("0 to 6"), "{text}");
    let text = with(|policy| policy.watermark.scale_factor = u32::MAX);
    assert!(text.contains("scale_factor=4294967295") && text.contains("3000"), "{text}");
    let text = with(|policy| policy.pcp.batch_cap_pages = 0);
    assert!(text.contains("pcp.batch_cap=0"), "{text}");
}

/// Sizes from nothing to more than there is; what can be made is small.
fn sizes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![0, 1, 4095, 4096, 5000, 4 * MIB - 1, 4 * MIB, 9 * MIB, usize::MAX])
}

fn maps() -> impl Strategy<Value = CpuMap> {
    prop_oneof![
        Just(CpuMap::Contiguous),
        Just(CpuMap::RoundRobin),
        prop::collection::vec(prop::sample::select(vec![0, 1, 300, u16::MAX]), 0..4)
            .prop_map(CpuMap::Explicit),
    ]
}

fn durations() -> impl Strategy<Value = Option<Duration>> {
    let some = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX];
    prop::sample::select(vec![None, Some(some[0]), Some(some[1]), Some(some[2]), Some(some[3])])
}

prop_compose! {
    fn builders()(
        size in sizes(),
        zones in prop::collection::vec((0u16..3, 0usize..7, sizes()), 0..4),
        has_zones in prop::bool::weighted(0.3),
        nodes in prop::option::of(prop::sample::select(vec![0u16, 1, 2, 16, 257, u16::MAX])),
        map in maps(),
        refresh in durations(),
        trim in prop::sample::select(vec![0, 1, usize::MAX]),
        budget in prop::option::of(sizes()),
        switches in prop::array::uniform6(any::<bool>()),
        (percent, interval, nth) in (any::<u32>(), any::<u64>(), any::<u64>()),
        fails in 0..6,
        binding in prop::sample::select(vec![NodeBinding::None, NodeBinding::Advisory]),
        backing in prop::sample::select(vec![Backing::Base, Backing::Transparent]),
    ) -> Builder {
        let zones: Vec<_> = zones.into_iter().map(|(node, kind, bytes)| {
            ZoneSize { node, kind: ZoneKind::ALL[kind % ZoneKind::ALL.len()], bytes }
        }).collect();
        let [prefault, poison, rseq, background, deferred, _] = switches;
        let mut builder = Pool::builder().size(size).refresh_every(refresh).trim_rate(trim)
            .prefault(prefault).poison(poison).rseq(rseq).background_reclaim(background)
            .deferred(deferred).binding(binding).backing(backing);
        if has_zones {
            builder = builder.zones(&zones);
        }
        if let Some(nodes) = nodes {
            builder = builder.fake_nodes(nodes, map);
        }
        if let Some(budget) = budget {
            builder = builder.budget(budget);
        }
        match fails {
            0 => builder.fail_alloc(FailAlloc::random(percent, interval).times(nth)),
            1 => builder.fail_alloc(FailAlloc::every(interval).after_pages(nth)),
            2 => builder.fail_alloc(FailAlloc::nth(nth).orders(Order::MAX, Order::ZERO)),
            _ => builder,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    #[test]
    fn every_builder_makes_a_pool_that_works_or_says_why_not(builder in builders()) {
        match builder.build() {
            Ok(pool) => {
                for order in [Order::ZERO, Order::MAX] {
                    drop(pool.alloc(order));
                }
                pool.finish_growth().unwrap();
                prop_assert!(pool.validate().is_ok(), "{:?}", pool.validate());
                prop_assert!(pool.held().total() > 0);
            }
            Err(error) => prop_assert!(error.to_string().len() > 20, "{}", error),
        }
    }
}
