//! Which blocks of a trace hold pages of files, and which of them reclaim took.
//!
//! ```text
//!  thread 9   alloc a   cache_add file 3, page 64   alloc b   alloc c   …   cache_add … page 128
//!                       └─ a is page 64 of file 3   b is 65   c is 66
//! ```
//! The recorder has each 64th page of a file. A thread that reads allocates a block and adds it to
//! the file before it allocates the next, so what it allocates with the same flags up to its next
//! sample are the pages behind.
//!
//! A request for a large block that the kernel refused comes as small ones behind: these say what
//! was *wanted*. So do those after them, which grow again from one page to that order.
//!
//! A thread that begins to read between two samples is placed by the first of them: the single
//! pages that it was given before are the pages before.
//!
//! A block that has room for a sample, and was freed without one by the thread that was given it,
//! was *unused*: some of its pages were in memory.
//!
//! Compaction moves pages: it frees the block that they lay in, and no event says where they lie
//! since: compaction takes free blocks without one. They are pages of their file all the same, and
//! a block that reclaim frees or compaction moves, and nobody was given, is one of theirs.

use std::collections::{BTreeSet, HashMap};

use zonal_trace::{CachedPage, Event, EventKind, Notice};

/// Each so many pages of a file, the recorder has one.
pub(super) const SAMPLED_BITS: u8 = 6;
/// No file has more: offsets in bytes have 63 bits.
const PAGES_OF_FILE: u64 = 1 << 51;
/// The type of pages that can move: those of files and of programs.
pub(super) const MOVABLE: u8 = 1;

/// Threads that reclaim.
#[derive(Debug, Default)]
pub struct Reclaimers {
    /// Of background reclaim.
    background: BTreeSet<i32>,
    /// By thread: since when it reclaims by itself.
    direct: HashMap<i32, u64>,
}

impl Reclaimers {
    /// Takes note of the next event; returns how long direct reclaim took that ends here.
    pub fn see(&mut self, event: &Event) -> u64 {
        let (now, thread) = (event.time_ns, event.pid);
        match event.kind {
            EventKind::Notice(Notice::KswapdWake { .. } | Notice::KswapdSleep { .. }) => {
                self.background.insert(thread);
            }
            EventKind::Notice(Notice::ReclaimBegin { .. }) => {
                self.direct.insert(thread, now);
            }
            EventKind::Notice(Notice::ReclaimEnd { .. }) => {
                let begin = self.direct.remove(&thread);
                return begin.map_or(0, |begin| now.saturating_sub(begin));
            }
            _ => {}
        }
        0
    }

    /// Counts time in direct reclaim from now on.
    pub fn begin(&mut self, now_ns: u64) {
        self.direct.values_mut().for_each(|since| *since = now_ns);
    }

    /// Whether what this thread frees is reclaimed.
    pub fn has(&self, thread: i32) -> bool {
        self.background.contains(&thread) || self.direct.contains_key(&thread)
    }
}

/// Threads that move pages together.
#[derive(Debug, Default)]
pub struct Movers(BTreeSet<i32>);

impl Movers {
    /// Takes note of the next event.
    pub fn see(&mut self, event: &Event) {
        match event.kind {
            EventKind::Notice(Notice::CompactionBegin { .. }) => {
                self.0.insert(event.pid);
            }
            EventKind::Notice(Notice::CompactionEnd { .. }) => {
                self.0.remove(&event.pid);
            }
            // One of the lost events may have been an end.
            EventKind::Lost { .. } => self.0.clear(),
            _ => {}
        }
    }

    /// Whether what this thread frees was moved.
    pub fn has(&self, thread: i32) -> bool {
        self.0.contains(&thread)
    }
}

/// A block that holds pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filed {
    /// The block.
    pub slot: u32,
    /// Number of the file.
    pub file: u32,
    /// Its first page's place in the file.
    pub index: u64,
    /// Order of the block that was refused in its place; 0: none was.
    pub wanted: u8,
}

