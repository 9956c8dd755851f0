//! How kernels free the pages of a block that was split.

use zonal_text::release::KernelRelease;
use zonal_trace::MachineDescription;

/// Whether the kernel frees the pages of a split block one by one. From 7.2 on pages that lie in a
/// row are freed as one block, each with an event of its own: of 302 stacks of four pages on 7.2.12
/// 247 got a block of which each page had been freed by itself, with no refill between; on 6.19.14,
/// 7.0.13 and 7.1.13 none of a thousand did.
pub fn frees_parts(machine: &MachineDescription) -> bool {
    release(machine).is_some_and(|release| release < WHOLE_ROWS)
}

/// Whether the kernel is known to free the pages of a split block as one, as
/// [`frees_parts`] says, where they are freed in a row.
pub fn frees_rows(machine: &MachineDescription) -> bool {
    release(machine).is_some_and(|release| release >= WHOLE_ROWS)
}

/// From this release on pages in a row are freed as one block.
const WHOLE_ROWS: KernelRelease = KernelRelease(7, 2);

fn release(machine: &MachineDescription) -> Option<KernelRelease> {
    machine.kernel_release.as_deref().and_then(KernelRelease::parse)
}
