//! Stretches in which nothing at all happened, by any CPU.
//!
//! The statistics workers of a running host alone touch pages more often. Where seconds go by
//! without an event the clock jumped (`boot` over a suspend, `tai` when it is set), the host was
//! stopped, or nothing ran. None of it is time in which a cost can be told as a share.

/// A stretch without any event is told from this length on.
const LEAST_NS: u64 = 10_000_000_000;

/// The stretches so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silences {
    last_ns: Option<u64>,
    found: u64,
    /// Of all that were found.
    ns: u64,
    /// Begin and end.
    longest: (u64, u64),
}

impl Silences {
    /// Takes note of an event.
    pub fn see(&mut self, time_ns: u64) {
        let last = self.last_ns.replace(time_ns).unwrap_or(time_ns);
        let (from, to) = self.longest;
        let length = time_ns.saturating_sub(last);
        if length < LEAST_NS {
            return;
        }
        (self.found, self.ns) = (self.found + 1, self.ns + length);
        if length > to - from {
            self.longest = (last, time_ns);
        }
    }

    /// What was before is not replayed.
    pub fn begin(&mut self) {
        *self = Silences { last_ns: self.last_ns, ..Silences::default() };
    }

    /// All of them together.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// What is said of them: seconds are those since `start_ns`.
    pub fn note(&self, start_ns: u64) -> Option<String> {
        let seconds = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let (from, to) = self.longest;
        let others = match self.found {
            0 => return None,
            1 => String::new(),
            all => format!(" (the longest of {all} such stretches)"),
        };
        Some(format!(
            "no event of any CPU from {:.1} to {:.1} s{others}: the clock jumped, the host was \
             stopped, or nothing happened",
            seconds(from),
            seconds(to)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn seen(seconds: &[u64]) -> Silences {
        let mut silences = Silences::default();
        seconds.iter().for_each(|second| silences.see(second * S));
        silences
    }

    #[test]
    fn long_stretches_are_told_and_short_ones_are_not() {
        assert_eq!(seen(&[5, 6, 15]).note(5 * S), None);
        let one = seen(&[5, 6, 3606, 3607]);
        assert_eq!(one.ns(), 3600 * S);
        assert!(one.note(5 * S).unwrap().starts_with("no event of any CPU from 1.0 to 3601.0 s:"));
        let two = seen(&[5, 16, 60]);
        assert_eq!(two.ns(), 55 * S);
        let note = two.note(5 * S).unwrap();
        assert!(note.contains("11.0 to 55.0 s (the longest of 2 such stretches):"), "{note}");
    }

    #[test]
    fn what_was_before_the_start_is_not_told() {
        let mut silences = seen(&[5, 600]);
        silences.begin();
        assert_eq!((silences.ns(), silences.note(600 * S)), (0, None));
    }
}
