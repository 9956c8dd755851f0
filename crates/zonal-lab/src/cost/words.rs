//! What is known of each chunk of pages' contents: one word.

use super::cache::{PAGE_CHUNKS, Tag, VERSION_BITS};

/// Base pages of a table of words: 2 MiB of memory.
const TABLE_PAGES: u64 = 512;

/// Record of a chunk: version, last holder, and flags. Zero: never touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word(pub u64);

impl Word {
    pub const DIRTY: u64 = 1 << 60;
    pub const SHARED: u64 = 1 << 61;
    /// The L2 of the last holder has it (CONT-3).
    pub const HELD: u64 = 1 << 62;
    const HOLDER_SHIFT: u32 = 32;

    pub fn new(version: u64, holder: u32, flags: u64) -> Word {
        Word(version | u64::from(holder) << Self::HOLDER_SHIFT | flags)
    }
    pub fn version(self) -> u64 {
        self.0 & ((1 << VERSION_BITS) - 1)
    }
    /// Never zero, which means that the chunk was never touched.
    pub fn next_version(self) -> u64 {
        self.version() % ((1 << VERSION_BITS) - 1) + 1
    }
    pub fn holder(self) -> Option<u32> {
        (self.version() != 0).then_some((self.0 >> Self::HOLDER_SHIFT) as u32 & 0xFFFF)
    }
    pub fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
    pub fn tag(self, chunk: u64) -> Tag {
        Tag::new(chunk, self.version())
    }
}

/// The words of all chunks, in tables that are made when first touched.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<Option<Box<[u64]>>>);

impl Words {
    #[inline]
    pub fn of(&self, chunk: u64) -> Word {
        let (table, at) = split(chunk);
        Word(self.0.get(table).and_then(Option::as_ref).map_or(0, |words| words[at]))
    }

    pub fn set(&mut self, chunk: u64, word: Word) {
        let (table, at) = split(chunk);
        if table >= self.0.len() {
            self.0.resize(table + 1, None);
        }
        let made = || bytemuck::zeroed_slice_box((TABLE_PAGES * PAGE_CHUNKS) as usize);
        self.0[table].get_or_insert_with(made)[at] = word.0;
    }
}

/// The table of a chunk, and its place in it.
fn split(chunk: u64) -> (usize, usize) {
    let chunks = TABLE_PAGES * PAGE_CHUNKS;
    ((chunk / chunks) as usize, (chunk % chunks) as usize)
}
