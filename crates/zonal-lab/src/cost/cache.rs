//! One cache of pages' contents: sets of a few places each, the least recently used one goes.
//!
//! Contents are kept by the chunk, [`CHUNK_LINES`] lines that lie in a row: a page is four chunks.
//! That is coarse enough to be quick, and fine enough that touching the head of a page does not
//! push a whole page out.
//!
//! A set has a byte of each place's chunk, so that one comparison of all of them says where a chunk
//! may be, and the order of the places in half a byte each. So a search reads no more of the tables
//! than these and the one place: large machines have tables that no cache of the host holds.
//!
//! - **CACHE-1** a set's order has each of its places once, the latest used first and those that are
//!   empty last.
//! - **CACHE-2** a chunk is in one place at most, whose mark is that of the chunk; the mark of an
//!   empty place is zero.

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

/// One byte in each of eight.
const BYTES: u64 = u64::from_le_bytes([1; 8]);
/// One bit in each half byte.
const HALVES: u64 = BYTES * 0x11;
/// Bits of a half byte.
const HALF: u32 = 4;
/// The places of a set as they lie: the first half byte is 0, the last 15.
const AS_THEY_LIE: u64 = 0xFEDC_BA98_7654_3210;

/// A place of a set.
pub type Place = u32;

/// What is known of a set without its places. Lies in a table as three words; all zero: empty.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// A byte of the chunk in each place.
    marks: [u64; 2],
    /// The places, the latest used first, in half a byte each; against [`AS_THEY_LIE`].
    order: u64,
}

impl Set {
    /// The place at a position of the order.
    #[inline]
    fn at(self, position: u32) -> Place {
        ((self.order ^ AS_THEY_LIE) >> (HALF * position)) as u32 & 15
    }

    /// The position of a place in the order.
    #[inline]
    fn position(self, place: Place) -> u32 {
        let other = (self.order ^ AS_THEY_LIE) ^ (u64::from(place) * HALVES);
        zero_halves(other).trailing_zeros() / HALF
    }

    /// A place becomes the first of the order.
    #[inline]
    fn use_now(&mut self, place: Place) {
        let order = self.order ^ AS_THEY_LIE;
        let behind: u64 = (!0 << (HALF * self.position(place))) << HALF;
        let before = !behind >> HALF;
        let order = order & behind | (order & before) << HALF | u64::from(place);
        self.order = order ^ AS_THEY_LIE;
    }

    /// A place becomes the one at position `last`, which is behind it.
    #[inline]
    fn use_last(&mut self, place: Place, last: u32) {
        let (order, position) = (self.order ^ AS_THEY_LIE, self.position(place));
        let kept: u64 = !(!0 << (HALF * position)) | (!0 << (HALF * last)) << HALF;
        let moved = (order >> HALF) & !kept & !(15 << (HALF * last));
        let order = order & kept | moved | u64::from(place) << (HALF * last);
        self.order = order ^ AS_THEY_LIE;
    }

    /// A bit for each place that may have a chunk of this mark: the highest of its byte.
    #[inline]
    fn marked(self, mark: u8) -> [u64; 2] {
        self.marks.map(|marks| zero_bytes(marks ^ (u64::from(mark) * BYTES)))
    }

    #[inline]
    fn set_mark(&mut self, place: Place, mark: u8) {
        let (marks, shift) = (&mut self.marks[place as usize / 8 % 2], place % 8 * 8);
        *marks = *marks & !(0xFF << shift) | u64::from(mark) << shift;
    }
}

/// The highest bit of each byte that is zero.
#[inline]
fn zero_bytes(of: u64) -> u64 {
    let low = BYTES * 0x7F;
    !(((of & low) + low) | of | low)
}

/// The highest bit of each half byte that is zero.
#[inline]
fn zero_halves(of: u64) -> u64 {
    let low = HALVES * 7;
    !(((of & low) + low) | of | low)
}

/// One cache.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Of each set.
    known: Vec<[u64; 3]>,
    /// [`WAYS`] places of each set.
    places: Vec<u64>,
    /// The last position of a set's order.
    last: u32,
}

/// Where a chunk is looked for: its set, and its mark.
#[derive(Clone, Copy, Debug)]
struct Where {
    set: usize,
    mark: u8,
}

impl Cache {
    /// An empty cache, size in KiB.
    pub fn new(kib: u64) -> Cache {
        let chunks = (kib / CHUNK_KIB).max(1);
        let ways = WAYS.min(chunks as usize);
        let sets = chunks as usize / ways;
        // Zeroed by the system when first touched: unused caches take no memory.
        Cache {
            known: bytemuck::zeroed_vec(sets),
            places: bytemuck::zeroed_vec(sets * WAYS),
            last: ways as u32 - 1,
        }
    }

    #[inline]
    fn set(&self, at: Where) -> Set {
        let [low, high, order] = self.known[at.set];
        Set { marks: [low, high], order }
    }

