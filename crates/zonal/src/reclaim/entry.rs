//! One consumer of a pool: its calls and its record.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, TryLockError};

use zonal_core::platform::reclaimer::{By, Pass, Shrunk};
use zonal_core::reclaim::lists::{FileLists, Lists};

use super::calls::Calls;
use super::inside::{self, Call, Inside};
use super::isolation::{self, Isolation};
use super::lru::PageLru;
use super::shrinker::Shrinker;

/// What a consumer did so far.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Its name.
    pub name: String,
    /// Whether it is a [`Shrinker`], which counts objects, or a [`PageLru`], which counts pages.
    pub objects: bool,
    /// Passes over it.
    pub passes: u64,
    /// Objects or pages looked at.
    pub scanned: u64,
    /// Objects or pages given up.
    pub freed: u64,
    /// Times that a request waited because others had too many of its pages in hand.
    pub stalls: u64,
    /// What it said when it panicked. It is not called since.
    pub panicked: Option<String>,
    /// In a forked child: the parent forked in the middle of a call by another thread, so locks of
    /// the consumer may be held for ever. It is not called here.
    pub interrupted: bool,
}

/// A line.
impl fmt::Display for ConsumerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConsumerReport { passes, scanned, freed, stalls, .. } = self;
        let name = self.name.escape_debug();
        let what = if self.objects { "objects" } else { "pages" };
        write!(f, "{name}: passes {passes}, {what} scanned {scanned}, freed {freed}, ")?;
        write!(f, "stalls {stalls}")?;
        if let Some(said) = &self.panicked {
            write!(f, "; panicked and is not called since: {}", said.escape_debug())?;
        }
        if self.interrupted {
            write!(f, "; not called: the process was forked in the middle of a call")?;
        }
        Ok(())
    }
}

/// The kind of a consumer.
pub(super) enum Consumer {
    Lru(Arc<dyn PageLru>),
    Shrinker {
        shrinker: Shrinker,
        /// Objects put off, by node (`nr_deferred`).
        deferred: Vec<AtomicU64>,
        /// What it counted last while nobody else called it, by node
        /// ([`Entry::beside_others`]).
        counted: Vec<AtomicU64>,
    },
}

/// A consumer on a pool's list.
pub(super) struct Entry {
    pub(super) id: u64,
    name: String,
    pub(super) consumer: Consumer,
    /// Calls of any consumer of the pool.
    calls: Arc<Calls>,
    /// Threads that have this entry from the list (REG-1).
    pub(super) visits: Arc<Calls>,
    /// Calls of this consumer under way.
    under_way: AtomicU32,
    /// No longer called: it left, or panicked, or a fork interrupted a call.
    gone: AtomicBool,
    interrupted: AtomicBool,
    panicked: Mutex<Option<String>>,
    passes: AtomicU64,
    scanned: AtomicU64,
    freed: AtomicU64,
    isolation: Isolation,
}

/// A consumer from the list, until dropped: until then its [`Registration`](super::Registration)
/// waits.
pub(super) struct Visit(Option<Arc<Entry>>);

impl Visit {
    /// The list is locked, so the entry is still on it.
    pub(super) fn begin(entry: &Arc<Entry>) -> Visit {
        entry.visits.enter();
        Visit(Some(Arc::clone(entry)))
    }
}

impl std::ops::Deref for Visit {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        self.0.as_ref().expect("taken out by the drop alone")
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let Some(entry) = self.0.take() else { return };
        let visits = Arc::clone(&entry.visits);
        // The last one, if it left during its own call: its destructor is the user's.
        if let Some(entry) = Arc::into_inner(entry) {
            let _inside = Inside::other();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(entry))) {
                // The panic's payload may panic again when it is dropped.
                std::mem::forget(panic);
            }
        }
        visits.leave();
    }
}

/// A call that is under way, until dropped.
struct UnderWay<'a> {
    entry: &'a Entry,
    _inside: Inside,
}

impl<'a> UnderWay<'a> {
    fn begin(entry: &'a Entry) -> UnderWay<'a> {
        entry.calls.enter();
        entry.under_way.fetch_add(1, Relaxed);
        let call = Call { registry: Arc::as_ptr(&entry.calls) as usize, entry: entry.id };
        UnderWay { entry, _inside: Inside::call(call) }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.entry.under_way.fetch_sub(1, Relaxed);
        self.entry.calls.leave();
    }
}

impl Entry {
    pub(super) fn new(id: u64, name: String, consumer: Consumer, calls: Arc<Calls>) -> Entry {
        Entry {
            id,
            name,
            consumer,
            calls,
            visits: Arc::default(),
            under_way: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            panicked: Mutex::default(),
            passes: AtomicU64::new(0),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            isolation: Isolation::default(),
        }
    }

    /// No call begins any more.
    pub(super) fn leave(&self) {
        self.gone.store(true, Relaxed);
    }

    /// In a forked child: calls of other threads never end, and their locks stay taken.
    pub(super) fn forked(&self, current: Option<Call>) {
        let own = current.is_some_and(|call| call.entry == self.id);
        self.visits.forked(u32::from(own));
        let calls = self.under_way.swap(u32::from(own), Relaxed);
        if calls > u32::from(own) {
            self.interrupted.store(true, Relaxed);
            self.gone.store(true, Relaxed);
        }
        self.isolation.forked();
    }

