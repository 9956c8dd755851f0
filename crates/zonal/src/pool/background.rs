//! The background reclaimers: a thread per node, from the first consumer on until the pool goes (LB
//! H.2). A pool without consumers has no reclaimers.
//!
//! A thread that was not woken for a second checks whether its node is below the high watermark
//! while consumers hold pages, as after a burst that ended between two watermarks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_core::alloc::Next;
use zonal_core::types::NodeId;

use super::thread::PoolThread;
use super::{Pool, Shared};
use crate::reclaim::is_inside;

/// How often a sleeping reclaimer looks by itself.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The threads of a pool.
#[derive(Debug, Default)]
pub(super) struct Background {
    threads: Mutex<Threads>,
    /// They wait for requests, however long that takes.
    waits: AtomicBool,
}

/// Each with its node.
type Threads = Vec<(NodeId, PoolThread)>;

impl Pool {
    /// Starts the threads, if they are wanted and do not run. Without threads, requests reclaim for
    /// themselves.
    pub(crate) fn start_background(&self) -> std::io::Result<()> {
        let shared = &*self.shared;
        if !shared.wants_background {
            return Ok(());
        }
        shared.background.start(shared, |node| {
            let name = format!("zonal-reclaim-{}", node.0);
            let run = move |shared: &Shared| shared.reclaim_in_background(node);
            PoolThread::spawn(name, &self.shared, run)
        })
    }

    /// In a forked child: calls consumers again, and starts the threads that reclaim in the
    /// background. Only if no other thread of the parent can have been inside a consumer, or the
    /// consumer's locks are usable again.
    ///
    /// # Errors
    /// The operating system could not start a thread. Those that were started reclaim; the next
    /// call starts the others.
    pub fn restart_reclaim(&self) -> std::io::Result<()> {
        self.shared.consumers().enable();
        if self.shared.consumers().is_used() { self.start_background() } else { Ok(()) }
    }

    /// Whether a reclaimer that was not woken for a second looks by itself whether its node is low.
    /// Linux waits for the next request that finds it low, so loads that are compared with a kernel
    /// turn this off: node reclaim leaves a node between its low and its high watermark, and
    /// without being asked a kernel does nothing about that. Default: yes.
    pub fn set_background_check(&self, looks: bool) {
        // Relaxed: a setting.
        self.shared.background.waits.store(!looks, Relaxed);
    }

    /// Whether threads reclaim in the background.
    pub fn reclaims_in_background(&self) -> bool {
        !self.shared.background.lock().is_empty()
    }
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads that are missing: those of a call that failed midway stay, and the next
    /// call starts the others.
    fn start(
        &self,
        shared: &Shared,
        mut spawn: impl FnMut(NodeId) -> std::io::Result<PoolThread>,
    ) -> std::io::Result<()> {
        let mut threads = self.lock();
        if threads.is_empty() {
            shared.allocator.platform().bells().set_stop(false);
        }
        let nodes = shared.allocator.nodes().iter().enumerate();
        for (node, _) in nodes.filter(|(_, node)| node.has_memory()) {
            let node = NodeId(node as u16);
            if threads.iter().all(|(has, _)| *has != node) {
                threads.push((node, spawn(node)?));
            }
        }
        Ok(())
    }

    /// Keeps threads from being started. For a fork.
    pub(super) fn pause(&self) -> Paused<'_> {
        Paused(self.lock())
    }
}

/// No thread is started or ended, until dropped.
pub(super) struct Paused<'a>(MutexGuard<'a, Threads>);

impl Paused<'_> {
    /// In a forked child: there are no threads.
    pub(super) fn forked(&mut self) {
        self.0.clear();
    }
}

impl Shared {
    /// Ends the threads, before the pool goes.
    pub(super) fn stop_background(&self) {
        let threads = std::mem::take(&mut *self.background.lock());
        if threads.is_empty() {
            return;
        }
        self.allocator.platform().bells().set_stop(true);
        // Inside a consumer this does not wait: the threads may be inside consumers too, and wait
        // for this one. They end by themselves, and the last one drops their shared state
        // (THREAD-1).
        if !is_inside() {
            threads.into_iter().for_each(|(_, thread)| thread.end());
        }
    }

    /// A sleeping reclaimer has listened for as long as it does. Returns whether it woke by
    /// timeout.
    fn listened(&self, node: NodeId, rang: bool) -> bool {
        // Relaxed: a setting.
        !rang && !self.background.waits.load(Relaxed) && self.allocator.background_check(node)
    }

