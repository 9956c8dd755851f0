//! From the memory that OSTD told of to an allocator that serves.

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;

use zonal_core::alloc::{Allocator, OnlineError};
use zonal_core::early::{Early, EarlyError, Want};
use zonal_core::machine::{Layout, Machine, MachineError, ZoneSpec};
use zonal_core::types::NodeId;
use zonal_kernel::KernelPlatform;
use zonal_kernel::fence::{Fences, Patience};
use zonal_kernel::zones::{self, FirmwareError, Limits, NO_ZONE};

use crate::home::{Core, Ostd, POLICY, REGIONS};

/// Where OSTD maps all memory, on x86-64. The kernel tests compare it with what OSTD says of a
/// frame.
pub const LINEAR: usize = 0xffff_8000_0000_0000;
/// What of it is mapped when the first frame is asked for.
pub const MAPPED: u64 = 4 << 30;
/// A gap between memory that is as large is a hole, and one below it memory that OSTD keeps.
pub const LARGEST_GAP: u64 = 256 << 20;
/// CPUs that a kernel may have.
const MOST_CPUS: usize = 256;

/// Why there is no allocator.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum BootError {
    /// Memory cannot be had or noted.
    Early(EarlyError),
    /// No zone can be made of the memory.
    Zones(FirmwareError),
    /// The machine cannot be described.
    Machine(MachineError),
    /// Memory cannot come online.
    Online(OnlineError),
    /// There are more CPUs than this adapter has room for: how many, and the room.
    Cpus(usize, usize),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Early(error) => error.fmt(f),
            BootError::Zones(error) => error.fmt(f),
            BootError::Machine(error) => error.fmt(f),
            BootError::Online(error) => error.fmt(f),
            BootError::Cpus(cpus, room) => write!(f, "{cpus} CPUs, and room for {room}"),
        }
    }
}

impl core::error::Error for BootError {}

impl From<EarlyError> for BootError {
    fn from(error: EarlyError) -> BootError {
        BootError::Early(error)
    }
}

static NODES: [NodeId; MOST_CPUS] = [NodeId(0); MOST_CPUS];

/// `bytes` of memory that `early` has, for ever: it is neither memory nor reserved there any more,
/// so that a free of it is refused.
fn take(
    early: &mut Early<REGIONS>,
    bytes: usize,
) -> Result<&'static mut [MaybeUninit<u8>], EarlyError> {
    let want = Want { align: 128, within: 0..MAPPED, ..Want::bytes(bytes as u64) };
    let start = early.take(&want)?;
    let taken = start..start + want.bytes;
    early.remove(taken.clone())?;
    early.release(taken)?;
    let at = LINEAR + start as usize;
    // SAFETY: (1) memory that is mapped, and nobody else's for ever (OSTD-2); (2) any bytes will
    // do.
    Ok(unsafe { core::slice::from_raw_parts_mut(at as *mut MaybeUninit<u8>, bytes) })
}

/// The zones, where the allocator can refer to them for ever.
fn keep(early: &mut Early<REGIONS>, zones: &[ZoneSpec]) -> Result<&'static [ZoneSpec], EarlyError> {
    let room = take(early, size_of_val(zones))?.as_mut_ptr().cast::<ZoneSpec>();
    // SAFETY: (1) as many bytes, aligned to 128; (2) nobody else's for ever.
    unsafe {
        room.copy_from_nonoverlapping(zones.as_ptr(), zones.len());
        Ok(core::slice::from_raw_parts(room, zones.len()))
    }
}

/// Gaps between memory, and what precedes it, become reserved memory, unless they are large.
fn reserve_gaps(early: &mut Early<REGIONS>) -> Result<(), EarlyError> {
    const NONE: Range<u64> = 0..0;
    let mut gaps = [NONE; REGIONS];
    let (mut count, mut end) = (0, 0);
    for (memory, _) in early.memory() {
        if (1..LARGEST_GAP).contains(&(memory.start - end)) {
            gaps[count] = end..memory.start;
            count += 1;
        }
        end = memory.end;
    }
    for gap in &gaps[..count] {
        early.reserve(gap.clone())?;
        early.add(gap.clone(), NodeId(0))?;
    }
    // Behind the last memory, to the end of a block.
    let last = end.next_multiple_of(4 << 20);
    early.reserve(end..last)?;
    early.add(end..last, NodeId(0))
}

/// Brings up the allocator.
pub(crate) fn bring_up(early: &mut Early<REGIONS>) -> Result<Core, BootError> {
    let cpus = ostd::cpu::num_cpus();
    let nodes = NODES.get(..cpus).ok_or(BootError::Cpus(cpus, MOST_CPUS))?;
    reserve_gaps(early)?;
    let mut found = [NO_ZONE; 3];
    let count = zones::find(early.memory(), Limits::X86_64, &mut found);
    let count = count.map_err(BootError::Zones)?.zones;
    let zones = keep(early, &found[..count])?;
    let machine =
        Machine { distances: &[10], zones, cpus: nodes, cache_slice_bytes: 0, caches: &[] };
    let layout = Layout::of(&machine, &POLICY).map_err(BootError::Machine)?;
    let memory = take(early, layout.carve_bytes())?;
    let metadata = layout.carve(memory).map_err(BootError::Machine)?;
    // No section of the kernel's own, so no fence is ever asked for.
    let platform = KernelPlatform::new(Ostd, Fences::new(&[], Patience::DEFAULT));
    let core = Allocator::new(&machine, POLICY, metadata, platform);
    let core = core.map_err(BootError::Machine)?;
    early.hand_over(&core).map_err(BootError::Online)?;
    core.setup();
    Ok(core)
}
