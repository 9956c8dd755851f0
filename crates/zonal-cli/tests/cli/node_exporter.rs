//! The texts in a made-up `/proc` and `/sys`, collected by Prometheus' `node_exporter`.
//!
//! It is looked for where the variable `ZONAL_NODE_EXPORTER` says, then as
//! `prometheus-node-exporter`, the name of Debian's package, in `PATH`. Without it the test says
//! `SKIPPED`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use zonal_text::{buddyinfo, meminfo, vmstat, zoneinfo};

use crate::program::stdout;
use crate::two_nodes;

/// How long the collector may take to start.
const START_MAX: Duration = Duration::from_secs(180);

/// A running collector; it ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn collector() -> Option<PathBuf> {
    let named = std::env::var_os("ZONAL_NODE_EXPORTER").map(PathBuf::from);
    let named = named.filter(|path| path.is_file());
    let path = named.unwrap_or_else(|| PathBuf::from("prometheus-node-exporter"));
    let mut command = std::process::Command::new(&path);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return Some(path);
    }
    eprintln!("SKIPPED: {} is not installed", path.display());
    None
}

fn start(collector: &Path, root: &Path, address: SocketAddr) -> Running {
    let mut command = std::process::Command::new(collector);
    command
        .arg(format!("--path.procfs={}", root.join("proc").display()))
        .arg(format!("--path.sysfs={}", root.join("sys").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--collector.disable-defaults")
        .args(["--collector.zoneinfo", "--collector.buddyinfo", "--collector.meminfo_numa"])
        .args(["--collector.vmstat", "--collector.vmstat.fields=.*"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// A collector that answers, on a port that nobody else has.
fn start_somewhere(collector: &Path, root: &Path) -> (Running, TcpStream) {
    let began = Instant::now();
    loop {
        // Free now; if another program takes it first, the collector ends.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut running = start(collector, root, address);
        while running.0.try_wait().unwrap().is_none() {
            match TcpStream::connect(address) {
                Ok(stream) if running.0.try_wait().unwrap().is_none() => return (running, stream),
                Ok(_) => break,
                Err(error) => assert!(began.elapsed() < START_MAX, "no collector: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() < START_MAX, "each collector ended");
    }
}

/// The values that the collector offers, by name and labels as it prints them.
fn collected(mut stream: TcpStream) -> HashMap<String, f64> {
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let lines = answer.lines().filter(|line| line.starts_with("node_"));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn node_exporter_collects_what_the_texts_say() {
    let Some(collector) = collector() else { return };
    let recording = two_nodes::busy();
    let trace = recording.path().to_str().unwrap();
    let root = tempfile::TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let texts = ["zoneinfo", "buddyinfo", "vmstat"].map(|text| (text, stdout(&[text, trace])));
    for (name, text) in &texts {
        write(&format!("proc/{name}"), text);
    }
    let [(_, zoneinfo), (_, buddyinfo), (_, vmstat)] = texts;
    let nodes = ["0", "1"].map(|node| {
        let texts = ["meminfo", "numastat"].map(|text| stdout(&[text, trace, "--node", node]));
        for (name, text) in ["meminfo", "numastat"].iter().zip(&texts) {
            write(&format!("sys/devices/system/node/node{node}/{name}"), text);
        }
        texts
    });

    let (_running, stream) = start_somewhere(&collector, root.path());
    let values = collected(stream);
    let expect = |name: String, value: u64| {
        let found = values.get(&name).unwrap_or_else(|| panic!("{name} was not collected"));
        assert_eq!(*found, value as f64, "{name}");
    };

    for name in ["zoneinfo", "buddyinfo", "vmstat", "meminfo_numa"] {
        expect(format!("node_scrape_collector_success{{collector=\"{name}\"}}"), 1);
    }
    for stat in &vmstat::parse(&vmstat).unwrap().stats {
        expect(format!("node_vmstat_{}", stat.name), stat.value);
    }
    for zone in &buddyinfo::parse(&buddyinfo).unwrap().zones {
        for (order, blocks) in zone.free_blocks.iter().enumerate() {
            let (node, zone) = (zone.node, &zone.zone);
            let labels = format!("node=\"{node}\",size=\"{order}\",zone=\"{zone}\"");
            expect(format!("node_buddyinfo_blocks{{{labels}}}"), *blocks);
        }
    }
    for zone in &zoneinfo::parse(&zoneinfo).unwrap().zones {
        let labels = format!("node=\"{}\",zone=\"{}\"", zone.node, zone.name);
        for name in ["high", "low", "managed", "min", "present", "spanned"] {
            let pages = zone.page_count(name).unwrap();
            expect(format!("node_zoneinfo_{name}_pages{{{labels}}}"), pages);
        }
        for (index, pages) in zone.protection.iter().enumerate() {
            expect(
                format!("node_zoneinfo_protection_{index}{{{labels}}}"),
                u64::try_from(*pages).unwrap(),
            );
        }
    }
    for (node, [memory, events]) in nodes.iter().enumerate() {
        for name in ["MemTotal", "MemFree", "MemUsed"] {
            let kib = meminfo::parse(memory).unwrap().value(name).unwrap();
            expect(format!("node_memory_numa_{name}{{node=\"{node}\"}}"), kib * 1024);
        }
        for stat in &vmstat::parse(events).unwrap().stats {
            expect(format!("node_memory_numa_{}_total{{node=\"{node}\"}}", stat.name), stat.value);
        }
    }
}
