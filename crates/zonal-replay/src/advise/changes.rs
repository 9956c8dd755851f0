//! The changes, and the advice for each.

use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_text::release::KernelRelease;

use crate::settings::Settings;

/// A change of one thing.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its description.
    pub name: String,
    /// The sysctl and its value, if it is one.
    pub setting: Option<String>,
    /// The rules, where they are others.
    pub policy: Option<Policy>,
    /// The values to write.
    pub sysctls: Vec<(Sysctl, i64)>,
    /// Whether it is what the kernel has by itself.
    pub is_own: bool,
    /// How many times as many CPUs.
    pub cpus: u32,
    /// Its effect and its cost.
    pub about: String,
}

fn sysctl_change(key: &str, sysctl: Sysctl, value: i64, about: &str) -> Change {
    Change {
        name: format!("{key} {value}"),
        setting: Some(format!("vm.{key}={value}")),
        policy: None,
        sysctls: vec![(sysctl, value)],
        is_own: Settings::default().value(sysctl) == value,
        cpus: 1,
        about: about.to_owned(),
    }
}

/// Everything that is tried on a machine of `nodes` nodes under `base`. `own_min_free`: what its
/// kernel would choose for `min_free_kbytes`.
pub fn all(
    settings: &Settings,
    base: &Policy,
    nodes: usize,
    own_min_free: Option<i64>,
) -> Vec<Change> {
    let mut all: Vec<Change> = fractions(settings).collect();
    all.extend(marks(settings, own_min_free));
    all.extend(boosts(settings));
    all.extend(reserves(settings));
    if nodes > 1 {
        let value = i64::from(settings.value(Sysctl::ZoneReclaimMode) == 0);
        let about = match value {
            0 => "requests go to the next node instead of reclaiming on their own",
            _ => {
                "requests that would leave their node reclaim first; a replay has nothing that \
                  can be reclaimed, so that work is not in the numbers"
            }
        };
        let change = sysctl_change("zone_reclaim_mode", Sysctl::ZoneReclaimMode, value, about);
        all.push(change);
    }
    let value = 1 - settings.value(Sysctl::NumaStat).clamp(0, 1);
    let about = "an update of a counter for each allocation less or more; no lock is touched by it";
    all.push(sysctl_change("numa_stat", Sysctl::NumaStat, value, about));
    for cpus in [2, 4] {
        all.push(Change {
            name: format!("{cpus} times the CPUs"),
            setting: None,
            policy: None,
            sysctls: Vec::new(),
            is_own: false,
            cpus,
            about:
                "the same memory; each CPU does what one of the recorded did, and has a smaller \
                    share of the lists"
                    .to_owned(),
        });
    }
    let others = [
        Policy::LINUX_5_4,
        Policy::LINUX_6_6,
        Policy::LINUX_6_12,
        Policy::LINUX_6_18,
        Policy::LINUX_6_19,
    ];
    for policy in others.into_iter().filter(|policy| policy.name != base.name) {
        all.push(Change {
            name: policy.name.to_owned(),
            setting: None,
            policy: Some(policy),
            sysctls: Vec::new(),
            is_own: false,
            cpus: 1,
            about: "the rules of that release's lists, marks and fallback".to_owned(),
        });
    }
    all
}

fn fractions(settings: &Settings) -> impl Iterator<Item = Change> + '_ {
    let now = settings.value(Sysctl::HighFraction);
    [0, 8, 16, 64, 512].into_iter().filter(move |value| *value != now).map(|value| {
        let about = match value {
            0 => {
                "lists tune themselves: from a share of the low watermark to an eighth of the zone"
            }
            _ => "lists keep up to this share of a zone, divided by its CPUs, and do not tune",
        };
        sysctl_change(settings.fraction_name(), Sysctl::HighFraction, value, about)
    })
}

fn boosts(settings: &Settings) -> impl Iterator<Item = Change> {
    let sysctl = Sysctl::WatermarkBoostFactor;
    let now = settings.value(sysctl);
    let own = Settings::default().value(sysctl);
    [0, own].into_iter().filter(move |value| *value != now).map(move |value| {
        let about = match value {
            0 => {
                "no boost: marks stay where they are when memory is fragmented, and background \
                 reclaim is not woken for it"
            }
            _ => {
                "where memory is fragmented, boosts lift the marks by at most so many \
                 ten-thousandths of the high watermark, and background reclaim frees as much"
            }
        };
        sysctl_change("watermark_boost_factor", sysctl, value, about)
    })
}

