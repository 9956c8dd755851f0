//! How a pool's per-CPU lists are kept consistent, and what the operating system did not grant.
//!
//! Both can change once while the pool lives: where `membarrier` is refused from some moment on, as
//! in a sandbox that closes later, the lists go on under their locks. Both answers are made with
//! the pool, so that reading them takes no lock and no memory.

use super::builder::Notice;
use super::{Pool, Shared};
use crate::platform::Mode;

/// Why a pool with restartable sequences gave them up.
const REFUSED: &str = "membarrier was refused after the pool was made; expected a seccomp filter \
                       that allows it, or a pool that is made behind the filter";
/// What follows for the user.
const CONSEQUENCE: &str = "each CPU's lists are under their lock from their next use on, which is \
                           slower and gives the same results; where sched_setaffinity is refused, \
                           too, pages on the lists of another CPU wait until a thread of this \
                           process uses the pool there";

/// What is granted.
#[derive(Debug)]
struct Granted {
    mode: Mode,
    notices: Vec<Notice>,
}

/// What was granted when the pool was made, and what is left once a fence was refused.
#[derive(Debug)]
pub(super) struct Grants {
    made: Granted,
    refused: Granted,
}

impl Grants {
    pub(super) fn new(mode: Mode, notices: Vec<Notice>) -> Grants {
        let mut more = notices.clone();
        more.push(Notice(format!("{REFUSED}; {CONSEQUENCE} (mode lock)")));
        let refused = Granted { mode: Mode::Lock(REFUSED.to_owned()), notices: more };
        Grants { made: Granted { mode, notices }, refused }
    }
}

impl Shared {
    fn granted(&self) -> &Granted {
        match self.allocator.platform().is_refused() {
            true => &self.grants.refused,
            false => &self.grants.made,
        }
    }
}

impl Pool {
    /// How the per-CPU lists are kept consistent now. A pool that was made with restartable
    /// sequences gives them up for good once the kernel refuses `membarrier`.
    pub fn mode(&self) -> &Mode {
        &self.shared.granted().mode
    }

    /// What the operating system did not grant so far, and what was done instead.
    pub fn notices(&self) -> &[Notice] {
        &self.shared.granted().notices
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ptr::NonNull;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::sys::affinity::{Pinned, allowed_cpus};
    use crate::{Gfp, Order, PAGE_SIZE};

    /// Pages that somebody has, by address.
    type Owned = Mutex<HashMap<usize, u64>>;

    /// Takes and frees on one CPU until told to stop; no page may be in two hands.
    fn user(pool: &Pool, owned: &Owned, stop: &AtomicBool) {
        let mut held = Vec::new();
        while !stop.load(Relaxed) {
            for _ in 0..40 {
                let Ok(page) = pool.alloc_pages(Order::ZERO, Gfp::KERNEL) else { break };
                let before = owned.lock().unwrap().insert(page.as_ptr() as usize, 1);
                assert_eq!(before, None, "{page:p} is in two hands");
                held.push(page);
            }
            for page in held.drain(..) {
                free(pool, owned, page);
            }
        }
    }

    fn free(pool: &Pool, owned: &Owned, page: NonNull<u8>) {
        owned.lock().unwrap().remove(&(page.as_ptr() as usize)).unwrap();
        // SAFETY: (1) the page is ours and not used.
        unsafe { pool.free_pages(page, Order::ZERO) }.unwrap();
    }

    /// Users on every CPU, and a drainer whose fences fail from the `left`-th on.
    fn storm(left: u64, visits: bool) {
        let pool = Pool::builder().size(8 << 20).refresh_every(None).build().unwrap();
        if *pool.mode() != Mode::Rseq {
            return;
        }
        let platform = pool.shared.allocator.platform();
        platform.faults().set(left, visits);
        let (owned, stop) = (Owned::default(), AtomicBool::new(false));
        let cpus = allowed_cpus().unwrap();
        std::thread::scope(|scope| {
            for cpu in &cpus {
                let (pool, owned, stop) = (&pool, &owned, &stop);
                scope.spawn(move || {
                    let _pinned = Pinned::to(*cpu);
                    user(pool, owned, stop);
                });
            }
            for _ in 0..60 {
                pool.drain_all();
                std::thread::yield_now();
            }
            stop.store(true, Relaxed);
        });
        pool.validate().unwrap();
        for cpu in &cpus {
            // What a thread closes on its own CPU needs no fence.
            let _pinned = Pinned::to(*cpu);
            pool.drain_all();
        }
        pool.validate().unwrap();
        assert_eq!(pool.free_page_count() as usize * PAGE_SIZE, pool.bytes());
        let refused = matches!(pool.mode(), Mode::Lock(_));
        assert_eq!(refused, !pool.notices().is_empty(), "{} {:?}", pool.mode(), pool.notices());
        assert_eq!(refused, platform.fences() > left);
    }

    #[test]
    fn a_fence_may_fail_at_any_call() {
        for left in [0, 1, 2, 3, 5, 8, 13, 21, 34, u64::MAX] {
            storm(left, true);
            storm(left, false);
        }
    }
}
