//! Captures as a whole: all agree; a number changed is found at its line; damage is refused with
//! its line.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use zonal_core::types::PageRules;

use super::capture::Capture;
use super::error::Error;
use super::files::{Files, Live};
use super::judge::judge;
use super::place::Place;
use super::report::Case;

/// Texts in memory, to change.
#[derive(Clone, Default)]
pub(super) struct Texts(pub(super) BTreeMap<String, String>);

impl Files for Texts {
    fn read(&self, name: &str) -> io::Result<Option<String>> {
        Ok(self.0.get(name).cloned())
    }
    fn path(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl Texts {
    pub(super) fn of(directory: &Path) -> Texts {
        let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        let named = entries.map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        });
        Texts(named.collect())
    }

    pub(super) fn judge(&self) -> Result<Case, Error> {
        judge(&Capture::read("test", self)?)
    }

    /// The texts with one line changed.
    fn with(&self, place: &Place, change: impl Fn(&str) -> String) -> Texts {
        let mut texts = self.clone();
        let text = texts.0.get_mut(&place.file).unwrap();
        let lines = text.split_inclusive('\n').zip(1..);
        *text = lines
            .map(|(line, number)| match number == place.line {
                true => change(line),
                false => line.to_owned(),
            })
            .collect();
        texts
    }
}

fn bundled() -> Vec<PathBuf> {
    captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures"))
}

/// The captures beside the project, if they are there.
pub(super) fn shared() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let found = if directory.is_dir() { captures(&directory) } else { Vec::new() };
    if found.is_empty() {
        eprintln!("SKIPPED: no captures in {}", directory.display());
    }
    found
}

fn captures(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut captures: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    captures.sort();
    captures
}

/// The line with its `index`-th number from the end one larger, or one smaller.
fn step(line: &str, index: usize, up: bool) -> Option<String> {
    let bytes = line.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let digits = bytes[..end].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (head, number) = line[..end].split_at(end - digits);
    if index > 0 {
        return Some(step(head, index - 1, up)? + &line[end - digits..]);
    }
    let number: u64 = number.parse().ok()?;
    let number = if up { number.checked_add(1)? } else { number.checked_sub(1)? };
    Some(format!("{head}{number}{}", &line[end..]))
}

/// Changes the numbers of a judged line, one at a time, and expects each change to be found there
/// and nowhere else.
fn mutate(texts: &Texts, place: &Place) -> usize {
    let line = texts.0[&place.file].lines().nth(place.line as usize - 1).unwrap();
    let numbers = if line.contains("protection") { line.matches(',').count() + 1 } else { 1 };
    let mut found = 0;
    for index in 0..numbers {
        // Up in one line, down in the next; what is present may all be managed.
        let up = (place.line + index as u64).is_multiple_of(2) || line.contains("present ");
        if let Some(changed) = step(line, index, up).or_else(|| step(line, index, !up)) {
            let case = texts.with(place, |_| changed.clone() + "\n").judge();
            let told: BTreeSet<Place> = match case {
                Ok(case) => {
                    let places = case.mismatches.iter();
                    places.map(|check| Place::new(&check.file, check.line)).collect()
                }
                Err(error) => {
                    let text = error.chain();
                    let here = format!("{}: line {}", place.file, place.line);
                    assert!(text.contains(&here), "{place:?} `{changed}`: {text}");
                    BTreeSet::from([place.clone()])
                }
            };
            assert_eq!(told, BTreeSet::from([place.clone()]), "`{line}` became `{changed}`");
            found += 1;
        }
    }
    found
}

/// Where judged numbers stand: all but what is on or off, and lists of nodes and CPUs.
fn numbers(case: &Case) -> BTreeSet<Place> {
    let lists = ["cpulist", "distance", "sys-", "pagetypeinfo"];
    let is_number = |place: &&Place| !lists.iter().any(|part| place.file.contains(part));
    case.judged.iter().filter(is_number).cloned().collect()
}

#[test]
fn every_capture_agrees() {
    for directory in bundled().into_iter().chain(shared()) {
        let case = Texts::of(&directory).judge().unwrap_or_else(|error| panic!("{error}"));
        assert!(case.mismatches.is_empty(), "{}: {:#?}", directory.display(), case.mismatches);
        assert!(case.values > 100, "{}: {} values", directory.display(), case.values);
    }
}

