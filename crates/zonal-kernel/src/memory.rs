//! Memory that comes and goes while the kernel runs.
//!
//! ```text
//!  at boot   describe zones whose spans have room for all memory that may ever come
//!  comes     add(allocator, pages)       online, and limits follow
//!  goes      remove(allocator, pages)    refused while a page of it is in use; then nobody's
//! ```
//! A zone has a word for each page of its span, so what may come must lie in one. `remove` moves no
//! pages: it drains lists and depots, and says which page is in the way.

use core::fmt;
use core::ops::Range;

use zonal_core::alloc::range::RangeError;
use zonal_core::alloc::{Allocator, OnlineError};
use zonal_core::gfp::Gfp;
use zonal_core::platform::Platform;
use zonal_core::types::{Pfn, ZoneId};

/// Why memory cannot come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The page lies in no zone, or the range is empty there.
    Outside(Pfn),
    /// Part of it is there already. Nothing was changed.
    There(OnlineError),
    /// Part of it is there already, and what precedes this page was brought online and is in use by
    /// now: it stays. [`remove`] takes it away when it is free again.
    Partly(Pfn, OnlineError),
    /// A page is in use or was never there, or the range is empty or leaves its zone.
    InUse(RangeError),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Outside(pfn) => write!(
                f,
                "{pfn:?} lies in no zone: describe zones whose spans have room for all memory that \
                 may come"
            ),
            MemoryError::There(error) => error.fmt(f),
            MemoryError::Partly(pfn, error) => write!(
                f,
                "{error}; what precedes {pfn:?} is online and in use: it stays until it is free \
                 and is removed"
            ),
            MemoryError::InUse(error) => write!(f, "memory cannot leave: {error}"),
        }
    }
}

impl core::error::Error for MemoryError {}

/// Brings pages online that were never there, or have left: in one zone or several. Watermarks and
/// the sizes of lists follow.
///
/// Calls may come at once, and beside [`remove`] and requests: each page comes online once, and who
/// finds a part of its range there is refused. Limits follow when all calls have returned.
///
/// # Errors
/// [`MemoryError::Outside`], [`MemoryError::There`], with nothing changed; [`MemoryError::Partly`].
pub fn add<P: Platform>(on: &Allocator<'_, P>, pages: Range<Pfn>) -> Result<(), MemoryError> {
    if pages.start.0 >= pages.end.0 {
        return Err(MemoryError::Outside(pages.start));
    }
    // All of it has a zone, before anything changes.
    parts(on, pages.clone()).try_for_each(|part| part.map(|_| ()))?;
    for part in parts(on, pages.clone()) {
        let (zone, part) = part?;
        if let Err(error) = on.online(zone, part.clone()) {
            return Err(take_back(on, pages.start..part.start, error));
        }
    }
    on.setup();
    Ok(())
}

/// Takes the pages away again that came in front of a part that is there already.
fn take_back<P: Platform>(
    on: &Allocator<'_, P>,
    pages: Range<Pfn>,
    error: OnlineError,
) -> MemoryError {
    let mut kept = None;
    for (_, part) in parts(on, pages.clone()).flatten() {
        if take_away(on, part.clone()).is_err() {
            kept = Some(part.end);
        }
    }
    if kept.is_some() {
        on.setup();
    }
    kept.map_or(MemoryError::There(error), |end| MemoryError::Partly(end, error))
}

/// What of these pages lies in which zone, by rising number.
fn parts<P: Platform>(
    on: &Allocator<'_, P>,
    pages: Range<Pfn>,
) -> impl Iterator<Item = Result<(ZoneId, Range<Pfn>), MemoryError>> {
    let mut at = pages.start;
    core::iter::from_fn(move || {
        let part = (at.0 < pages.end.0).then(|| part(on, at, pages.end))?;
        at = part.as_ref().map_or(pages.end, |(_, part)| part.end);
        Some(part)
    })
}

/// The zone of page `at`, and what of the pages up to `end` lies in it.
fn part<P: Platform>(
    on: &Allocator<'_, P>,
    at: Pfn,
    end: Pfn,
) -> Result<(ZoneId, Range<Pfn>), MemoryError> {
    let zone = on.zones().iter().find(|zone| zone.contains(at)).ok_or(MemoryError::Outside(at))?;
    let zone_end = zone.start_pfn().0 + zone.spanned();
    Ok((zone.id(), at..Pfn(end.0.min(zone_end))))
}

/// Takes pages of one zone away. Afterwards nobody has them, and the memory may be turned off.
/// Watermarks and the sizes of lists follow. Calls may come at once, as those of [`add`]. Requests
/// go on meanwhile: a page that is handed out for a moment is in the way, so try again.
///
/// # Errors
/// [`MemoryError::InUse`], with nothing changed.
pub fn remove<P: Platform>(on: &Allocator<'_, P>, pages: Range<Pfn>) -> Result<(), MemoryError> {
    take_away(on, pages)?;
    on.setup();
    Ok(())
}

/// As [`remove`]; limits do not follow.
fn take_away<P: Platform>(on: &Allocator<'_, P>, pages: Range<Pfn>) -> Result<(), MemoryError> {
    // Reserves are no reason to keep it.
    let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
    on.ranges().withdraw(pages, gfp).map_err(MemoryError::InUse)
}