/// The kernel's own lowmem reserves, where others are set.
fn reserves(settings: &Settings) -> Option<Change> {
    let (setting, sysctls) = settings.own_lowmem_ratios()?;
    Some(Change {
        name: setting.trim_start_matches("vm.").replacen('=', " ", 1),
        setting: Some(setting),
        policy: None,
        sysctls,
        is_own: true,
        cpus: 1,
        about: "a lower zone keeps this part of the zones above from what they could serve, pages \
                of files and of programs; what only it can serve, such as buffers of 32-bit \
                devices, has the rest to share with them"
            .to_owned(),
    })
}

fn marks(settings: &Settings, own_min_free: Option<i64>) -> Vec<Change> {
    let mut all = Vec::new();
    if let Some(now) = settings.min_free_kbytes.filter(|now| *now >= 4) {
        // The kernel takes 32 bits; a recording may say anything.
        // What is near the kernel's own is its own.
        let own = own_min_free.filter(|own| now.abs_diff(*own) > now.unsigned_abs() / 10);
        let mut values = [own, Some(now / 2), now.checked_mul(2), now.checked_mul(4)];
        if own == values[1] {
            values[1] = None;
        }
        for value in values.into_iter().flatten().filter(|value| *value <= i64::from(i32::MAX)) {
            let about = "moves all watermarks, and with them the least size of the lists; a higher \
                         reserve is memory that no request can use";
            let change = sysctl_change("min_free_kbytes", Sysctl::MinFreeKbytes, value, about);
            all.push(Change { is_own: own == Some(value), ..change });
        }
    }
    let scale_factor = settings.value(Sysctl::WatermarkScaleFactor);
    for value in [10, 50, 200].into_iter().filter(|value| *value != scale_factor) {
        let about = "moves the low and high watermarks apart: background reclaim starts earlier \
                     and does more; lists follow the low watermark";
        let sysctl = Sysctl::WatermarkScaleFactor;
        all.push(sysctl_change("watermark_scale_factor", sysctl, value, about));
    }
    all
}

