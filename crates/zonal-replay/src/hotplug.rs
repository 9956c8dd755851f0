//! CPUs that went or came while a recording was made, as samples of `/proc/zoneinfo` show: it has
//! the lists of CPUs that are online, and no others.
//!
//! A CPU that goes has its lists emptied, and the lists of those that stay have other bounds from
//! then on (LB E.4, E.9). Where a trace shows a CPU at work, it is online, whatever samples say.

use std::collections::BTreeSet;

use zonal_trace::{MachineDescription, Pageset, PolledState};

use crate::program::{OpKind, Program};
use crate::world::{Change, Changed};

/// All CPUs that go or come after the start, and those that are offline then.
pub fn hotplug(
    polls: &[PolledState],
    machine: &MachineDescription,
    program: &Program,
) -> Vec<Changed> {
    let readings = readings(polls, machine, program.start_ns);
    let (Some((_, first)), cpus) = (readings.first(), 0..program.cpus) else { return Vec::new() };
    let differs = |cpu: &u32| {
        !first.contains(cpu) || readings.iter().any(|(_, online)| !online.contains(cpu))
    };
    let mut all = Vec::new();
    for cpu in cpus.filter(differs) {
        let moves = moves_of(cpu, &readings, program).into_iter();
        let cpu = cpu as u16;
        all.extend(moves.map(|(time_ns, change)| Changed { time_ns, cpu, change }));
    }
    all
}

/// The time of a reading, as it begins and ends, and the CPUs that are online then.
type Reading = ((u64, u64), BTreeSet<u32>);

/// What was read for the start, and all samples after it; those that tell no list are left out.
fn readings(polls: &[PolledState], machine: &MachineDescription, start_ns: u64) -> Vec<Reading> {
    fn of<'s>(sets: impl Iterator<Item = &'s Pageset>) -> BTreeSet<u32> {
        sets.map(|set| set.cpu).collect()
    }
    let sampled = |poll: &PolledState| {
        let sets = poll.zones.iter().flat_map(|zone| &zone.pagesets);
        ((poll.t_begin_ns, poll.t_end_ns), of(sets))
    };
    let after = polls.partition_point(|poll| poll.t_end_ns <= start_ns);
    let described = || {
        let sets = machine.zones.iter().flat_map(|zone| &zone.pagesets);
        ((start_ns, start_ns), of(sets))
    };
    let before = machine.start.as_ref().or(polls[..after].last());
    let start = before.map_or_else(described, sampled);
    let all = std::iter::once(start).chain(polls[after..].iter().map(sampled));
    all.filter(|(_, online)| !online.is_empty()).collect()
}

