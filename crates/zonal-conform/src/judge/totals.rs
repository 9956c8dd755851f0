//! Amounts of memory, states of nodes, and texts that say the same thing twice.

use zonal_core::types::{NR_ZONE_KINDS, PageRules, ZoneKind};
use zonal_core::zone::watermark::{Memory, available_pages, total_reserve};
use zonal_text::{cpulist, iomem, meminfo};

use super::bench::Bench;
use super::compared::{Settled, number, row, short};
use crate::report::{Case, Check};
use crate::zones::{ZoneFile, ZoneText, name};

/// Memory goes on and off line in sections of 128 MiB on x86-64 and most others, 16 MiB on ppc64,
/// 256 MiB on s390x; `log2` of their bytes.
const SECTION_SHIFT: u8 = 27;
const SECTION_SHIFTS: [(&str, u8); 2] = [("ppc64", 24), (S390X, 28)];
const S390X: &str = "s390x";

/// Judges all of them. `settled` is what holds for the `zoneinfo` that was read with `meminfo`.
pub fn judge(bench: &Bench<'_>, settled: Option<&Settled>, case: &mut Case) {
    memory(bench, case);
    available(bench, settled, case);
    present(bench, case);
    states(bench, case);
    cpus(bench, case);
    noted(bench, case);
}

/// Value and line of an amount.
fn amount(document: &meminfo::Document, name: &str) -> Option<(u64, u64)> {
    let amounts = document.amounts.iter().zip(1..);
    amounts.map(|(a, line)| (a.name == name).then_some((a.value, line))).find(Option::is_some)?
}

/// `MemTotal` of the machine and of each node is what its zones manage.
fn memory(bench: &Bench<'_>, case: &mut Case) {
    let capture = bench.capture;
    let zones = &capture.main().zones;
    let page_kib = capture.page.kbytes();
    let managed = |of: &dyn Fn(&ZoneText) -> bool| {
        zones.iter().filter(|zone| of(zone)).map(|zone| zone.managed.value).sum::<u64>() * page_kib
    };
    let all = capture.meminfo.iter().map(|(file, text)| (file, text, managed(&|_| true)));
    let nodes = capture.nodes.iter().filter_map(|node| {
        let (file, text) = node.meminfo.as_ref()?;
        Some((file, text, managed(&|zone| zone.node == node.id)))
    });
    for (file, text, managed) in all.chain(nodes) {
        let Some((printed, line)) = amount(text, "MemTotal") else {
            case.skip(format!("{}: MemTotal", short(file)), "not in the text");
            continue;
        };
        let present = zones.iter().map(|zone| zone.present.value).sum::<u64>() * page_kib;
        if capture.started_with(&["deferred_init"]) && (managed..=present).contains(&printed) {
            let reason = format!(
                "this kernel counts memory that it has not initialised yet: {} kB",
                printed - managed
            );
            case.skip(format!("{}: MemTotal", short(file)), reason);
            continue;
        }
        if capture.meta.uname.contains(S390X) && printed > managed && printed <= present {
            let reason = format!(
                "an s390x kernel also counts pages that it freed before it counted those of its \
                 zones: {} kB",
                printed - managed
            );
            case.skip_values(format!("{}: MemTotal", short(file)), 1, reason);
            continue;
        }
        case.check(number(file, line, "MemTotal", printed, managed));
    }
    if capture.meminfo.is_none() {
        case.skip("meminfo", "not in the capture");
    }
}