    fn reclaim_in_background(&self, node: NodeId) {
        let bell = self.allocator.platform().bells().of(node);
        let mut reclaimer = self.allocator.background_start(node);
        while let Some(step) = bell.step() {
            let next = self.allocator.background_step(&mut reclaimer);
            drop(step);
            match next {
                Next::Again => {}
                Next::Nap(ns) => {
                    bell.listen(Duration::from_nanos(ns));
                }
                Next::Sleep => {
                    let rang = bell.listen(CHECK_EVERY);
                    self.listened(node, rang);
                }
            }
        }
        self.allocator.background_stop(reclaimer);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use zonal_core::alloc::BackgroundReclaimer;
    use zonal_core::zone::state::Zone;
    use zonal_core::zone::watermark::Watermark;

    use super::*;
    use crate::reclaim::{Scanned, Shrinker};
    use crate::{CpuMap, Gfp, Order, Request, Sysctl};

    /// The pages of a consumer that frees on request and does not know their nodes.
    type Objects = Arc<Mutex<Vec<usize>>>;

    fn objects(pool: &Arc<Pool>, pages: &Objects) -> Shrinker {
        let (counted, scanned, owner) = (Arc::clone(pages), Arc::clone(pages), Arc::clone(pool));
        Shrinker::new(
            "objects",
            move |_| counted.lock().unwrap().len() as u64,
            move |ask| {
                let mut pages = scanned.lock().unwrap();
                let keep = pages.len().saturating_sub(ask.objects as usize);
                let going = pages.split_off(keep);
                drop(pages);
                going.iter().for_each(|page| free(&owner, *page));
                Scanned::Freed(going.len() as u64)
            },
        )
    }

    fn free(pool: &Pool, page: usize) {
        // SAFETY: (1) the page was handed out once and is freed once.
        unsafe { pool.free_pages(NonNull::new(page as *mut u8).unwrap(), Order::ZERO) }.unwrap();
    }

    /// The node's one zone.
    fn zone_of(pool: &Pool, node: NodeId) -> &Zone {
        &pool.allocator().zones()[usize::from(node.0)]
    }

    fn free_pages(pool: &Pool, node: NodeId) -> u64 {
        pool.allocator().stats().free_snapshot(zone_of(pool, node).id())
    }

    /// Steps until the reclaimer sleeps; its naps take no time.
    fn put_to_sleep(pool: &Pool, reclaimer: &mut BackgroundReclaimer) {
        while pool.allocator().background_step(reclaimer) != Next::Sleep {}
    }

    #[test]
    fn a_thread_that_could_not_be_started_is_started_by_the_next_call() {
        let builder = Pool::builder().size(128 << 20).fake_nodes(2, CpuMap::RoundRobin);
        let pool = Arc::new(builder.refresh_every(None).build().unwrap());
        let (shared, full) = (&pool.shared, std::io::ErrorKind::WouldBlock);
        let mut asked = Vec::new();
        for refused in [Some(NodeId(1)), None, None] {
            let started = shared.background.start(shared, |node| {
                asked.push(node.0);
                if refused == Some(node) {
                    return Err(full.into());
                }
                let run = move |shared: &Shared| shared.reclaim_in_background(node);
                PoolThread::spawn("reclaims".to_owned(), shared, run)
            });
            assert_eq!(started.is_err(), refused.is_some());
        }
        assert_eq!(asked, [0, 1, 1], "each node has one thread in the end");
        assert_eq!(shared.background.lock().len(), 2);
    }

    /// The test is the reclaimer's thread, so it says when a second is over.
    #[test]
    fn a_sleeping_reclaimer_looks_by_itself_unless_it_is_told_to_wait() {
        [0, 1].map(NodeId).into_iter().for_each(looks_unless_told_to_wait);
    }

    fn looks_unless_told_to_wait(node: NodeId) {
        let builder = Pool::builder().size(128 << 20).fake_nodes(2, CpuMap::RoundRobin);
        let builder = builder.refresh_every(None).background_reclaim(false);
        let pool = Arc::new(builder.build().unwrap());
        assert_eq!(zone_of(&pool, node).node(), node);
        // Marks far apart, so that lists fit between them.
        pool.set(Sysctl::WatermarkScaleFactor, 1000).unwrap();
        let pages = Objects::default();
        let registered = pool.register_shrinker(objects(&pool, &pages));
        let mut reclaimer = pool.allocator().background_start(node);
        put_to_sleep(&pool, &mut reclaimer);
        // As after a burst that ended between two watermarks: no request has woken the reclaimer.
        // In the middle of them, because what CPUs hold of the counter may be unseen.
        let watermarks = zone_of(&pool, node).watermarks();
        let middle = (watermarks.of(Watermark::Low) + watermarks.of(Watermark::High)) / 2;
        while free_pages(&pool, node) > middle {
            let request = Request::new(Order::ZERO).gfp(Gfp::NOWAIT | Gfp::THISNODE).on(node);
            let (page, _) = pool.alloc_with(request).unwrap().into_raw();
            pages.lock().unwrap().push(page.as_ptr() as usize);
        }
        let left = free_pages(&pool, node);
        assert!(left > watermarks.of(Watermark::Low), "{left} pages free, {watermarks:?}");
        let runs = || pool.allocator().reclaim_stats().background_runs;

        pool.set_background_check(false);
        for _ in 0..3 {
            assert!(!pool.shared.listened(node, false));
            assert_eq!(pool.allocator().background_step(&mut reclaimer), Next::Sleep);
        }
        assert_eq!((runs(), free_pages(&pool, node)), (0, left));

        pool.set_background_check(true);
        assert!(!pool.shared.listened(node, true), "the ring has woken it");
        assert_eq!(runs(), 0);
        assert!(pool.shared.listened(node, false));
        put_to_sleep(&pool, &mut reclaimer);
        let now = free_pages(&pool, node);
        assert!(runs() > 0 && now > middle, "{} runs, {now} pages free of {middle}", runs());
        assert!(!pool.shared.listened(node, false), "nothing is left to do");

        pool.allocator().background_stop(reclaimer);
        drop(registered);
        pages.lock().unwrap().drain(..).for_each(|page| free(&pool, page));
        pool.validate().unwrap();
    }
}
