//! What is shown: the readings so far, and how to show them.

use std::collections::VecDeque;

use clap::ValueEnum;

use crate::watch::rates::{Rates, rates};
use crate::watch::reading::{HUGE, Reading, Zone};

/// Readings that are kept: the longest history of a line.
const HISTORY: usize = 512;

/// Order of the zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By node, then by kind.
    #[default]
    Node,
    /// The least free above its high watermark first.
    Pressure,
    /// The most pages on lists first.
    Lists,
    /// The least free memory for huge pages first.
    Fragmentation,
}

impl Sort {
    /// The one after it.
    pub fn next(self) -> Sort {
        let all = Sort::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Node => "node",
            Sort::Pressure => "pressure",
            Sort::Lists => "lists",
            Sort::Fragmentation => "fragmentation",
        }
    }
}

/// What is shown.
#[derive(Debug, Default)]
pub struct Screen {
    /// Readings, the oldest first, with what happened since the one before.
    readings: VecDeque<(Reading, Option<Rates>)>,
    /// Order of the zones.
    pub sort: Sort,
    /// Memory in MiB, not in pages.
    pub mib: bool,
    /// New readings are not shown.
    pub paused: bool,
    /// Why there is no new reading.
    pub trouble: Option<String>,
    /// Place of the zone whose lists and orders are shown, in the order of the screen.
    chosen: usize,
}

impl Screen {
    /// Nothing yet.
    pub fn new(sort: Sort, mib: bool) -> Screen {
        Screen { sort, mib, ..Screen::default() }
    }

    /// Adds a reading. Of one that was there already, as of a pool that has not refreshed, only the
    /// remark is new.
    pub fn add(&mut self, reading: Reading) {
        self.trouble = None;
        let rates = match self.readings.back_mut() {
            Some((last, rates)) if last.at_s >= reading.at_s && last.of == reading.of => {
                // What nobody counts any more does not go on at the old rate.
                if reading.remark.is_some() && reading.age_s.is_some() {
                    *rates = None;
                }
                (last.remark, last.age_s) = (reading.remark, reading.age_s);
                return;
            }
            _ if self.paused => return,
            Some((last, _)) if last.of == reading.of => Some(rates(last, &reading)),
            // Another program with the same file: the old figures say nothing of it.
            Some(_) => {
                self.readings.clear();
                None
            }
            None => None,
        };
        if self.readings.len() == HISTORY {
            self.readings.pop_front();
        }
        self.readings.push_back((reading, rates));
    }

    /// The last reading.
    pub fn now(&self) -> Option<&Reading> {
        self.readings.back().map(|(reading, _)| reading)
    }

    /// Pages of a MiB of what is shown, where memory is shown in MiB.
    pub fn mib_pages(&self) -> Option<f64> {
        let now = self.now().filter(|_| self.mib)?;
        Some(f64::from(1 << 20) / now.page_bytes as f64)
    }

    /// What happened since the one before.
    pub fn rates(&self) -> Option<&Rates> {
        self.readings.back().and_then(|(_, rates)| rates.as_ref())
    }

    /// A rate over the last readings, the oldest first.
    pub fn history(&self, figure: usize, width: usize) -> Vec<u64> {
        let all = self.readings.iter().skip(self.readings.len().saturating_sub(width));
        all.map(|(_, rates)| rates.and_then(|rates| rates[figure]).unwrap_or(0.0) as u64).collect()
    }

    /// The zones in their order.
    pub fn zones(&self) -> Vec<&Zone> {
        let mut zones: Vec<&Zone> = self.now().map_or(Vec::new(), |now| now.zones.iter().collect());
        match self.sort {
            Sort::Node => {}
            Sort::Pressure => zones.sort_by(|a, b| above(a).total_cmp(&above(b))),
            Sort::Lists => zones.sort_by_key(|zone| std::cmp::Reverse(zone.listed())),
            Sort::Fragmentation => {
                let unusable = |zone: &Zone| zone.unusable(HUGE).unwrap_or(0.0);
                zones.sort_by(|a, b| unusable(b).total_cmp(&unusable(a)));
            }
        }
        zones
    }

