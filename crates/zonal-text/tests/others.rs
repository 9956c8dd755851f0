//! The same captured texts, read by a parser that others wrote: it must see the same values.

use std::path::{Path, PathBuf};

use procfs_core::{FromBufRead, Iomem, Meminfo, VmStat};
use zonal_text::{iomem, meminfo, vmstat};

/// The committed samples, and all captured kernels in `../shared` if that is there.
fn captures() -> Vec<PathBuf> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for directory in ["tests/data", "../../../shared/conformance"] {
        let directory = crate_root.join(directory);
        if !directory.is_dir() {
            eprintln!("SKIPPED: {} is not on this machine", directory.display());
            continue;
        }
        let entries = std::fs::read_dir(directory).unwrap();
        found.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    }
    assert!(found.len() >= 4);
    found
}

fn text(capture: &Path, name: &str) -> String {
    let path = capture.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn procfs_sees_the_same_counters() {
    for capture in captures() {
        for name in ["vmstat.txt", "vmstat-node0.txt", "numastat-node0.txt"] {
            let text = text(&capture, name);
            let ours = vmstat::parse(&text).unwrap();
            let theirs = VmStat::from_buf_read(ours.to_string().as_bytes()).unwrap().0;
            assert_eq!(ours.stats.len(), theirs.len(), "{}", capture.display());
            for stat in &ours.stats {
                let value = i64::try_from(stat.value).unwrap();
                assert_eq!(theirs.get(&stat.name), Some(&value), "{}", capture.display());
            }
        }
    }
}

#[test]
fn procfs_sees_the_same_memory() {
    for capture in captures() {
        let ours = meminfo::parse(&text(&capture, "meminfo.txt")).unwrap();
        let theirs = Meminfo::from_buf_read(ours.to_string().as_bytes()).unwrap();
        // They take `kB` as 1024 bytes, too.
        let bytes = |name: &str| ours.value(name).map(|kib| kib * 1024);
        assert_eq!(bytes("MemTotal"), Some(theirs.mem_total));
        assert_eq!(bytes("MemFree"), Some(theirs.mem_free));
        assert_eq!(bytes("MemAvailable"), theirs.mem_available);
        assert_eq!(bytes("Inactive(file)"), theirs.inactive_file);
        assert_eq!(bytes("VmallocTotal"), Some(theirs.vmalloc_total));
        assert_eq!(bytes("HardwareCorrupted"), theirs.hardware_corrupted);
        assert_eq!(bytes("DirectMap2M"), theirs.direct_map_2M);
        assert_eq!(ours.value("HugePages_Total"), theirs.hugepages_total);
    }
}

#[test]
fn procfs_sees_the_same_regions() {
    for capture in captures() {
        let ours = iomem::parse(&text(&capture, "iomem.txt")).unwrap();
        let theirs = Iomem::from_buf_read(ours.to_string().as_bytes()).unwrap().0;
        let theirs: Vec<_> =
            theirs.into_iter().map(|(depth, map)| (depth, map.address, map.name)).collect();
        let ours: Vec<_> =
            ours.regions.into_iter().map(|r| (r.depth, (r.start, r.end), r.name)).collect();
        assert_eq!(ours, theirs, "{}", capture.display());
    }
}
