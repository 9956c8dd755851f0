//! A look at a pcp that cannot be fenced.

use super::closed::{Closed, Look};
use super::ready::{self, Taken};
use super::state::Pcp;
use super::word::PcpWord;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::zone::state::Zone;

impl Pcp {
    /// Base pages on all lists, or parked, with the gate held meanwhile, which opens as it was.
    /// `None`: somebody else has it.
    pub(crate) fn settled_count(&self) -> Option<u32> {
        let _taken = Taken::as_found(&self.gate)?;
        Some(self.count())
    }

    /// Takes the gate and nothing else, waiting while somebody else has it: for a look at a pcp
    /// that cannot be fenced. Sequences go on.
    pub(crate) fn look<'a, P: Platform>(
        &'a self,
        platform: &P,
        zone: &'a Zone,
        slots: &'a [AtomicU32],
    ) -> Look<'a> {
        loop {
            match self.try_look(zone, slots) {
                Some(look) => return look,
                None => platform.relax(),
            }
        }
    }

    /// As [`look`](Self::look); `None` if somebody else has the gate.
    pub(crate) fn try_look<'a>(
        &'a self,
        zone: &'a Zone,
        slots: &'a [AtomicU32],
    ) -> Option<Look<'a>> {
        if !ready::take(&self.gate) {
            return None;
        }
        let word = PcpWord(self.word.load(Relaxed)).with_slow(false);
        // Room that is kept stays: whoever enters next, or closes, gives it back.
        Some(Look::new(Closed::new((self, zone, slots), word, self.parked.room())))
    }
}
