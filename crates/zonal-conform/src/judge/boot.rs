//! What a kernel decides while it boots: `min_free_kbytes`, the order of nodes, mobility grouping.

use zonal_core::types::{NodeId, PAGEBLOCK_ORDER, ZoneKind};
use zonal_core::zonelist::order::{NodeTable, fallback_orders};

use super::bench::Bench;
use super::compared::{number, row};
use super::then::{Then, at_boot};
use crate::era::Era;
use crate::error::Error;
use crate::place::Place;
use crate::report::{Case, Check, Value};
use crate::settings;

const MIN_FREE: &str = "vm.min_free_kbytes";

/// Judges `min_free_kbytes` by the rule, for sizes that zones can have had at the boot. A value
/// written later does not follow the rule.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn min_free(bench: &Bench<'_>, thens: &[Then], case: &mut Case) -> Result<(), Error> {
    let meta = &bench.capture.meta;
    let Some((_, place)) = bench.capture.settings.get(MIN_FREE) else { return Ok(()) };
    let now = bench.written(zonal_core::alloc::Sysctl::MinFreeKbytes) as u64;
    let written = meta.sysctl_set.contains_key(MIN_FREE);
    let thp_now = bench.capture.settings.thp();
    let noted = meta.source.find("\"sysctls_at_boot\"", &format!("\"{MIN_FREE}\""));
    let boot = meta.sysctls_at_boot.get(MIN_FREE).and_then(|value| value.trim().parse().ok());
    let thp = meta.sysctls_at_boot.get("thp.enabled").and_then(|value| settings::thp(value));
    let Some(thp) = thp.or(thp_now) else {
        case.skip(MIN_FREE, "whether transparent huge pages are on is not known");
        return Ok(());
    };
    let switched = thp_now.is_some_and(|now| now != thp);
    match boot {
        // What nothing changed since is judged where it stands now.
        Some(boot) if written || switched => by_rule(bench, thens, thp, &noted, boot, case)?,
        Some(boot) => {
            let what = format!("{MIN_FREE} at the boot");
            case.check(number(&noted.file, noted.line, what, boot, now));
        }
        None => {}
    }
    if written {
        return Ok(());
    }
    if switched {
        case.skip(MIN_FREE, "huge pages were switched while the kernel ran");
        return Ok(());
    }
    by_rule(bench, thens, thp, place, now, case)
}

/// Whether the sysctl can have been written without a note of it.
fn may_be_written(bench: &Bench<'_>) -> bool {
    bench.capture.live || bench.capture.started_with(&["sysctl.vm.min_free_kbytes"])
}

fn by_rule(
    bench: &Bench<'_>,
    thens: &[Then],
    thp: bool,
    place: &Place,
    printed: u64,
    case: &mut Case,
) -> Result<(), Error> {
    if !thp && bench.capture.started_with(&["deferred_init"]) {
        case.skip(MIN_FREE, "this kernel counts memory that it has not initialised yet");
        return Ok(());
    }
    let zones = || bench.capture.main().zones.iter().enumerate();
    let range = |(index, zone)| at_boot(thens, index, zone);
    let least: Vec<u64> = zones().map(range).map(|(least, ..)| least).collect();
    let most: Vec<u64> = zones().map(range).map(|(_, most, _)| most).collect();
    let mut possible = Vec::new();
    for rule in bench.capture.release.min_free_rules(thp) {
        let mut policy = bench.policy;
        policy.watermark.min_free = rule;
        for sizes in [&least, &most] {
            let computed = bench.shape.compute(&policy, sizes, &[])?;
            possible.push(u64::from(computed.min_free_kbytes));
        }
    }
    let (low, high) = (*possible.iter().min().unwrap_or(&0), *possible.iter().max().unwrap_or(&0));
    let what = format!("{MIN_FREE} by the rule");
    if (low..=high).contains(&printed) && low != high {
        let reason = format!(
            "follows from sizes at the boot, which are not in a capture; {low} to {high} are \
             possible, printed is {printed}"
        );
        case.skip_values(what, 1, reason);
    } else if printed != high && may_be_written(bench) {
        let reason = format!("it gives {high}; {printed} may have been written");
        case.skip_values(what, 1, reason);
    } else {
        case.check(number(&place.file, place.line, what, printed, high));
    }
    Ok(())
}

