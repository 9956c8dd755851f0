//! Which node a mapping's pages come from.
//!
//! A binding is a policy for *future* faults of the range: bind first, then prefault. It is a
//! promise of the kernel's only in strict mode, and strict mode can kill: a fault that finds no
//! memory on the node invokes the OOM killer. Hence the advisory mode, which spills to other nodes.
//!
//! Where a binding is refused (a node that does not exist or has no memory, a kernel without NUMA,
//! a seccomp filter such as Docker's default one without CAP_SYS_NICE), the memory is as usable as
//! before; only its place is the kernel's choice. So that is an outcome and not an error.

use super::{MapError, Mapping};
use crate::sys::{Errno, os};
use std::ops::Range;
use zonal_core::types::NodeId;

/// How firmly to bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindMode {
    /// From this node or not at all.
    Strict,
    /// From this node while it has memory.
    Advisory,
}

/// What became of a binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindOutcome {
    /// As asked.
    Bound,
    /// Strict was refused with this error; the advisory policy is in force instead.
    Weakened(Errno),
    /// Refused with this error; pages come from the node of the CPU that first touches them, or
    /// wherever the process's own policy says.
    Unbound(Errno),
}

/// Where a page is.
#[cfg(all(test, target_os = "linux", not(zonal_portable)))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residency {
    /// In the memory of this node.
    On(NodeId),
    /// Not faulted in (or only the shared zero page).
    Absent,
}

impl Mapping {
    /// Asks that future pages of `range` come from `node`.
    ///
    /// # Errors
    /// [`MapError::Range`] for a range that is not one of this mapping. A refusal by the kernel is
    /// a [`BindOutcome`].
    pub fn bind(
        &self,
        range: Range<usize>,
        node: NodeId,
        mode: BindMode,
    ) -> Result<BindOutcome, MapError> {
        let (start, bytes) = self.checked_range("bind (mbind)", &range)?;
        // SAFETY: (1) MAP-1, MAP-2.
        let bind = |strictly| unsafe { os::bind(start, bytes, node.0, strictly) };
        let refused = match mode {
            BindMode::Strict => bind(true),
            BindMode::Advisory => bind(false),
        };
        let Err(errno) = refused else { return Ok(BindOutcome::Bound) };
        if mode == BindMode::Strict && bind(false).is_ok() {
            return Ok(BindOutcome::Weakened(errno));
        }
        Ok(BindOutcome::Unbound(errno))
    }

    /// The node of the page that holds byte `offset`; faults nothing in.
    ///
    /// # Errors
    /// [`MapError`]; `ENOSYS` on a kernel without NUMA.
    #[cfg(all(test, target_os = "linux", not(zonal_portable)))]
    pub fn residency(&self, offset: usize) -> Result<Residency, MapError> {
        let operation = "residency (move_pages)";
        let start = offset - offset % self.granule;
        let (page, bytes) =
            self.checked_range(operation, &(start..start.saturating_add(self.granule)))?;
        let pages = [page];
        let mut status: libc::c_int = -libc::ENOENT;
        let (this_process, count): (libc::c_long, libc::c_ulong) = (0, 1);
        let no_nodes: *const libc::c_int = std::ptr::null();
        // SAFETY: move_pages (1) reads one address from `pages` and writes one status: both are
        // ours and outlive the call. (2) Without target nodes it moves nothing and only reports.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                this_process,
                count,
                pages.as_ptr(),
                no_nodes,
                &raw mut status,
                0 as libc::c_int,
            )
        };
        if rc != 0 {
            return Err(MapError::Os { operation, bytes, errno: Errno::last() });
        }
        match status {
            0.. => Ok(Residency::On(NodeId(status as u16))),
            // EFAULT: the zero page, or nothing mapped.
            _ if status == -libc::ENOENT || status == -libc::EFAULT => Ok(Residency::Absent),
            _ => Err(MapError::Os { operation, bytes, errno: Errno::new(-status) }),
        }
    }
}
