//! A sorted list of regions of physical memory, in an array of fixed size (EARLY-1, EARLY-2).

use core::ops::Range;

use super::error::EarlyError;
use crate::types::NodeId;

/// Bytes `start..end` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub start: u64,
    pub end: u64,
    pub node: NodeId,
}

impl Region {
    pub fn new(range: Range<u64>, node: NodeId) -> Result<Region, EarlyError> {
        if range.start > range.end {
            return Err(EarlyError::Backwards(range.start, range.end));
        }
        Ok(Region { start: range.start, end: range.end, node })
    }
}

/// At most `N` regions.
#[derive(Clone, Debug)]
pub(super) struct Regions<const N: usize> {
    all: [Region; N],
    len: usize,
}

impl<const N: usize> Regions<N> {
    pub const fn new() -> Self {
        Regions { all: [Region { start: 0, end: 0, node: NodeId(0) }; N], len: 0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Region> + Clone {
        self.all[..self.len].iter()
    }

    /// The first region that ends behind `at`.
    fn ends_behind(&self, at: u64) -> usize {
        self.all[..self.len].partition_point(|region| region.end <= at)
    }

    /// Whether regions cover all of `range`.
    pub fn covers(&self, range: &Region) -> bool {
        let mut from = range.start;
        for region in &self.all[self.ends_behind(range.start)..self.len] {
            if region.start > from || from >= range.end {
                break;
            }
            from = region.end;
        }
        from >= range.end
    }

    /// Whether so many regions more have room. `Err`: how many there may be.
    fn has_room(&self, more: usize) -> Result<(), usize> {
        if more > N - self.len { Err(N) } else { Ok(()) }
    }

    fn insert(&mut self, at: usize, region: Region) {
        self.all.copy_within(at..self.len, at + 1);
        self.all[at] = region;
        self.len += 1;
    }

    fn erase(&mut self, from: usize, to: usize) {
        self.all.copy_within(to..self.len, from);
        self.len -= to - from;
    }

    /// The next part of `new` from `from` on that no region has, and the position where it goes.
    fn gap(&self, new: &Region, from: u64) -> Option<(usize, Region)> {
        let mut start = from;
        let mut at = self.ends_behind(start);
        while at < self.len && self.all[at].start <= start {
            start = self.all[at].end;
            at += 1;
        }
        let end = if at < self.len { new.end.min(self.all[at].start) } else { new.end };
        (start < end).then_some((at, Region { start, end, ..*new }))
    }

    /// Whether a region at position `at` continues the one in front of it and is continued by the
    /// one that is there.
    fn joins(&self, at: usize, region: &Region) -> [bool; 2] {
        let touch = |left: &Region, right: &Region| left.end == right.start;
        let before = at.checked_sub(1).map(|at| self.all[at]);
        let behind = self.all[..self.len].get(at);
        [
            before.is_some_and(|before| before.node == region.node && touch(&before, region)),
            behind.is_some_and(|behind| behind.node == region.node && touch(region, behind)),
        ]
    }

    /// Adds what of `new` is not there.
    pub fn add(&mut self, new: Region) -> Result<(), usize> {
        let (mut from, mut more) = (new.start, 0);
        while let Some((at, gap)) = self.gap(&new, from) {
            more += usize::from(self.joins(at, &gap) == [false, false]);
            from = gap.end;
        }
        self.has_room(more)?;
        let mut from = new.start;
        while let Some((at, gap)) = self.gap(&new, from) {
            match self.joins(at, &gap) {
                [false, false] => self.insert(at, gap),
                [true, false] => self.all[at - 1].end = gap.end,
                [false, true] => self.all[at].start = gap.start,
                [true, true] => {
                    self.all[at - 1].end = self.all[at].end;
                    self.erase(at, at + 1);
                }
            }
            from = gap.end;
        }
        Ok(())
    }

    /// Whether a region has bytes on both sides of `at`.
    fn is_inside(&self, at: u64) -> bool {
        self.all[..self.len].get(self.ends_behind(at)).is_some_and(|region| region.start < at)
    }

    /// Makes `at` a boundary. The caller knows that there is room.
    fn split(&mut self, at: u64) {
        if self.is_inside(at) {
            let index = self.ends_behind(at);
            let whole = self.all[index];
            self.all[index].end = at;
            self.insert(index + 1, Region { start: at, ..whole });
        }
    }

    /// Takes `old` out.
    pub fn cut(&mut self, old: Region) -> Result<(), usize> {
        if old.start == old.end {
            return Ok(());
        }
        let first = self.ends_behind(old.start);
        let one = self.all[..self.len].get(first);
        if one.is_some_and(|one| one.start < old.start && old.end < one.end) {
            self.has_room(1)?;
            self.split(old.start);
            self.all[first + 1].start = old.end;
            return Ok(());
        }
        let mut from = first;
        if from < self.len && self.all[from].start < old.start {
            self.all[from].end = old.start;
            from += 1;
        }
        let to = self.ends_behind(old.end).max(from);
        self.erase(from, to);
        if from < self.len && self.all[from].start < old.end {
            self.all[from].start = old.end;
        }
        Ok(())
    }

    /// Makes what is there of `new` that of its node.
    pub fn set_node(&mut self, new: Region) -> Result<(), usize> {
        if new.start == new.end {
            return Ok(());
        }
        self.has_room([new.start, new.end].iter().filter(|at| self.is_inside(**at)).count())?;
        self.split(new.start);
        self.split(new.end);
        for region in &mut self.all[..self.len] {
            if new.start <= region.start && region.end <= new.end {
                region.node = new.node;
            }
        }
        let mut at = 1;
        while at < self.len {
            let (left, right) = (self.all[at - 1], self.all[at]);
            if left.node == right.node && left.end == right.start {
                self.all[at - 1].end = right.end;
                self.erase(at, at + 1);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}
