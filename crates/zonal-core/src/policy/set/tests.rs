use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::*;
use crate::policy::PcpPolicy;

/// A value that the setting accepts, other than the one it has in `policy`, where one is known.
fn other_value(policy: &Policy, setting: &'static Setting) -> Option<String> {
    let now = Assignment { setting, policy }.value().to_string();
    let names = setting.accepted().to_string();
    let numbers = ["0", "1", "2", "3", "8", "9", "14", "64", "1,2,3,4,5", "0-3"].map(String::from);
    let candidates = names.split(", ").map(String::from).chain(numbers);
    candidates.filter(|value| *value != now).find(|value| {
        let mut copy = *policy;
        copy.set(setting.key, value).is_ok()
    })
}

#[test]
fn every_setting_prints_what_it_accepts() {
    for &preset in Policy::PRESETS {
        for assignment in preset.settings() {
            let mut copy = preset;
            let text = assignment.value().to_string();
            copy.set(assignment.setting.key, &text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(copy, preset, "{assignment}");
        }
    }
}

#[test]
fn every_setting_changes_its_value_and_no_other() {
    for &preset in Policy::PRESETS {
        for setting in SETTINGS {
            let Some(value) = other_value(&preset, setting) else { continue };
            let mut changed = preset;
            changed.set(setting.key, &value).unwrap();
            let differences: Vec<String> =
                changed.differences(&preset).map(|change| change.to_string()).collect();
            assert_eq!(differences, [format!("{}={value}", setting.key)]);
            assert_eq!(changed.to_string(), format!("{} {}={value}", preset.name, setting.key));
        }
    }
    let old = Policy { pcp: PcpPolicy::LINUX_6_6, ..Policy::LINUX_6_18 };
    #[cfg(feature = "history")]
    let old = Policy { pcp: PcpPolicy::LINUX_5_4, ..old };
    let policies = || Policy::PRESETS.iter().copied().chain([old]);
    let settable = |setting: &'static Setting| {
        // Without `history` a choice may have one value left.
        !setting.absent.is_empty() || policies().any(|p| other_value(&p, setting).is_some())
    };
    assert!(SETTINGS.iter().all(settable), "every setting can be set to something else");
}

#[test]
fn a_refused_value_leaves_the_policy_and_says_what_is_accepted() {
    let zlc = if cfg!(feature = "history") { "first_zone+reconsider" } else { "none" };
    let cases = [
        ("pcp.scale_max", "7", "0 to 6"),
        ("pcp.scale_max", "-1", "0 to 6"),
        ("pcp.high_fraction", "7", "0, or 8 and more"),
        ("pcp.orders", "3-1", "as 0-3,9"),
        ("pcp.orders", "0-10", "as 0-3,9"),
        ("pcp.orders", "", "as 0-3,9"),
        ("watermark.scale_factor", "-1", "0 to 3000"),
        ("watermark.scale_factor", "3001", "0 to 3000"),
        ("watermark.lowmem_ratio", "1,2,3,4", "one number for each zone kind"),
        ("watermark.lowmem_ratio", "1,2,3,4,5,6", "one number for each zone kind"),
        ("watermark.min_free", "4294967295", "kilobytes"),
        ("pcp.tuning", "10", "9, 6.15"),
        ("pcp.slice", "-1", "machine, or bytes"),
        ("pcp.drain_bulk", "some", "whole, batch, bulk"),
        ("fallback", "linux", "claim-then-steal"),
        ("zlc", "first", zlc),
        ("node_reclaim.mode", "-1", "auto:10"),
        ("node_reclaim.mode", "auto:9", "auto:10"),
        ("node_reclaim.distance", "30", "<=10 to <=255"),
        ("node_reclaim.distance", "<9", "<10 to <255"),
        ("node_reclaim.distance", "<=256", "<=10 to <=255"),
        ("no.such", "1", "pcp.scale_max"),
    ];
    for (key, value, expected) in cases {
        let mut policy = Policy::LINUX_6_18;
        let error = policy.set(key, value).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(expected), "{error}");
        assert_eq!(policy, Policy::LINUX_6_18);
    }
}

