//! The files that describe the machine, read from `/proc` and `/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::{RecordError, Step};
use crate::zt::MachineFiles;

/// The sysctl that bounds lists, and the one that kernels before 5.14 have.
pub(super) const HIGH_FRACTION: &str = "percpu_pagelist_high_fraction";
const OLD_FRACTION: &str = "percpu_pagelist_fraction";
/// Sysctls that the page allocator follows, below `/proc/sys/vm`.
const SYSCTLS: [&str; 14] = [
    "min_free_kbytes",
    "watermark_scale_factor",
    "watermark_boost_factor",
    HIGH_FRACTION,
    OLD_FRACTION,
    "lowmem_reserve_ratio",
    "numa_stat",
    "stat_interval",
    "zone_reclaim_mode",
    "min_unmapped_ratio",
    "min_slab_ratio",
    "defrag_mode",
    "compaction_proactiveness",
    "swappiness",
];

/// What a CPU frees to notice new bounds of its lists: with the shortest, each page of it takes up
/// to three batches off a list.
const TOUCHED_BYTES: u64 = 1 << 20;

/// Kernel threads that reclaim or compact, before the number of their node.
const RECLAIMERS: [&str; 2] = ["kswapd", "kcompactd"];

/// Files of `/proc/pressure` that are kept: how long tasks waited for disks, and for memory.
const PRESSURE: [&str; 2] = ["io", "memory"];

/// Where the kernel's files are; tests have their own.
#[derive(Debug, Clone)]
pub struct Roots {
    /// tracefs, or where it is mounted.
    pub tracefs: Option<PathBuf>,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Where recorders write down what they change, or the usual place.
    pub state: Option<PathBuf>,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { tracefs: None, proc: "/proc".into(), sys: "/sys".into(), state: None }
    }
}

impl Roots {
    /// Where recorders write down what they change: gone with the next boot, as the changes are.
    pub(crate) fn state_directory(&self) -> PathBuf {
        if let Some(state) = &self.state {
            return state.clone();
        }
        let run = Path::new("/run");
        if rustix::process::geteuid().is_root() {
            let place = if run.is_dir() { run } else { Path::new("/var/lib") };
            return place.join("zonal");
        }
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let user = user.filter(|place| place.is_absolute());
        user.unwrap_or_else(|| run.join(format!("user/{}", rustix::process::geteuid().as_raw())))
            .join("zonal")
    }

    fn required(&self, name: &str) -> Result<Vec<u8>, RecordError> {
        let path = self.proc.join(name);
        fs::read(&path).map_err(|error| RecordError::new(Step::Machine, &path, error))
    }

