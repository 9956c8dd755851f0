//! What moved, and what lists held, at the end of each bin of time.

use zonal_core::types::{CpuId, ZoneId};
use zonal_trace::{PolledState, Recording};

use crate::replay::kernel::{Moves, Watcher};
use crate::replay::machine::Rebuilt;
use crate::replay::program::Program;
use crate::replay::zones::ZoneMap;

/// Width of a bin.
pub const BIN_NS: u64 = 100_000_000;
/// Most bins: a trace of an hour. What comes later is in the last one.
const BINS_MAX: u64 = 36_000;

/// A store at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Since the beginning.
    pub moves: Moves,
    /// Pages on its lists, where that is told.
    pub count: Option<u64>,
    /// The mark at which it drains, where that is told.
    pub high: Option<u64>,
}

/// Samples at the ends of bins, of each zone and CPU.
#[derive(Debug)]
pub struct Timeline {
    start_ns: u64,
    next_ns: u64,
    wanted: usize,
    cpus: usize,
    places: usize,
    /// What had moved before the first bin, by zone and CPU; empty: nothing.
    before: Vec<Moves>,
    /// By bin, then zone and CPU.
    bins: Vec<Vec<Sample>>,
}

impl Timeline {
    /// Bins for the part of `program` that is replayed.
    pub fn new(program: &Program, map: &ZoneMap) -> Timeline {
        let span = program.span_ns.1.saturating_sub(program.start_ns);
        let cpus = program.cpus as usize;
        Timeline {
            start_ns: program.start_ns,
            next_ns: program.start_ns.saturating_add(BIN_NS),
            wanted: (span / BIN_NS + 1).min(BINS_MAX) as usize,
            cpus,
            places: map.zones().len() * cpus,
            before: Vec::new(),
            bins: Vec::new(),
        }
    }

    /// Takes what had moved before the first bin.
    pub fn begin(&mut self, sample: impl Fn(usize, u32) -> Sample) {
        let cpus = self.cpus;
        let all = (0..self.places).map(|place| sample(place / cpus, (place % cpus) as u32));
        self.before = all.map(|sample| sample.moves).collect();
    }

    /// Number of bins.
    pub fn len(&self) -> usize {
        self.bins.len()
    }

    /// Takes the samples of all bins that end before or at `now`.
    #[inline]
    pub fn reach(&mut self, now: u64, sample: impl Fn(usize, u32) -> Sample) {
        while now >= self.next_ns && self.bins.len() + 1 < self.wanted {
            self.push(&sample);
        }
    }

    /// Takes those of the last bin.
    pub fn finish(&mut self, sample: impl Fn(usize, u32) -> Sample) {
        while self.bins.len() < self.wanted {
            self.push(&sample);
        }
    }

    fn push(&mut self, sample: &impl Fn(usize, u32) -> Sample) {
        let cpus = self.cpus;
        let all = (0..self.places).map(|place| sample(place / cpus, (place % cpus) as u32));
        self.bins.push(all.collect());
        self.next_ns += BIN_NS;
    }

    /// When a bin ends.
    pub fn end_of(&self, bin: usize) -> u64 {
        self.start_ns + (bin as u64 + 1) * BIN_NS
    }

    /// What one store did in each bin, and what it held at its end.
    pub fn of(&self, zone: usize, cpu: u32) -> impl Iterator<Item = Sample> {
        let place = zone * self.cpus + cpu as usize;
        let mut before = self.before.get(place).copied().unwrap_or_default();
        self.bins.iter().map(move |bin| {
            let mut sample = bin[place];
            let total = sample.moves;
            sample.moves.subtract(&before);
            before = total;
            sample
        })
    }

    /// What the recorded kernel did: its events, and its lists as they were polled.
    ///
    /// # Errors
    /// An event that cannot be read.
    pub fn of_kernel(
        recording: &Recording,
        program: &Program,
        map: &ZoneMap,
        polls: &[PolledState],
    ) -> anyhow::Result<Timeline> {
        let mut timeline = Timeline::new(program, map);
        let release = recording.description().kernel_release.as_deref();
        let mut watcher = Watcher::new(map.clone(), release);
        let ends = timeline.start_ns;
        let polled = |now: u64, zone: usize, cpu: u32| {
            let last = polls.partition_point(|poll| poll.t_end_ns <= now).checked_sub(1)?;
            let at = &map.zones()[zone];
            let zones = &polls[last].zones;
            let zone = zones.iter().find(|zone| zone.node == at.node && zone.kind == at.kind)?;
            zone.pagesets.iter().find(|set| set.cpu == cpu)
        };
        let sample = |watcher: &Watcher, now: u64, zone: usize, cpu: u32| {
            let set = polled(now, zone, cpu);
            Sample {
                moves: watcher.moves().get(&(Some(zone), cpu)).copied().unwrap_or_default(),
                count: set.map(|set| set.count),
                high: set.map(|set| set.high),
            }
        };
        for event in recording.events_from(ends) {
            let event = event?;
            if event.time_ns > program.span_ns.1 {
                break;
            }
            let now = timeline.next_ns;
            timeline.reach(event.time_ns, |zone, cpu| sample(&watcher, now, zone, cpu));
            watcher.see(&event);
        }
        let now = program.span_ns.1;
        timeline.finish(|zone, cpu| sample(&watcher, now, zone, cpu));
        Ok(timeline)
    }
}

/// A store of the model now.
pub fn sample_of(rebuilt: &Rebuilt<'_>, zone: usize, cpu: u32) -> Sample {
    let allocator = &rebuilt.allocator;
    let pcp = allocator.pcp(ZoneId(zone as u16), CpuId(cpu));
    let (totals, events) = (pcp.totals(), pcp.events());
    let moves = Moves {
        refill_pages: totals.refilled_pages,
        refill_holds: events.refills,
        drain_pages: totals.drained_pages,
        drain_holds: events.drains,
        drain_bursts: allocator.platform().bursts(zone, cpu),
        direct_pages: events.direct_pages,
    };
    Sample { moves, count: Some(pcp.count().into()), high: Some(pcp.high().into()) }
}
