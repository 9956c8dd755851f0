//! Memory that comes online while the pool is used (LB A.8): a pool of any size is usable as soon
//! as the first 128 MiB of each node are. One thread per node brings the rest online, and faults it
//! in if the pool prefaults; a request that finds nothing brings a section online itself.
//!
//! The threads stop with the pool, and stand still across a fork. A forked child does not have
//! these threads: its pool grows on demand, or by [`Pool::finish_growth`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use zonal_core::alloc::{OnlineError, new_over_fresh};
use zonal_core::machine::{Machine, Metadata};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, PAGE_SIZE, Pfn, ZoneId};

use super::builder::{BuildError, Builder};
use super::thread::PoolThread;
use super::{Pool, PoolAllocator, Shared};
use crate::platform::ProcessPlatform;
use crate::sys::map::{MapError, Mapping};

/// The growth of a pool: its threads, and what keeps them off.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Shared by a thread while it has a section claimed; exclusive across a fork.
    gate: RwLock<()>,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    stop: Arc<AtomicBool>,
    handles: Vec<PoolThread>,
}

impl Builder {
    /// Whether the pool starts with the first 128 MiB of each node, and the rest comes online in
    /// the background and on demand. Default: no. Marks, and with the default policy the sizes of
    /// per-CPU lists, are computed when all of it is online. Not together with
    /// [`poison`](Builder::poison).
    ///
    /// ```
    /// let pool = zonal::Pool::builder().size(256 << 20).deferred(true).build()?;
    /// let page = pool.alloc(zonal::Order::ZERO)?;
    /// pool.finish_growth()?; // or let it go on in the background
    /// # drop(page);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deferred(mut self, deferred: bool) -> Builder {
        self.deferred = deferred;
        self
    }
}

impl Pool {
    /// Whether memory is still to come online ([`Builder::deferred`]).
    pub fn is_growing(&self) -> bool {
        self.shared.allocator.is_growing()
    }

    /// Brings the rest of the memory online now, without faulting it in, and waits for sections
    /// that the pool's threads have claimed.
    ///
    /// # Errors
    /// [`OnlineError`] if metadata of fresh memory was overwritten.
    pub fn finish_growth(&self) -> Result<(), OnlineError> {
        self.shared.finish_growth()
    }
}

impl Growth {
    /// Keeps the threads from claiming memory until the result is dropped.
    pub(super) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to claim memory. A fork waits for it.
    fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads, before the pool goes. A forked child has no such threads.
    pub(super) fn stop(&self) {
        let threads = std::mem::take(&mut *self.lock());
        // Relaxed: the threads look at nothing else that follows from it.
        threads.stop.store(true, Ordering::Relaxed);
        threads.handles.into_iter().for_each(PoolThread::end);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocator with its memory online, or with the first sections of it.
pub(super) fn bring_up(
    machine: &Machine<'static>,
    policy: Policy,
    metadata: Metadata<'static>,
    platform: ProcessPlatform,
    deferred: bool,
) -> Result<PoolAllocator, BuildError> {
    // SAFETY: (1) a pool's records are in its own fresh mapping: `Records::tables` has put them
    // into their default state, and nobody has written to the words (POOL-2).
    let allocator = unsafe { new_over_fresh(machine, policy, metadata, platform) }?;
    for (id, zone) in machine.zones.iter().enumerate() {
        let id = ZoneId(id as u16);
        let pages = Pfn(zone.start_pfn)..Pfn(zone.start_pfn + zone.spanned);
        if deferred {
            allocator.online_deferred(id, pages)?;
        } else {
            allocator.online(id, pages)?;
        }
    }
    allocator.setup();
    Ok(allocator)
}

/// Faults in a section before it is handed out.
pub(super) fn prefault_first(allocator: &PoolAllocator, memory: &Mapping) -> Result<(), MapError> {
    for zone in allocator.zones() {
        // Zones of a pool have no holes, and come online from their start.
        let start = zone.start_pfn().0;
        let range = start as usize * PAGE_SIZE..(start + zone.managed()) as usize * PAGE_SIZE;
        // SAFETY: (1) pools commit all of their memory; (2) the mapping is not shared yet.
        unsafe { memory.prefault(range) }?;
    }
    Ok(())
}

/// Starts a thread for each node with memory to come; the last one to end computes what follows
/// from it. [`Growth::stop`] ends them.
pub(super) fn start(shared: &Arc<Shared>, prefault: bool) -> std::io::Result<()> {
    let allocator = &shared.allocator;
    let nodes = (0..allocator.nodes().len()).map(|node| NodeId(node as u16));
    let nodes: Vec<NodeId> =
        nodes.filter(|node| allocator.stats().left_to_grow(*node) > 0).collect();
    let running = Arc::new(AtomicUsize::new(nodes.len()));
    let mut threads = shared.growth.lock();
    for node in nodes {
        let (stop, running) = (Arc::clone(&threads.stop), Arc::clone(&running));
        let run = move |shared: &Shared| {
            let complete = shared.grow_node(node, &stop, prefault);
            // AcqRel: pairs with itself; the last one sees what the others brought online.
            let last = running.fetch_sub(1, Ordering::AcqRel) == 1;
            if last && complete {
                report(shared.finish_growth());
            }
        };
        let name = format!("zonal-grow-{}", node.0);
        threads.handles.push(PoolThread::spawn(name, shared, run)?);
    }
    Ok(())
}

fn report(done: Result<(), OnlineError>) {
    if let Err(error) = done {
        eprintln!("zonal: {error}; this memory stays out of use");
    }
}

impl Shared {
    fn finish_growth(&self) -> Result<(), OnlineError> {
        let _no_fork = self.growth.enter();
        self.allocator.finish_growth()
    }

    /// Brings a node's memory online, section by section. `false`: it was stopped.
    fn grow_node(&self, node: NodeId, stop: &AtomicBool, prefault: bool) -> bool {
        // Relaxed: see `Growth::stop`.
        while !stop.load(Ordering::Relaxed) {
            let _no_fork = self.growth.enter();
            let grown = self.allocator.grow(node, |pages| {
                if prefault {
                    let range = pages.start.0 as usize * PAGE_SIZE;
                    let range = range..pages.end.0 as usize * PAGE_SIZE;
                    // What cannot be faulted in now is when it is touched. SAFETY: (1) pools commit
                    // all of their memory; (2) this call has claimed the section, which is not
                    // handed out yet (GROW-1).
                    let _ = unsafe { self.memory.prefault(range) };
                }
            });
            match grown {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => report(Err(error)),
            }
        }
        false
    }
}