/// Whether a text may be of other sizes of zones whatever this number says; not where limits were
/// just computed. Up to 6.6 nothing that a kernel prints tells the size that HighMem had at the
/// boot. And the upper limit of the only list there is follows from the size of the only zone,
/// which has all of `min_free_kbytes` at any size: no other number says more.
fn is_open(texts: &Texts, place: &Place) -> bool {
    let text = &texts.0[&place.file];
    let line = text.lines().nth(place.line as usize - 1).unwrap();
    let is_alone = line.contains("high_max") && text.matches("high_max").count() == 1;
    let has_high = texts.0["zoneinfo.txt"].contains("HighMem");
    (has_high || is_alone) && place.file != "recalc-zoneinfo.txt"
}

#[test]
fn each_number_changed_alone_is_found_at_its_line() {
    let mut found = 0;
    for directory in bundled() {
        let texts = Texts::of(&directory);
        let judged = numbers(&texts.judge().unwrap());
        let judged = judged.iter().filter(|place| !is_open(&texts, place));
        found += judged.map(|place| mutate(&texts, place)).sum::<usize>();
    }
    assert!(found > 900, "{found} changes");
}

/// Of the captures beside the project a sample, another one of each.
#[test]
fn numbers_of_every_capture_are_found_where_they_changed() {
    for (offset, directory) in shared().iter().enumerate() {
        let texts = Texts::of(directory);
        let judged = numbers(&texts.judge().unwrap());
        for place in judged.iter().skip(offset).step_by(97) {
            mutate(&texts, place);
        }
    }
}

/// Texts that a capture must have.
const MUST: [&str; 8] = [
    "meta.json",
    "sysctl.txt",
    "zoneinfo.txt",
    "recalc-zoneinfo.txt",
    "pagetypeinfo.txt",
    "iomem.txt",
    "node0-cpulist.txt",
    "node0-distance.txt",
];

fn first() -> Texts {
    Texts::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/6.1-n3-memless1"))
}

/// What is said of damaged texts.
fn refused(texts: &Texts) -> String {
    texts.judge().expect_err("damage must be refused").chain()
}

#[test]
fn a_missing_text_is_named() {
    for name in MUST {
        let mut texts = first();
        texts.0.remove(name);
        let text = refused(&texts);
        assert!(text.contains(&format!("{name}: no such file")), "{text}");
    }
}

#[test]
fn a_text_cut_between_lines_is_refused_or_says_less() {
    for name in MUST.iter().filter(|name| **name != "iomem.txt") {
        let whole = first();
        let lines: Vec<&str> = whole.0[*name].split_inclusive('\n').collect();
        for kept in 0..lines.len() {
            let mut texts = whole.clone();
            texts.0.insert((*name).to_owned(), lines[..kept].concat());
            match texts.judge() {
                Err(error) => assert!(error.chain().starts_with(name), "{kept}: {error}"),
                // Sysctls at the end, which no limit follows from, are all that may be missing.
                Ok(case) => {
                    assert_eq!((*name, case.mismatches.len()), ("sysctl.txt", 0), "{kept} lines")
                }
            }
        }
    }
}

#[test]
fn a_text_cut_within_a_line_is_refused_with_that_line() {
    for name in MUST.iter().filter(|name| **name != "meta.json") {
        let whole = first();
        let text = &whole.0[*name];
        for kept in (1..text.len()).step_by(text.len() / 60 + 1) {
            if text[..kept].ends_with('\n') {
                continue;
            }
            let mut texts = whole.clone();
            texts.0.insert((*name).to_owned(), text[..kept].to_owned());
            let line = text[..kept].lines().count();
            let said = refused(&texts);
            assert!(said.starts_with(&format!("{name}: line {line}: ")), "{said}");
        }
    }
}