/// When this CPU goes and comes. Between two samples it goes after the last and comes before the
/// first thing that it does.
fn moves_of(cpu: u32, readings: &[Reading], program: &Program) -> Vec<(u64, Change)> {
    let own = program.ops.iter().filter(|op| u32::from(op.cpu) == cpu);
    let at_work = own.filter(|op| !matches!(op.kind, OpKind::Refresh | OpKind::Change));
    let at_work: Vec<u64> = at_work.map(|op| op.time_ns).collect();
    let mut moves = Vec::new();
    let mut is_online = true;
    let mut before = program.start_ns;
    for ((begin, end), online) in readings {
        let (now_online, since) = (online.contains(&cpu), before);
        let (begin, end) = ((*begin).max(since), (*end).max(since));
        before = end;
        if now_online == is_online {
            continue;
        }
        is_online = now_online;
        let middle = since + (begin - since) / 2;
        let window = at_work.partition_point(|time| *time < since)
            ..at_work.partition_point(|time| *time < begin);
        let own = &at_work[window];
        moves.push(match is_online {
            true => (own.first().map_or(middle, |first| middle.min(*first)), Change::CpuComes),
            false => {
                let last = own.last().map_or(middle, |last| middle.max(last.saturating_add(1)));
                (last, Change::CpuGoes)
            }
        });
    }
    // While it is away it does nothing; otherwise the samples are not of this machine.
    let ends = moves.iter().skip(1).map(|(time, _)| *time).chain([u64::MAX]);
    let is_idle = |((from, change), to): (&(u64, Change), u64)| {
        let first = at_work.partition_point(|time| time < from);
        *change != Change::CpuGoes || at_work.get(first).is_none_or(|time| *time >= to)
    };
    if moves.iter().zip(ends).all(is_idle) { moves } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use zonal_trace::{PolledZone, ZoneDescription};

    use super::*;
    use crate::program::{NO_SLOT, Op};

    /// A sample of these seconds with the lists of these CPUs.
    fn sample((begin, end): (u64, u64), cpus: &[u32]) -> PolledState {
        let zone = PolledZone { pagesets: sets(cpus), ..PolledZone::default() };
        PolledState { t_begin_ns: begin, t_end_ns: end, zones: vec![zone] }
    }

    fn sets(cpus: &[u32]) -> Vec<Pageset> {
        let set = |cpu: &u32| Pageset {
            cpu: *cpu,
            count: 0,
            high: 0,
            batch: 0,
            high_min: None,
            high_max: None,
        };
        cpus.iter().map(set).collect()
    }

    /// What two CPUs do whose trace begins at 10, with these things done by the second one.
    fn of(polls: &[PolledState], at_start: &[u32], work: &[u64]) -> Vec<(u64, u16, Change)> {
        let zone = ZoneDescription { pagesets: sets(at_start), ..ZoneDescription::default() };
        let machine = MachineDescription { zones: vec![zone], ..MachineDescription::default() };
        let op =
            |time_ns: &u64| Op { time_ns: *time_ns, slot: NO_SLOT, cpu: 1, kind: OpKind::Alloc };
        let ops = work.iter().map(op).collect();
        let program = Program { ops, cpus: 2, start_ns: 10, ..Program::default() };
        let all = hotplug(polls, &machine, &program);
        all.into_iter().map(|one| (one.time_ns, one.cpu, one.change)).collect()
    }

    #[test]
    fn a_cpu_goes_after_the_last_and_comes_before_the_first_thing_that_it_does() {
        use Change::{CpuComes, CpuGoes};
        let polls = [
            sample((20, 22), &[0, 1]),
            sample((40, 42), &[0]),
            sample((60, 62), &[0]),
            sample((80, 82), &[0, 1]),
            sample((90, 92), &[0, 1]),
        ];
        assert_eq!(of(&polls, &[0, 1], &[]), [(31, 1, CpuGoes), (71, 1, CpuComes)]);
        assert_eq!(of(&polls, &[0, 1], &[15, 38, 64]), [(39, 1, CpuGoes), (64, 1, CpuComes)]);
        assert_eq!(of(&polls, &[0, 1], &[50]), [], "at work while it is said to be away");
        assert_eq!(of(&polls[..1], &[0, 1], &[]), []);
        let silent = [sample((20, 22), &[0, 1]), sample((40, 42), &[]), sample((60, 62), &[0, 1])];
        assert_eq!(of(&silent, &[0, 1], &[]), [], "a sample without lists tells nothing");
    }

    #[test]
    fn a_cpu_that_has_no_lists_is_offline_from_the_start() {
        use Change::{CpuComes, CpuGoes};
        assert_eq!(of(&[], &[0], &[]), [(10, 1, CpuGoes)]);
        assert_eq!(of(&[], &[0], &[15]), [], "it is at work");
        let comes = [sample((20, 22), &[0]), sample((40, 42), &[0, 1])];
        assert_eq!(of(&comes, &[0], &[33]), [(10, 1, CpuGoes), (31, 1, CpuComes)]);
        assert_eq!(of(&[], &[], &[]), [], "nothing is told of any");
    }
}