    /// Adds the state of zones and lists, as files whose names end in `.pre` or `.post`.
    pub(crate) fn state(&self, files: &mut MachineFiles, ending: &str) -> Result<(), RecordError> {
        for name in ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"] {
            match self.required(name) {
                Ok(content) => files.set(&format!("{name}{ending}"), content),
                // Not in every kernel, and nothing depends on it alone.
                Err(_) if name == "pagetypeinfo" => {}
                Err(error) => return Err(error),
            }
        }
        for name in PRESSURE {
            // Not in every kernel: `CONFIG_PSI`, and not switched off at boot.
            if let Ok(content) = fs::read(self.proc.join("pressure").join(name)) {
                files.set(&format!("pressure-{name}{ending}"), content);
            }
        }
        // Of `stat` the times of the CPUs, its first lines: the rest has a line of many KiB.
        if let Ok(text) = fs::read_to_string(self.proc.join("stat")) {
            let times = text.lines().take_while(|line| line.starts_with("cpu"));
            let times: String = times.flat_map(|line| [line, "\n"]).collect();
            files.set(&format!("stat{ending}"), times.into_bytes());
        }
        let reclaimers = self.reclaimers().into_iter();
        let reclaimers: String = reclaimers.map(|(name, ns)| format!("{name} {ns}\n")).collect();
        files.set(&format!("reclaimers{ending}"), reclaimers.into_bytes());
        Ok(())
    }

    /// Processor time so far, in ns, of each kernel thread that reclaims or compacts, such as
    /// `kswapd0`; empty where the kernel does not tell.
    pub fn reclaimers(&self) -> BTreeMap<String, u64> {
        let processes = fs::read_dir(&self.proc).into_iter().flatten();
        let reclaimer = |directory: PathBuf| {
            let name = fs::read_to_string(directory.join("comm")).ok()?;
            let name = name.trim();
            let node = RECLAIMERS.iter().find_map(|prefix| name.strip_prefix(prefix))?;
            node.parse::<u32>().ok()?;
            // Any program may call itself so; one of the kernel's has no memory of its own.
            let own = fs::read(directory.join("cmdline")).ok()?;
            let times = fs::read_to_string(directory.join("schedstat")).ok()?;
            let ns = times.split(' ').next()?.parse().ok()?;
            own.is_empty().then(|| (name.to_owned(), ns))
        };
        processes.filter_map(|process| reclaimer(process.ok()?.path())).collect()
    }

    /// By how many KiB files of each disk are read ahead, as lines `vda 128`.
    fn read_ahead(&self) -> String {
        let disks = fs::read_dir(self.sys.join("block")).into_iter().flatten();
        let line = |disk: fs::DirEntry| {
            let text = fs::read_to_string(disk.path().join("queue/read_ahead_kb")).ok()?;
            let kib: u64 = text.trim().parse().ok()?;
            Some(format!("{} {kib}\n", disk.file_name().to_str()?))
        };
        let mut lines: Vec<String> = disks.filter_map(|disk| line(disk.ok()?)).collect();
        lines.sort_unstable();
        lines.concat()
    }

    /// The sysctls that matter, as lines `vm.name=value`.
    pub(crate) fn sysctls(&self) -> String {
        let line = |name: &str| {
            let value = fs::read_to_string(self.proc.join("sys/vm").join(name)).ok()?;
            Some(format!("vm.{name}={}\n", value.trim()))
        };
        SYSCTLS.into_iter().filter_map(line).collect()
    }

    /// Adds what does not change: sysctls, disks and nodes.
    pub(crate) fn fixed(&self, files: &mut MachineFiles) {
        files.set("sysctl.txt", self.sysctls().into_bytes());
        files.set("read-ahead.txt", self.read_ahead().into_bytes());
        for node in 0..zonal_text::NODES_MAX {
            let directory = self.sys.join(format!("devices/system/node/node{node}"));
            let (list, distance) = (directory.join("cpulist"), directory.join("distance"));
            let Ok(list) = fs::read(list) else { continue };
            files.set(&format!("node{node}-cpulist.txt"), list);
            if let Ok(distance) = fs::read(distance) {
                files.set(&format!("node{node}-distance.txt"), distance);
            }
        }
    }

    /// One more than the highest CPU id that can be.
    pub(crate) fn cpus(&self) -> Option<u32> {
        let text = fs::read_to_string(self.sys.join("devices/system/cpu/possible")).ok()?;
        text.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()?.checked_add(1)
    }

    /// The share of the last cache that is one CPU's, in pages (LB E.5).
    fn cache_slice_pages(&self) -> Option<u64> {
        let caches = self.sys.join("devices/system/cpu/cpu0/cache");
        let last = (0..16).rev().map(|index| caches.join(format!("index{index}")));
        let last = last.into_iter().find(|path| path.is_dir())?;
        let read = |name: &str| fs::read_to_string(last.join(name)).ok();
        let size = read("size")?;
        let (digits, unit) = size.trim().split_at(size.trim().len().checked_sub(1)?);
        let bytes = digits.parse::<u64>().ok()? << if unit == "M" { 20 } else { 10 };
        let list = zonal_text::cpulist::parse(&read("shared_cpu_list")?).ok()?;
        Some(bytes / (list.ids.len() as u64).max(1) / rustix::param::page_size() as u64)
    }

    /// Whether a CPU's share of cache is large for a batch (LB E.5).
    pub(crate) fn free_high_batch(&self, batch: u64) -> Option<bool> {
        self.cache_slice_pages().map(|pages| pages > 3 * batch)
    }

    /// `CONFIG_…=value` of the kernel that runs, where its configuration lies beside it.
    pub(crate) fn config(&self, release: &str, name: &str) -> Option<u32> {
        let text = fs::read_to_string(Path::new("/boot").join(format!("config-{release}"))).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line?.parse().ok()
    }

    /// The address of `vmstat_update`, where the kernel shows addresses.
    pub(crate) fn vmstat_update(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("kallsyms")).ok()?;
        let line = text.lines().find(|line| line.ends_with(" vmstat_update"))?;
        let address = u64::from_str_radix(line.split(' ').next()?, 16).ok()?;
        (address != 0).then_some(address)
    }

    /// Bytes of memory available without reclaim.
    pub(crate) fn available_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Where a list's upper bounds can be set.
    pub(crate) fn high_fraction(&self) -> PathBuf {
        self.proc.join("sys/vm").join(HIGH_FRACTION)
    }

    /// Whether lists can be emptied by their upper bounds. Up to 5.13 the setting has another name,
    /// and up to 5.12 lists that are above a bound give back a page for each that comes (LB E.11).
    pub(crate) fn can_empty_lists(&self) -> bool {
        self.high_fraction().exists() || !self.proc.join("sys/vm").join(OLD_FRACTION).exists()
    }
}

/// The running kernel as `uname` prints it, and its release.
pub(crate) fn uname() -> (String, String) {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let parts = [uname.sysname(), uname.nodename(), uname.release(), uname.version()];
    let all: Vec<String> = parts.into_iter().chain([uname.machine()]).map(text).collect();
    (all.join(" "), text(uname.release()))
}

/// Lets each CPU that may be used free some pages, so that its lists notice their new bounds. They
/// are a file's in memory: those of a vector go back to the C library's heap, which keeps them once
/// it has been given one back.
pub(crate) fn touch_lists() -> io::Result<()> {
    let own = rustix::thread::sched_getaffinity(None)?;
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu));
    for cpu in cpus {
        let mut one = rustix::thread::CpuSet::new();
        one.set(cpu);
        rustix::thread::sched_setaffinity(None, &one)?;
        let file = rustix::fs::memfd_create(c"zonal", rustix::fs::MemfdFlags::CLOEXEC)?;
        io::copy(&mut io::repeat(1).take(TOUCHED_BYTES), &mut fs::File::from(file))?;
    }
    rustix::thread::sched_setaffinity(None, &own)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that the kernel's CPUs have freed.
    fn freed() -> u64 {
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap();
        let line = vmstat.lines().find_map(|line| line.strip_prefix("pgfree "));
        line.unwrap().parse().unwrap()
    }

    /// The C library keeps a vector's memory from the second time on, and then lists stay as they
    /// are on a CPU that is idle. Others free pages, too, but not in all of these moments.
    #[test]
    fn each_touch_gives_pages_back_to_the_kernel() {
        let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
        let pages = TOUCHED_BYTES / rustix::param::page_size() as u64 * u64::from(cpus);
        let by_touch = || {
            let before = freed();
            touch_lists().unwrap();
            freed() - before
        };
        let least = (0..30).map(|_| by_touch()).min().unwrap();
        assert!(least >= pages, "{least} of {pages} pages");
    }
}