#[test]
fn damage_is_refused_with_file_and_line() {
    for (name, from, to, part) in [
        ("recalc-zoneinfo.txt", "managed  3840", "managed  38x0", "line 53: bad value"),
        ("recalc-zoneinfo.txt", "managed  3840", "managed  3999", "3999 pages managed of 3998"),
        ("recalc-zoneinfo.txt", "present  3998", "present  4096", "4096 pages present in a span"),
        ("recalc-zoneinfo.txt", "zone    DMA32", "zone   Normal", "out of order"),
        ("recalc-zoneinfo.txt", "zone    DMA32", "zone   Device", "out of order"),
        ("recalc-zoneinfo.txt", "zone    DMA32", "zone  HighTop", "a zone `HighTop`"),
        (
            "recalc-zoneinfo.txt",
            "start_pfn:           4096",
            "start_pfn:           95",
            "lie between",
        ),
        ("recalc-zoneinfo.txt", "    cpu: 1\n", "    cpu: 7\n", "has lists of CPUs"),
        ("recalc-zoneinfo.txt", "(0, 1955", "(0, 7, 1955", "6 numbers, but the kernel has 5"),
        ("zoneinfo.txt", "Node 1,", "Node 7,", "out of order"),
        ("sysctl.txt", "scale_factor=10", "scale_factor=3001", "accepted are 1 to 3000"),
        ("sysctl.txt", "scale_factor=10", "scale_factor=0", "accepted are 1 to 3000"),
        ("sysctl.txt", "high_fraction=0", "high_fraction=7", "0, and 8 to 2147483647"),
        ("sysctl.txt", "min_free_kbytes=67584", "min_free_kbytes=-1", "0 to 2147483647"),
        ("sysctl.txt", "swappiness=60", "swappiness=201", "accepted are 0 to 200"),
        ("sysctl.txt", "numa_stat=1", "numa_stat=yes", "expected a number"),
        ("sysctl.txt", "256\t256\t32\t0\t0", "256\t256", "the kernel has 5 zones"),
        ("sysctl.txt", "vm.numa_stat", "vm.min_slab_ratio", "stands twice"),
        ("node1-distance.txt", "21 10 15", "21 10", "2 distances, but there are 3 nodes"),
        ("node1-distance.txt", "21 10 15", "21 9 15", "distance 9"),
        ("node1-distance.txt", "21 10 15", "10 21 15", "a node is at 10 from itself"),
        ("node1-cpulist.txt", "2-3", "3-2", "bad cpu list"),
        ("meta.json", "6.1.0-56-amd64\",", "six\",", "`six` is no kernel release"),
        ("meta.json", "\"sysctl_set\": {}", "\"sysctl_set\": 7", "bad JSON"),
        ("pagetypeinfo.txt", "Node 2, zone    DMA32", "Node 1, zone    DMA32", "is missing"),
        ("iomem.txt", "System RAM", "System RAM\n  x", "unexpected line"),
    ] {
        let mut texts = first();
        let text = texts.0.get_mut(name).unwrap();
        assert!(text.contains(from), "{name} has no `{from}`");
        *text = text.replacen(from, to, 1);
        // The recorder's note would overrule a text that it contradicts.
        if name == "sysctl.txt" {
            let meta = texts.0.get_mut("meta.json").unwrap();
            let end = meta.find("\"sysctls\":").unwrap();
            *meta = format!("{}\"wall_s\": 0}}\n", &meta[..end]);
        }
        let said = refused(&texts);
        assert!(said.starts_with(&format!("{name}: line ")), "{said}");
        assert!(said.contains(part), "expected `{part}`, found: {said}");
    }
}

/// Captures of kernels with larger pages are judged with the others.
#[test]
fn memory_tells_the_size_of_a_page() {
    for kib in [16, 64] {
        let mut texts = first();
        let capture = Capture::read("test", &texts).unwrap();
        assert_eq!(capture.page, PageRules::OWN);
        let managed: u64 = capture.main().zones.iter().map(|zone| zone.managed.value).sum();
        let total = format!("MemTotal:       {} kB\n", managed * kib);
        texts.0.insert("meminfo.txt".to_owned(), total);
        assert_eq!(Capture::read("test", &texts).unwrap().page.kbytes(), kib);
    }
}

/// A kernel with HighMem has its movable memory there, and two kinds of it are not modelled.
#[test]
fn a_movable_zone_beside_high_memory_must_be_empty() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/6.1-n1-3g-highmem");
    let mut texts = Texts::of(&directory);
    let text = texts.0.get_mut("recalc-zoneinfo.txt").unwrap();
    // The memory of HighMem in a zone Movable.
    *text =
        text.replace("zone  HighMem", "zone  Movable").replace("zone   Normal", "zone  HighMem");
    let said = refused(&texts);
    assert!(said.contains("not modelled: memory in zone Movable"), "{said}");
}

