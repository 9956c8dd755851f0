//! What the device tree does not say: what the firmware keeps, and which hart it started.

use core::ops::Range;

use crate::boot::{BootError, Firmware};
use crate::tree;

/// Reserved at boot, to show that memory can come back late: a MiB behind the image.
pub const LATE: Range<u64> = 0x8100_0000..0x8110_0000;
/// The firmware's own memory, in front of the image.
const SBI: Range<u64> = 0x8000_0000..0x8020_0000;

/// Reads the device tree at this address.
pub fn find(at: usize) -> Result<Firmware, BootError> {
    // SAFETY: (1) the firmware hands over this address, and the tree stays reserved.
    let tree = unsafe { tree::at(at)? };
    tree::read(&tree, at, &[SBI, LATE], boot_hart())
}

/// The hart that the firmware started.
fn boot_hart() -> u64 {
    unsafe extern "C" {
        static boot_hart: u64;
    }
    // SAFETY: (1) written by the boot code, before anything else runs.
    unsafe { (&raw const boot_hart).read_volatile() }
}
