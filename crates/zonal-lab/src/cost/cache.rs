//! One cache of pages' contents: sets of a few places each, the least recently used one goes.
//!
//! Contents are kept by the chunk, [`CHUNK_LINES`] lines that lie in a row: a page is four chunks.
//! That is coarse enough to be quick, and fine enough that touching the head of a page does not
//! push a whole page out.
//!
//! - **CACHE-1** within a set, places are sorted by their last use, the latest first, and empty
//!   places are last.
//! - **CACHE-2** a tag is in one place at most.

/// Lines of a chunk: a quarter of a page.
pub const CHUNK_LINES: u64 = 16;
/// Chunks of a page.
pub const PAGE_CHUNKS: u64 = 64 / CHUNK_LINES;
/// KiB of a chunk, of 64 bytes a line.
const CHUNK_KIB: u64 = CHUNK_LINES * 64 / 1024;
use crate::provenance::{Provenance, given};

given! {
    /// Places of a set. Second- and last-level caches of servers have 8 to 20.
    WAYS: usize = 16,
        Provenance::sourced("second- and last-level caches of servers have 8 to 20 ways");
}
/// Bits of a version. It wraps: a copy that is 4 million changes old would be taken for new.
pub const VERSION_BITS: u32 = 22;

/// A chunk as it was at some version, which is not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u64);

/// A place that holds nothing.
const EMPTY: u64 = 0;

impl Tag {
    /// The chunk at a version below `2^VERSION_BITS`.
    #[inline]
    pub fn new(chunk: u64, version: u64) -> Tag {
        Tag(chunk << VERSION_BITS | version)
    }

    /// The chunk.
    #[inline]
    pub fn chunk(self) -> u64 {
        self.0 >> VERSION_BITS
    }
}

/// One cache.
#[derive(Clone, Debug)]
pub struct Cache {
    places: Vec<u64>,
    ways: usize,
    sets: u64,
}

impl Cache {
    /// An empty cache, size in KiB.
    pub fn new(kib: u64) -> Cache {
        let chunks = (kib / CHUNK_KIB).max(1);
        let ways = WAYS.min(chunks as usize);
        let sets = chunks / ways as u64;
        // Zeroed by the system when first touched: unused caches take no memory.
        Cache { places: bytemuck::zeroed_vec(sets as usize * ways), ways, sets }
    }

    /// Where the places of a chunk's set begin. Pages are scattered over the sets, as physical
    /// pages are; the chunks of one page lie in a row.
    #[inline]
    fn start(&self, chunk: u64) -> usize {
        let (page, part) = (chunk / PAGE_CHUNKS, chunk % PAGE_CHUNKS);
        let scattered = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let set = ((scattered * self.sets) >> 32) + part;
        let set = if set < self.sets { set } else { set % self.sets };
        set as usize * self.ways
    }

    /// The places of a tag's set.
    #[inline]
    fn set(&mut self, tag: Tag) -> &mut [u64] {
        let start = self.start(tag.chunk());
        &mut self.places[start..start + self.ways]
    }

    /// Whether it is present; if so, it becomes the most recently used of its set.
    #[inline]
    pub fn find(&mut self, tag: Tag) -> bool {
        self.look(tag).is_ok()
    }

    /// As [`find`](Self::find); if it is not there, the place that it takes when it comes: that of
    /// another version of its chunk, or else the last.
    #[inline]
    pub fn look(&mut self, tag: Tag) -> Result<(), usize> {
        let set = self.set(tag);
        let same = |place: &u64| place >> VERSION_BITS == tag.chunk() && *place != EMPTY;
        match set.iter().position(same) {
            Some(at) if set[at] == tag.0 => {
                set.copy_within(..at, 1);
                set[0] = tag.0;
                Ok(())
            }
            Some(at) => Err(at),
            None => Err(set.len() - 1),
        }
    }