/// Judges `Fallback order for Node 0: 0 1` of the kernel's log.
pub fn fallback_order(bench: &Bench<'_>, case: &mut Case) {
    let capture = bench.capture;
    let meta = &capture.meta;
    let ids: Vec<u32> = capture.nodes.iter().map(|node| node.id).collect();
    // A node's list is printed again when it is built again; the last one holds.
    let mut printed: Vec<(u32, Place, Vec<u32>)> = Vec::new();
    for message in &meta.fallback_order {
        let Some((node, order)) = parse_order(message) else { continue };
        let place = meta.source.find("\"fallback_order\"", message.trim_end());
        printed.retain(|(other, ..)| *other != node);
        printed.push((node, place, order));
    }
    if printed.is_empty() {
        case.skip("fallback order of nodes", "not in the capture: kernels print it to their log");
        return;
    }
    let orders = |memoryless_first, all_cpus| {
        let computed = computed_orders(bench, memoryless_first, all_cpus);
        let checks = printed.iter().filter_map(|(node, place, order)| {
            let at = ids.iter().position(|id| id == node)?;
            let by_id: Vec<u32> = computed[at].iter().map(|node| ids[*node]).collect();
            Some(Check {
                file: place.file.clone(),
                line: place.line,
                what: format!("fallback order of node {node}"),
                expected: row(order),
                computed: row(&by_id),
            })
        });
        checks.collect::<Vec<Check>>()
    };
    // CPUs that are not online count for their node where the firmware names it.
    let without_cpus = capture.nodes.iter().any(|node| node.cpus.is_empty());
    let unsure = capture.hidden_cpus || without_cpus;
    let all_cpus: &[bool] = if unsure { &[false, true] } else { &[false] };
    let rules = capture.release.memoryless_first().iter();
    let variants = rules.flat_map(|first| all_cpus.iter().map(move |all| (*first, *all)));
    let best = variants
        .map(|(first, all)| orders(first, all))
        .min_by_key(|checks| checks.iter().filter(|check| !check.holds()).count());
    best.unwrap_or_default().into_iter().for_each(|check| case.check(check));
    if capture.release.memoryless_first().len() > 1 && ids.len() > 1 {
        let reason = format!("taken from the capture; {} may have either", capture.release);
        case.skip("whether a node without memory heads its own list", reason);
    }
}

/// The order of each node, by positions of nodes.
fn computed_orders(bench: &Bench<'_>, memoryless_first: bool, all_cpus: bool) -> Vec<Vec<usize>> {
    let nodes = bench.capture.nodes.len();
    let zones = &bench.capture.main().zones;
    let has_memory: Vec<bool> = bench
        .capture
        .nodes
        .iter()
        .map(|node| {
            zones.iter().any(|zone| {
                zone.node == node.id && zone.is_populated() && zone.kind != ZoneKind::Device
            })
        })
        .collect();
    let cpus = |node: &crate::capture::Node| all_cpus || !node.cpus.is_empty();
    let has_cpu: Vec<bool> = bench.capture.nodes.iter().map(cpus).collect();
    let Ok(table) = NodeTable::new(&bench.shape.distances, &has_memory, &has_cpu) else {
        return vec![Vec::new(); nodes];
    };
    let table = table.load_rule(bench.policy.zonelist.load);
    let table = if memoryless_first { table.memoryless_first() } else { table };
    let (mut load, mut lens) = (vec![0; nodes], vec![0; nodes]);
    let mut orders = vec![NodeId(0); nodes * nodes];
    fallback_orders(&table, &mut load, &mut orders, &mut lens);
    let order = |(node, len): (usize, &u16)| {
        let row = &orders[node * nodes..][..usize::from(*len)];
        row.iter().map(|node| usize::from(node.0)).collect()
    };
    lens.iter().enumerate().map(order).collect()
}

