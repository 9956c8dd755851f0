//! What recorded reclaim did, done to the model.

use zonal_core::alloc::RecordedRun;
use zonal_core::types::{CpuId, NodeId, ZoneId};
use zonal_trace::MachineDescription;

use crate::build::Rebuilt;
use crate::world::Change;
use crate::zones::ZoneMap;

/// The runs that go on.
#[derive(Debug)]
pub struct Reclaim {
    /// Numbers of the nodes, by their place in the model.
    nodes: Vec<u32>,
    /// Of each.
    runs: Vec<Option<RecordedRun>>,
}

impl Reclaim {
    /// Nothing goes on yet.
    pub fn new(machine: &MachineDescription) -> Reclaim {
        let nodes: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
        Reclaim { runs: vec![None; nodes.len()], nodes }
    }

    /// Does what a recording tells.
    pub fn play(&mut self, rebuilt: &Rebuilt<'_>, map: &ZoneMap, cpu: u16, change: Change) {
        let allocator = &rebuilt.allocator;
        match change {
            Change::ReclaimBegins(node) => {
                let Some(place) = self.nodes.iter().position(|own| *own == node) else { return };
                if self.runs[place].is_none() {
                    let run = RecordedRun::begin(allocator.tables(), NodeId(place as u16));
                    self.runs[place] = Some(run);
                }
            }
            Change::ReclaimEnds(node) => {
                let Some(place) = self.nodes.iter().position(|own| *own == node) else { return };
                if let Some(run) = self.runs[place].take() {
                    run.end(allocator.tables());
                }
            }
            Change::AllEmptied => {
                allocator.drain_all();
            }
            Change::Emptied(start) => {
                let zone = map.zones().iter().position(|zone| zone.start == start);
                if let Some(zone) = zone {
                    allocator.drain(ZoneId(zone as u16), CpuId(cpu.into()));
                }
            }
        }
    }
}
