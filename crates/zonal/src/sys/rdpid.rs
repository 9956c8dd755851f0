//! The running CPU's number by one instruction, for threads without an rseq area.
//!
//! Linux keeps `node << 12 | cpu` in a register of each x86-64 CPU, `IA32_TSC_AUX`, where its own
//! vDSO and allocators such as tcmalloc look. `rdpid` reads it: half of what `getcpu` takes, and no
//! call, so that who asks needs no stack frame.
//!
//! # Invariants
//! - **RDPID-1** an [`Rdpid`] exists only where the processor has the instruction and it agreed
//!   with `getcpu` in the thread that looked.
//! - **RDPID-2** what it says is a hint, as any CPU's number that is not part of a sequence: the
//!   thread may have been moved since. Who uses it bounds it, and takes a gate or a lock.

use super::rseq_abi::looks;

/// Bits of the register that have the CPU's number; the node's follows.
const CPU_BITS: u32 = 12;

/// The instruction, where it tells the CPU (RDPID-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rdpid(());

impl Rdpid {
    /// `None`: the processor has none, or it tells something else than the kernel does.
    pub(crate) fn find() -> Option<Rdpid> {
        if !exists() {
            return None;
        }
        let found = Rdpid(());
        // Of a thread that keeps migrating nothing is proved.
        let (told, cpu) = looks(|| found.cpu())
            .find_map(|(before, told, after)| (before == after).then_some((told, after)))?;
        (told == cpu).then_some(found)
    }

    /// The CPU that this thread runs on, as of now (RDPID-2).
    #[inline(always)]
    pub(crate) fn cpu(self) -> u32 {
        read() & ((1 << CPU_BITS) - 1)
    }
}

/// Whether the processor has the instruction, under a kernel that is known to fill the register.
fn exists() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(zonal_portable), not(miri)))]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        /// Leaf 7, `ecx`.
        const RDPID: u32 = 1 << 22;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & RDPID != 0
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(zonal_portable), not(miri))))]
    false
}

/// The register.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(zonal_portable), not(miri)))]
#[inline(always)]
fn read() -> u32 {
    let value: u64;
    // SAFETY: (1) the instruction exists (RDPID-1: `find` has asked). It changes the named register
    // and nothing else. Not `pure`: two looks may differ.
    unsafe {
        std::arch::asm!("rdpid {}", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value as u32
}

/// Never called: there is no [`Rdpid`] here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(zonal_portable), not(miri))))]
#[inline(always)]
fn read() -> u32 {
    super::rseq_abi::getcpu().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::affinity;

    #[test]
    fn it_follows_this_thread_from_cpu_to_cpu() {
        let Some(rdpid) = Rdpid::find() else {
            return eprintln!("SKIPPED: no rdpid here");
        };
        affinity::assert_follows(|| rdpid.cpu());
    }

    #[test]
    fn every_thread_may_ask() {
        let Some(rdpid) = Rdpid::find() else {
            return eprintln!("SKIPPED: no rdpid here");
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert!(rdpid.cpu() < affinity::possible_cpus_max());
                    assert_eq!(Rdpid::find(), Some(rdpid));
                });
            }
        });
    }
}
