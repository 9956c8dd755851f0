//! CPUs that come and go, in the order that loses nothing.
//!
//! ```text
//!  arrive   on the new CPU, masked, before its first request     starts(allocator)
//!           on any CPU, when it runs                              online(allocator, cpu)
//!  leave    on the CPU that goes, the last thing it does          leaves(allocator)
//!           on any other CPU, when nothing runs there any more    dead(allocator, cpu)
//! ```
//! An allocator counts every CPU of its machine as there until `dead` was called for it. So the CPU
//! that boots calls `starts` alone. For the others a kernel calls `dead` once behind `setup`, and
//! `online` when they have come; or neither, where all of them come at boot. `online` of a CPU that
//! counts as there changes nothing.
//!
//! `dead` drains the CPU's lists and folds its counters, which needs that nothing runs there:
//! it refuses a CPU that is still up. A CPU that crashed cannot call `leaves`: when the kernel has
//! made sure that it runs no more, it calls `lost` instead. If it crashed inside of the allocator,
//! with a lock or a gate in its hands, there is no way back for that zone or pcp: such a kernel has
//! to halt, as with any other lock.

use core::fmt;

use zonal_core::alloc::Allocator;
use zonal_core::types::CpuId;

use crate::fence::FenceError;
use crate::kernel::{Kernel, KernelPlatform};

/// Why a CPU cannot come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotplugError {
    /// There is no such CPU: which, and how many there are.
    NoSuchCpu(u32, usize),
    /// The CPU has no [`FenceCell`](crate::fence::FenceCell): which, and how many there are.
    NoCell(u32, usize),
    /// The CPU is up: it must leave first.
    StillUp(u32),
    /// The CPU is not up: it must start first.
    NotUp(u32),
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HotplugError::NoSuchCpu(cpu, cpus) => write!(
                f,
                "CPU {cpu} does not exist: the machine was described with {cpus}; describe every \
                 CPU that may ever come"
            ),
            HotplugError::NoCell(cpu, cells) => write!(
                f,
                "CPU {cpu} has no cell: `Fences::new` was given {cells}; give it one for each CPU \
                 that may ever come"
            ),
            HotplugError::StillUp(cpu) => {
                write!(f, "CPU {cpu} is still up: let it call `leaves` and stop, then try again")
            }
            HotplugError::NotUp(cpu) => {
                write!(f, "CPU {cpu} is not up: let it call `starts`, then try again")
            }
        }
    }
}

impl core::error::Error for HotplugError {}

impl From<FenceError> for HotplugError {
    fn from(error: FenceError) -> HotplugError {
        match error {
            FenceError::NoSuchCpu(cpu, cells) => HotplugError::NoCell(cpu, cells),
            FenceError::Silent(cpu) => HotplugError::StillUp(cpu),
        }
    }
}

/// An allocator of a kernel.
type On<'h, 'a, K> = Allocator<'a, KernelPlatform<'h, K>>;

/// On the CPU that comes, with interrupts masked, before its first request.
///
/// # Errors
/// [`HotplugError::NoSuchCpu`], [`HotplugError::NoCell`].
pub fn starts<K: Kernel>(on: &On<'_, '_, K>) -> Result<(), HotplugError> {
    let platform = on.platform();
    let me = platform.kernel().cpu();
    known(on, me)?;
    Ok(platform.fences().up(me)?)
}

/// On any CPU, when `cpu` has started: sizes of lists and thresholds of counters follow, where the
/// policy says so. Where `cpu` was never [`dead`], nothing.
///
/// # Errors
/// [`HotplugError::NoSuchCpu`], [`HotplugError::NotUp`].
pub fn online<K: Kernel>(on: &On<'_, '_, K>, cpu: u32) -> Result<(), HotplugError> {
    known(on, cpu)?;
    if !on.platform().fences().is_up(cpu) {
        return Err(HotplugError::NotUp(cpu));
    }
    on.cpu_online(CpuId(cpu));
    Ok(())
}

/// On the CPU that goes, the last thing it does, with interrupts masked for good. Pages that its
/// handlers keep, such as a stock of their own, are not on its lists: give them back before.
///
/// # Errors
/// [`HotplugError::NoSuchCpu`], [`HotplugError::NoCell`].
pub fn leaves<K: Kernel>(on: &On<'_, '_, K>) -> Result<(), HotplugError> {
    let platform = on.platform();
    let me = platform.kernel().cpu();
    known(on, me)?;
    Ok(platform.fences().down(me)?)
}

/// On any other CPU, when nothing runs on `cpu` any more: its lists are drained, its counters
/// folded, and what follows from the number of CPUs is computed. Also, once behind
/// [`Allocator::setup`], for a CPU that is described and has not come yet.
///
/// # Errors
/// [`HotplugError::NoSuchCpu`], [`HotplugError::StillUp`]; then nothing was changed.
pub fn dead<K: Kernel>(on: &On<'_, '_, K>, cpu: u32) -> Result<(), HotplugError> {
    known(on, cpu)?;
    if on.platform().fences().is_up(cpu) {
        return Err(HotplugError::StillUp(cpu));
    }
    on.cpu_dead(CpuId(cpu));
    Ok(())
}

/// As [`leaves`] and [`dead`], for a CPU that crashed outside of the allocator. The kernel has made
/// sure that it runs no more.
///
/// # Errors
/// [`HotplugError::NoSuchCpu`], [`HotplugError::NoCell`].
pub fn lost<K: Kernel>(on: &On<'_, '_, K>, cpu: u32) -> Result<(), HotplugError> {
    known(on, cpu)?;
    on.platform().fences().down(cpu)?;
    dead(on, cpu)
}

fn known<K: Kernel>(on: &On<'_, '_, K>, cpu: u32) -> Result<(), HotplugError> {
    match (cpu as usize) < on.cpus() {
        true => Ok(()),
        false => Err(HotplugError::NoSuchCpu(cpu, on.cpus())),
    }
}
