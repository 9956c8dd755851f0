//! The cache's threads, and its end.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use zonal::reclaim::Registration;
use zonal::{PAGE_SIZE, Pool};

use crate::backing::caught;
use crate::entry::Entry;
use crate::errors::ErrorSeq;
use crate::file::File;
use crate::flusher::{Flusher, PATIENCE, Round};
use crate::frames::Frames;
use crate::inner::{Files, Inner};
use crate::lru::ZoneLru;
use crate::options::Options;
use crate::readahead::Windows;
use crate::stats::Counters;
use crate::writeback::Busy;

/// Stops the threads and empties the cache when the last handle goes.
pub struct Owner {
    pub inner: Arc<Inner>,
    rest: Option<Rest>,
}

/// What goes with the last handle.
struct Rest {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// The pool asks for pages while this lives. It breaks the ring of references from the pool to
    /// the cache and back.
    registered: Option<Registration>,
}

impl Owner {
    /// Makes the cache, starts its threads and offers its pages to the pool.
    pub fn start(pool: Arc<Pool>, options: Options) -> io::Result<Owner> {
        if pool.bytes() / PAGE_SIZE >= u32::MAX as usize {
            let text = "a cache takes pools below 16 TiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if options.writeback_interval.is_zero() {
            let text = "invalid value for writeback_every: 0 s (more than 0; Duration::MAX looks \
                        only when too much is dirty)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let frames = Frames::new(pool, options.order, options.logged);
        let lru = frames.spans().iter().map(|_| ZoneLru::default()).collect();
        let inner = Arc::new(Inner {
            frames,
            lru,
            files: RwLock::default(),
            options,
            counters: Counters::default(),
            dirty: 0.into(),
            errors: ErrorSeq::default(),
            flusher: Flusher::default(),
            at_work: AtomicU32::new(0),
            entry: Entry::new(),
            windows: Windows::default(),
        });
        let registered = Some(inner.frames.pool().register_lru(Arc::clone(&inner) as _));
        let mut rest = Rest { inner: Arc::clone(&inner), threads: Vec::new(), registered };
        let started = rest
            .spawn("zonal-writeback", Inner::run_flusher)
            .and_then(|()| rest.spawn("zonal-readahead", Inner::run_ahead));
        let owner = Owner { inner, rest: Some(rest) };
        started.map(|()| owner)
    }

    /// Whether this process made the cache: `false` in a forked child.
    pub fn is_here(&self) -> bool {
        self.inner.entry.is_here()
    }
}

impl Rest {
    fn spawn(&mut self, name: &str, run: fn(&Inner)) -> io::Result<()> {
        let inner = Arc::clone(&self.inner);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&inner))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Whether this is a thread of the cache.
    fn is_its_thread(&self) -> bool {
        let this = std::thread::current().id();
        self.threads.iter().any(|thread| thread.thread().id() == this)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        let waits_for_itself = self.inner.entry.check_outside().is_err() || rest.is_its_thread();
        if !waits_for_itself || !self.is_here() {
            return rest.end();
        }
        // A backing drops the last handle, in a call or because a thread of the cache drops it:
        // what follows waits for that. If no thread can be had, the memory of the cache stays
        // taken.
        let end = std::thread::Builder::new().name("zonal-end".into());
        let _ = end.spawn(move || rest.end());
    }
}

impl Rest {
    /// Stops the threads, writes what is dirty and returns every page.
    fn end(mut self) {
        drop(self.registered.take());
        if !self.inner.entry.is_here() {
            // A forked child: the threads are not there, and the parent writes what is dirty.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.inner.flusher.stop();
        self.inner.windows.stop();
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
        let files: Vec<Arc<File>> = self.inner.files().by_id.values().cloned().collect();
        // Reclaim may hold a page briefly. A page that is held for good is leaked.
        let busy = Busy::Until(Instant::now() + PATIENCE);
        for file in files {
            // No handle is left to report either.
            let _ = self.inner.soil_again(&file, busy);
            let _ = self.inner.write_pages(&file, &file.dirty_pages(), busy);
            self.inner.empty(&file, busy);
            file.unlock();
        }
        let files: Files = std::mem::take(&mut *self.inner.files_mut());
        // With no lock held: an engine's backing may hold pagers.
        drop(files);
    }
}

impl Inner {
    /// The write-back thread.
    fn run_flusher(&self) {
        self.flusher.run(self.options.writeback_interval, self);
    }

    /// The read-ahead thread.
    fn run_ahead(&self) {
        while let Some((file, window)) = self.windows.pop() {
            let Ok(_resize) = file.resize.try_read() else { continue };
            if !file.gone.load(Relaxed) {
                let _at_work = self.begin_work();
                // A later read of these pages reports the error. A panic: as in `round`.
                let _ = caught("read-ahead", || self.fill_ahead(&file, window));
            }
        }
    }
}

impl Round for Inner {
    fn round(&self) {
        // What a program gave may panic where nobody thinks of it, such as an error that is
        // dropped: the thread goes on. The panic was printed.
        let _ = caught("write-back", || {
            self.flush_round();
            self.drop_closed(self.options.closed_files, Busy::Pass);
        });
    }
}
