//! What a capture is judged with: the machine in the core, its sysctls, the rules of its release.

use zonal_core::alloc::Sysctl;
use zonal_core::policy::Policy;
use zonal_core::types::NodeId;
use zonal_core::zone::watermark::MovableMin;

use super::compared::{self, text};
use crate::capture::Capture;
use crate::era::Era;
use crate::error::Error;
use crate::model::{Computed, Shape};
use crate::report::Case;
use crate::settings::Write;
use crate::zones::ZoneFile;

/// What everything is judged with.
pub struct Bench<'a> {
    /// The kernel.
    pub capture: &'a Capture,
    /// Its machine.
    pub shape: Shape,
    /// Its rules.
    pub policy: Policy,
    /// Its sysctls.
    pub writes: Vec<Write>,
    /// What follows from the sizes of the main `zoneinfo`.
    pub computed: Computed,
}

impl<'a> Bench<'a> {
    /// Finds out which of the rules that could hold do: those that leave the fewest mismatches.
    pub fn new(capture: &'a Capture, case: &mut Case) -> Result<Bench<'a>, Error> {
        let shape = shape(capture);
        let kinds = capture.kinds();
        let managed = sizes(capture.main());
        let disputed = capture.settings.disputed(&capture.meta);
        let noted = capture.settings.as_noted(&capture.meta);
        // Where they fit the kernel equally well, `meta.json` is right.
        let mut settings = vec![&noted];
        if !disputed.is_empty() {
            settings.push(&capture.settings);
        }
        // Wrong values with the sysctls of `meta.json`, then with those of their text.
        let mut wrong = Vec::new();
        let mut best: Option<(usize, Bench<'a>, MovableMin)> = None;
        for settings in settings {
            let writes = settings.writes(capture.release, &kinds)?;
            let mut least = usize::MAX;
            // HighMem never had a share of the minimum (LB C.2).
            let movable_mins = match shape.has_high {
                true => &[MovableMin::Capped][..],
                false => capture.release.movable_mins(),
            };
            for movable in movable_mins {
                let policy = capture.release.policy(settings.thp().unwrap_or(true), *movable);
                let policy = policy.with_pages(capture.page);
                let computed = shape.compute(&policy, &managed, &writes)?;
                let checks = compared::checks(capture, capture.main(), &computed.zones);
                least = least.min(checks.iter().filter(|(_, _, check)| !check.holds()).count());
                if best.as_ref().is_none_or(|(before, ..)| least < *before) {
                    let (shape, writes) = (shape.clone(), writes.clone());
                    best =
                        Some((least, Bench { capture, shape, policy, writes, computed }, *movable));
                }
            }
            wrong.push(least);
        }
        let (_, bench, movable) = best.expect("there is at least one rule and one text");
        if capture.release.movable_mins().len() > 1 && !bench.shape.has_high {
            let reason =
                format!("taken from the capture: {movable:?}; {} may have either", capture.release);
            case.skip("rule of movable zones", reason);
        }
        for (key, (value, place), (noted, there)) in disputed {
            // The text is to blame but where it is `meta.json` that fits the kernel worse.
            let check = match wrong[1] < wrong[0] {
                true => text(&there, key, noted, value),
                false => text(&place, key, value, noted),
            };
            case.check(check);
        }
        let agreed = capture.meta.sysctls.iter().filter_map(|(key, noted)| {
            capture.settings.get(key).filter(|(value, _)| value == noted)
        });
        agreed.for_each(|(value, place)| {
            case.check(text(place, "sysctl".to_owned(), value.to_owned(), value.to_owned()));
        });
        Ok(bench)
    }

    /// The value of a sysctl that was written to the core.
    pub fn written(&self, sysctl: Sysctl) -> i64 {
        self.writes.iter().find(|write| write.sysctl == sysctl).map_or(0, |write| write.value)
    }

    /// Online CPUs of a node.
    pub fn node_cpus(&self, node: NodeId) -> u32 {
        self.capture.nodes.get(node.0 as usize).map_or(0, |node| node.cpus.len() as u32)
    }

    /// The core's values from sizes, with the sysctls of the capture.
    ///
    /// # Errors
    /// If the machine cannot be rebuilt.
    pub fn compute(&self, managed: &[u64]) -> Result<Computed, Error> {
        self.shape.compute(&self.policy, managed, &self.writes)
    }
}

/// Nodes by position, zones in the order of the main `zoneinfo`.
fn shape(capture: &Capture) -> Shape {
    let zones = &capture.main().zones;
    Shape {
        distances: capture.distances.clone(),
        node_cpus: capture.nodes.iter().map(|node| node.cpus.clone()).collect(),
        zones: zones.iter().map(|zone| (capture.node_index(zone.node), zone.kind)).collect(),
        has_high: capture.main().has_high(),
    }
}

/// Managed pages by zone.
pub fn sizes(file: &ZoneFile) -> Vec<u64> {
    file.zones.iter().map(|zone| zone.managed.value).collect()
}