    /// Whether it is present; changes nothing.
    #[inline]
    pub fn has(&mut self, tag: Tag) -> bool {
        self.set(tag).contains(&tag.0)
    }

    /// Puts it in, if it is not there. Returns what had to go, if anything.
    #[inline]
    pub fn put(&mut self, tag: Tag) -> Option<Tag> {
        match self.look(tag) {
            Ok(()) => None,
            Err(at) => self.put_at(tag, at),
        }
    }

    /// Puts it in where [`look`](Self::look) said.
    #[inline]
    pub fn put_at(&mut self, tag: Tag, at: usize) -> Option<Tag> {
        let set = self.set(tag);
        let gone = Tag(set[at]);
        set.copy_within(..at, 1);
        set[0] = tag.0;
        (gone.0 != EMPTY && gone.chunk() != tag.chunk()).then_some(gone)
    }

    /// Removes it, if present.
    #[inline]
    pub fn take_out(&mut self, tag: Tag) {
        let set = self.set(tag);
        if let Some(at) = set.iter().position(|place| *place == tag.0) {
            set[at] = EMPTY;
            set[at..].rotate_left(1);
        }
    }

    /// Sets the version of its chunk, if present. Its place in the order stays.
    #[inline]
    pub fn change(&mut self, from: Tag, to: Tag) {
        let set = self.set(from);
        if let Some(place) = set.iter_mut().find(|place| **place == from.0) {
            *place = to.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn it_does_what_a_list_for_each_set_does() {
        for kib in [1, 2, 16, 40, 256] {
            let mut cache = Cache::new(kib);
            assert!(cache.places.len() as u64 <= kib / CHUNK_KIB, "no larger than it is");
            // Each set as it is defined: a list of tags, the latest used first.
            let mut naive: Vec<Vec<Tag>> = vec![Vec::new(); cache.sets as usize];
            let mut random = Pcg64Mcg::seed_from_u64(kib);
            let mut below = |end: u64| random.next_u64() % end;
            for _ in 0..20_000 {
                let tag = Tag::new(below(3 * kib + 2), 1 + below(2));
                let first = cache.places.as_ptr() as usize;
                let at = (cache.set(tag).as_ptr() as usize - first) / 8 / cache.ways;
                let set = &mut naive[at];
                let at = set.iter().position(|known| *known == tag);
                assert_eq!(cache.has(tag), at.is_some());
                match (below(4), at) {
                    (0, _) => {
                        set.retain(|known| *known != tag);
                        cache.take_out(tag);
                    }
                    (1, Some(at)) => {
                        let other = Tag::new(tag.chunk(), 3);
                        set.retain(|known| *known != other);
                        cache.take_out(other);
                        let at = set.iter().position(|known| *known == tag).unwrap_or(at);
                        set[at] = other;
                        cache.change(tag, other);
                    }
                    (_, Some(at)) => {
                        let known = set.remove(at);
                        set.insert(0, known);
                        assert!(cache.find(tag));
                    }
                    (_, None) => {
                        assert!(!cache.find(tag));
                        set.retain(|known| known.chunk() != tag.chunk());
                        set.insert(0, tag);
                        let gone = (set.len() > cache.ways).then(|| set.pop()).flatten();
                        assert_eq!(cache.put(tag), gone);
                    }
                }
            }
        }
    }

    #[test]
    fn what_fits_stays_and_what_does_not_goes() {
        let mut cache = Cache::new(1024);
        let mut pages = |pages: u64| {
            let tags = || (0..pages * PAGE_CHUNKS).map(|chunk| Tag::new(chunk, 1));
            for tag in tags() {
                if !cache.find(tag) {
                    cache.put(tag);
                }
            }
            tags().filter(|tag| cache.has(*tag)).count()
        };
        assert_eq!(pages(100), 400, "less than half of it");
        let kept = pages(2000);
        assert!((800..=1024).contains(&kept), "{kept} of 8000 in 1024 places");
    }
}
