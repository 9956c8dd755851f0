//! A value for each page frame.

use std::collections::HashMap;

/// Pages of a piece, as a shift: a pageblock.
const PIECE_SHIFT: u32 = 9;
const PIECE: usize = 1 << PIECE_SHIFT;
/// A piece with more values than this has a table of all its pages. Below it a list is smaller; a
/// trace that touches one page of each pageblock would need KiB for each of its events.
const LISTED_MAX: usize = 32;

/// A value for each page frame number, in pieces of one pageblock: traces touch few of those. What
/// was never set has its default.
#[derive(Clone, Debug)]
pub struct ByPage<T> {
    pieces: HashMap<u64, Piece<T>>,
}

/// The values of a pageblock.
#[derive(Clone, Debug)]
enum Piece<T> {
    /// Those that were set, by the page's place in the pageblock.
    Listed(Vec<(u16, T)>),
    /// Those of all pages.
    Whole(Box<[T; PIECE]>),
}

impl<T> Default for ByPage<T> {
    fn default() -> ByPage<T> {
        ByPage { pieces: HashMap::new() }
    }
}

impl<T: Copy + Default> ByPage<T> {
    /// The value of a page.
    pub fn get(&self, pfn: u64) -> T {
        let place = pfn as usize % PIECE;
        match self.pieces.get(&(pfn >> PIECE_SHIFT)) {
            None => T::default(),
            Some(Piece::Whole(all)) => all[place],
            Some(Piece::Listed(some)) => {
                some.binary_search_by_key(&place, at).map_or_else(|_| T::default(), |n| some[n].1)
            }
        }
    }

    /// The same, to be changed.
    pub fn of(&mut self, pfn: u64) -> &mut T {
        let piece = self.pieces.entry(pfn >> PIECE_SHIFT);
        // Mostly one value stays the only one, or very many follow.
        piece.or_insert_with(|| Piece::Listed(Vec::with_capacity(1))).of(pfn as usize % PIECE)
    }

    /// Sets the value of a page; returns the one before.
    pub fn replace(&mut self, pfn: u64, value: T) -> T {
        std::mem::replace(self.of(pfn), value)
    }
}

impl<T: Copy + Default> Piece<T> {
    fn of(&mut self, place: usize) -> &mut T {
        if let Piece::Listed(some) = self
            && some.len() == LISTED_MAX
            && some.binary_search_by_key(&place, at).is_err()
        {
            let mut all = Box::new([T::default(); PIECE]);
            some.iter().for_each(|(place, value)| all[usize::from(*place)] = *value);
            *self = Piece::Whole(all);
        }
        match self {
            Piece::Whole(all) => &mut all[place],
            Piece::Listed(some) => {
                let index = some.binary_search_by_key(&place, at).unwrap_or_else(|index| {
                    some.insert(index, (place as u16, T::default()));
                    index
                });
                &mut some[index].1
            }
        }
    }
}

/// A value's place in its pageblock.
fn at<T>((place, _): &(u16, T)) -> usize {
    usize::from(*place)
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

    #[test]
    fn values_stay_while_a_pageblock_fills_in_any_order() {
        let mut pages = ByPage::<u32>::default();
        let in_any_order = || (0..512_u64).map(|n| 512 + n * 173 % 512);
        for (set, pfn) in in_any_order().enumerate() {
            assert_eq!(pages.replace(pfn, pfn as u32), 0);
            for (index, pfn) in in_any_order().enumerate() {
                let expected = if index <= set { pfn as u32 } else { 0 };
                assert_eq!(pages.get(pfn), expected, "{pfn} after {set}");
            }
        }
        *pages.of(600) += 1;
        assert_eq!((pages.get(600), pages.get(601)), (601, 601));
    }

    #[test]
    fn a_page_here_and_there_takes_no_table_of_its_pageblock() {
        let mut pages = ByPage::<[u32; 3]>::default();
        for block in 0..1000_u64 {
            pages.replace((block << PIECE_SHIFT) | (block % 512), [1; 3]);
        }
        let bytes = |piece: &Piece<[u32; 3]>| match piece {
            Piece::Listed(some) => some.capacity() * size_of::<(u16, [u32; 3])>(),
            Piece::Whole(_) => size_of::<[[u32; 3]; PIECE]>(),
        };
        assert_eq!(pages.pieces.values().map(bytes).sum::<usize>(), 1000 * 16);
        assert!(size_of::<(u64, Piece<[u32; 3]>)>() <= 32);
    }
}
