//! How many pages of a zone are free (see [`crate::zone::steady`]).

use super::ZoneOps;
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::Masked;
use crate::zone::steady::{self, Moves, Places};

/// Times that a reader waits for a gate. Whoever has it moves pages and goes on soon, unless it was
/// interrupted, perhaps by this reader.
const WAITS: u32 = 1 << 16;

/// Pages that are free, or wait on lists, in depots or in pageblocks that CPUs own.
pub fn free_pages<P: Platform>(ops: ZoneOps<'_, '_, P>) -> u64 {
    steady::count(&ops).0
}

/// Pages on a pcp, read with its gate held. `false`: somebody has it all the time, and the pages
/// are a guess.
fn settled<P: Platform>(ops: ZoneOps<'_, '_, P>, pcp: &Pcp) -> (u64, bool) {
    for _ in 0..WAITS {
        // Nobody who interrupts this waits for a gate that it holds.
        let masked = Masked::new(&ops.on.platform);
        let pages = pcp.settled_count();
        drop(masked);
        if let Some(pages) = pages {
            return (pages.into(), true);
        }
        ops.on.platform.relax();
    }
    (u64::from(pcp.count()), false)
}

fn moves<P: Platform>(ops: ZoneOps<'_, '_, P>) -> Moves {
    let changes = ops.depots().map(|(_, depot)| depot.moves());
    Moves { holds: ops.zone.lock_holds().0, changes: changes.fold(0, u64::wrapping_add) }
}

impl<P: Platform> Places for ZoneOps<'_, '_, P> {
    fn before(&self) -> Moves {
        moves(*self)
    }

    fn lists(&self) -> (u64, bool) {
        let all = self.pcps().map(|pcp| settled(*self, pcp));
        let (lists, is_right) = all.fold((0, true), |sum, of| (sum.0 + of.0, sum.1 && of.1));
        (lists + self.owned().settled_pages(), is_right)
    }

    fn locked(&self) -> (u64, Moves) {
        let locked = self.lock();
        let depots = self.depots().map(|(_, depot)| depot.settled_pages()).sum::<u64>();
        let Moves { holds, changes } = moves(*self);
        (depots + locked.buddy.free_pages(), Moves { holds: holds - 1, changes })
    }

    fn relax(&self) {
        self.on.platform.relax();
    }
}
