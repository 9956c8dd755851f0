//! What is known of each chunk of pages' contents: one word.
//!
//! Chunks have numbers, which pages get when they are first touched, [`TABLE_PAGES`] in a row at a
//! time. So numbers are small, however large the machine's memory is, and words lie together.

use super::cache::{Home, LAST_VERSION, PAGE_CHUNKS, Tag, VERSION_BITS};

/// Base pages that get numbers together: 2 MiB of memory.
const TABLE_PAGES: u64 = 512;
const TABLE_CHUNKS: u64 = TABLE_PAGES * PAGE_CHUNKS;

/// Record of a chunk: version, last holder, and flags. Zero: never touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub u32);

impl Word {
    pub const DIRTY: u32 = 1 << 29;
    pub const SHARED: u32 = 1 << 30;
    /// The L2 of the last holder has it (CONT-3).
    pub const HELD: u32 = 1 << 31;
    const HOLDER_SHIFT: u32 = VERSION_BITS;
    const HOLDERS: u32 = u16::MAX as u32;

    #[inline]
    pub fn new(version: u64, holder: u32, flags: u32) -> Word {
        Word(version as u32 | holder << Self::HOLDER_SHIFT | flags)
    }
    #[inline]
    pub fn version(self) -> u64 {
        u64::from(self.0) & LAST_VERSION
    }
    /// Never zero, which means that the chunk was never touched.
    #[inline]
    pub fn next_version(self) -> u64 {
        self.version() % LAST_VERSION + 1
    }
    #[inline]
    pub fn holder(self) -> Option<u32> {
        (self.version() != 0).then_some(self.0 >> Self::HOLDER_SHIFT & Self::HOLDERS)
    }
    #[inline]
    pub fn is(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
    /// Whether both differ at most in whether memory has an older version.
    #[inline]
    pub fn is_like(self, other: Word) -> bool {
        (self.0 ^ other.0) & !Self::DIRTY == 0
    }
    #[inline]
    pub fn tag(self, chunk: u64) -> Tag {
        Tag::new(chunk, self.version())
    }
}

/// The words of all chunks that were touched.
#[derive(Debug)]
pub(super) struct Words {
    /// The table of each [`TABLE_PAGES`] page frames; 0: they have no numbers yet.
    tables: Vec<u32>,
    /// The first page frame of each table. Of the first one no chunk is used: they count from 1.
    firsts: Vec<u64>,
    /// By number of the chunk.
    words: Vec<u32>,
}

impl Default for Words {
    fn default() -> Words {
        Words { tables: Vec::new(), firsts: vec![0], words: vec![0; TABLE_CHUNKS as usize] }
    }
}

impl Words {
    /// The number of a page's first chunk.
    #[inline]
    pub fn chunk(&mut self, pfn: u64) -> u64 {
        let (run, at) = ((pfn / TABLE_PAGES) as usize, pfn % TABLE_PAGES);
        let first = match self.tables.get(run) {
            Some(table) if *table != 0 => u64::from(*table) * TABLE_CHUNKS,
            _ => self.add(run),
        };
        first + at * PAGE_CHUNKS
    }

    /// Gives numbers to a run of page frames. Returns the first.
    #[cold]
    fn add(&mut self, run: usize) -> u64 {
        if run >= self.tables.len() {
            self.tables.resize(run + 1, 0);
        }
        let table = self.firsts.len() as u32;
        self.tables[run] = table;
        self.firsts.push(run as u64 * TABLE_PAGES);
        self.words.resize((u64::from(table) + 1) as usize * TABLE_CHUNKS as usize, 0);
        u64::from(table) * TABLE_CHUNKS
    }

    /// The page frame of a chunk.
    #[inline]
    pub fn pfn(&self, chunk: u64) -> u64 {
        self.firsts[(chunk / TABLE_CHUNKS) as usize] + chunk % TABLE_CHUNKS / PAGE_CHUNKS
    }

    /// Where caches have a chunk.
    #[inline]
    pub fn home(&self, chunk: u64) -> Home {
        Home::new(self.pfn(chunk)).part(chunk % PAGE_CHUNKS)
    }

    /// The words of a page's chunks, of which this is the first.
    #[inline]
    pub fn of_page(&self, first: u64) -> [Word; PAGE_CHUNKS as usize] {
        let words = self.words[first as usize..].first_chunk();
        words.expect("a page has all of its words").map(Word)
    }

    #[inline]
    pub fn of(&self, chunk: u64) -> Word {
        Word(self.words[chunk as usize])
    }

    #[inline]
    pub fn set(&mut self, chunk: u64, word: Word) {
        self.words[chunk as usize] = word.0;
    }
}
