//! The metadata of an allocator in plain vectors, for platforms that need nothing better.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use zonal_core::alloc::{Allocator, new_over_fresh};
use zonal_core::machine::{Layout, Machine, MachineError, Metadata};
use zonal_core::pcp::owner::{OwnedBlock, Owner};
use zonal_core::pcp::state::Pcp;
use zonal_core::platform::Platform;
use zonal_core::policy::Policy;
use zonal_core::types::ZoneId;
use zonal_core::vmstat::numa::NumaDeltas;
use zonal_core::zone::state::Zone;
use zonal_core::zonelist::Node;

use crate::LabError;
use crate::huge;

/// Tables that an allocator lives on.
#[derive(Debug)]
pub struct Records {
    zones: Vec<Zone>,
    pcps: Vec<Pcp>,
    words: Vec<AtomicU64>,
    blocks: Vec<AtomicU8>,
    slots: Vec<AtomicU32>,
    nodes: Vec<Node>,
    zonelist: Vec<ZoneId>,
    numa: Vec<NumaDeltas>,
    owners: Vec<Owner>,
    owned: Vec<OwnedBlock>,
    /// Nobody was given them yet.
    are_fresh: bool,
}

impl Records {
    /// As [`new`](Self::new), for machines that people make up.
    ///
    /// # Errors
    /// [`LabError::Plan`] if this host has no room for the tables of so much memory.
    pub fn try_new(layout: &Layout) -> Result<Records, LabError> {
        let bytes = layout.words.saturating_mul(size_of::<AtomicU64>());
        // Asked for and given back: what cannot be had ends the program where nobody asks.
        let room = Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
        match room {
            true => Ok(Records::new(layout)),
            false => Err(LabError::Plan(format!(
                "machine: this host has no room for {} GiB of tables, 8 bytes for each page; \
                 expected a smaller memory_mib, or fewer nodes",
                bytes >> 30
            ))),
        }
    }

    /// Room for what `layout` asks for.
    pub fn new(layout: &Layout) -> Records {
        Records {
            zones: (0..layout.zones).map(|_| Zone::default()).collect(),
            pcps: (0..layout.pcps).map(|_| Pcp::default()).collect(),
            // The head of each free block is written when its memory comes online, 4 KiB of words
            // from the next: in pages of 4 KiB each would be a page fault, or two.
            words: huge::zeros(layout.words),
            blocks: bytemuck::zeroed_vec(layout.blocks),
            slots: bytemuck::zeroed_vec(layout.slots),
            nodes: (0..layout.nodes).map(|_| Node::default()).collect(),
            zonelist: (0..layout.zonelist).map(|_| ZoneId(0)).collect(),
            numa: (0..layout.numa).map(|_| NumaDeltas::default()).collect(),
            owners: (0..layout.owners).map(|_| Owner::default()).collect(),
            owned: (0..layout.owned).map(|_| OwnedBlock::default()).collect(),
            are_fresh: true,
        }
    }

    /// An allocator over them, without any memory yet. The first one does not look at the words,
    /// half a gigabyte for a large machine.
    ///
    /// # Errors
    /// As [`Allocator::new`].
    pub fn allocator<'a, P: Platform>(
        &'a mut self,
        machine: &Machine<'a>,
        policy: Policy,
        platform: P,
    ) -> Result<Allocator<'a, P>, MachineError> {
        if !self.are_fresh {
            return Allocator::new(machine, policy, self.metadata(), platform);
        }
        // SAFETY: (1) `new` made all in their default state, and who is given them takes
        // `are_fresh` away.
        unsafe { new_over_fresh(machine, policy, self.metadata(), platform) }
    }

    /// As an allocator takes them.
    pub fn metadata(&mut self) -> Metadata<'_> {
        self.are_fresh = false;
        let Records {
            zones, pcps, words, blocks, slots, nodes, zonelist, numa, owners, owned, ..
        } = self;
        Metadata { zones, pcps, words, blocks, slots, nodes, zonelist, numa, owners, owned }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        huge::give_back(std::mem::take(&mut self.words));
    }
}
