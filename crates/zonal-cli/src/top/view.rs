//! The screen of a terminal, of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::cells;
use super::screen::Screen;
use crate::watch::rates::FIGURES;
use crate::watch::reading::Zone;

/// Columns of a figure's title and value.
const FIGURE_COLUMNS: usize = 36;
/// Columns of one CPU's lists.
const CPU_COLUMNS: usize = 26;

/// Draws everything that there is room for.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let zones = screen.zones();
    // The first line and the keys are always there; of the rest, what comes first.
    let ends = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)];
    let [head, mut rest, foot] = Layout::vertical(ends).areas(frame.area());
    let mut cut = |rows: usize| {
        let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(rest.height);
        let part = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        part
    };
    let [table, chosen, rates] = [zones.len() + 1, 3, FIGURES.len() + 1].map(&mut cut);
    let lists = cut(usize::MAX);
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    frame.render_widget(header(screen), head);
    frame.render_widget(zone_table(screen, &zones, is_coloured), table);
    if let Some(zone) = screen.chosen().and_then(|at| zones.get(at)) {
        frame.render_widget(detail(zone, chosen), chosen);
        frame.render_widget(cpus(zone, screen.mib_pages(), lists), lists);
    }
    frame.render_widget(figure_lines(screen, rates), rates);
    let keys = "q end  s sort  u unit  p pause  up/down zone";
    frame.render_widget(Paragraph::new(keys).style(Style::new().reversed()), foot);
}

fn header(screen: &Screen) -> Paragraph<'static> {
    let of = screen.now().map_or(String::new(), |now| now.of.clone());
    let remark = screen.trouble.clone().or_else(|| screen.now().and_then(|now| now.remark.clone()));
    let paused = if screen.paused { "  PAUSED" } else { "" };
    let remark = remark.map_or(String::new(), |remark| format!("  {remark}"));
    let text =
        format!("{of}  {}  by {}{paused}{remark}", cells::unit(screen.mib), screen.sort.name());
    Paragraph::new(text).style(Style::new().reversed())
}

fn zone_table(screen: &Screen, zones: &[&Zone], is_coloured: bool) -> Paragraph<'static> {
    let row = |mark: char, cells: [&str; 8]| {
        let [zone, free, min, low, high, state, listed, not_huge] = cells;
        let marks = format!("{min:>8}{low:>8}{high:>8}");
        format!("{mark} {zone:<15}{free:>9}{marks} {state:<12}{listed:>8}{not_huge:>9}")
    };
    let mut lines = vec![Line::from(row(' ', cells::ZONE_HEADS)).style(Style::new().bold())];
    for (at, zone) in zones.iter().enumerate() {
        let cells = cells::zone(zone, screen.mib_pages());
        let is_chosen = screen.chosen() == Some(at);
        let mut style = Style::new();
        if is_coloured {
            style = match cells::state(zone) {
                "BELOW MIN" => style.fg(Color::Red),
                "min to low" => style.fg(Color::Yellow),
                _ => style,
            };
        }
        // Without colours too: the words say the state, and `>` the choice.
        let mark = if is_chosen { '>' } else { ' ' };
        let text = row(mark, cells.each_ref().map(String::as_str));
        let style = if is_chosen { style.bold() } else { style };
        lines.push(Line::from(Span::styled(text, style)));
    }
    Paragraph::new(lines)
}

/// Watermarks and free blocks of the chosen zone.
fn detail(zone: &Zone, area: Rect) -> Paragraph<'static> {
    let width = usize::from(area.width);
    let bar = cells::bar(zone, width.saturating_sub(zone.title().len() + 8));
    let orders: Vec<String> = zone.orders.iter().map(u64::to_string).collect();
    Paragraph::new(vec![
        Line::from(""),
        Line::from(format!("{} free [{bar}]", zone.title())),
        Line::from(format!("blocks by order {}", orders.join(" "))),
    ])
}

fn figure_lines(screen: &Screen, area: Rect) -> Paragraph<'static> {
    let mut lines = vec![Line::from("in a second").style(Style::new().bold())];
    let width = usize::from(area.width).saturating_sub(FIGURE_COLUMNS);
    for (at, (title, value)) in cells::rates(screen).into_iter().enumerate() {
        let history = cells::line(&screen.history(at, width));
        lines.push(Line::from(format!("{title:<16}{value:>18}  {history}")));
    }
    Paragraph::new(lines)
}

/// Lists of the chosen zone, as many CPUs as there is room for.
fn cpus(zone: &Zone, mib: cells::MibPages, area: Rect) -> Paragraph<'static> {
    let across = (usize::from(area.width) / CPU_COLUMNS).max(1);
    let room = usize::from(area.height).saturating_sub(1) * across;
    let more = zone.pcps.len().saturating_sub(room);
    let more = if more > 0 { format!("; {more} CPUs more") } else { String::new() };
    let title = format!("lists of {}: on them, of high{more}", zone.title());
    let mut lines = vec![Line::from(title).style(Style::new().bold())];
    for row in zone.pcps.chunks(across) {
        let cell = |pcp: &crate::watch::reading::Pcp| {
            let [count, high] = [pcp.count, pcp.high].map(|pages| cells::pages(pages, mib));
            format!("{:<CPU_COLUMNS$}", format!("cpu {:>4} {count:>7} {high:>7}", pcp.cpu))
        };
        lines.push(Line::from(row.iter().map(cell).collect::<String>()));
    }
    Paragraph::new(lines)
}
