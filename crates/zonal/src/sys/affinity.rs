//! Which CPUs this thread may run on, and pinning it to one.
//!
//! # Invariants
//! - **PIN-1** When [`pin`] returns, the calling thread runs on that CPU: the kernel moves it
//!   before the call returns. It stays there unless something else changes the mask, or the CPU
//!   goes away (the kernel then widens the mask by itself).
//! - **PIN-2** A [`Pinned`] guard restores the mask of the thread that made it, and cannot be sent
//!   to another thread.
//!
//! Threads belong to the caller, so the library itself pins none. One exception lets a thread be on
//! another CPU for a moment: `visit`, where the kernel refuses `membarrier`.

use super::Errno;
use super::mask::{self, MASK_CPUS_FIRST, MASK_CPUS_MAX, WORD_BITS, Word};
use super::os::{self, read_mask, write_mask};
use super::rseq_abi::getcpu;
use super::topology;
use std::marker::PhantomData;
use std::path::Path;
use zonal_core::types::CpuId;

/// Words of a mask on the stack: for 8192 CPUs, which is what Linux ends at.
const VISIT_WORDS: usize = 8192 / Word::BITS as usize;

/// A mask of CPUs could not be read or set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AffinityError {
    /// Reading failed.
    #[error(
        "cannot read the CPUs this thread may use: {errno}; expected sched_getaffinity to work"
    )]
    Read {
        /// The kernel's error.
        errno: Errno,
    },
    /// Setting failed.
    #[error(
        "cannot move this thread to {cpu:?}: {errno}; expected an online CPU within this process's \
         cpuset (see Cpus_allowed_list in /proc/self/status)"
    )]
    Pin {
        /// The CPU (the first, when several were asked for).
        cpu: CpuId,
        /// The kernel's error.
        errno: Errno,
    },
    /// A number beyond any machine.
    #[error("{cpu:?} is not a CPU: expected a number below {MASK_CPUS_MAX}")]
    Number {
        /// The number asked for.
        cpu: CpuId,
    },
    /// No CPU was named.
    #[error("cannot run on no CPU at all: expected at least one")]
    Empty,
}

/// The CPUs this thread may run on, ascending.
///
/// # Errors
/// [`AffinityError::Read`] when the kernel refuses.
pub fn allowed_cpus() -> Result<Vec<CpuId>, AffinityError> {
    mask::allowed().map_err(|errno| AffinityError::Read { errno })
}

/// Lets this thread run on `cpus` only.
///
/// # Errors
/// [`AffinityError`] when `cpus` is empty, holds an impossible number, or the kernel refuses; the
/// mask is then unchanged.
pub fn set_allowed(cpus: &[CpuId]) -> Result<(), AffinityError> {
    let Some(&first) = cpus.first() else { return Err(AffinityError::Empty) };
    let mut mask = vec![0 as Word; (MASK_CPUS_FIRST / WORD_BITS) as usize];
    for &cpu in cpus {
        if cpu.0 >= MASK_CPUS_MAX {
            return Err(AffinityError::Number { cpu });
        }
        let word = (cpu.0 / WORD_BITS) as usize;
        if word >= mask.len() {
            mask.resize(word + 1, 0);
        }
        mask[word] |= 1 << (cpu.0 % WORD_BITS);
    }
    write_mask(&mask).map_err(|errno| AffinityError::Pin { cpu: first, errno })
}

/// Runs this thread on `cpu` for a moment, then lets it go where it was allowed before. Returns
/// whether it was there. Takes no memory but the stack's.
///
/// A thread whose CPUs somebody else changes at the same moment gets its former ones back.
pub(crate) fn visit(cpu: CpuId) -> bool {
    let (mut before, mut there) = ([0 as Word; VISIT_WORDS], [0 as Word; VISIT_WORDS]);
    let Some(word) = there.get_mut((cpu.0 / WORD_BITS) as usize) else { return false };
    *word = 1 << (cpu.0 % WORD_BITS);
    let Ok(bytes) = read_mask(&mut before) else { return false };
    if write_mask(&there).is_err() {
        return false;
    }
    let arrived = getcpu() == cpu;
    // The only failure is that all former CPUs went away meanwhile; see `Pinned`.
    let _ = write_mask(&before[..bytes.div_ceil(size_of::<Word>())]);
    arrived
}

/// Pins this thread to `cpu` permanently.
///
/// # Errors
/// As [`set_allowed`].
pub fn pin(cpu: CpuId) -> Result<(), AffinityError> {
    set_allowed(&[cpu])
}

