//! Marks, `protection`, batches and limits of lists.
//!
//! The main `zoneinfo` of a capture is printed right after the kernel has computed its limits, and
//! must agree. Others are compared with the sizes beside them first. Where that fails, there must
//! be sizes from which all that is printed follows ([`stale`](crate::stale)).

use std::collections::BTreeMap;

use super::bench::{Bench, sizes};
use super::boosted;
use super::compared::{Compared, Part, Settled, checks};
use super::then::{self, Then};
use crate::era::{Era, PrintedHigh};
use crate::error::Error;
use crate::model::Computed;
use crate::report::{Case, Check, Value};
use crate::zones::ZoneFile;

/// Judges every `zoneinfo`. Returns the sizes at boot, as far as known, and the values of each
/// text.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn judge(bench: &Bench<'_>, case: &mut Case) -> Result<(Vec<Then>, Vec<Settled>), Error> {
    if bench.capture.release.printed_high() == PrintedHigh::Unknown {
        let reason = "5.13 computes it when lists are made, with marks that are still zero, and \
                      again when CPUs come and go";
        case.skip("pagesets: high", reason);
    }
    let (mut thens, mut settled) = (Vec::new(), Vec::new());
    for (position, file) in bench.capture.zoneinfo.iter().enumerate() {
        let now = match position {
            0 => bench.computed.clone(),
            _ => bench.compute(&sizes(file))?,
        };
        let checks = checks(bench.capture, file, &now.zones);
        let limits: Vec<_> = checks.into_iter().filter(|(_, part, _)| part.is_limit()).collect();
        // The main text of a directory was printed right after limits were computed.
        let may_be_stale = position > 0 || bench.capture.live;
        let limits = match may_be_stale {
            true => unboosted(bench, file, &now, limits, case),
            false => limits,
        };
        let wrong = limits.iter().filter(|(_, _, check)| !check.holds()).count();
        if wrong > 0
            && may_be_stale
            && let Some(then) = then::find(bench, file, &now)?
            && let Some(by_then) = then::judge(bench, file, &then, wrong, &limits, case)?
        {
            thens.push(then);
            settled.push(by_then);
            continue;
        }
        settled.push(Settled::new(bench.capture, file, &now.zones, |_| false));
        let when_made = sizes_when_made(bench, file)?;
        for (index, part, check) in limits {
            let by_then = when_made.iter().find(|(at, other, then)| {
                (*at, *other, then.line) == (index, part, check.line) && then.holds()
            });
            match by_then {
                Some((_, _, then)) if !check.holds() => {
                    let reason =
                        "fits a zone as small as at the boot, when this kernel made its lists";
                    case.skip_values(then.what.clone(), 1, reason);
                }
                _ => case.check(check),
            }
        }
    }
    Ok((thens, settled))
}

/// What lists would be in zones as small as they can have been when kernels before 5.14 made their
/// lists; nothing for later ones.
fn sizes_when_made(bench: &Bench<'_>, file: &ZoneFile) -> Result<Vec<Compared>, Error> {
    if bench.capture.release.sizes_follow_watermarks() {
        return Ok(Vec::new());
    }
    let zones = file.zones.iter().enumerate();
    let least: Vec<u64> = zones.map(|(index, zone)| then::at_boot(&[], index, zone).0).collect();
    let small = bench.compute(&least)?;
    let checks = checks(bench.capture, file, &small.zones);
    Ok(checks.into_iter().filter(|(_, part, _)| part.is_of_lists()).collect())
}

/// All but the bounds of lists that follow from a boosted watermark, which are noted.
fn unboosted(
    bench: &Bench<'_>,
    file: &ZoneFile,
    now: &Computed,
    limits: Vec<Compared>,
    case: &mut Case,
) -> Vec<Compared> {
    let mut known = BTreeMap::new();
    let mut kept = Vec::new();
    for (index, part, check) in limits {
        let boost = match (part, &check) {
            (Part::Limit, Check { expected: Value::Number(printed), .. }) if !check.holds() => {
                let zone = (bench.shape.zones[index].0, file.zones[index].managed.value);
                *known
                    .entry((index, *printed))
                    .or_insert_with(|| boosted::boost(bench, zone, &now.zones[index], *printed))
            }
            _ => None,
        };
        match boost {
            Some(pages) => case.skip_values(
                check.what.clone(),
                1,
                format!(
                    "fits a low watermark with a boost of {pages} pages: a CPU came or went, or \
                     the setting was written, while the zone was boosted"
                ),
            ),
            None => kept.push((index, part, check)),
        }
    }
    kept
}
