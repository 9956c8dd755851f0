//! This machine as a machine of the lab, measured.
//!
//! | module | holds |
//! |--|--|
//! | `effort` | how long it may take, and why it could not be done |
//! | `shape` | what sysfs says: sockets, cores, nodes, caches |
//! | `probe` | what has to be timed: clock, latencies, transfers between CPUs |
//! | `series` | what values of one figure come to: the least disturbed of each place |
//! | `rounds` | all figures in turns, for some seconds |
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
mod effort;
mod probe;
mod rounds;
mod series;
mod shape;
#[cfg(test)]
mod shape_tests;

use std::fs;

use zonal::sys::affinity;
use zonal::sys::machine::Machine as Host;
use zonal::sys::topology::SysfsRoots;

use self::compose::Measured;
pub use self::compose::text;
pub use self::effort::{CalibrateError, Effort};
use self::shape::{Cpu, Shape};
use crate::machine::Machine;
use crate::provenance::{Origin, Provenance};

/// Measures this machine. `progress` hears of each round done, and of how many.
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
    let _pinned = affinity::Pinned::to(first.id)?;
    let latencies = rounds::latencies(&shape, &usable, effort, progress)?;
    // The processor itself says so, to those who ask.
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let in_virtual_machine = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    let (host, at) = (Host::read(), std::time::SystemTime::now());
    let measured = Measured { latencies, host, in_virtual_machine, at };
    Ok(compose::machine(&shape, measured)?)
}

/// Whether a machine was measured by [`measure`] on a processor of this name.
pub fn is_of(machine: &Machine, cpu_model: &str) -> bool {
    let name = machine.sources.get("name").map_or("", Provenance::how);
    name.starts_with(&compose::measured_on(cpu_model))
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
