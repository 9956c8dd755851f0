//! A look at a pcp that cannot be fenced.

use super::closed::{Closed, Look};
use super::ready;
use super::state::Pcp;
use super::word::PcpWord;
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::zone::state::Zone;

impl Pcp {
    /// Takes the gate and nothing else, waiting while somebody else has it: for a look at a pcp
    /// that cannot be fenced. Sequences go on.
    pub fn look<'a, P: Platform>(
        &'a self,
        platform: &P,
        zone: &'a Zone,
        slots: &'a [AtomicU32],
    ) -> Look<'a> {
        while !ready::take(&self.gate) {
            platform.relax();
        }
        let word = PcpWord(self.word.load(Relaxed)).with_slow(false);
        // Room that is kept stays: whoever enters next, or closes, gives it back.
        Look::new(Closed::new((self, zone, slots), word, self.parked.room()))
    }
}
