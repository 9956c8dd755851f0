//! A value for each page frame.

use std::collections::HashMap;

/// Pages of a piece, as a shift: a pageblock.
const PIECE_SHIFT: u32 = 9;
const PIECE: usize = 1 << PIECE_SHIFT;

/// A value for each page frame number, in pieces of one pageblock: traces touch few of those. What
/// was never set has its default.
#[derive(Clone, Debug)]
pub struct ByPage<T> {
    pieces: HashMap<u64, Box<[T; PIECE]>>,
}

impl<T> Default for ByPage<T> {
    fn default() -> ByPage<T> {
        ByPage { pieces: HashMap::new() }
    }
}

impl<T: Copy + Default> ByPage<T> {
    /// The value of a page.
    pub fn get(&self, pfn: u64) -> T {
        let piece = self.pieces.get(&(pfn >> PIECE_SHIFT));
        piece.map_or_else(T::default, |piece| piece[pfn as usize % PIECE])
    }

    /// The same, to be changed.
    pub fn of(&mut self, pfn: u64) -> &mut T {
        let piece = self.pieces.entry(pfn >> PIECE_SHIFT);
        &mut piece.or_insert_with(|| Box::new([T::default(); PIECE]))[pfn as usize % PIECE]
    }

    /// Sets the value of a page; returns the one before.
    pub fn replace(&mut self, pfn: u64, value: T) -> T {
        std::mem::replace(self.of(pfn), value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_values_of_their_own() {
        let mut pages = ByPage::<u32>::default();
        for pfn in [0, 511, 512, u64::MAX] {
            assert_eq!(pages.replace(pfn, pfn as u32 ^ 7), 0);
        }
        for pfn in [0, 511, 512, u64::MAX] {
            assert_eq!(pages.get(pfn), pfn as u32 ^ 7);
        }
        assert_eq!((pages.get(1), pages.get(1 << 40)), (0, 0));
    }
}
