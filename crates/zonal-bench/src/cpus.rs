//! Which CPUs this process may use, and in which order to pin threads to them.
//!
//! Thread 0 runs on the first allowed CPU, thread 1 on the first CPU of *another core*: two SMT
//! siblings share their L1 and would make "two threads" mean something else. Siblings come last.

use zonal::sys::topology::parse_list;

/// The CPUs of this process, in pinning order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    order: Vec<usize>,
}

impl Cpus {
    /// The CPUs that the calling thread may run on, one per core first.
    pub fn of_process() -> Cpus {
        let allowed = match rustix::thread::sched_getaffinity(None) {
            Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&c| set.is_set(c)).collect(),
            Err(_) => vec![0],
        };
        Cpus { order: one_per_core_first(&allowed, siblings_of) }
    }

    /// How many CPUs there are.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// The CPU of pinned worker `index`; `index` is below `count()`.
    pub fn pin(&self, index: usize) -> usize {
        self.order[index]
    }

    /// All CPUs, in pinning order.
    pub fn all(&self) -> &[usize] {
        &self.order
    }
}

/// Restricts the calling thread to `cpus`. A refusal is ignored: the thread then runs on the CPUs
/// it was allowed before, and the spread of p10 to p90 shows it.
pub(crate) fn restrict_thread(cpus: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn one_per_core_first(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for &cpu in allowed {
        let taken = siblings(cpu).iter().any(|sibling| first.contains(sibling));
        if taken { later.push(cpu) } else { first.push(cpu) }
    }
    first.append(&mut later);
    first
}

/// SMT siblings of `cpu` by sysfs; only itself where that is not readable.
fn siblings_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let siblings =
        zonal::sys::files::snapshot(path.as_ref()).ok().and_then(|text| parse_list(&text).ok());
    siblings.map_or(vec![cpu], |cpus| cpus.into_iter().map(|cpu| cpu as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_threads_get_cores_of_their_own() {
        let siblings = |cpu: usize| vec![cpu / 2 * 2, cpu / 2 * 2 + 1];
        assert_eq!(one_per_core_first(&[0, 1, 2, 3], siblings), [0, 2, 1, 3]);
        assert_eq!(one_per_core_first(&[1, 2, 3], siblings), [1, 2, 3]);
    }
}