/// Number of CPU ids this machine can ever have: one more than the highest possible id, or more.
///
/// Per-CPU tables are this long, and a thread may later run on any of these CPUs. Read from sysfs;
/// without sysfs, every CPU counts that the kernel has room for in its masks.
pub fn possible_cpus_max() -> u32 {
    let possible = Path::new(topology::SYSFS_CPU).join("possible");
    let from_sysfs = super::files::snapshot(&possible)
        .ok()
        .and_then(|text| topology::parse_list(&text).ok())
        .and_then(|ids| ids.last().copied());
    let known = from_sysfs.map(|highest| highest + 1).or_else(os::cpus);
    let allowed = allowed_cpus().ok().and_then(|cpus| cpus.last().map(|cpu| cpu.0 + 1));
    // A file with fewer CPUs than this thread may use is not this machine's.
    known.unwrap_or_else(mask_cpus).max(allowed.unwrap_or(1))
}

/// CPUs that the kernel's masks have room for: no fewer than the machine can ever have.
fn mask_cpus() -> u32 {
    let mut mask = vec![0 as Word; (MASK_CPUS_MAX / WORD_BITS) as usize];
    read_mask(&mut mask).map_or(MASK_CPUS_MAX, |bytes| bytes as u32 * u8::BITS)
}

/// Holds this thread on one CPU; gives it its former CPUs back when dropped (PIN-2).
#[derive(Debug)]
pub struct Pinned {
    cpu: CpuId,
    before: Vec<CpuId>,
    not_send: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins this thread to `cpu` until the guard is dropped.
    ///
    /// # Errors
    /// As [`allowed_cpus`] and [`set_allowed`].
    pub fn to(cpu: CpuId) -> Result<Pinned, AffinityError> {
        let before = allowed_cpus()?;
        pin(cpu)?;
        Ok(Pinned { cpu, before, not_send: PhantomData })
    }

    /// The CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The only failure is that all former CPUs went away meanwhile; the kernel has then already
        // widened the mask.
        let _ = set_allowed(&self.before);
    }
}

/// Runs `work` once on every CPU this thread may use, in ascending order.
///
/// # Errors
/// As [`Pinned::to`]; CPUs before the failing one have been visited.
pub fn run_on_each(mut work: impl FnMut(CpuId)) -> Result<(), AffinityError> {
    for cpu in allowed_cpus()? {
        let pinned = Pinned::to(cpu)?;
        work(pinned.cpu());
    }
    Ok(())
}

/// Checks, on every CPU this thread may use, that `tell` gives its number. A CPU that cannot be
/// pinned to ends it.
#[cfg(test)]
pub(super) fn assert_follows(tell: impl Fn() -> u32) {
    let visited = run_on_each(|cpu| {
        assert_eq!(tell(), cpu.0);
        assert_eq!(getcpu(), cpu);
    });
    if let Err(error) = visited {
        assert!(matches!(error, AffinityError::Pin { .. }), "{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_may_run_somewhere_below_the_possible_maximum() {
        let allowed = allowed_cpus().unwrap();
        assert!(!allowed.is_empty());
        assert!(allowed.is_sorted());
        assert!(allowed.iter().all(|cpu| cpu.0 < possible_cpus_max()));
    }

    #[test]
    fn without_sysfs_no_cpu_is_forgotten() {
        assert!(mask_cpus() >= possible_cpus_max());
        assert!(mask_cpus() <= MASK_CPUS_MAX && mask_cpus().is_multiple_of(8));
    }

    #[test]
    fn each_allowed_cpu_is_visited_and_the_mask_comes_back() {
        let before = allowed_cpus().unwrap();
        let mut visited = Vec::new();
        let result = run_on_each(|cpu| {
            assert_eq!(getcpu(), cpu, "PIN-1");
            visited.push(cpu);
        });
        match result {
            Ok(()) => assert_eq!(visited, before),
            Err(AffinityError::Pin { errno, .. }) => assert_ne!(errno.raw(), 0),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(allowed_cpus().unwrap(), before, "PIN-2");
    }

    #[test]
    fn a_visit_leaves_no_trace() {
        if cfg!(zonal_portable) {
            return eprintln!("SKIPPED: no thread is pinned here");
        }
        let before = allowed_cpus().unwrap();
        for cpu in &before {
            assert!(visit(*cpu), "{cpu:?}");
            assert_eq!(allowed_cpus().unwrap(), before);
        }
        let nowhere = [possible_cpus_max() + 5000, 8192, u32::MAX];
        assert!(nowhere.iter().all(|cpu| !visit(CpuId(*cpu))));
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    fn impossible_cpus_are_refused_and_change_nothing() {
        let before = allowed_cpus().unwrap();
        assert_eq!(set_allowed(&[]), Err(AffinityError::Empty));
        let number = CpuId(MASK_CPUS_MAX);
        assert_eq!(pin(number), Err(AffinityError::Number { cpu: number }));
        let absent = CpuId(possible_cpus_max() + 5000);
        let error = pin(absent).unwrap_err();
        assert!(matches!(error, AffinityError::Pin { .. }), "{error}");
        assert!(error.to_string().contains("Cpus_allowed_list"), "{error}");
        assert_eq!(allowed_cpus().unwrap(), before);
    }
}