    #[inline]
    fn keep(&mut self, at: Where, Set { marks: [low, high], order }: Set) {
        self.known[at.set] = [low, high, order];
    }

    /// Where a chunk is looked for. Pages are scattered over the sets, as physical pages are; the
    /// chunks of one page lie in a row.
    #[inline]
    fn place_of(&self, chunk: u64) -> Where {
        let (page, part) = (chunk / PAGE_CHUNKS, chunk % PAGE_CHUNKS);
        let scattered = page.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let sets = self.known.len() as u64;
        let set = (((scattered >> 32) * sets) >> 32) + part;
        let set = if set < sets { set } else { set % sets };
        Where { set: set as usize, mark: ((scattered >> 24) as u8).max(1) }
    }

    /// The place that has a chunk, at any version.
    #[inline]
    fn search(&self, at: Where, chunk: u64) -> Option<(Place, u64)> {
        for (half, mut marked) in (0..).zip(self.set(at).marked(at.mark)) {
            while marked != 0 {
                let place = 8 * half + marked.trailing_zeros() / 8;
                let tag = self.places[at.set * WAYS + place as usize];
                if tag >> VERSION_BITS == chunk {
                    return Some((place, tag));
                }
                marked &= marked - 1;
            }
        }
        None
    }

    /// Whether it is present; if so, it becomes the most recently used of its set.
    #[inline]
    pub fn find(&mut self, tag: Tag) -> bool {
        self.look(tag).is_ok()
    }

    /// As [`find`](Self::find), with the place that has it; if it is not there, the place that it
    /// takes when it comes: that of another version of its chunk, or else the one used longest ago.
    #[inline]
    pub fn look(&mut self, tag: Tag) -> Result<Place, Place> {
        let at = self.place_of(tag.chunk());
        match self.search(at, tag.chunk()) {
            Some((place, found)) if found == tag.0 => {
                let mut set = self.set(at);
                if set.at(0) != place {
                    set.use_now(place);
                    self.keep(at, set);
                }
                Ok(place)
            }
            Some((place, _)) => Err(place),
            None => Err(self.set(at).at(self.last)),
        }
    }

    /// Whether it is present; changes nothing.
    #[inline]
    pub fn has(&self, tag: Tag) -> bool {
        let found = self.search(self.place_of(tag.chunk()), tag.chunk());
        found.is_some_and(|(_, found)| found == tag.0)
    }

    /// Puts it in, if it is not there. Returns what had to go, if anything.
    #[inline]
    pub fn put(&mut self, tag: Tag) -> Option<Tag> {
        match self.look(tag) {
            Ok(_) => None,
            Err(place) => self.put_at(tag, place),
        }
    }

    /// Puts it in where [`look`](Self::look) said.
    #[inline]
    pub fn put_at(&mut self, tag: Tag, place: Place) -> Option<Tag> {
        let at = self.place_of(tag.chunk());
        let mut set = self.set(at);
        set.use_now(place);
        set.set_mark(place, at.mark);
        self.keep(at, set);
        let gone = &mut self.places[at.set * WAYS + place as usize];
        let gone = Tag(std::mem::replace(gone, tag.0));
        (gone.0 != EMPTY && gone.chunk() != tag.chunk()).then_some(gone)
    }

    /// Removes it, if present.
    #[inline]
    pub fn take_out(&mut self, tag: Tag) {
        let at = self.place_of(tag.chunk());
        if let Some((place, found)) = self.search(at, tag.chunk())
            && found == tag.0
        {
            self.places[at.set * WAYS + place as usize] = EMPTY;
            let mut set = self.set(at);
            set.set_mark(place, 0);
            set.use_last(place, self.last);
            self.keep(at, set);
        }
    }

    /// Sets the version of its chunk, if present. Its place in the order stays.
    #[inline]
    pub fn change(&mut self, from: Tag, to: Tag) {
        let at = self.place_of(from.chunk());
        if let Some((place, found)) = self.search(at, from.chunk())
            && found == from.0
        {
            self.places[at.set * WAYS + place as usize] = to.0;
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
            let ways = cache.last as usize + 1;
            assert!((cache.known.len() * ways) as u64 <= kib / CHUNK_KIB, "no larger than it is");
            // Each set as it is defined: a list of tags, the latest used first.
            let mut naive: Vec<Vec<Tag>> = vec![Vec::new(); cache.known.len()];
            let mut random = Pcg64Mcg::seed_from_u64(kib);
            let mut below = |end: u64| random.next_u64() % end;
            for _ in 0..20_000 {
                let tag = Tag::new(below(3 * kib + 2), 1 + below(2));
                let set = &mut naive[cache.place_of(tag.chunk()).set];
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
                        let gone = (set.len() > ways).then(|| set.pop()).flatten();
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