/// `MemAvailable`, from the other amounts of its text and the watermarks of that time (LB I.4).
fn available(bench: &Bench<'_>, settled: Option<&Settled>, case: &mut Case) {
    let capture = bench.capture;
    let what = "MemAvailable";
    if capture.live {
        case.skip(what, "memory changes hands while a running kernel's texts are read");
        return;
    }
    let zones = capture.zoneinfo.get(1).zip(settled);
    let (Some((file, text)), Some((zones, settled))) = (&capture.meminfo, zones) else {
        case.skip(what, "needs meminfo.txt and zoneinfo.txt");
        return;
    };
    if !settled.is_certain {
        case.skip_values(what, 1, "follows from a row of protection that cannot be");
        return;
    }
    let page_kib = capture.page.kbytes();
    let pages = |name: &str| amount(text, name).map(|(value, _)| value / page_kib);
    let reclaimable = pages("KReclaimable").or_else(|| pages("SReclaimable"));
    let inputs = (pages("MemFree"), pages("Active(file)"), pages("Inactive(file)"), reclaimable);
    let (Some((printed, line)), (Some(free), Some(active), Some(inactive), Some(reclaimable))) =
        (amount(text, what), inputs)
    else {
        case.skip(what, "an amount that it follows from is not in the text");
        return;
    };
    let (total_reserve, low_watermarks) = reserves(zones, settled);
    let file_lru = active + inactive;
    let memory = Memory { free, total_reserve, low_watermarks, file_lru, reclaimable };
    let computed = available_pages(&memory).saturating_mul(page_kib);
    case.check(number(file, line, what, printed, computed));
}

/// What all zones keep back, and the sum of their low watermarks.
fn reserves(file: &ZoneFile, settled: &Settled) -> (u64, u64) {
    let (mut reserve, mut low_watermarks) = (0, 0);
    let rows = settled.watermarks.iter().zip(&settled.protection);
    for (zone, (watermarks, row)) in file.zones.iter().zip(rows) {
        let mut protection = [0; NR_ZONE_KINDS];
        for (pages, kept) in protection.iter_mut().zip(row) {
            *pages = (*kept).max(0) as u64;
        }
        reserve += total_reserve(zone.managed.value, &protection, watermarks);
        low_watermarks = watermarks.low.saturating_add(zone.boost).saturating_add(low_watermarks);
    }
    (reserve, low_watermarks)
}

/// The pages present in a zone are the memory within its span.
fn present(bench: &Bench<'_>, case: &mut Case) {
    let capture = bench.capture;
    let ram = capture
        .iomem
        .as_ref()
        .map_or(Vec::new(), |(_, document)| system_ram(document, capture.page));
    let named = |(name, _): &&(&str, u8)| capture.meta.uname.contains(name);
    let section = SECTION_SHIFTS.iter().find(named).map_or(SECTION_SHIFT, |(_, shift)| *shift);
    let section_pages = 1_u64 << section.saturating_sub(capture.page.shift);
    if ram.is_empty() {
        case.skip("present", "iomem cannot be read, or shows no addresses");
        return;
    }
    for file in &capture.zoneinfo {
        for zone in file.zones.iter().filter(|zone| zone.is_populated()) {
            let (start, end) = span(zone);
            let alone = file.zones.iter().filter(|other| other.is_populated()).all(|other| {
                let (from, to) = span(other);
                std::ptr::eq(other, zone) || to <= start || from >= end
            });
            let what = format!("{} present", name(zone));
            if !alone || zone.kind == ZoneKind::Device {
                case.skip(what, "its span overlaps another zone's, or it is no memory");
                continue;
            }
            let within =
                |(from, to): &(u64, u64)| (*to).min(end).saturating_sub((*from).max(start));
            let pages: u64 = ram.iter().map(within).sum();
            let offline = pages.saturating_sub(zone.present.value);
            if offline > 0 && offline.is_multiple_of(section_pages) {
                case.skip_values(what, 1, format!("{offline} pages of memory may be offline"));
                continue;
            }
            case.check(number(&file.file, zone.present.line, what, zone.present.value, pages));
        }
    }
}

/// Page frames of memory that Linux manages: first and one past the last. Memory that was added
/// later lies within its device, which its name mentions.
fn system_ram(document: &iomem::Document, page: PageRules) -> Vec<(u64, u64)> {
    let memory = document.regions.iter().filter(|region| region.name.starts_with("System RAM"));
    let frames = memory.map(|region| {
        (region.start.div_ceil(1 << page.shift), region.end.saturating_add(1) >> page.shift)
    });
    let mut ram: Vec<(u64, u64)> = Vec::new();
    for (start, end) in frames.filter(|(start, end)| start < end) {
        if ram.last().is_none_or(|(_, before)| start >= *before) {
            ram.push((start, end));
        }
    }
    ram
}

