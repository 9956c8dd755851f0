//! What the system is made to do meanwhile: a CPU that goes and comes, and little memory.
//!
//! Both change the machine. So the storms run in a process of their own, and the process around it
//! undoes both, however the storms end and on SIGINT and SIGTERM.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

/// Set in the inner process: the file that a process enters the cgroup by, or nothing.
const ENTRANCE: &str = "ZONAL_STRESS_INSIDE";

/// Runs this program once more, in a memory cgroup of `memory_mib` and with a CPU that goes offline
/// and comes back. `None` in the inner process; the exit code of that one in the outer process.
///
/// # Errors
/// The inner process cannot be started or enter the cgroup. What the system does not allow is told
/// on stderr as SKIPPED and left out.
pub fn around(memory_mib: Option<u64>, hotplug: bool) -> io::Result<Option<i32>> {
    if let Some(entrance) = std::env::var_os(ENTRANCE) {
        if !entrance.is_empty() {
            fs::write(entrance, std::process::id().to_string())?;
        }
        return Ok(None);
    }
    let group = memory_mib.and_then(|mib| skipped("no memory cgroup", MemoryGroup::new(mib)));
    let switch = hotplug.then(Switch::find);
    let switch = switch.and_then(|switch| skipped("CPUs cannot be taken offline", switch));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut inside = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ENTRANCE, group.as_ref().map_or_else(PathBuf::new, MemoryGroup::entrance))
        .spawn()?;
    let code = watch(&mut inside, switch.as_ref(), &stop);
    // Whatever happened, nothing of it goes on inside the cgroup when that is removed.
    let _ = inside.kill();
    let _ = inside.wait();
    Ok(Some(code?))
}

fn skipped<T>(what: &str, result: io::Result<T>) -> Option<T> {
    result.inspect_err(|why| eprintln!("SKIPPED: {what}: {why}")).ok()
}

/// Waits for the inner process while the CPU goes and comes. Its exit code.
fn watch(inside: &mut Child, switch: Option<&Switch>, stop: &AtomicBool) -> io::Result<i32> {
    let mut offline = 0;
    loop {
        if let Some(status) = inside.try_wait()? {
            if switch.is_some() {
                println!("a CPU was taken offline {offline} times meanwhile");
            }
            return Ok(status.code().unwrap_or(1));
        }
        if stop.load(Relaxed) {
            return Ok(1);
        }
        // The kernel may refuse for a moment; the next turn tries again.
        offline += u64::from(switch.is_some_and(|switch| switch.set(false).is_ok()));
        std::thread::sleep(Duration::from_millis(40));
        if let Some(switch) = switch {
            let _ = switch.set(true);
        }
        std::thread::sleep(Duration::from_millis(60));
    }
}

/// The switch in sysfs of a CPU that can be taken offline. Online again when dropped.
struct Switch(PathBuf);

impl Switch {
    fn find() -> io::Result<Switch> {
        let cpus = Path::new("/sys/devices/system/cpu");
        let switches = (1..4096).rev().map(|cpu| cpus.join(format!("cpu{cpu}/online")));
        let is_online = |switch: &PathBuf| fs::read_to_string(switch).is_ok_and(|on| on == "1\n");
        let found = switches.into_iter().find(is_online);
        let switch = Switch(found.ok_or_else(|| io::Error::other("no CPU has a switch in sysfs"))?);
        switch.set(false)?;
        switch.set(true)?;
        Ok(switch)
    }

    fn set(&self, online: bool) -> io::Result<()> {
        fs::write(&self.0, if online { "1" } else { "0" })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Err(error) = self.set(true) {
            eprintln!("{}: cannot be put online again: {error}", self.0.display());
        }
    }
}

/// A memory cgroup, removed when dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(mib: u64) -> io::Result<MemoryGroup> {
        let name = format!("zonal-stress-{}", std::process::id());
        let versions = [
            (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (Path::new("/sys/fs/cgroup"), "memory.max"),
        ];
        let mut last = io::Error::other("no cgroup file system below /sys/fs/cgroup");
        for (root, limit) in versions {
            let make = || {
                let path = root.join(&name);
                fs::create_dir(&path)?;
                let group = MemoryGroup(path);
                fs::write(group.0.join(limit), (mib << 20).to_string())?;
                Ok(group)
            };
            match make() {
                Ok(group) => return Ok(group),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn entrance(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: cannot be removed: {error}", self.0.display());
        }
    }
}