/// The releases beside the recorded ones follow the same rules, or either of two.
#[test]
fn a_release_beside_the_recorded_ones_is_judged_by_its_rules() {
    for (capture, releases) in [
        ("6.1-n3-memless1", &["5.16.1", "5.19", "6.2.0-rc1", "6.6.30"][..]),
        ("6.12-n1-192m-c1", &["6.7", "6.8.0-31-generic", "6.13.2"]),
        ("7.2-n1-4g-c2", &["6.14.1", "6.18", "7.0.0", "8.1"]),
    ] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures").join(capture);
        let whole = Texts::of(&directory);
        let recorded = Capture::read("test", &whole).unwrap().meta.kernel_release;
        for release in releases {
            let mut texts = whole.clone();
            let meta = texts.0.get_mut("meta.json").unwrap();
            *meta = meta.replace(&recorded, release);
            let case = texts.judge().unwrap();
            assert!(case.mismatches.is_empty(), "{capture} as {release}: {:#?}", case.mismatches);
        }
    }
    // 6.7 knows one rule only: 6.1's empty movable zones and node order do not fit it.
    let mut texts = first();
    let meta = texts.0.get_mut("meta.json").unwrap();
    *meta = meta.replace("6.1.0-56-amd64", "6.7.0");
    assert!(texts.judge().unwrap().mismatches.len() > 10);
}

pub(super) fn replace(texts: &mut Texts, name: &str, from: &str, to: &str) {
    let text = texts.0.get_mut(name).unwrap();
    assert!(text.contains(from), "{name} has no `{from}`");
    *text = text.replacen(from, to, 1);
}

/// The first capture, with a note that somebody wrote a sysctl and what the kernel said.
fn with_write(key: &str, value: &str, said: &str) -> Texts {
    let mut texts = first();
    let set = format!("\"sysctl_set\": {{\"{key}\": \"{value}\"}}");
    replace(&mut texts, "meta.json", "\"sysctl_set\": {}", &set);
    let result = format!("\"sysctl_set_result\": [\"{key}={value} {said}\"]");
    replace(&mut texts, "meta.json", "\"sysctl_set_result\": []", &result);
    texts
}

#[test]
fn writes_are_refused_as_the_kernel_refuses_them() {
    for (key, value, said, mismatches) in [
        ("vm.percpu_pagelist_high_fraction", "7", "EINVAL", 0),
        ("vm.percpu_pagelist_high_fraction", "0", "ok", 0),
        // The kernel says that it took what no kernel takes, and the value is another.
        ("vm.percpu_pagelist_high_fraction", "7", "ok", 2),
        // It refused what every kernel takes.
        ("vm.watermark_scale_factor", "10", "EINVAL", 1),
        ("vm.watermark_scale_factor", "0", "EINVAL", 0),
        ("vm.watermark_scale_factor", "0xa", "ok", 0),
        ("vm.watermark_scale_factor", "10 7", "ok", 0),
        ("vm.watermark_scale_factor", "10,7", "EINVAL", 0),
        ("vm.watermark_scale_factor", "012", "EINVAL", 1),
        ("vm.lowmem_reserve_ratio", "256 256 32 -5 0", "ok", 0),
        ("vm.lowmem_reserve_ratio", "256 256 32 -2147483648 0", "ok", 0),
        // No kernel refuses ratios; numbers that are not written stay.
        ("vm.lowmem_reserve_ratio", "256 256 32 0", "ok", 0),
        ("vm.lowmem_reserve_ratio", "256", "ok", 0),
        ("vm.lowmem_reserve_ratio", "32,16,8,0", "ok", 0),
        ("vm.lowmem_reserve_ratio", "256,256,32,0", "ok", 0),
        ("vm.lowmem_reserve_ratio", "nonsense", "ok", 0),
        ("vm.lowmem_reserve_ratio", "32,16,8,0", "EINVAL", 1),
        ("vm.lowmem_reserve_ratio", "256 256 31 0", "ok", 1),
        ("thp.enabled", "always", "ok", 0),
        ("thp.enabled", "never", "ok", 1),
        ("vm.swappiness", "201", "EINVAL", 0),
        ("vm.min_free_kbytes", "67584", "ok", 0),
    ] {
        let case = with_write(key, value, said).judge().unwrap();
        let found = &case.mismatches;
        assert_eq!(found.len(), mismatches, "{key}={value} {said}: {found:#?}");
    }
}