#[cfg(feature = "history")]
#[test]
fn values_that_exclude_each_other_say_what_would_have_to_change() {
    let mut policy = Policy::ZONAL;
    policy.set("numa.storage", "s8_in_zone_stats").unwrap();
    policy.set("numa.threshold", "125").unwrap();
    let error = policy.set("numa.threshold", "126").unwrap_err().to_string();
    assert!(error.contains("numa.threshold") && error.contains("numa.storage"), "{error}");
    policy.set("numa.storage", "s16_thr32765_overstep").unwrap();
    policy.set("numa.threshold", "32765").unwrap();
    assert!(policy.set("numa.storage", "s8_in_zone_stats").is_err(), "126 and more do not fit");
    policy.set("numa.enable", "always").unwrap();
    let error = policy.set("numa.stat", "off").unwrap_err().to_string();
    assert!(error.contains("numa.stat") && error.contains("numa.enable=sysctl"), "{error}");
    assert!(policy.numa_stat, "the policy is as it was");
}

#[test]
fn presets_can_be_and_keys_and_names_are_unique() {
    for (i, preset) in Policy::PRESETS.iter().enumerate() {
        assert_eq!(preset.check(), Ok(()), "{}", preset.name);
        assert_eq!(Policy::PRESETS.iter().position(|p| p.name == preset.name), Some(i));
    }
    for (i, setting) in SETTINGS.iter().enumerate() {
        assert_eq!(SETTINGS.iter().position(|s| s.key == setting.key), Some(i));
        assert!(!setting.help.is_empty() && !setting.accepted().to_string().is_empty());
    }
}

#[test]
fn what_cannot_go_together_is_refused_with_the_way_out() {
    let modern = Policy::LINUX_6_18;
    let base = Policy { pcp: PcpPolicy::LINUX_6_6, ..modern };
    for (policy, key, value, says) in [
        (modern, "pcp.size", "low-mark", "pcp.tuning"),
        #[cfg(feature = "history")]
        (modern, "pcp.size", "six-batches", "a level below 7"),
        (base, "pcp.tuning", "7", "pcp.size=bounds"),
        (base, "pcp.tuning", "6.15", "pcp.size=bounds"),
        #[cfg(feature = "history")]
        (base, "pcp.freelist", "hot-cold", "pcp.orders=0"),
        (modern, "pcp.orders", "1-3", "order 0"),
    ] {
        let mut changed = policy;
        let error = changed.set(key, value).unwrap_err().to_string();
        assert!(error.contains(says), "{key}={value}: {error}");
        assert_eq!(changed, policy);
    }
    let mut policy = base;
    policy.set("pcp.size", "bounds").unwrap();
    policy.set("pcp.tuning", "7").unwrap();
}

#[cfg(feature = "history")]
#[test]
fn on_lists_of_their_time_hot_and_cold_lists_can_be_set() {
    let mut policy = Policy { pcp: PcpPolicy::LINUX_5_4, ..Policy::LINUX_6_18 };
    policy.set("pcp.freelist", "hot-cold").unwrap();
    assert_eq!(policy.pcp.free_lists, crate::pcp::lists::FreeLists::HotCold);
}

#[test]
fn a_value_that_takes_the_feature_history_is_refused_with_its_name() {
    for (key, value) in [("pcp.freelist", "hot-cold"), ("numa.storage", "u16_thr65533")] {
        let mut policy = Policy { pcp: PcpPolicy::LINUX_6_6, ..Policy::LINUX_6_18 };
        let refused = policy.set(key, value).err();
        let absent = refused.is_some_and(|error| error == SetError::Absent { key, value });
        assert_eq!(absent, !cfg!(feature = "history"), "{refused:?}");
        let says = SetError::Absent { key, value }.to_string();
        assert!(says.contains(key) && says.contains("feature `history`"), "{says}");
    }
}

#[test]
fn orders_print_as_runs() {
    for (text, mask) in [("0", 1), ("0-3,9", 0b10_0000_1111), ("0,2,4-5", 0b11_0101)] {
        let mut policy = Policy::LINUX_6_18;
        policy.set("pcp.orders", text).unwrap();
        assert_eq!(policy.pcp.orders, mask);
        let orders = policy.settings().find(|a| a.setting.key == "pcp.orders").unwrap();
        assert_eq!(orders.value().to_string(), text);
    }
}
