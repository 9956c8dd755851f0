//! What moved, and what lists held, at the end of each bin of time.

use crate::moves::Moves;
use crate::program::Program;
use crate::zones::ZoneMap;

/// Width of a bin.
pub const BIN_NS: u64 = 100_000_000;
/// Most bins: a trace of an hour. Later samples are in the last one.
const BINS_MAX: u64 = 36_000;

/// A store at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Since the beginning.
    pub moves: Moves,
    /// Pages on its lists, if sampled.
    pub count: Option<u64>,
    /// The `high` at which it drains, if sampled.
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

    /// When the bin that is filled now ends.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }
}