fn span(zone: &ZoneText) -> (u64, u64) {
    let start = zone.start_pfn.map_or(0, |start| start.value);
    (start, start + zone.spanned.value)
}

/// Which nodes have memory and CPUs.
fn states(bench: &Bench<'_>, case: &mut Case) {
    let capture = bench.capture;
    let zones = &capture.main().zones;
    for (state, file, printed) in &capture.node_states {
        let has = |node: u32, up_to: ZoneKind| {
            let of_node = |zone: &ZoneText| zone.node == node && zone.is_populated();
            zones.iter().any(|zone| of_node(zone) && zone.kind <= up_to)
        };
        let nodes = capture.nodes.iter().filter(|node| match *state {
            "has_memory" => has(node.id, ZoneKind::Movable),
            "has_normal_memory" => has(node.id, ZoneKind::Normal),
            "has_cpu" => !node.cpus.is_empty(),
            _ => true,
        });
        let nodes: Vec<u32> = nodes.map(|node| node.id).collect();
        if *state == "has_cpu" && is_noted_for_another(bench, printed) {
            let reason = "CPUs are on several nodes, and a kernel notes those that came later for \
                          one of their nodes";
            case.skip_values(format!("nodes: {state}"), 1, reason);
            continue;
        }
        case.check(Check {
            file: file.clone(),
            line: 1,
            what: format!("nodes: {state}"),
            expected: row(printed),
            computed: row(&nodes),
        });
    }
}

/// Whether nodes with CPUs are missing among those printed, and each of them shares all its CPUs
/// with nodes that are there.
fn is_noted_for_another(bench: &Bench<'_>, printed: &[u32]) -> bool {
    let nodes = &bench.capture.nodes;
    let (there, missing): (Vec<_>, Vec<_>) =
        nodes.iter().filter(|n| !n.cpus.is_empty()).partition(|node| printed.contains(&node.id));
    let shared = |cpu: &u32| there.iter().any(|node| node.cpus.contains(cpu));
    !missing.is_empty()
        && there.len() == printed.len()
        && missing.iter().all(|node| node.cpus.iter().all(shared))
}

/// Every CPU that is online is on a node.
fn cpus(bench: &Bench<'_>, case: &mut Case) {
    let Some((file, printed)) = &bench.capture.cpus_online else { return };
    let cpus = bench.shape.cpus();
    case.check(Check {
        file: file.clone(),
        line: 1,
        what: "CPUs online, and those of all nodes".to_owned(),
        expected: row(printed),
        computed: row(&cpus),
    });
}

/// Notes of the recorder beside its texts.
fn noted(bench: &Bench<'_>, case: &mut Case) {
    let capture = bench.capture;
    let meta = &capture.meta;
    let list = |text: &str| cpulist::parse(&format!("{text}\n")).ok().map(|list| list.ids);
    let count = capture.nodes.len();
    let square =
        |rows: &&Vec<Vec<u32>>| rows.len() == count && rows.iter().all(|row| row.len() == count);
    if let Some(rows) = meta.guest_distances.as_ref().filter(square) {
        for (index, (node, noted)) in capture.nodes.iter().zip(rows).enumerate() {
            let read = &capture.distances[index * count..][..count];
            let read: Vec<u32> = read.iter().map(|distance| u32::from(*distance)).collect();
            case.check(same(&node.files[1], "distances", &read, noted));
        }
    }
    for node in &capture.nodes {
        let noted = meta.guest_node_cpus.as_ref().and_then(|nodes| nodes.get(&node.id.to_string()));
        if let Some(noted) = noted.and_then(|text| list(text)) {
            case.check(same(&node.files[0], "CPUs", &node.cpus, &noted));
        }
    }
}

/// A text beside the recorder's notes.
fn same(file: &str, what: &str, read: &[u32], noted: &[u32]) -> Check {
    let what = format!("{what}, as meta.json has them");
    Check { file: file.to_owned(), line: 1, what, expected: row(read), computed: row(noted) }
}