/// The rules of a release: the newest preset whose lists work as its do.
pub fn policy_of(release: Option<&str>) -> Policy {
    match release.and_then(KernelRelease::parse) {
        Some(KernelRelease(6, 0..=6) | KernelRelease(5, 14..)) => Policy::LINUX_6_6,
        Some(KernelRelease(6, 7..=14)) => Policy::LINUX_6_12,
        Some(KernelRelease(5, _) | KernelRelease(4, 15..)) => Policy::LINUX_5_4,
        Some(KernelRelease(4, 14)) => Policy::LINUX_4_14,
        Some(KernelRelease(0..=4, _)) => Policy::LINUX_4_13,
        Some(KernelRelease(6, 15..=18)) => Policy::LINUX_6_18,
        _ => Policy::LINUX_6_19,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_rules() {
        for (release, name) in [
            ("6.18.44-fc", "linux-6.18"),
            ("7.2.0", "linux-6.19"),
            ("6.15.0", "linux-6.18"),
            ("6.14.11", "linux-6.12"),
            ("6.12.1", "linux-6.12"),
            ("6.7", "linux-6.12"),
            ("6.1.0-amd64", "linux-6.6"),
            ("5.4.0", "linux-5.4"),
            ("4.14.3", "linux-4.14"),
            ("3.10", "linux-4.13"),
            ("strange", "linux-6.19"),
        ] {
            assert_eq!(policy_of(Some(release)).name, name, "{release}");
        }
    }

    #[test]
    fn a_reserve_that_cannot_be_is_not_multiplied() {
        for (kbytes, tried) in [(i64::MAX, 0), (i64::from(i32::MAX), 1), (67584, 3)] {
            let text = format!("vm.min_free_kbytes={kbytes}\n");
            let settings = Settings::new(&zonal_text::sysctl::parse(&text).unwrap());
            let all = all(&settings, &Policy::LINUX_6_18, 1, None);
            let count = all.iter().filter(|one| one.name.starts_with("min_free_kbytes")).count();
            assert_eq!(count, tried, "{kbytes}");
        }
    }

    #[test]
    fn the_kernels_own_reserve_is_tried_once() {
        for (now, own) in [(12_582_912, 67_584), (135_168, 67_584), (1000, 67_584)] {
            let text = format!("vm.min_free_kbytes={now}\nvm.watermark_boost_factor=0\n");
            let settings = Settings::new(&zonal_text::sysctl::parse(&text).unwrap());
            let all = all(&settings, &Policy::LINUX_6_18, 1, Some(own));
            let wanted = format!("min_free_kbytes {own}");
            assert_eq!(all.iter().filter(|change| change.name == wanted).count(), 1, "{now}");
            let boosts = all.iter().filter(|change| change.name.starts_with("watermark_boost"));
            let boosts: Vec<&str> = boosts.map(|change| change.name.as_str()).collect();
            assert_eq!(boosts, ["watermark_boost_factor 15000"]);
        }
    }

    #[test]
    fn a_kernel_before_5_14_has_its_own_name_for_the_fraction() {
        let text = "vm.percpu_pagelist_fraction=16\n";
        let settings = Settings::new(&zonal_text::sysctl::parse(text).unwrap());
        assert_eq!(settings.value(Sysctl::HighFraction), 16);
        let all = all(&settings, &Policy::LINUX_5_4, 1, None);
        let commands: Vec<&str> =
            all.iter().filter_map(|change| change.setting.as_deref()).collect();
        assert!(commands.contains(&"vm.percpu_pagelist_fraction=8"), "{commands:?}");
        assert!(!commands.iter().any(|command| command.contains("fraction=16")), "{commands:?}");
    }

    #[test]
    fn the_kernels_own_lowmem_reserves_are_tried_where_others_are_set() {
        let tried = |ratios: &str| {
            let text = format!("vm.lowmem_reserve_ratio={ratios}\n");
            let settings = Settings::new(&zonal_text::sysctl::parse(&text).unwrap());
            let mut all = all(&settings, &Policy::LINUX_6_18, 1, None);
            let place = all.iter().position(|change| change.name.starts_with("lowmem"))?;
            let Change { setting, sysctls, is_own, .. } = all.remove(place);
            Some((setting.unwrap(), sysctls.len(), is_own))
        };
        assert_eq!(tried("256\t256\t32\t0\t0"), None);
        let of = |words: &str| format!("vm.lowmem_reserve_ratio={words}");
        assert_eq!(tried("256\t1\t32\t0\t0"), Some((of("256 256 32 0 0"), 5, true)));
        assert_eq!(tried("1\t32\t0\t0"), Some((of("256 32 0 0"), 4, true)), "without a DMA zone");
        assert_eq!(tried("x"), None);
    }

    #[test]
    fn what_is_set_already_is_no_change() {
        let text = "vm.percpu_pagelist_high_fraction=8\nvm.min_free_kbytes=67584\n";
        let settings = Settings::new(&zonal_text::sysctl::parse(text).unwrap());
        let all = all(&settings, &Policy::LINUX_6_18, 1, Some(67_584));
        let has = |name: &str| all.iter().any(|change| change.name == name);
        assert!(has("percpu_pagelist_high_fraction 0") && !has("percpu_pagelist_high_fraction 8"));
        assert!(has("min_free_kbytes 135168") && !has("watermark_scale_factor 10"));
        assert!(has("numa_stat 0") && has("linux-6.12") && !has("linux-6.18"));
        assert!(!has("zone_reclaim_mode 1"), "one node has nowhere else to go");
        assert!(!has("min_free_kbytes 67584") && has("watermark_boost_factor 0"));
        let own = all.iter().filter(|change| change.is_own).map(|change| change.name.as_str());
        assert_eq!(own.collect::<Vec<_>>(), ["percpu_pagelist_high_fraction 0"]);
        let change = all.iter().find(|change| change.name == "numa_stat 0").unwrap();
        assert_eq!(change.setting.as_deref(), Some("vm.numa_stat=0"));
    }
}