/// Ratios of which some are 0: what a recorder without blanks notes as `32,16,8,0`.
#[test]
fn ratios_of_0_reserve_nothing() {
    for written in ["32 16 8 0", "32,16,8,0"] {
        let mut texts = with_write("vm.lowmem_reserve_ratio", written, "ok");
        for name in ["sysctl.txt", "meta.json"] {
            let tab = if name == "meta.json" { "\\t" } else { "\t" };
            let text = texts.0.get_mut(name).unwrap();
            let [from, to] = ["256 256 32 0 0", "32 16 8 0 0"].map(|row| row.replace(' ', tab));
            // The last one is the value of then; those before are of the boot.
            let at = text.rfind(&from).unwrap();
            text.replace_range(at..at + from.len(), &to);
        }
        for (name, before) in
            [("recalc-zoneinfo.txt", 1955), ("zoneinfo.txt", 1947), ("folded-zoneinfo.txt", 1955)]
        {
            let row = |pages: u64| format!("(0, {pages}, {pages}, {pages}, {pages})");
            replace(&mut texts, name, &row(before), &row(500_510 / 32));
        }
        // Zone DMA kept 1947 pages and its high watermark of 127 back; now all its 3840.
        let kib = |pages: u64| format!("MemAvailable:    {} kB", 2_876_064 - 4 * pages);
        replace(&mut texts, "meminfo.txt", &kib(0), &kib(3840 - 1947 - 127));
        let case = texts.judge().unwrap();
        assert!(case.mismatches.is_empty(), "{:#?}", case.mismatches);
    }
}

#[test]
fn a_kernel_without_numa_has_one_node() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/7.2-n1-4g-c2");
    let mut texts = Texts::of(&directory);
    texts.0.retain(|name, _| !name.starts_with("node0-") && !name.starts_with("sys-node-"));
    let case = texts.judge().unwrap();
    assert!(case.mismatches.is_empty(), "{:#?}", case.mismatches);
    texts.0.remove("sys-cpu-online.txt");
    assert!(refused(&texts).contains("no such file"));
}

#[test]
fn memory_that_is_offline_is_not_present() {
    let mut texts = first();
    // 128 MiB more of memory lie within the span of the last zone.
    replace(&mut texts, "iomem.txt", "-bffdffff : System RAM", "-c7fdffff : System RAM");
    for name in ["zoneinfo.txt", "folded-zoneinfo.txt", "recalc-zoneinfo.txt"] {
        replace(&mut texts, name, "spanned  262112", "spanned  294880");
    }
    let case = texts.judge().unwrap();
    let told = |case: &Case| case.mismatches.iter().map(|c| c.what.clone()).collect::<Vec<_>>();
    assert_eq!(told(&case), Vec::<String>::new());
}

/// Files of a running kernel of two CPUs, and its `zoneinfo`.
fn running() -> (tempfile::TempDir, String) {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/7.2-n1-4g-c2");
    let root = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read_to_string(capture.join(name)).unwrap();
    let zoneinfo = read("recalc-zoneinfo.txt");
    write(&root, "proc/zoneinfo", &zoneinfo);
    write(&root, "proc/sys/kernel/osrelease", "7.2.12\n");
    for line in read("sysctl.txt").lines() {
        let (key, value) = line.split_once('=').unwrap();
        if let Some(name) = key.strip_prefix("vm.") {
            write(&root, &format!("proc/sys/vm/{name}"), &format!("{value}\n"));
        }
    }
    write(&root, "sys/devices/system/node/node0/cpulist", &read("node0-cpulist.txt"));
    write(&root, "sys/devices/system/node/node0/distance", &read("node0-distance.txt"));
    (root, zoneinfo)
}

