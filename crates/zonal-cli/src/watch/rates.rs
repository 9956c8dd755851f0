//! What happened between two readings, in a second.

use serde::Serialize;

use super::reading::Reading;

/// One figure of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// As it is called on screens.
    pub title: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Counters that are summed; a `*` at the end stands for any end.
    counters: &'static [&'static str],
}

impl Figure {
    /// As the source of a reading counts it: a kernel's tracepoints tell blocks, those that users
    /// get past the lists among them, and waits for locks of any kind; a pool counts pages that
    /// went to lists, and waits for its zones' locks.
    pub fn of(self, reading: &Reading) -> Figure {
        match self.counters {
            [REFILLED] if reading.is_of_pool() => {
                Figure { title: "refilled", unit: Unit::Pages, ..self }
            }
            [DRAINED] if reading.is_of_pool() => Figure { unit: Unit::Pages, ..self },
            [LOCK_WAITS] if reading.is_of_pool() => Figure { title: "zone lock waits", ..self },
            _ => self,
        }
    }
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Pages: shown in pages or bytes.
    Pages,
    /// Blocks of any order.
    Blocks,
    /// Times.
    Times,
}

/// Names of counters that the source adds to the kernel's.
pub const REFILLED: &str = "zonal_refilled";
/// The same, of drains.
pub const DRAINED: &str = "zonal_drained";
/// The same, of waits for locks.
pub const LOCK_WAITS: &str = "zonal_lock_waits";

/// All figures, in the order of the screen, as a kernel has them ([`Figure::of`]).
pub const FIGURES: [Figure; 9] = [
    Figure { title: "allocated", unit: Unit::Pages, counters: &["pgalloc_*"] },
    Figure { title: "freed", unit: Unit::Pages, counters: &["pgfree"] },
    Figure { title: "out of buddies", unit: Unit::Blocks, counters: &[REFILLED] },
    Figure { title: "drained", unit: Unit::Blocks, counters: &[DRAINED] },
    Figure { title: "all lock waits", unit: Unit::Times, counters: &[LOCK_WAITS] },
    Figure {
        title: "scanned",
        unit: Unit::Pages,
        counters: &["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"],
    },
    Figure {
        title: "reclaimed",
        unit: Unit::Pages,
        counters: &["pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"],
    },
    Figure { title: "stalls", unit: Unit::Times, counters: &["allocstall_*", "allocstall"] },
    Figure { title: "compactions", unit: Unit::Times, counters: &["compact_stall"] },
];

/// Each of [`FIGURES`] in a second; `None` where the source does not count it.
pub type Rates = [Option<f64>; FIGURES.len()];

/// What happened in a second between two readings. A counter that went back, as after a restart of
/// the program, counts from zero.
pub fn rates(before: &Reading, now: &Reading) -> Rates {
    let seconds = now.at_s - before.at_s;
    FIGURES.map(|figure| {
        let (then, now) = (before.sum(figure.counters)?, now.sum(figure.counters)?);
        let more = now.checked_sub(then).unwrap_or(now);
        (seconds > 0.0).then(|| more as f64 / seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: f64, counters: &[(&str, u64)]) -> Reading {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Reading { at_s, counters, ..Reading::default() }
    }

    #[test]
    fn a_seconds_worth_is_told_of_what_is_counted() {
        let before = reading(10.0, &[("pgalloc_dma", 5), ("pgalloc_normal", 100), ("pgfree", 90)]);
        let now = reading(12.0, &[("pgalloc_dma", 7), ("pgalloc_normal", 300), ("pgfree", 20)]);
        let rates = rates(&before, &now);
        assert_eq!(rates[0], Some(101.0));
        assert_eq!(rates[1], Some(10.0), "the program was started again");
        assert!(rates[2..].iter().all(Option::is_none));
    }

    #[test]
    fn a_pools_refills_are_pages_and_its_waits_those_for_zone_locks() {
        let kernel = Reading::default();
        let pool = Reading { metrics: Some(String::new()), ..Reading::default() };
        let figures =
            |of: &Reading| [2, 3, 4].map(|at| (FIGURES[at].of(of).title, FIGURES[at].of(of).unit));
        let [refilled, drained, waits] = figures(&kernel);
        assert_eq!([refilled.1, drained.1], [Unit::Blocks; 2]);
        assert_eq!(refilled.0, "out of buddies", "users get some past the lists");
        assert_eq!(waits, ("all lock waits", Unit::Times));
        let [refilled, drained, waits] = figures(&pool);
        assert_eq!([refilled.1, drained.1], [Unit::Pages; 2]);
        assert_eq!(refilled.0, "refilled");
        assert_eq!(waits, ("zone lock waits", Unit::Times));
        assert_eq!(FIGURES[0].of(&pool), FIGURES[0]);
    }

    #[test]
    fn readings_of_one_moment_have_no_rate() {
        let now = reading(10.0, &[("pgfree", 90)]);
        assert_eq!(rates(&now, &now)[1], None);
    }
}