/// A sample of pages that somebody threw away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// When.
    pub time_ns: u64,
    /// Number of the file.
    pub file: u32,
    /// The first page's place in the file.
    pub index: u64,
    /// Order of their block.
    pub order: u8,
}

/// What a trace says of blocks and files.
#[derive(Clone, Debug, Default)]
pub struct FilePages {
    /// By ascending slot.
    pub filed: Vec<Filed>,
    /// Blocks that reclaim freed, in the order of time.
    pub reclaimed: Vec<u32>,
    /// Blocks that compaction freed: their pages lie elsewhere since.
    pub moved: Vec<u32>,
    /// Blocks whose allocation had no event, and was made up.
    pub made_up: Vec<u32>,
    /// Large blocks that were to hold pages of a file, and were freed without: some of these pages
    /// were in memory.
    pub unused: Vec<u32>,
    /// Pages of files that others than reclaim threw away, in the order of time.
    pub dropped: Vec<Dropped>,
    /// Blocks that were freed while a thread threw a file away, and the number of that.
    pub thrown: Vec<(u32, u32)>,
}

impl FilePages {
    /// What of a file a block holds.
    pub(super) fn of(&self, slot: u32) -> Option<Filed> {
        let at = self.filed.binary_search_by_key(&slot, |filed| filed.slot).ok()?;
        Some(self.filed[at])
    }
}

/// Collects that while a trace is read.
#[derive(Debug, Default)]
pub struct Filer {
    reclaimers: Reclaimers,
    movers: Movers,
    /// By thread: the file that it throws away.
    throwers: HashMap<i32, u32>,
    files: HashMap<(u32, u64), u32>,
    readers: HashMap<i32, Reader>,
    found: FilePages,
}

/// What a thread reads.
#[derive(Clone, Debug, Default)]
struct Reader {
    /// Its last movable block, with flags and order.
    last: Option<(u32, u32, u8)>,
    /// Flags of the blocks that it reads into.
    gfp: u32,
    file: u32,
    /// The next page of the file.
    next: u64,
    /// How many come before its next sample.
    left: u64,
    /// Flags and order of a block that was refused.
    wanted: (u32, u8),
    /// Flags of its last single pages that have no place, and these.
    unplaced: (u32, Vec<u32>),
}

impl Filer {
    /// Takes note of the next event, before it is followed.
    pub fn see(&mut self, event: &Event) {
        self.reclaimers.see(event);
        self.movers.see(event);
        match event.kind {
            EventKind::Alloc { pfn: None, order, migratetype: MOVABLE, gfp } => {
                self.readers.entry(event.pid).or_default().wanted = (gfp, order);
            }
            EventKind::Notice(Notice::CacheAdd(page)) if is_sampled(page) => self.add(event, page),
            EventKind::Notice(Notice::CacheRemove(page))
                if is_sampled(page) && !self.reclaimers.has(event.pid) =>
            {
                let file = self.file(page);
                let (time_ns, index, order) = (event.time_ns, page.index, page.order);
                self.found.dropped.push(Dropped { time_ns, file, index, order });
                self.throwers.insert(event.pid, file);
            }
            _ => {}
        }
    }

    /// The thread was given this block.
    pub fn allocated(&mut self, thread: i32, slot: u32, (order, migratetype, gfp): (u8, u8, u32)) {
        if migratetype != MOVABLE {
            return;
        }
        let reader = self.readers.entry(thread).or_default();
        reader.last = Some((slot, gfp, order));
        // What was refused begins again with small blocks, until it is at its order again.
        if order >= reader.wanted.1 && reader.wanted.0 == gfp {
            reader.wanted = (0, 0);
        }
        let pages = 1 << order;
        if reader.gfp == gfp && reader.left >= pages {
            let (file, index) = (reader.file, reader.next);
            self.found.filed.push(Filed { slot, file, index, wanted: reader.wanted(gfp) });
            reader.next += pages;
            reader.left -= pages;
            reader.unplaced.1.clear();
        } else {
            reader.no_place(slot, gfp, order);
        }
    }

