//! The row: pages that another CPU handed out, kept apart from the CPU's own and given back to that
//! one as whole magazines. So the words of neighbouring pages, which share a line, are written by
//! one CPU again, however often pages change hands.
//!
//! ```text
//!  free of another CPU's page ──► row ── full: magazine ──► shelf of that CPU ──► its empty list
//!        │ of a third CPU                 │ no room                │ not needed, pressure, drains
//!        ▼                                ▼                        ▼
//!  the list of pages                               the zone's buddy
//! ```
//! A row is a list of the pcp like others, of order 0, and never popped. Its pages go back to one
//! CPU of the pcp's group at a time, the one that the first of them came from.

use super::PcpOps;
use crate::alloc::zone_ops::PRESSED;
use crate::frame::{PageState, PageWord};
use crate::pcp::depot::Depot;
use crate::pcp::row::{NOBODY, UNBOUND};
use crate::pcp::state::Pcp;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::types::CpuId;

impl<'a, P: Platform> PcpOps<'_, 'a, P> {
    /// The list that a block of `list` is freed to that was handed out with this word. A full row
    /// leaves first.
    #[inline]
    pub fn list_for(&mut self, list: usize, held: PageWord) -> usize {
        match self.ops.on.map.row() {
            Some((row, own)) if own == list => self.row_for((row, own), held),
            _ => list,
        }
    }

    #[inline(never)]
    fn row_for(&mut self, (row, own): (usize, usize), held: PageWord) -> usize {
        let (ops, pcp) = (self.ops, self.closed.pcp);
        let PageState::Allocated { pcp: from, .. } = held.state() else { return own };
        // The core's own fast path puts such pages on the list; only sequences ask for the row.
        let asked = pcp.fills_row() && pcp.may_have_sequences(&ops.on.platform);
        if from.cpu == pcp.cpu() || !asked {
            return own;
        }
        // Sequences ask for each page that a full row has no room for, whoever handed it out.
        if self.closed.len(row) >= pcp.lists[row].cap {
            pcp.row_left();
            self.send_row(row);
        }
        let taken = self.addressee(from.cpu).is_some();
        let bound = pcp.row_word.load(Relaxed);
        // Relaxed: advice.
        if taken && (self.closed.len(row) == 0 || matches!(bound, UNBOUND | NOBODY)) {
            pcp.row_word.store(held.0, Relaxed);
        } else if !taken && (bound == UNBOUND || bound == held.0) {
            // So that sequences do not ask for each such page.
            pcp.row_word.store(NOBODY, Relaxed);
        }
        let goes = taken && pcp.row_word.load(Relaxed) == held.0 && !ops.zone.has(PRESSED);
        if goes { row } else { own }
    }

    /// A refresh gives back what is in the row, however little: nobody can use it there.
    pub fn refresh_row(&mut self) {
        if let Some((row, _)) = self.ops.on.map.row() {
            self.send_row(row);
        }
    }

    /// Gives the row back, to the buddy what the depot has no room for, and under pressure.
    fn send_row(&mut self, row: usize) {
        let ops = self.ops;
        let depot = ops.depot(self.closed.pcp).filter(|_| !ops.zone.has(PRESSED));
        while self.closed.len(row) > 0 {
            let sent = depot.is_some_and(|depot| {
                let blocks = self.closed.len(row).min(self.magazine_blocks(depot, row));
                self.put_magazine(depot, row, blocks)
            });
            if !sent {
                let rest = self.closed.pcp.lists[row].pages_of(self.closed.len(row));
                self.drain_pages(rest, row);
                return;
            }
        }
    }

    /// The pcp of a CPU that takes rows from this one (ROW-1): another one of its group that is
    /// online, and on the node of the zone, whose depots also serve CPUs of other nodes.
    fn addressee(&self, cpu: CpuId) -> Option<&'a Pcp> {
        let (ops, pcp) = (self.ops, self.closed.pcp);
        let known = (cpu.0 as usize) < ops.on.cpus() && cpu != pcp.cpu() && ops.on.is_online(cpu);
        let near = |addressee: &&Pcp| {
            addressee.depot_cpu == pcp.depot_cpu
                && ops.on.node_of(cpu) == ops.on.node_of(pcp.depot_cpu)
        };
        known.then(|| ops.pcp(cpu)).filter(near)
    }

    /// Where a magazine of a list goes.
    pub(super) fn shelf_for(&self, depot: &'a Depot, list: usize) -> &'a AtomicU64 {
        let addressee = || match PageWord(self.closed.pcp.row_word.load(Relaxed)).state() {
            PageState::Allocated { pcp, .. } => self.addressee(pcp.cpu),
            _ => None,
        };
        match self.ops.on.map.row() {
            // Who has its pages is gone: they are anybody's.
            Some((row, own)) if row == list => {
                addressee().map_or(depot.shelf(own), |addressee| addressee.depot.shelf(row))
            }
            _ => depot.shelf(list),
        }
    }

    /// The rows that came back for a list.
    pub(super) fn rows_back(&self, list: usize) -> Option<&'a AtomicU64> {
        let (row, _) = self.ops.on.map.row().filter(|(_, own)| *own == list)?;
        Some(self.closed.pcp.depot.shelf(row))
    }
}
