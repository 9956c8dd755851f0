//! Early memory comes to the zones: all that is free, once, and what is given back afterwards.

use core::ops::Range;

use super::Allocator;
use super::growth::{Growth, OnlineError};
use super::tables::Tables;
use crate::early::{Early, whole_pages};
use crate::platform::Platform;
use crate::types::{PAGE_SIZE, Pfn, ZoneId};

/// What came of early memory that was handed over, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Online: requests can have them. Those that were put off count, too.
    pub online: u64,
    /// In no zone of the machine, so nobody uses them: the kernel described fewer zones than it has
    /// memory.
    pub outside: u64,
}

impl<const N: usize> Early<N> {
    /// Brings every free page online, each in the zone of `allocator` that it lies in. From now on
    /// nothing is added, reserved or taken here. Call [`Allocator::setup`] afterwards. What is
    /// reserved stays away, until [`release_to`](Self::release_to) gives it back.
    ///
    /// # Errors
    /// [`OnlineError::Early`] if that was done before; nothing is changed then.
    /// [`OnlineError::InUse`] if pages were brought online already: all other stretches of pages
    /// are now, nevertheless; the stretch of one that was there stays as it is.
    pub fn hand_over<P: Platform>(
        &mut self,
        allocator: &Allocator<'_, P>,
    ) -> Result<HandedOver, OnlineError> {
        self.hand_over_by(allocator, Growth::online)
    }

    /// As [`hand_over`](Self::hand_over), but most of each node's highest zone is put off
    /// ([`Allocator::online_deferred`]): workers bring it online by [`Allocator::grow`], and
    /// [`Allocator::finish_growth`] ends it. [`HandedOver::online`] counts what was put off, too.
    ///
    /// # Errors
    /// As [`hand_over`](Self::hand_over), and [`OnlineError::DeferredFull`].
    pub fn hand_over_deferred<P: Platform>(
        &mut self,
        allocator: &Allocator<'_, P>,
    ) -> Result<HandedOver, OnlineError> {
        self.hand_over_by(allocator, Growth::online_deferred)
    }

    fn hand_over_by<'s, 'a, P: Platform>(
        &mut self,
        allocator: &'s Allocator<'a, P>,
        how: impl Fn(Growth<'s, 'a, P>, ZoneId, Range<Pfn>) -> Result<(), OnlineError>,
    ) -> Result<HandedOver, OnlineError> {
        self.close().map_err(OnlineError::Early)?;
        let mut handed = HandedOver::default();
        let mut result = Ok(());
        for (pages, _) in self.pages() {
            result = result.and(online(&allocator.tables, pages, &mut handed, &how));
        }
        result.map(|()| handed)
    }

    /// Gives back, to the allocator that has the free pages, what was reserved when they were
    /// handed over: `range`, in bytes, is not reserved any more, and every page comes online of
    /// which no other byte is reserved. For code of the boot, firmware's tables, the first stacks.
    /// Watermarks do not follow: call [`Allocator::setup`] when enough came back.
    ///
    /// # Errors
    /// [`OnlineError::Early`], with nothing changed, if part of the range is not reserved, or
    /// nothing was handed over yet: then [`release`](Self::release) gives it back.
    /// [`OnlineError::InUse`], with nothing changed, if a page was brought online by another call.
    pub fn release_to<P: Platform>(
        &mut self,
        allocator: &Allocator<'_, P>,
        range: Range<u64>,
    ) -> Result<HandedOver, OnlineError> {
        self.release_late(range.clone()).map_err(OnlineError::Early)?;
        let look = |growth: Growth<'_, '_, P>, zone, pages| growth.look_unused(zone, pages);
        if let Err(error) = self.give(allocator, &range, look) {
            self.reserve_late(range);
            return Err(error);
        }
        self.give(allocator, &range, Growth::online)
    }

    /// What is free of these bytes goes to the zones in this way.
    fn give<'s, 'a, P: Platform>(
        &self,
        allocator: &'s Allocator<'a, P>,
        range: &Range<u64>,
        how: impl Fn(Growth<'s, 'a, P>, ZoneId, Range<Pfn>) -> Result<(), OnlineError>,
    ) -> Result<HandedOver, OnlineError> {
        let mut handed = HandedOver::default();
        if range.is_empty() {
            return Ok(handed);
        }
        // A page at an end comes if nothing else of it is reserved: then it was not free before.
        let page = PAGE_SIZE as u64;
        let (first, end) = (range.start / page, range.end.div_ceil(page));
        let mut result = Ok(());
        for (free, _) in self.free() {
            if let Some(pages) = whole_pages(&free) {
                let pages = Pfn(pages.start.0.max(first))..Pfn(pages.end.0.min(end));
                result = result.and(online(&allocator.tables, pages, &mut handed, &how));
            }
        }
        result.map(|()| handed)
    }
}

/// Brings pages online, in whichever zones they lie.
fn online<'s, 'a, P: Platform>(
    on: &'s Tables<'a, P>,
    pages: Range<Pfn>,
    handed: &mut HandedOver,
    how: &impl Fn(Growth<'s, 'a, P>, ZoneId, Range<Pfn>) -> Result<(), OnlineError>,
) -> Result<(), OnlineError> {
    let mut outside = pages.end.0.saturating_sub(pages.start.0);
    let mut result = Ok(());
    for zone in on.zones {
        let start = pages.start.0.max(zone.start_pfn);
        let end = pages.end.0.min(zone.start_pfn + zone.spanned);
        if start < end {
            outside -= end - start;
            let online = how(Growth::new(on), zone.id, Pfn(start)..Pfn(end));
            handed.online += if online.is_ok() { end - start } else { 0 };
            result = result.and(online);
        }
    }
    handed.outside += outside;
    result
}