    /// Calls the consumer. `None`: it is no longer called.
    pub(super) fn call<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        if self.gone.load(Relaxed) || inside::is_inside() {
            return None;
        }
        let _under_way = UnderWay::begin(self);
        // AssertUnwindSafe: after a panic the consumer is not called again, and nothing of the
        // pool is in the middle of a change while it is called.
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => Some(answer),
            Err(panic) => {
                let said = message(&*panic);
                // Others may be in the middle of it, and panic too.
                if !self.gone.swap(true, Relaxed) {
                    eprintln!(
                        "zonal: the consumer \"{}\" panicked: {said}. It is no longer called.",
                        self.name
                    );
                }
                // The panic's payload may panic again when it is dropped.
                std::mem::forget(panic);
                // One message is enough: a report shows the rest.
                if let Ok(mut panicked) = self.panicked.try_lock() {
                    *panicked = Some(said);
                }
                None
            }
        }
    }

    /// What it counts; if that is nothing while another thread is in a call of it, which may have
    /// the lock that the count only tries, what it counted before. A request that reads nothing
    /// there would be refused although the other call makes room for it.
    pub(super) fn beside_others(&self, before: &AtomicU64, count: impl FnOnce() -> u64) -> u64 {
        let is_called = || self.under_way.load(Relaxed) > 0 && !self.gone.load(Relaxed);
        let was_called = is_called();
        let counted = count();
        if counted == 0 && (was_called || is_called()) {
            return before.load(Relaxed);
        }
        before.store(counted, Relaxed);
        counted
    }

    pub(super) fn count_pass(&self) {
        self.passes.fetch_add(1, Relaxed);
    }

    /// Counts the result of one call: a pass may take long, and reports must not lag.
    pub(super) fn count(&self, scanned: u64, freed: u64) {
        self.scanned.fetch_add(scanned, Relaxed);
        self.freed.fetch_add(freed, Relaxed);
    }

    fn panic_message(&self) -> Option<String> {
        match self.panicked.try_lock() {
            Ok(said) => said.clone(),
            Err(TryLockError::Poisoned(said)) => said.into_inner().clone(),
            Err(TryLockError::WouldBlock) => Some(String::new()),
        }
    }

    pub(super) fn report(&self) -> ConsumerReport {
        ConsumerReport {
            name: self.name.clone(),
            objects: matches!(self.consumer, Consumer::Shrinker { .. }),
            passes: self.passes.load(Relaxed),
            scanned: self.scanned.load(Relaxed),
            freed: self.freed.load(Relaxed),
            stalls: self.isolation.stalls(),
            panicked: self.panic_message(),
            interrupted: self.interrupted.load(Relaxed),
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("id", &self.id).field("gone", &self.gone).finish()
    }
}

/// One cache's lists, called with care.
pub(super) struct Called<'a> {
    entry: &'a Entry,
    lru: &'a dyn PageLru,
    pass: &'a Pass,
    /// Pages it can hold at most.
    most: u64,
    /// Pages on its inactive list when the pass began.
    inactive: u64,
    /// Others had too many of its pages in hand, and kept them: the pass is over.
    stalled: bool,
}

impl<'a> Called<'a> {
    pub(super) fn new(
        entry: &'a Entry,
        lru: &'a dyn PageLru,
        pass: &'a Pass,
        most: u64,
    ) -> Called<'a> {
        Called { entry, lru, pass, most, inactive: 0, stalled: false }
    }
}

impl Lists for Called<'_> {
    fn lengths(&mut self) -> FileLists {
        let held = self.entry.call(|| self.lru.holdings(self.pass.unit)).unwrap_or_default();
        self.inactive = held.inactive_file.min(self.most);
        FileLists { inactive: self.inactive, active: held.active_file.min(self.most) }
    }
    fn shrink_inactive(&mut self, pages: u64) -> Shrunk {
        if self.stalled {
            return Shrunk::default();
        }
        // Only requests wait: the background reclaimer is who makes room (LB H.4).
        let direct = self.pass.by == By::Direct;
        let limit = direct.then(|| isolation::limit(self.inactive, self.pass.gfp));
        let Some(_isolated) = self.entry.isolation.take(pages, limit) else {
            self.stalled = true;
            return Shrunk::default();
        };
        let call = || self.lru.shrink_inactive(pages, self.pass);
        let came = self.entry.call(call).unwrap_or_default();
        // More than it was asked for, or than it looked at, cannot be.
        let reclaimed = came.reclaimed.min(pages);
        self.entry.count(came.scanned.min(pages).max(reclaimed), reclaimed);
        came
    }
    fn shrink_active(&mut self, pages: u64) {
        self.entry.call(|| self.lru.shrink_active(pages, self.pass));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::reclaim::shrinker::Scanned;

    #[test]
    fn a_count_that_finds_the_lock_of_a_call_under_way_taken_is_the_one_before() {
        let shrinker = Shrinker::new("cache", |_| 0, |_| Scanned::Stop);
        let consumer = Consumer::Shrinker { shrinker, deferred: Vec::new(), counted: Vec::new() };
        let entry = Entry::new(1, "cache".into(), consumer, Arc::default());
        let (objects, before) = (Mutex::new(100), AtomicU64::new(0));
        let counts = || {
            let count = || objects.try_lock().map_or(0, |objects| *objects);
            entry.beside_others(&before, || entry.call(count).unwrap_or(0))
        };
        assert_eq!(counts(), 100);
        thread::scope(|scope| {
            let ((begun, begins), (end, ends)) = (channel(), channel());
            let (entry, objects) = (&entry, &objects);
            scope.spawn(move || {
                entry.call(|| {
                    let mut objects = objects.lock().unwrap();
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    *objects = 0;
                })
            });
            begins.recv().unwrap();
            assert_eq!(counts(), 100);
            end.send(()).unwrap();
        });
        assert_eq!(counts(), 0, "nobody calls it any more");
        // Its lock is taken by somebody else: what it says is believed.
        *objects.lock().unwrap() = 7;
        assert_eq!(counts(), 7);
        let _held = objects.lock().unwrap();
        assert_eq!(counts(), 0);
    }
}
