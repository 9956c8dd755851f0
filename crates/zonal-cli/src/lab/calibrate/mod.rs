//! `zonal lab calibrate`: this machine as a machine of the lab, measured.
//!
//! | module | holds |
//! |--|--|
//! | `shape` | what sysfs says: sockets, cores, nodes, caches |
//! | `probe` | what has to be timed: clock, latencies, transfers between CPUs |
//! | `compose` | a machine out of both, each figure with how it was got |

mod compose;
mod probe;
mod shape;
#[cfg(test)]
mod shape_tests;

use std::fs;

use anyhow::Context;
use zonal::sys::affinity;
use zonal::sys::machine::Machine as Host;
use zonal::sys::topology::SysfsRoots;
use zonal_lab::machine::Machine;

use self::compose::{Latencies, Measured};
use self::probe::Chain;
use self::shape::{Cpu, Shape};
use super::args::CalibrateArgs;
use super::machines;
use crate::{Verdict, output};

/// Largest buffer for the latency of memory.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The same with `--quick`.
const MEMORY_BYTES_QUICK: u64 = 64 << 20;
/// Seed of the orders in which buffers are walked.
const SEED: u64 = 1;

/// Runs the command.
///
/// # Errors
/// A topology that cannot be read, a CPU that may not be used, or a file that cannot be written.
pub fn run(args: &CalibrateArgs) -> anyhow::Result<Verdict> {
    let file = args.output.clone().or_else(machines::measured_file).with_context(
        || "neither XDG_DATA_HOME nor HOME says where to store the machine; name a file with -o",
    )?;
    if cfg!(debug_assertions) {
        output::note("built without optimisation: times are longer than this machine's");
    }
    if let (None, Some(folder)) = (&args.output, file.parent()) {
        let expected = "expected a folder that can be made";
        fs::create_dir_all(folder).with_context(|| format!("{}: {expected}", folder.display()))?;
    }
    let target = output::Target::new(&file)?;
    let machine = measured(args.quick)?;
    target.write(&compose::text(&machine))?;
    output::note(&format!("measured; stored in {}", file.display()));
    let unmeasured = machine.figures().into_iter().filter_map(|figure| {
        let sure = |source: &str| source.starts_with("measured") && !source.contains("others use");
        let source = figure.source.filter(|source| !sure(source))?;
        Some(format!("{}: {source}", figure.name))
    });
    unmeasured.for_each(|line| output::note(&line));
    machines::print(machine, args.json)
}

fn measured(quick: bool) -> anyhow::Result<Machine> {
    let shape = Shape::read(&SysfsRoots::default())?;
    let allowed = affinity::allowed_cpus()?;
    let usable: Vec<&Cpu> = shape.cpus.iter().filter(|cpu| allowed.contains(&cpu.id)).collect();
    let first = *usable.first().context("this process may use none of the online CPUs")?;
    let bar = output::progress("measuring", "figures", Some(STEPS));
    let _pinned = affinity::Pinned::to(first.id)?;
    let ghz = probe::ghz();
    bar.inc(1);
    let latencies = latencies(&shape, &usable, quick, &bar)?;
    bar.finish_and_clear();
    // The processor itself says so, to those who ask.
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let in_virtual_machine = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    let (host, at) = (Host::read(), std::time::SystemTime::now());
    let measured = Measured { ghz, latencies, host, in_virtual_machine, at };
    Ok(compose::machine(&shape, measured)?)
}

/// Figures that take time.
const STEPS: u64 = 10;

fn latencies(
    shape: &Shape,
    usable: &[&Cpu],
    quick: bool,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Latencies> {
    let first = usable[0];
    let cache = &shape.cache;
    let step = |bytes: u64| {
        let ns = Chain::new(bytes as usize, SEED).step_ns();
        bar.inc(1);
        ns
    };
    // Half of L1; half-way between L1 and L2; four times L2, if the last cache holds that.
    let l1 = step(cache.l1_kib * 512);
    let l2 = step((cache.l1_kib + cache.l2_kib) * 512);
    let llc_kib = (cache.l2_kib * 4).min(cache.l2_kib.midpoint(cache.llc_kib));
    let llc = (cache.llc_kib > cache.l2_kib).then(|| step(llc_kib * 1024));
    let most = if quick { MEMORY_BYTES_QUICK } else { MEMORY_BYTES_MAX };
    let most = most.min(shape.memory_mib << 17);
    let memory_bytes = (cache.llc_kib * 4096).clamp(4 << 20, most.max(4 << 20));
    let dram = step(memory_bytes);
    let other_node = usable.iter().find(|cpu| cpu.node != first.node);
    let dram_remote = other_node.map(|cpu| remote_step(cpu, memory_bytes)).transpose()?;
    bar.inc(1);
    let transfer = |fits: &dyn Fn(&Cpu) -> bool| {
        let other = usable.iter().find(|cpu| fits(cpu));
        let ns = other.map(|other| probe::transfer_ns(first.id, other.id)).transpose();
        bar.inc(1);
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
fn remote_step(owner: &Cpu, bytes: u64) -> anyhow::Result<f64> {
    let owner = owner.id;
    let build = move || {
        let _pinned = affinity::Pinned::to(owner)?;
        Ok::<Chain, affinity::AffinityError>(Chain::new(bytes as usize, SEED))
    };
    let chain = std::thread::spawn(build).join();
    let chain = chain.map_err(|_| anyhow::anyhow!("no memory for {bytes} bytes"))??;
    Ok(chain.step_ns())
}