    /// Somebody must have been given this block.
    pub fn made_up(&mut self, slot: u32) {
        self.found.made_up.push(slot);
    }

    /// The thread freed it.
    pub fn freed(&mut self, thread: i32, slot: u32, migratetype: u8) {
        if migratetype != MOVABLE {
            return;
        }
        if self.movers.has(thread) {
            self.found.moved.push(slot);
        } else if self.reclaimers.has(thread) {
            self.found.reclaimed.push(slot);
        } else if self.is_unused(thread, slot) {
            self.found.unused.push(slot);
        } else if let Some(file) = self.throwers.get(&thread) {
            self.found.thrown.push((slot, *file));
        }
    }

    /// Whether a block that the thread frees is the last that it was given, to read a file into,
    /// and large enough for a sample, of which there was none.
    fn is_unused(&self, thread: i32, slot: u32) -> bool {
        let Some(reader) = self.readers.get(&thread) else { return false };
        let is_read_into =
            |(last, gfp, order)| last == slot && gfp == reader.gfp && order >= SAMPLED_BITS;
        reader.last.is_some_and(is_read_into)
            && self.found.filed.last().is_none_or(|filed| filed.slot != slot)
    }

    /// What follows is the recording; blocks stay what they are.
    pub fn begin(&mut self) {
        self.found.reclaimed.clear();
        self.found.moved.clear();
        self.found.unused.clear();
        self.found.dropped.clear();
        self.found.thrown.clear();
    }

    /// The whole.
    pub fn finish(self) -> FilePages {
        let mut found = self.found;
        // A sample is surer than a place behind another one: the last stands.
        found.filed.reverse();
        found.filed.sort_by_key(|filed| filed.slot);
        found.filed.dedup_by_key(|filed| filed.slot);
        found
    }

    fn add(&mut self, event: &Event, page: CachedPage) {
        let file = self.file(page);
        self.throwers.remove(&event.pid);
        let reader = self.readers.entry(event.pid).or_default();
        let own = reader.last.filter(|(_, _, order)| *order == page.order);
        let Some((slot, gfp, order)) = own else {
            reader.left = 0;
            return;
        };
        let pages = 1_u64 << order;
        let left = (1_u64 << SAMPLED_BITS).saturating_sub(pages);
        let (index, wanted) = (page.index, reader.wanted(gfp));
        // A reader that began between two samples: what it was given before are the pages before.
        let before = std::mem::take(&mut reader.unplaced);
        let first = index.saturating_sub((1 << SAMPLED_BITS) - 1);
        let slots = before.1.into_iter().rev().filter(|own| *own != slot && before.0 == gfp);
        for (slot, index) in slots.zip((first..index).rev()) {
            self.found.filed.push(Filed { slot, file, index, wanted });
        }
        (reader.gfp, reader.file, reader.next, reader.left) = (gfp, file, index + pages, left);
        self.found.filed.push(Filed { slot, file, index, wanted });
    }

    fn file(&mut self, page: CachedPage) -> u32 {
        let next = self.files.len() as u32;
        *self.files.entry((page.device, page.inode)).or_insert(next)
    }
}

impl Reader {
    /// It was given a block of which nothing says where it belongs.
    fn no_place(&mut self, slot: u32, gfp: u32, order: u8) {
        let (flags, slots) = &mut self.unplaced;
        // More have a sample among them.
        if *flags != gfp || order > 0 || slots.len() == 1 << SAMPLED_BITS {
            slots.clear();
        }
        *flags = gfp;
        if order == 0 {
            slots.push(slot);
        }
    }

    fn wanted(&self, gfp: u32) -> u8 {
        if self.wanted.0 == gfp { self.wanted.1 } else { 0 }
    }
}

/// A recorder that has all pages of a file has those, too. No file has a page behind the last one.
pub(super) fn is_sampled(page: CachedPage) -> bool {
    page.index < PAGES_OF_FILE && page.index.trailing_zeros() >= SAMPLED_BITS.into()
}
