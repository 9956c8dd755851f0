//! A recording of a small machine of two nodes and four CPUs.

use std::path::Path;

use tempfile::TempDir;

/// CPUs of both nodes allocate 400 pages and free every second one. Node 1 begins at frame 40000.
pub fn busy() -> TempDir {
    let directory = TempDir::new().unwrap();
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zonal-trace/tests/data/ftrace");
    for entry in std::fs::read_dir(machine).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("before-") || name.starts_with("node") {
            std::fs::copy(&path, directory.path().join(name)).unwrap();
        }
    }
    let mut events = String::from(
        "# time_ns(CLOCK_MONOTONIC) cpu pid event pfn(hex) order [migratetype] [gfp]\n",
    );
    for i in 0..400_u64 {
        let (cpu, base) = if i % 4 < 2 { (0, 0x2000) } else { (3, 0x50000) };
        let (time, pfn) = (i * 1000, base + i);
        events += &format!("{time} {cpu} 7 alloc {pfn:x} 0 1 cc0\n");
        if i % 2 == 1 {
            events += &format!("{} {cpu} 7 free {pfn:x} 0\n", time + 500);
        }
    }
    std::fs::write(directory.path().join("events.txt"), events).unwrap();
    directory
}
