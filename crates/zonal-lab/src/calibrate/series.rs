//! Values of one figure, timed again and again, and what they come to.
//!
//! Two things make one value differ from the next. Others (programs, interrupts, a hypervisor) make
//! it longer, never shorter: so of one place only the least disturbed tenth counts. And the place
//! itself matters: which sets of a cache the pages of a buffer fall into, which slice of the last
//! cache a line belongs to. No number of repeats at one place shows that, so a figure is taken over
//! many of them: the mean of the middle half, because what a line takes has few values, and the
//! median would be now the one and now the other. The spread is what the places differ by.

/// Part of a place's values that is not disturbed, as one of this many.
const TENTH: usize = 10;

/// Values of a figure, by place.
#[derive(Clone, Debug, Default)]
pub struct Series {
    places: Vec<Vec<f64>>,
}

/// A figure with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// The mean of the middle half of the places.
    pub ns: f64,
    /// A quarter of the places take at most this.
    pub low: f64,
    /// A quarter of the places take at least this.
    pub high: f64,
}

impl Series {
    /// Adds a value of a place.
    pub fn add(&mut self, place: usize, ns: f64) {
        if place >= self.places.len() {
            self.places.resize(place + 1, Vec::new());
        }
        self.places[place].push(ns);
    }

    /// The figure; none if nothing was timed.
    pub fn timed(&self) -> Option<Timed> {
        let mut of_places: Vec<f64> = self.places.iter().filter_map(|all| least(all)).collect();
        of_places.sort_unstable_by(f64::total_cmp);
        let last = of_places.len().checked_sub(1)?;
        let middle = &of_places[of_places.len() / 4..=last - of_places.len() / 4];
        Some(Timed {
            ns: middle.iter().sum::<f64>() / middle.len() as f64,
            low: of_places[last / 4],
            high: of_places[last - last / 4],
        })
    }
}

/// The value below which a tenth of them lie.
fn least(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(values.len() / TENTH).copied()
}

impl Timed {
    /// The same figure as one of something else, such as a clock of a time.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Timed {
        let Timed { ns, low, high } = self;
        let (one, other) = (of(low), of(high));
        Timed { ns: of(ns), low: one.min(other), high: one.max(other) }
    }
}

impl std::fmt::Display for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Timed { ns, low, high } = self;
        let digits = if *ns < 20.0 { 2 } else { 1 };
        write!(f, "{ns:.digits$} ns ({low:.digits$} to {high:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const PLACES: usize = 16;

    /// A figure of 10 ns whose places differ by up to a tenth, while others make three of four
    /// values longer, up to twice as long.
    fn disturbed(seed: u64) -> (Timed, f64) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut part = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let places: Vec<f64> = (0..PLACES).map(|_| 10.0 * (0.95 + 0.1 * part())).collect();
        let (mut series, mut sum) = (Series::default(), 0.0);
        for round in 0..20 * PLACES {
            let longer = (1.0 + (4.0 * part() - 1.0).max(0.0) / 3.0) * places[round % PLACES];
            series.add(round % PLACES, longer);
            sum += longer / (20 * PLACES) as f64;
        }
        (series.timed().unwrap(), sum)
    }

    #[test]
    fn a_figure_is_steady_however_much_it_is_disturbed() {
        for seed in 0..50 {
            let (timed, mean) = disturbed(seed);
            assert!((9.6..10.4).contains(&timed.ns), "{seed}: {timed}");
            assert!(mean > 12.0, "{seed}: the mean, {mean}, is nothing to go by");
            assert!(timed.low <= timed.ns && timed.ns <= timed.high, "{timed}");
        }
    }

    #[test]
    fn places_of_two_values_do_not_make_a_figure_jump() {
        // One of two slices of a cache: 36 or 46 ns, by chance.
        let figure = |near: usize| {
            let mut series = Series::default();
            for place in 0..100 {
                series.add(place, if place < near { 36.0 } else { 46.0 });
            }
            series.timed().unwrap().ns
        };
        assert!((figure(47) - figure(53)).abs() < 1.3, "the median differs by ten");
        assert_eq!((figure(100), figure(0)), (36.0, 46.0));
    }

    #[test]
    fn the_middle_half_of_places_and_a_quarter_of_them_to_each_side() {
        let mut series = Series::default();
        assert_eq!(series.timed(), None);
        series.add(0, 7.0);
        assert_eq!(series.timed(), Some(Timed { ns: 7.0, low: 7.0, high: 7.0 }));
        let mut series = Series::default();
        for place in 0..PLACES {
            series.add(place, if place == 0 { 1000.0 } else { (PLACES - place) as f64 });
        }
        let timed = series.timed().unwrap();
        assert_eq!(timed, Timed { ns: 8.5, low: 4.0, high: 13.0 });
        let clock = timed.map(|ns| 1.0 / ns);
        assert_eq!((clock.low, clock.high), (1.0 / 13.0, 1.0 / 4.0));
        assert_eq!(
            Timed { ns: 157.0, low: 150.0, high: 161.26 }.to_string(),
            "157.0 ns (150.0 to 161.3)"
        );
    }
}
