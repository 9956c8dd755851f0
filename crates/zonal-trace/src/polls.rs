//! Samples of `/proc/zoneinfo` that a recorder took: `zpoll.txt`.
//!
//! | line | fields |
//! |--|--|
//! | `BEGIN END Z ZONE` | `free=`, `min=`, `low=`, `high=`, `managed=`, later also `boost=` |
//! | `BEGIN END P ZONE CPU` | `count=`, `high=`, `batch=`, since 6.14 `high_min=`, `high_max=` |
//!
//! A zone is its kind, on other nodes than 0 with the node before it: `1/Normal`. Lines of one
//! sample have the same times. A zone without lists is not printed.

#[cfg(target_os = "linux")]
use serde_json::{Map, Value, json};
use zonal_text::zoneinfo::Pageset;

use crate::error::{Position, TraceError, bad_field};
use crate::fields;
use crate::polled::{PolledState, PolledZone, zone_of};

/// The file's name.
pub(crate) const FILE: &str = "zpoll.txt";

/// Reads all samples, in their order.
///
/// # Errors
/// The first line that is none.
pub fn parse(text: &str) -> Result<Vec<PolledState>, TraceError> {
    let mut samples: Vec<PolledState> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let expected = "`BEGIN END Z ZONE NAME=…` or `BEGIN END P ZONE CPU NAME=…`";
        let fail = || {
            let fault = bad_field("sample of zoneinfo", expected, line.as_bytes());
            TraceError::new(FILE, Position::Line(index as u64 + 1), fault)
        };
        take(line, &mut samples).ok_or_else(fail)?;
    }
    Ok(samples)
}

fn take(line: &str, samples: &mut Vec<PolledState>) -> Option<()> {
    let mut words = line.split(' ');
    let mut number = || fields::decimal(words.next()?.as_bytes());
    let (t_begin_ns, t_end_ns) = (number()?, number()?);
    let kind = words.next()?;
    let (node, zone) = zone_of(words.next()?)?;
    let last = samples.last().map(|sample| (sample.t_begin_ns, sample.t_end_ns));
    if last != Some((t_begin_ns, t_end_ns)) {
        samples.push(PolledState { t_begin_ns, t_end_ns, zones: Vec::new() });
    }
    let zones = &mut samples.last_mut()?.zones;
    match kind {
        "Z" => {
            let mut polled = PolledZone { node, kind: zone.to_owned(), ..PolledZone::default() };
            for word in words {
                let (name, value) = pair(word)?;
                match name {
                    "free" => polled.free = value,
                    "min" => polled.min = value,
                    "low" => polled.low = value,
                    "high" => polled.high = value,
                    "boost" => polled.boost = Some(value),
                    "managed" => polled.managed = value,
                    _ => {}
                }
            }
            zones.push(polled);
        }
        "P" => {
            let cpu = u32::try_from(fields::decimal(words.next()?.as_bytes())?).ok()?;
            let mut set =
                Pageset { cpu, count: 0, high: 0, batch: 0, high_min: None, high_max: None };
            for word in words {
                let (name, value) = pair(word)?;
                match name {
                    // A number of 32 bits in the kernel.
                    "count" => set.count = u32::try_from(value).ok()?.into(),
                    "high" => set.high = value,
                    "batch" => set.batch = value,
                    "high_min" => set.high_min = Some(value),
                    "high_max" => set.high_max = Some(value),
                    _ => {}
                }
            }
            let of = zones.iter_mut().find(|known| known.node == node && known.kind == zone);
            of?.pagesets.push(set);
        }
        _ => return None,
    }
    Some(())
}

fn pair(word: &str) -> Option<(&str, u64)> {
    let (name, value) = word.split_once('=')?;
    Some((name, fields::decimal(value.as_bytes())?))
}

#[cfg(target_os = "linux")]
fn zone_name(zone: &PolledZone) -> String {
    if zone.node == 0 { zone.kind.clone() } else { format!("{}/{}", zone.node, zone.kind) }
}

/// A sample as `meta.json` has it, for the recorder.
#[cfg(target_os = "linux")]
pub(crate) fn to_meta(sample: &PolledState) -> Value {
    let (mut zones, mut lists) = (Map::new(), Map::new());
    for zone in &sample.zones {
        let marks = json!({
            "free": zone.free,
            "boost": zone.boost,
            "min": zone.min,
            "low": zone.low,
            "high": zone.high,
            "managed": zone.managed,
        });
        let set = |set: &Pageset| {
            let values = json!({
                "count": set.count,
                "high": set.high,
                "batch": set.batch,
                "high_min": set.high_min,
                "high_max": set.high_max,
            });
            (set.cpu.to_string(), values)
        };
        zones.insert(zone_name(zone), marks);
        lists.insert(zone_name(zone), zone.pagesets.iter().map(set).collect());
    }
    json!({
        "t_begin_ns": sample.t_begin_ns,
        "t_end_ns": sample.t_end_ns,
        "zones": zones,
        "pcp": lists,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "10 12 Z DMA free=5 boost=1 min=1 low=2 high=3 managed=9\n\
        10 12 P DMA 0 count=4 high=6 batch=1 high_min=8 high_max=240\n\
        10 12 P DMA 1 count=0 high=6 batch=1\n\
        10 12 Z 1/Normal free=7 min=1 low=2 high=3 managed=9\n\
        20 21 Z DMA free=4 min=1 low=2 high=3 managed=9\n";

    #[test]
    fn samples_are_read() {
        let samples = parse(TEXT).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0].zones.len(), 2);
        assert_eq!((samples[0].zones[1].node, samples[0].zones[1].kind.as_str()), (1, "Normal"));
        assert_eq!(samples[0].zones[0].pagesets[0].high_max, Some(240));
        assert_eq!(samples[0].zones[0].pagesets[1].high_max, None);
        assert_eq!((samples[1].t_begin_ns, samples[1].zones[0].free), (20, 4));
        let boosts = [&samples[0], &samples[1]].map(|sample| sample.zones[0].boost);
        assert_eq!(boosts, [Some(1), None]);
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        for line in
            ["x", "1 2 Q DMA", "1 2 Z DMA free", "1 2 Z DMA free=x", "1 2 P DMA 0 count=1", "1 2 Z"]
        {
            let error = parse(&format!("{}{line}\n", TEXT)).unwrap_err();
            assert_eq!(error.line(), Some(6), "{line}");
        }
    }

    #[test]
    fn a_sample_comes_back_from_meta() {
        let samples = parse(TEXT).unwrap();
        let meta = to_meta(&samples[0]);
        assert_eq!(meta["zones"]["1/Normal"]["free"], 7);
        assert_eq!(meta["pcp"]["DMA"]["1"]["batch"], 1);
    }
}
