//! Holds of zone locks in a run of the model, each at its time.

use crate::moves::Moves;

/// Holds of one zone's lock by one step of a program, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// When the step was.
    pub time_ns: u64,
    /// Times the lock was taken.
    pub holds: u32,
    /// Base pages between buddy and lists.
    pub list_pages: u32,
    /// Of the holds, those for a block past the lists.
    pub direct: u32,
    /// The CPU of the step.
    pub cpu: u32,
}

/// Holds of every zone's lock, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// By zone.
    pub zones: Vec<Vec<Hold>>,
    /// Times each lock was taken so far.
    taken: Vec<u64>,
    /// What had moved so far, by zone and CPU.
    moved: Vec<Vec<Moves>>,
}

impl Holds {
    /// Begins with what was before the first step: by zone, how often its lock was taken and what
    /// each CPU has moved.
    pub fn begin(&mut self, zones: impl Iterator<Item = (u64, Vec<Moves>)>) {
        (self.taken, self.moved) = zones.unzip();
        self.zones = vec![Vec::new(); self.taken.len()];
    }

    /// A hold of a zone's lock does not count.
    pub fn skip_one(&mut self, zone: usize) {
        self.taken[zone] += 1;
    }

    /// Looks at a zone after a step of `cpu`.
    #[inline]
    pub fn see(
        &mut self,
        (zone, taken): (usize, u64),
        (time_ns, cpu): (u64, u32),
        moved: impl FnOnce() -> Moves,
    ) {
        let holds = taken - self.taken[zone];
        if holds == 0 {
            return;
        }
        self.taken[zone] = taken;
        let now = moved();
        let before = std::mem::replace(&mut self.moved[zone][cpu as usize], now);
        let mut moves = now;
        moves.subtract(&before);
        let of_lists = moves.refill_holds + moves.drain_holds;
        self.zones[zone].push(Hold {
            time_ns,
            holds: holds as u32,
            list_pages: (moves.refill_pages + moves.drain_pages) as u32,
            direct: holds.saturating_sub(of_lists) as u32,
            cpu,
        });
    }
}
