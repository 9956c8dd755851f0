//! Every text of every captured kernel prints back as it was: the committed samples, and all that
//! lie in `../shared`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use zonal_text::{
    Error, Layout, buddyinfo, cmdline, cpulist, distance, iomem, meminfo, pagetypeinfo, sysctl,
    vmstat, zoneinfo,
};

/// A format, and whether a file's name says that it has it.
struct Format {
    name: &'static str,
    is_named: fn(&str) -> bool,
    print_back: fn(&str) -> Result<String, Error>,
}

fn print_back<D: FromStr<Err = Error> + Display>(text: &str) -> Result<String, Error> {
    Ok(text.parse::<D>()?.to_string())
}

const FORMATS: [Format; 10] = [
    Format {
        name: "vmstat",
        is_named: |name| name.contains("vmstat") || name.contains("numastat"),
        print_back: print_back::<vmstat::Document>,
    },
    Format {
        name: "meminfo",
        is_named: |name| name.contains("meminfo"),
        print_back: print_back::<meminfo::Document>,
    },
    Format {
        name: "zoneinfo",
        is_named: |name| name.contains("zoneinfo"),
        print_back: print_back::<zoneinfo::Document>,
    },
    Format {
        name: "buddyinfo",
        is_named: |name| name.contains("buddyinfo"),
        print_back: print_back::<buddyinfo::Document>,
    },
    Format {
        name: "pagetypeinfo",
        is_named: |name| name.contains("pagetypeinfo"),
        print_back: print_back::<pagetypeinfo::Document>,
    },
    Format {
        name: "cpulist",
        is_named: |name| name.contains("cpulist") || name.starts_with("sys-"),
        print_back: print_back::<cpulist::Document>,
    },
    Format {
        name: "distance",
        is_named: |name| name.contains("distance"),
        print_back: print_back::<distance::Document>,
    },
    Format {
        name: "sysctl",
        is_named: |name| name == "sysctl.txt",
        print_back: print_back::<sysctl::Document>,
    },
    Format {
        name: "iomem",
        is_named: |name| name == "iomem.txt",
        print_back: print_back::<iomem::Document>,
    },
    Format {
        name: "cmdline",
        is_named: |name| name == "cmdline.txt",
        print_back: print_back::<cmdline::Document>,
    },
];

/// All files below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// How many files of each format there are; all of them print back.
fn check(directory: &Path) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for path in files(directory) {
        let name = path.file_name().unwrap().to_string_lossy();
        let Some(format) = FORMATS.iter().find(|format| (format.is_named)(&name)) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        let printed = (format.print_back)(&text);
        let printed = printed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(printed == text, "{} prints back as:\n{printed}", path.display());
        *counts.entry(format.name).or_default() += 1;
    }
    counts
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

#[test]
fn every_committed_text_prints_back_byte_for_byte() {
    let counts = check(&data());
    for format in &FORMATS {
        assert!(counts.get(format.name).is_some_and(|count| *count >= 4), "{}", format.name);
    }
}

#[test]
fn every_captured_text_prints_back_byte_for_byte() {
    for (name, least) in [("conformance", 30), ("traces", 4)] {
        let directory = data().join("../../../../../shared").join(name);
        if !directory.is_dir() {
            eprintln!("SKIPPED: {} is not on this machine", directory.display());
            continue;
        }
        let counts = check(&directory);
        for format in ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"] {
            assert!(counts[format] >= least, "{name}: {format}: {}", counts[format]);
        }
    }
}

#[test]
fn the_layout_is_seen_in_the_text() {
    for (name, layout) in [
        ("6.1-n1-1g-c1", Layout::Linux6_1),
        ("6.12-n2-2g-c4", Layout::Linux6_12),
        ("6.18-n1-1g-c1", Layout::Linux6_14),
        ("7.2-n3-memless1", Layout::Linux7),
    ] {
        let text = std::fs::read_to_string(data().join(name).join("zoneinfo.txt")).unwrap();
        assert_eq!(zoneinfo::parse(&text).unwrap().layout, layout);
        assert_eq!(Layout::of_release(name), Some(layout));
    }
}
