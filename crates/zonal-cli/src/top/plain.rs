//! A reading as text, for pipes.

use std::fmt::Write as _;

use super::cells;
use super::screen::Screen;

/// The last reading.
pub fn text(screen: &Screen) -> String {
    let Some(now) = screen.now() else { return String::new() };
    let mut text = format!("{}, at {:.1} s, in {}\n", now.of, now.at_s, cells::unit(screen.mib));
    // Writing to a String cannot fail.
    if let Some(remark) = &now.remark {
        let _ = writeln!(text, "note: {remark}");
    }
    let row = |cells: [&str; 8]| {
        let [zone, numbers @ ..] = cells;
        let numbers: String = numbers.iter().map(|cell| format!(" {cell:>11}")).collect();
        format!("{zone:<16}{numbers}\n")
    };
    text.push_str(&row(cells::ZONE_HEADS));
    let zones = screen.zones();
    for zone in &zones {
        let cells = cells::zone(zone, screen.mib_pages());
        text.push_str(&row(cells.each_ref().map(String::as_str)));
    }
    for zone in &zones {
        let _ = write!(text, "lists of {}:", zone.title());
        for pcp in &zone.pcps {
            let [count, high] = [pcp.count, pcp.high].map(|p| cells::pages(p, screen.mib_pages()));
            let _ = write!(text, " cpu {} {count} of {high}", pcp.cpu);
        }
        let orders: Vec<String> = zone.orders.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "\nfree blocks of {} by order: {}", zone.title(), orders.join(" "));
    }
    for (title, value) in cells::rates(screen) {
        let _ = writeln!(text, "{title:<15} {value}");
    }
    text.push('\n');
    text
}
