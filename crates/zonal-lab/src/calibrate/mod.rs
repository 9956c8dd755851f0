//! This machine as a machine of the lab, measured.
//!
//! | module | holds |
//! |--|--|
//! | `shape` | what sysfs says: sockets, cores, nodes, caches |
//! | `probe` | what has to be timed: clock, latencies, transfers between CPUs |
//! | `compose` | a machine out of both, each figure with how it was got |
//!
//! ```no_run
//! use zonal_lab::calibrate::{Effort, measure, text, unmeasured};
//!
//! let machine = measure(Effort::Quick, &mut |done, all| eprintln!("{done} of {all}"))?;
//! for (figure, source) in unmeasured(&machine) {
//!     eprintln!("{figure}: {source}");
//! }
//! std::fs::write("here.toml", text(&machine))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compose;
mod probe;
mod shape;
#[cfg(test)]
mod shape_tests;

use std::fs;

use thiserror::Error;
use zonal::sys::affinity::{self, AffinityError};
use zonal::sys::machine::Machine as Host;
use zonal::sys::topology::{SysfsRoots, TopologyError};

pub use self::compose::text;
use self::compose::{Latencies, Measured};
use self::probe::Chain;
use self::shape::{Cpu, Shape};
use crate::machine::{Machine, MachineError};
use crate::provenance::{Origin, Provenance};

/// Largest buffer for the latency of memory.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The same with [`Effort::Quick`].
const MEMORY_BYTES_QUICK: u64 = 64 << 20;
/// Seed of the orders in which buffers are walked.
const SEED: u64 = 1;
/// Figures that take time.
const STEPS: u64 = 10;

/// How long a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Buffers of up to 1 GiB: about ten seconds.
    Full,
    /// Buffers of up to 64 MiB: a second or two; memory may come out too fast.
    Quick,
}

/// Why this machine could not be measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// Sysfs does not describe it.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A CPU could not be used.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The measured figures do not form a valid machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// No CPU is online and allowed.
    #[error("this process may use none of the online CPUs")]
    NoCpu,
    /// No buffer on another node is available.
    #[error("no memory for {0} bytes")]
    NoMemory(u64),
}

/// Measures this machine. `progress` hears of each figure done, and of how many.
///
/// # Errors
/// [`CalibrateError`]: a topology that cannot be read, or a CPU that may not be used.
pub fn measure(
    effort: Effort,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Machine, CalibrateError> {
    let shape = Shape::read(&SysfsRoots::default())?;
    let allowed = affinity::allowed_cpus()?;
    let usable: Vec<&Cpu> = shape.cpus.iter().filter(|cpu| allowed.contains(&cpu.id)).collect();
    let first = *usable.first().ok_or(CalibrateError::NoCpu)?;
    let mut done = 0;
    let mut tick = || {
        done += 1;
        progress(done, STEPS);
    };
    let _pinned = affinity::Pinned::to(first.id)?;
    let ghz = probe::ghz();
    tick();
    let latencies = latencies(&shape, &usable, effort, &mut tick)?;
    // The processor itself says so, to those who ask.
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let in_virtual_machine = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    let (host, at) = (Host::read(), std::time::SystemTime::now());
    let measured = Measured { ghz, latencies, host, in_virtual_machine, at };
    Ok(compose::machine(&shape, measured)?)
}

/// The figures that could not be measured here, each with where it comes from instead.
pub fn unmeasured(machine: &Machine) -> impl Iterator<Item = (String, String)> {
    machine.figures().into_iter().filter_map(|figure| {
        let sure = |source: &Provenance| {
            source.origin() == Origin::Measured && !source.how().contains("others use")
        };
        let source = figure.source.filter(|source| !sure(source))?;
        Some((figure.name, source.to_string()))
    })
}

fn latencies(
    shape: &Shape,
    usable: &[&Cpu],
    effort: Effort,
    tick: &mut dyn FnMut(),
) -> Result<Latencies, CalibrateError> {
    let first = usable[0];
    let cache = &shape.cache;
    let mut step = |bytes: u64| {
        let ns = Chain::new(bytes as usize, SEED).step_ns();
        tick();
        ns
    };
    // Half of L1; half-way between L1 and L2; four times L2, if the last cache holds that.
    let l1 = step(cache.l1_kib * 512);
    let l2 = step((cache.l1_kib + cache.l2_kib) * 512);
    let llc_kib = (cache.l2_kib * 4).min(cache.l2_kib.midpoint(cache.llc_kib));
    let llc = (cache.llc_kib > cache.l2_kib).then(|| step(llc_kib * 1024));
    let most = match effort {
        Effort::Quick => MEMORY_BYTES_QUICK,
        Effort::Full => MEMORY_BYTES_MAX,
    };
    let most = most.min(shape.memory_mib << 17);
    let memory_bytes = (cache.llc_kib * 4096).clamp(4 << 20, most.max(4 << 20));
    let dram = step(memory_bytes);
    let other_node = usable.iter().find(|cpu| cpu.node != first.node);
    let dram_remote = other_node.map(|cpu| remote_step(cpu, memory_bytes)).transpose()?;
    tick();
    let mut transfer = |fits: &dyn Fn(&Cpu) -> bool| {
        let other = usable.iter().find(|cpu| fits(cpu));
        let ns = other.map(|other| probe::transfer_ns(first.id, other.id)).transpose();
        tick();
        ns.map(Option::flatten)
    };
    Ok(Latencies {
        l1,
        l2,
        llc,
        dram,
        memory_bytes,
        dram_remote,
        core: transfer(&|cpu| cpu.core != first.core && cpu.llc == first.llc)?,
        socket: transfer(&|cpu| cpu.llc != first.llc && cpu.socket == first.socket)?,
        remote: transfer(&|cpu| cpu.socket != first.socket)?,
        locked: probe::locked_ns(),
    })
}

/// The latency of memory that a CPU of another node touched first.
fn remote_step(owner: &Cpu, bytes: u64) -> Result<f64, CalibrateError> {
    let owner = owner.id;
    let build = move || {
        let _pinned = affinity::Pinned::to(owner)?;
        Ok::<Chain, AffinityError>(Chain::new(bytes as usize, SEED))
    };
    let chain = std::thread::spawn(build).join();
    let chain = chain.map_err(|_| CalibrateError::NoMemory(bytes))??;
    Ok(chain.step_ns())
}
