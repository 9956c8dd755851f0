//! Pages of a file as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Most ranges in one set. Beyond that, near ones are joined.
const RANGES_MAX: usize = 1024;

/// A set of pages, of bounded size: it may name more pages than were put in, never fewer.
///
/// # Invariants
/// - **RANGES-1** ranges are not empty, and there is a page between any two of them.
/// - **RANGES-2** there are at most `RANGES_MAX` of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges {
    /// First page, and the page after the last one.
    map: BTreeMap<u64, u64>,
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn contains(&self, page: u64) -> bool {
        self.map.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.map.iter().map(|(start, end)| *start..*end)
    }

    pub fn insert(&mut self, page: u64) {
        self.insert_range(page..page.saturating_add(1));
    }

    pub fn insert_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.insert_range(range));
    }

    fn insert_range(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if let Some((&before, &its_end)) = self.map.range(..=start).next_back()
            && its_end >= start
        {
            start = before;
        }
        while let Some((&at, &its_end)) = self.map.range(start..=end).next() {
            self.map.remove(&at);
            end = end.max(its_end);
        }
        self.map.insert(start, end);
        if self.map.len() > RANGES_MAX {
            self.coarsen();
        }
    }

    /// Removes one page.
    pub fn remove(&mut self, page: u64) {
        self.remove_range(page..page.saturating_add(1));
    }

    /// Removes every page from `first` on.
    pub fn cut(&mut self, first: u64) {
        self.remove_range(first..u64::MAX);
    }

    pub fn remove_all(&mut self, other: &Ranges) {
        other.iter().for_each(|range| self.remove_range(range));
    }

    fn remove_range(&mut self, range: Range<u64>) {
        let before = self.map.range(..range.start).next_back().map(|(start, end)| (*start, *end));
        if let Some((start, end)) = before
            && end > range.start
        {
            self.map.insert(start, range.start);
            if end > range.end {
                self.map.insert(range.end, end);
            }
        }
        while let Some((&start, &end)) = self.map.range(range.clone()).next() {
            self.map.remove(&start);
            if end > range.end {
                self.map.insert(range.end, end);
            }
        }
        if self.map.len() > RANGES_MAX {
            self.coarsen();
        }
    }

    /// Joins near ranges until half of the limit is left.
    fn coarsen(&mut self) {
        let mut gap = 1_u64;
        while self.map.len() > RANGES_MAX / 2 {
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.map.len());
            for (&start, &end) in &self.map {
                match joined.last_mut() {
                    Some(last) if start - last.1 <= gap => last.1 = end,
                    _ => joined.push((start, end)),
                }
            }
            self.map = joined.into_iter().collect();
            gap = gap.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(pages: impl IntoIterator<Item = u64>) -> Ranges {
        let mut ranges = Ranges::default();
        pages.into_iter().for_each(|page| ranges.insert(page));
        ranges
    }

    #[test]
    fn neighbours_are_one_range() {
        let ranges = of([5, 3, 4, 9, 0, 8]);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..1, 3..6, 8..10]);
    }

    #[test]
    fn too_many_ranges_are_joined_and_none_is_forgotten() {
        let pages: Vec<u64> = (0..20_000).map(|at| at * at % 10_000_019 * 3).collect();
        let ranges = of(pages.iter().copied());
        assert!(ranges.map.len() <= RANGES_MAX);
        assert!(pages.iter().all(|page| ranges.contains(*page)));
        let far = of([0, u64::MAX - 1]);
        assert_eq!(far.map.len(), 2);
    }

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set_of_pages(
            ops in prop::collection::vec((0..4_u8, 0..60_u64), 0..200),
        ) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for (op, page) in ops {
                match op {
                    0 | 1 => {
                        ranges.insert(page);
                        model.insert(page);
                    }
                    2 => {
                        ranges.remove(page);
                        model.remove(&page);
                    }
                    _ => {
                        ranges.cut(page);
                        model.retain(|at| *at < page);
                    }
                }
                let pages: Vec<u64> = ranges.iter().flatten().collect();
                prop_assert!(pages.iter().eq(model.iter()));
                let apart: Vec<Range<u64>> = ranges.iter().collect();
                prop_assert!(apart.windows(2).all(|two| two[0].end < two[1].start));
                prop_assert!((0..60).all(|at| ranges.contains(at) == model.contains(&at)));
            }
        }
    }
}
