//! How a pcp is closed.

use super::closed::Closed;
use super::ready::Taken;
use super::state::{Pcp, SEALED};
use super::word::PcpWord;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::zone::state::Zone;

/// What stands in the way of a closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    /// Somebody else has it closed.
    Gate,
    /// The platform cannot fence the CPU.
    Fence,
}

/// A pcp whose gate was just taken, with sequences kept out. One register, where what follows from
/// it takes six: [`closed`](Self::closed), which must follow, is made where it stays.
#[must_use]
pub(crate) struct Shut<'a>(&'a Pcp);

impl<'a> Shut<'a> {
    /// The closed pcp.
    #[inline]
    pub fn closed(self, zone: &'a Zone, slots: &'a [AtomicU32]) -> Closed<'a> {
        let pcp = self.0;
        let word = PcpWord(pcp.word.load(Relaxed)).with_slow(false);
        // Room is kept only where no sequence runs (PARK-2).
        Closed::new((pcp, zone, slots), word, pcp.parked.take_room())
    }
}

impl Pcp {
    /// Closes the pcp, or returns `None` if another thread has it closed, or the platform cannot
    /// fence.
    #[inline]
    pub(crate) fn try_close<'a, P: Platform>(
        &'a self,
        platform: &P,
        zone: &'a Zone,
        slots: &'a [AtomicU32],
    ) -> Option<Closed<'a>> {
        Some(self.shut(platform)?.closed(zone, slots))
    }

    /// Takes the gate and keeps sequences out. `None`: another thread has it closed, or the
    /// platform cannot fence.
    #[inline]
    pub(crate) fn shut<P: Platform>(&self, platform: &P) -> Option<Shut<'_>> {
        self.shut_once(platform).ok()?;
        Some(Shut(self))
    }

    /// The same, waiting while another thread has it closed. `None` only if the platform cannot
    /// fence the CPU. A range that is parked here is on no list and stays as it is, and no fast
    /// operation enters until the allocator closes the pcp, which frees the range (PARK-1): whoever
    /// needs all pages on lists, or fast operations soon, drains the CPU first.
    #[inline(never)]
    pub(crate) fn shut_patiently<P: Platform>(&self, platform: &P) -> Option<Shut<'_>> {
        loop {
            match self.shut_once(platform) {
                Ok(()) => return Some(Shut(self)),
                Err(Obstacle::Fence) => return None,
                Err(Obstacle::Gate) => platform.relax(),
            }
        }
    }

    #[inline]
    fn shut_once<P: Platform>(&self, platform: &P) -> Result<(), Obstacle> {
        // Opened again where the platform cannot fence, and where it panics; nothing was changed.
        let taken = Taken::new(&self.gate).ok_or(Obstacle::Gate)?;
        if self.may_have_sequences(platform) {
            if !self.keep_sequences_out(platform) {
                return Err(Obstacle::Fence);
            }
            if platform.ends_sequences() {
                // Relaxed: read behind the gate (PCP-7).
                self.flags.fetch_or(SEALED, Relaxed);
            }
        }
        // From here on it is the closed pcp that opens it.
        core::mem::forget(taken);
        Ok(())
    }

    /// Sets `slow` so that it stays. `false` if the platform cannot fence; the bit may then be set,
    /// and operations go through the core until the pcp is closed once.
    #[inline]
    fn keep_sequences_out<P: Platform>(&self, platform: &P) -> bool {
        loop {
            self.make_slow();
            if !platform.fence(self.cpu) {
                return false;
            }
            if PcpWord(self.word.load(Relaxed)).is_slow() {
                return true;
            }
        }
    }
}

#[cfg(test)]
impl Pcp {
    /// Closes the pcp, waiting while another thread has it closed.
    pub(crate) fn close<'a, P: Platform>(
        &'a self,
        platform: &P,
        zone: &'a Zone,
        slots: &'a [AtomicU32],
    ) -> Option<Closed<'a>> {
        Some(self.shut_patiently(platform)?.closed(zone, slots))
    }
}
