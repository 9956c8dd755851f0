//! What happened to the recorded machine, done to the model.

use zonal_core::alloc::{RecordedRun, Sysctl};
use zonal_core::types::{CpuId, NodeId, ZoneId};
use zonal_trace::MachineDescription;

use crate::build::Rebuilt;
use crate::world::{Change, Changed};
use crate::zones::ZoneMap;

/// The runs that go on.
#[derive(Debug)]
pub struct Changes {
    /// Numbers of the nodes, by their place in the model.
    nodes: Vec<u32>,
    /// Of each.
    runs: Vec<Option<RecordedRun>>,
    /// Settings that the model was given: what the recording tells of them is not done.
    given: Vec<Sysctl>,
    /// The settings that were written, and the CPUs that went or came.
    pub written: Vec<Changed>,
}

impl Changes {
    /// Nothing goes on yet.
    pub fn new(machine: &MachineDescription, given: Vec<Sysctl>) -> Changes {
        let nodes: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
        Changes { runs: vec![None; nodes.len()], nodes, given, written: Vec::new() }
    }

    /// Does what a recording tells.
    pub fn play(&mut self, rebuilt: &Rebuilt<'_>, map: &ZoneMap, changed: &Changed) {
        let allocator = &rebuilt.allocator;
        match changed.change {
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
                    allocator.drain(ZoneId(zone as u16), CpuId(changed.cpu.into()));
                }
            }
            Change::CpuGoes => {
                // The last one stays: a machine without a CPU is none.
                let may_go = allocator.tables().online_cpus(None) > 1;
                if may_go && allocator.cpu_dead(CpuId(changed.cpu.into())) {
                    self.written.push(*changed);
                }
            }
            Change::CpuComes => {
                if allocator.cpu_online(CpuId(changed.cpu.into())) {
                    self.written.push(*changed);
                }
            }
            Change::Set(sysctl, _) if self.given.contains(&sysctl) => {}
            Change::Set(sysctl, value) => {
                // A value that the policy does not follow changes nothing.
                if allocator.set(sysctl, value).is_ok() {
                    self.written.push(*changed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::total;
    use crate::progress::unwatched;
    use crate::replay::{Prepared, Replay};
    use crate::run::none::{self, Setup};
    use crate::run::outcome::Outcome;
    use crate::settings::Settings;
    use crate::told::Recorded;
    use zonal_core::policy::Policy;

    /// Pages drained of the sample, with what happened at its start, where the model was given this
    /// fraction.
    fn drained(changes: &[Change], given: Option<i64>) -> u64 {
        let at_start: Vec<(u64, Change)> = changes.iter().map(|change| (0, *change)).collect();
        let outcome = played(&at_start, given, (Policy::LINUX_6_18, None));
        total(&outcome.counted.moves).drain_pages
    }

    /// The sample replayed, so many of its events, with what happened so long after its start.
    fn played(
        changes: &[(u64, Change)],
        given: Option<i64>,
        (policy, limit): (Policy, Option<u64>),
    ) -> Outcome {
        let recording = zonal_trace::samples::zlib_make_j4().unwrap();
        let machine = recording.description();
        let map = ZoneMap::new(machine);
        let replay = Replay::new(&recording).policy(policy);
        let replay = limit.map_or(replay, |events| replay.limit(events));
        let prepared =
            replay.prepare((machine, &map), Recorded::default(), &mut unwatched).unwrap();
        let Prepared { mut program, told, shown, .. } = prepared;
        let start_ns = program.start_ns;
        let at = |&(ns, change): &(u64, Change)| Changed { time_ns: start_ns + ns, cpu: 1, change };
        let changes = changes.iter().map(at).collect();
        program.insert_changes(changes);
        let settings = Settings::of(&recording).unwrap();
        let sysctls: Vec<(Sysctl, i64)> =
            given.into_iter().map(|value| (Sysctl::HighFraction, value)).collect();
        let recorded = Recorded::default().at_start_of(machine, &program);
        let known = (&told, &shown, &settings);
        let setup = Setup::new(policy, recorded, &program, known);
        let setup = Setup { sysctls: &sysctls, ..setup };
        let (outcome, _) = none::replay(machine, &map, &program, setup, &mut unwatched).unwrap();
        assert_eq!(outcome.faults, [""; 0]);
        outcome
    }

    #[test]
    fn a_setting_is_written_when_it_was_unless_the_model_was_given_another() {
        let large = Change::Set(Sysctl::HighFraction, 8);
        let as_recorded = drained(&[], None);
        assert!(as_recorded > 5000, "{as_recorded}");
        assert_eq!(drained(&[large], None), 0, "lists of an eighth of the zone");
        assert_eq!(drained(&[large], Some(0)), drained(&[], Some(0)));
    }

    #[test]
    fn lists_are_short_while_background_reclaim_runs() {
        let reclaim = drained(&[Change::ReclaimBegins(0)], None);
        let over = drained(&[Change::ReclaimBegins(0), Change::ReclaimEnds(0)], None);
        assert!(reclaim > 2 * over, "{reclaim} {over}");
        assert_eq!(over, drained(&[], None));
        assert_eq!(drained(&[Change::ReclaimBegins(7)], None), over, "no such node");
    }

    #[test]
    fn a_cpu_that_goes_leaves_its_pages_and_the_others_its_share() {
        let as_recorded = drained(&[], None);
        let at_end = |change: (u64, Change)| {
            let outcome = played(&[change], None, (Policy::LINUX_6_18, None));
            assert_eq!(outcome.failed, 0);
            (outcome.written.len(), total(&outcome.counted.moves).drain_pages)
        };
        // The sample's second CPU works on: nothing may, so it goes only at the end.
        let end = 15_000_000_000;
        let (told, drained) = at_end((end - 1_000_000, Change::CpuGoes));
        assert_eq!(told, 1);
        assert!(drained > as_recorded, "{drained}: its lists were emptied");
        assert_eq!(at_end((0, Change::CpuComes)).1, as_recorded, "it is there");
    }

    #[test]
    fn only_what_was_written_is_told() {
        let fraction = Change::Set(Sysctl::HighFraction, 8);
        let written = |changes: &[(u64, Change)], given, limit| -> Vec<Change> {
            let outcome = played(changes, given, (Policy::LINUX_6_18, limit));
            outcome.written.into_iter().map(|changed| changed.change).collect()
        };
        assert_eq!(written(&[(0, fraction)], None, None), [fraction]);
        assert_eq!(written(&[(0, fraction)], Some(0), None), [], "the model was given another");
        let refused = Change::Set(Sysctl::HighFraction, -1);
        assert_eq!(written(&[(0, refused)], None, None), [], "no policy has such a value");
        let late = 3_600_000_000_000;
        assert_eq!(written(&[(0, fraction), (late, fraction)], None, Some(30_000)), [fraction]);
    }
}