    /// The zone whose lists and orders are shown: at first the largest.
    pub fn chosen(&self) -> Option<usize> {
        let zones = self.zones();
        let largest = (0..zones.len()).max_by_key(|at| zones[*at].managed)?;
        Some(if self.chosen == 0 { largest } else { (self.chosen - 1).min(zones.len() - 1) })
    }

    /// Goes down or up by so many zones.
    pub fn choose(&mut self, by: isize) {
        let most = self.zones().len().saturating_sub(1);
        let at = self.chosen().unwrap_or(0).saturating_add_signed(by);
        self.chosen = at.min(most) + 1;
    }
}

/// Free pages as a multiple of the high watermark.
fn above(zone: &Zone) -> f64 {
    zone.free as f64 / zone.marks[2].max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str, free: u64, listed: u64, orders: &[u64]) -> Zone {
        let pcp = crate::watch::reading::Pcp { count: listed, ..Default::default() };
        Zone {
            name: name.to_owned(),
            free,
            marks: [8, 10, 12],
            managed: free + 100,
            pcps: vec![pcp],
            orders: orders.to_vec(),
            ..Zone::default()
        }
    }

    fn reading(at_s: f64) -> Reading {
        let huge = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let zones = vec![zone("a", 50, 3, &huge), zone("b", 20, 9, &[20]), zone("c", 99, 1, &huge)];
        Reading { of: "x".to_owned(), at_s, zones, ..Reading::default() }
    }

    #[test]
    fn zones_are_sorted_and_chosen() {
        let mut screen = Screen::new(Sort::Node, false);
        screen.add(reading(1.0));
        let order = |screen: &Screen| {
            screen.zones().iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>().join("")
        };
        for expected in ["abc", "bac", "bac", "bac", "abc"] {
            assert_eq!(order(&screen), expected, "{:?}", screen.sort);
            screen.sort = screen.sort.next();
        }
        screen.sort = Sort::Node;
        assert_eq!(screen.chosen(), Some(2), "the largest");
        screen.choose(9);
        assert_eq!(screen.chosen(), Some(2));
        screen.choose(-1);
        assert_eq!(screen.chosen(), Some(1));
        screen.choose(-9);
        assert_eq!(screen.chosen(), Some(0));
        assert_eq!(Screen::default().chosen(), None);
    }

    #[test]
    fn a_reading_comes_once_and_another_program_begins_anew() {
        let mut screen = Screen::default();
        screen.add(reading(1.0));
        screen.add(reading(1.0));
        assert!(screen.rates().is_none());
        screen.add(reading(2.0));
        assert!(screen.rates().is_some());
        assert_eq!(screen.history(0, 5), [0, 0]);
        screen.add(Reading { of: "y".to_owned(), ..reading(1.0) });
        assert!(screen.rates().is_none());
        assert_eq!(screen.history(0, 5).len(), 1);
        screen.paused = true;
        screen.add(Reading { of: "y".to_owned(), ..reading(5.0) });
        screen.add(Reading { of: "z".to_owned(), ..reading(5.0) });
        let now = screen.now().unwrap();
        assert_eq!((now.at_s, now.of.as_str()), (1.0, "y"));
    }

    #[test]
    fn a_reading_that_gets_old_is_said_to_be_old_and_has_no_rates() {
        let mut screen = Screen::default();
        screen.add(reading(1.0));
        screen.add(reading(2.0));
        let again = |remark: Option<&str>| {
            let remark = remark.map(str::to_owned);
            Reading { remark, age_s: Some(1.0), ..reading(2.0) }
        };
        screen.add(again(None));
        assert!(screen.rates().is_some(), "it is the last one for a while");
        screen.add(again(Some("process 7 is not there")));
        assert_eq!(screen.now().unwrap().remark.as_deref(), Some("process 7 is not there"));
        assert!(screen.rates().is_none());
    }

    #[test]
    fn the_history_is_bounded() {
        let mut screen = Screen::default();
        (1..2000).for_each(|at| screen.add(reading(f64::from(at))));
        assert_eq!(screen.history(0, usize::MAX).len(), HISTORY);
    }
}