fn write(root: &tempfile::TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A CPU came while the zone was boosted, so the bound of its lists has the boost in it. The boost
/// is gone, the bound stays.
#[test]
fn bounds_of_a_running_kernel_may_have_a_boost_in_them() {
    let (root, zoneinfo) = running();
    let judge = |bound: u64| {
        let text = zoneinfo.replace("high_min: 7955\n", &format!("high_min: {bound}\n"));
        write(&root, "proc/zoneinfo", &text);
        judge(&Capture::live(&Live::below(root.path())).unwrap()).unwrap()
    };
    let noted =
        |case: &Case| case.not_judged.iter().filter(|one| one.reason.contains("boost of")).count();
    let low = 15_910;
    // Of two CPUs, and of three, of which one was still on its way.
    for (boost, cpus) in [(512, 2), (18 * 512, 2), (18 * 512, 3)] {
        let case = judge((low + boost) / cpus);
        assert!(case.mismatches.is_empty(), "{boost}: {:#?}", case.mismatches);
        assert_eq!(noted(&case), 2);
    }
    // No whole number of pageblocks; below the watermark; above the most that the sysctl allows.
    for bound in [(low + 600) / 2, 7_954, (low + 100 * 512) / 2] {
        let case = judge(bound);
        assert_eq!((case.mismatches.len(), noted(&case)), (2, 0), "{bound}");
    }
    write(&root, "proc/sys/vm/watermark_boost_factor", "0\n");
    assert_eq!(judge((low + 512) / 2).mismatches.len(), 2);
}

/// A running kernel whose zones have grown since its watermarks were computed, as one that
/// initialises memory lazily.
#[test]
fn a_running_kernel_may_have_marks_of_smaller_zones() {
    let (root, zoneinfo) = running();
    let write = |path: &str, text: &str| write(&root, path, text);
    let judge = || judge(&Capture::live(&Live::below(root.path())).unwrap()).unwrap();
    let fresh = judge();
    assert!(fresh.mismatches.is_empty(), "{:#?}", fresh.mismatches);
    assert!(fresh.sizes_then.is_empty());
    // The Normal zone has grown since; `protection` follows sizes at once since 6.18.
    let grown = zoneinfo.replacen("managed  243339", "managed  262144", 1);
    let rows = [(3899, (754_875 + 262_144) / 256), (950, 262_144 / 256)];
    let grown = rows.into_iter().fold(grown, |text, (from, to)| {
        let row = |pages: u64| format!("{pages}, {pages}, {pages})");
        text.replacen(&row(from), &row(to), 1)
    });
    write("proc/zoneinfo", &grown);
    let stale = judge();
    assert!(stale.mismatches.is_empty(), "{:#?}", stale.mismatches);
    let normal = stale.sizes_then.iter().find(|size| size.zone == "Normal").unwrap();
    // The lists' bounds pin the size: 243339 pages, to 8 pages for each of two CPUs.
    assert!(normal.managed == 262_144 && normal.managed_then.abs_diff(243_339) < 16);
    // A watermark that follows from no size is still found.
    write("proc/zoneinfo", &grown.replacen("min      12728", "min      12730", 1));
    let wrong = judge();
    let told: Vec<&str> = wrong.mismatches.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(told, ["node 0 zone DMA32 min"]);
}

/// A CPU of another node came online, and nobody computed limits since: 7146 pages of low watermark
/// were shared out among three CPUs.
#[test]
fn limits_may_be_of_a_moment_when_a_cpu_came_online() {
    let mut texts = first();
    let text = texts.0.get_mut("zoneinfo.txt").unwrap();
    assert_eq!(text.matches("high:  3573\n").count(), 6);
    *text = text.replace("high:  3573\n", "high:  2382\n");
    let case = texts.judge().unwrap();
    assert!(case.mismatches.is_empty(), "{:#?}", case.mismatches);
    let text = texts.0.get_mut("zoneinfo.txt").unwrap();
    *text = text.replacen("high:  2382\n", "high:  2383\n", 1);
    assert_eq!(texts.judge().unwrap().mismatches.len(), 1);
}

#[test]
fn the_log_tells_of_zonelists_grouping_and_pages() {
    let present = 3998 + 520_192 + 262_112;
    for (built, grouping, pages, mismatches) in [
        (3, "on", present, 0),
        // Older kernels leave out what describes the pages.
        (3, "on", present - 12_000, 0),
        (2, "on", present, 1),
        (3, "off", present, 1),
        (3, "on", present + 1, 1),
    ] {
        let mut texts = first();
        let message = format!(
            "\"log\": \"Built {built} zonelists, mobility grouping {grouping}.  Total pages: \
             {pages}\",\n \"wall_s\""
        );
        replace(&mut texts, "meta.json", "\"wall_s\"", &message);
        let found = texts.judge().unwrap().mismatches;
        assert_eq!(found.len(), mismatches, "{built} {grouping} {pages}: {found:#?}");
    }
}

/// Bytes changed anywhere, to digits that overflow among others: refused or judged, never a panic.
#[test]
fn texts_damaged_anywhere_are_refused_or_judged() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let whole = first();
    let names: Vec<String> = whole.0.keys().cloned().collect();
    let pieces =
        ["9", "-", " ", "\n", "x", "18446744073709551615", "4503599627370495", "", "\u{e9}"];
    let damage = (0..names.len(), 0.0..1.0_f64, 0..pieces.len(), 0..12_usize);
    runner
        .run(&damage, |(name, at, piece, length)| {
            let mut texts = whole.clone();
            let text = texts.0.get_mut(&names[name]).unwrap();
            let start = (at * text.len() as f64) as usize;
            let end = (start + length).min(text.len());
            text.replace_range(start..end, pieces[piece]);
            let _ = texts.judge();
            Ok(())
        })
        .unwrap();
}
