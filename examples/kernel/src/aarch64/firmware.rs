//! What the device tree says besides memory and processors: the interrupt controller.

use core::ops::Range;

use fdt::Fdt;

use super::gic::{self, Gic};
use crate::boot::{BootError, Firmware};
use crate::tree;

/// Reserved at boot, to show that memory can come back late: a MiB behind the image.
pub const LATE: Range<u64> = 0x4100_0000..0x4110_0000;

/// Reads the device tree at this address.
pub fn find(at: usize) -> Result<Firmware, BootError> {
    // SAFETY: (1) QEMU puts the tree there, and it stays reserved.
    let tree = unsafe { tree::at(at)? };
    let gic = controller(&tree).ok_or(BootError::Firmware("no GIC of version 2 or 3"))?;
    gic::found(&gic);
    gic::start(super::affinity());
    tree::read(&tree, at, &[LATE], super::affinity())
}

fn controller(tree: &Fdt<'static>) -> Option<Gic> {
    let registers = |names: &[&str]| {
        let node = tree.find_compatible(names)?;
        let mut ranges = node.reg()?.map(|range| range.starting_address as u64);
        Some((ranges.next()?, ranges.next()?))
    };
    if let Some((distributor, redistributors)) = registers(&["arm,gic-v3"]) {
        return Some(Gic::V3 { distributor, redistributors });
    }
    let (distributor, cpu_side) = registers(&["arm,cortex-a15-gic", "arm,gic-400"])?;
    Some(Gic::V2 { distributor, cpu_side })
}
