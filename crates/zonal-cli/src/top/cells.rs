//! Figures as words, the same on a screen and in a pipe.

use super::screen::Screen;
use crate::watch::rates::{FIGURES, Figure, Unit};
use crate::watch::reading::{HUGE, Zone};

/// Marks from little to much; of a terminal that has no more than ASCII too.
const LEVELS: [char; 8] = [' ', '.', ':', '-', '=', '+', '*', '#'];

/// Heads of the zones' columns.
pub const ZONE_HEADS: [&str; 8] =
    ["zone", "free", "min", "low", "high", "state", "on lists", "not huge"];

/// What memory is shown in: pages, or MiB of so many pages.
pub type MibPages = Option<f64>;

/// Pages, in pages or MiB.
pub fn pages(pages: u64, mib: MibPages) -> String {
    match mib {
        Some(each) => format!("{:.1}", pages as f64 / each),
        None => pages.to_string(),
    }
}

/// What memory is shown in.
pub fn unit(mib: bool) -> &'static str {
    if mib { "MiB" } else { "pages" }
}

/// Where a zone's free pages are between its watermarks.
pub fn state(zone: &Zone) -> &'static str {
    let [min, low, high] = zone.marks;
    match zone.free {
        free if free < min => "BELOW MIN",
        free if free < low => "min to low",
        free if free < high => "low to high",
        _ => "above high",
    }
}

/// A zone's row.
pub fn zone(zone: &Zone, mib: MibPages) -> [String; 8] {
    let [min, low, high] = zone.marks.map(|mark| pages(mark, mib));
    let unusable = zone.unusable(HUGE).map(|share| format!("{:.0} %", share * 100.0));
    [
        zone.title(),
        pages(zone.free, mib),
        min,
        low,
        high,
        state(zone).to_owned(),
        pages(zone.listed(), mib),
        unusable.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// A figure's value in a second.
pub fn rate(figure: Figure, value: Option<f64>, mib: MibPages) -> String {
    match (value, figure.unit) {
        (None, _) => "-".to_owned(),
        (Some(value), Unit::Pages) => match mib {
            Some(each) => format!("{:.1} MiB/s", value / each),
            None => format!("{value:.0} pages/s"),
        },
        (Some(value), Unit::Blocks) => format!("{value:.0} blocks/s"),
        (Some(value), Unit::Times) => format!("{value:.0} /s"),
    }
}

/// All figures: title, value in a second.
pub fn rates(screen: &Screen) -> Vec<(&'static str, String)> {
    let value = |at: usize| screen.rates().and_then(|rates| rates[at]);
    let cell = |(at, figure): (usize, &Figure)| {
        let figure = screen.now().map_or(*figure, |now| figure.of(now));
        (figure.title, rate(figure, value(at), screen.mib_pages()))
    };
    FIGURES.iter().enumerate().map(cell).collect()
}

/// A history as one line, the highest at `#`.
pub fn line(history: &[u64]) -> String {
    let most = history.iter().copied().max().unwrap_or(0).max(1);
    // Rounded up: what is above zero is seen.
    let level = |value: &u64| (value * 7).div_ceil(most) as usize;
    history.iter().map(|value| LEVELS[level(value).min(7)]).collect()
}

/// A bar of so many columns from nothing to the zone's managed pages, by doublings, with the
/// watermarks and the free pages in it.
pub fn bar(zone: &Zone, width: usize) -> String {
    let most = (zone.managed.max(2) as f64).ln();
    let at = |pages: u64| {
        let share = (pages.max(1) as f64).ln() / most;
        ((share * width.saturating_sub(1) as f64) as usize).min(width.saturating_sub(1))
    };
    let mut bar: Vec<char> =
        (0..width).map(|x| if x <= at(zone.free) { '=' } else { ' ' }).collect();
    for (mark, name) in zone.marks.into_iter().zip(['m', 'l', 'h']) {
        if let Some(cell) = bar.get_mut(at(mark)) {
            *cell = name;
        }
    }
    bar.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(free: u64) -> Zone {
        Zone { free, marks: [8, 64, 512], managed: 4096, ..Zone::default() }
    }

    #[test]
    fn free_pages_are_told_by_their_watermarks() {
        let states = [7, 8, 64, 512].map(|free| state(&of(free)));
        assert_eq!(states, ["BELOW MIN", "min to low", "low to high", "above high"]);
        assert_eq!(bar(&of(2), 13), "==   m  l  h "[..2].to_owned() + " m  l  h   ");
        assert_eq!(bar(&of(4096), 13), "===m==l==h===");
        assert_eq!(bar(&of(5), 0), "");
    }

    #[test]
    fn figures_have_units() {
        let mib = Some(256.0);
        assert_eq!((pages(512, None), pages(512, mib)), ("512".to_owned(), "2.0".to_owned()));
        assert_eq!(pages(512, Some(16.0)), "32.0", "pages of 64 KiB");
        assert_eq!(rate(FIGURES[0], Some(512.0), mib), "2.0 MiB/s");
        assert_eq!(rate(FIGURES[2], Some(512.4), mib), "512 blocks/s");
        assert_eq!(rate(FIGURES[0], None, mib), "-");
        assert_eq!(zone(&of(3), None)[7], "-");
    }

    #[test]
    fn a_line_shows_what_is_above_zero() {
        assert_eq!(line(&[0, 1, 500, 1000]), " .=#");
        assert_eq!(line(&[0, 0]), "  ");
        assert_eq!(line(&[]), "");
        assert_eq!(line(&[u64::MAX / 7]), "#");
    }
}
