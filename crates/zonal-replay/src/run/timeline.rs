//! What moved, and what lists held, at the end of each bin of time.

use std::ops::RangeInclusive;

use crate::moves::Moves;
use crate::program::Program;
use crate::unjudged::NotJudged;
use crate::zones::ZoneMap;

/// Width of a bin, unless that makes too many.
const BIN_NS: u64 = 100_000_000;
/// Most bins, of that width a trace of an hour. Longer traces have wider ones.
const BINS_MAX: u64 = 36_000;
/// Most samples of all zones and CPUs together: 300 MB.
const SAMPLES_MAX: u64 = 1 << 22;

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
    bin_ns: u64,
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
    /// Bins for the part of `program` that is replayed, on so many CPUs.
    pub fn new(program: &Program, cpus: u32, map: &ZoneMap) -> Timeline {
        let span = program.span_ns.1.saturating_sub(program.start_ns);
        let cpus = cpus as usize;
        let places = map.zones().len() * cpus;
        let most = BINS_MAX.min(SAMPLES_MAX / (places as u64).max(1)).max(1);
        let bin_ns = (span / most / BIN_NS + 1).saturating_mul(BIN_NS);
        Timeline {
            start_ns: program.start_ns,
            bin_ns,
            next_ns: program.start_ns.saturating_add(bin_ns),
            wanted: (span / bin_ns + 1) as usize,
            cpus,
            places,
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
        self.next_ns = self.next_ns.saturating_add(self.bin_ns);
    }

    /// Width of a bin.
    pub fn bin_ns(&self) -> u64 {
        self.bin_ns
    }

    /// The bin that a time lies in.
    pub fn bin_of(&self, time_ns: u64) -> usize {
        let bin = time_ns.saturating_sub(self.start_ns) / self.bin_ns;
        (bin as usize).min(self.wanted - 1)
    }

    /// What moved in all bins that no stretch touches.
    pub fn moves_outside(&self, stretches: &[NotJudged]) -> Moves {
        let mut outside = vec![true; self.bins.len()];
        stretches.iter().for_each(|stretch| outside[self.bins_of(stretch)].fill(false));
        let mut sum = Moves::default();
        for place in 0..self.places {
            let samples = self.of(place / self.cpus, (place % self.cpus) as u32);
            samples.zip(&outside).filter(|(_, is)| **is).for_each(|(one, _)| sum.add(&one.moves));
        }
        sum
    }

    /// What moved in all bins that a stretch touches.
    pub fn moves_inside(&self, stretch: &NotJudged) -> Moves {
        let (first, last) = self.bins_of(stretch).into_inner();
        let mut sum = Moves::default();
        for place in 0..self.places {
            let begin = match first.checked_sub(1) {
                Some(before) => self.bins[before][place].moves,
                None => self.before.get(place).copied().unwrap_or_default(),
            };
            let mut moves = self.bins[last][place].moves;
            moves.subtract(&begin);
            sum.add(&moves);
        }
        sum
    }

    fn bins_of(&self, stretch: &NotJudged) -> RangeInclusive<usize> {
        let bin = |seconds: f64| self.bin_of(self.start_ns.saturating_add((seconds * 1e9) as u64));
        bin(stretch.from_s)..=bin(stretch.to_s)
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: u64 = 3600 * 1_000_000_000;

    /// A timeline of one place over this time, with a page moved each second.
    fn timeline(span_ns: u64) -> Timeline {
        let bin_ns = (span_ns / BINS_MAX / BIN_NS + 1) * BIN_NS;
        let (wanted, start_ns) = ((span_ns / bin_ns + 1) as usize, 5);
        let next_ns = start_ns + bin_ns;
        let (before, bins) = (Vec::new(), Vec::new());
        let mut timeline =
            Timeline { start_ns, bin_ns, next_ns, wanted, cpus: 1, places: 1, before, bins };
        let sample = |pages| Sample {
            moves: Moves { refill_pages: pages, ..Moves::default() },
            ..Sample::default()
        };
        for second in 0..=span_ns / 1_000_000_000 {
            timeline.reach(start_ns + second * 1_000_000_000, |_, _| sample(second));
        }
        timeline.finish(|_, _| sample(span_ns / 1_000_000_000));
        timeline
    }

    #[test]
    fn a_long_trace_has_wider_bins_and_none_holds_the_rest() {
        for (hours, bin_ns) in [(1, BIN_NS * 2), (3, BIN_NS * 4), (20, BIN_NS * 21)] {
            let timeline = timeline(hours * HOUR_NS);
            assert_eq!(timeline.bin_ns(), bin_ns, "{hours} h");
            let most = timeline.of(0, 0).map(|sample| sample.moves.refill_pages).max();
            assert!(most <= Some(bin_ns / 1_000_000_000 + 1), "{hours} h: {most:?} pages in a bin");
            let all: u64 = timeline.of(0, 0).map(|sample| sample.moves.refill_pages).sum();
            assert_eq!(all, hours * 3600);
        }
    }

    #[test]
    fn what_moves_in_a_stretch_is_not_counted() {
        let timeline = timeline(10_000_000_000);
        let stretch = |from_s, to_s| NotJudged { from_s, to_s, reason: String::new() };
        let pages = |stretches: &[NotJudged]| timeline.moves_outside(stretches).refill_pages;
        assert_eq!(pages(&[]), 10);
        assert_eq!(pages(&[stretch(3.5, 5.5)]), 8);
        assert_eq!(pages(&[stretch(0.0, 1e9)]), 0);
        let inside = |from_s, to_s| timeline.moves_inside(&stretch(from_s, to_s)).refill_pages;
        assert_eq!((inside(3.5, 5.5), inside(0.0, 1e9), inside(1.0, 1.05)), (2, 10, 1));
    }
}