/// `Fallback order for Node 1: 1 0`.
fn parse_order(message: &str) -> Option<(u32, Vec<u32>)> {
    let (_, rest) = message.split_once("Fallback order for Node ")?;
    let (node, order) = rest.split_once(':')?;
    let order = order.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((node.trim().parse().ok()?, order))
}

/// Judges whether pageblocks are grouped by mobility, by the types they have, and the message that
/// says so.
///
/// # Errors
/// If the machine cannot be rebuilt.
pub fn grouping(bench: &Bench<'_>, case: &mut Case) -> Result<(), Error> {
    let capture = bench.capture;
    let grouping = bench.computed.grouping;
    let on_or_off = |on| Value::Text(if on { "on" } else { "off" }.to_owned());
    match &capture.pagetypeinfo {
        Some((file, document)) => {
            let mut line = 0;
            let mut first = None;
            let mut any = false;
            for node in &document.nodes {
                let order = node.pageblock_order;
                let pages = 1_u64.checked_shl(order as u32).unwrap_or(0);
                case.check(number(file, line + 2, "pages per block", node.pages_per_block, pages));
                if order != u64::from(PAGEBLOCK_ORDER.get()) {
                    case.skip(
                        "pageblock order",
                        format!("{order}: limits follow it; the core's own have 9"),
                    );
                }
                line += 4 + node.free.len() as u64 + 2;
                first = first.or(Some(line));
                let movable = node.migratetypes.iter().position(|name| name == "Movable");
                let movable = |counts: &[u64]| movable.is_some_and(|at| counts.get(at) > Some(&0));
                any |= node.blocks.iter().any(|row| movable(&row.counts));
                line += node.blocks.len() as u64;
                line += node.mixed_blocks.as_ref().map_or(0, |rows| 2 + rows.len() as u64);
            }
            case.check(Check {
                file: file.clone(),
                line: first.unwrap_or(1),
                what: "mobility grouping: whether any pageblock is movable".to_owned(),
                expected: on_or_off(any),
                computed: on_or_off(grouping),
            });
        }
        None => case.skip("mobility grouping", "pagetypeinfo cannot be read"),
    }
    let message = capture.meta.source.line_with("mobility grouping ");
    let Some((line, message)) = message else {
        case.skip(
            "Built N zonelists, total pages",
            "not in the capture: kernels print it to their log",
        );
        return Ok(());
    };
    let (file, after) = (&capture.meta.source.file, message.split("mobility grouping ").nth(1));
    let printed = after.is_some_and(|text| text.starts_with("on"));
    let (expected, computed) = (on_or_off(printed), on_or_off(grouping));
    let what = "mobility grouping in the log".to_owned();
    case.check(Check { file: file.clone(), line, what, expected, computed });
    let built =
        message.split("Built ").nth(1).and_then(|text| text.split(' ').next()?.parse().ok());
    if let Some(built) = built {
        let nodes = capture.nodes.len() as u64;
        case.check(number(file, line, "zonelists built", built, nodes));
    }
    let total = message.split("Total pages: ").nth(1).map(|text| text.trim_end_matches(['"', ',']));
    let Some(total) = total.and_then(|text| text.trim().parse::<u64>().ok()) else { return Ok(()) };
    // Early in the boot a zone counts its present pages, in older kernels minus their metadata.
    let present: Vec<u64> = capture.main().zones.iter().map(|zone| zone.present.value).collect();
    let pages = bench.shape.compute(&bench.policy, &present, &[])?.pages;
    match total < pages {
        true => case.skip_values("total pages", 1, "counted before all memory was known"),
        false => case.check(number(file, line, "total pages", total, pages)),
    }
    Ok(())
}
