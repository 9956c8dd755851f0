//! The screen of a terminal, of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::cells;
use super::screen::Screen;
use crate::output;
use crate::watch::rates::FIGURES;
use crate::watch::reading::Zone;

/// Most lines of a remark that has no room on the first line.
const REMARK_ROWS: usize = 3;
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
    let (title, remark) = header(screen, usize::from(head.width));
    let remark = remark.unwrap_or_default();
    // Lines break between words: a quarter more than letters alone need.
    let letters = remark.chars().count() * 5 / 4;
    let most = REMARK_ROWS.min(usize::from(frame.area().height / 7).max(1));
    let told = cut(letters.div_ceil(usize::from(head.width).max(1)).min(most));
    let [table, chosen, rates] = [zones.len() + 1, 3, FIGURES.len() + 1].map(&mut cut);
    let lists = cut(usize::MAX);
    let is_coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    frame.render_widget(title, head);
    frame.render_widget(Paragraph::new(remark).wrap(Wrap { trim: true }), told);
    frame.render_widget(zone_table(screen, &zones, is_coloured), table);
    if let Some(zone) = screen.chosen().and_then(|at| zones.get(at)) {
        frame.render_widget(detail(zone, chosen), chosen);
        frame.render_widget(cpus(zone, screen.mib_pages(), lists), lists);
    }
    frame.render_widget(figure_lines(screen, rates), rates);
    let keys = "q end  s sort  u unit  p pause  up/down zone";
    frame.render_widget(Paragraph::new(keys).style(Style::new().reversed()), foot);
}

/// The first line, and what has no room on it.
fn header(screen: &Screen, width: usize) -> (Paragraph<'static>, Option<String>) {
    let of = screen.now().map_or(String::new(), |now| now.of.clone());
    let remark = screen.trouble.clone().or_else(|| screen.now().and_then(|now| now.remark.clone()));
    let paused = if screen.paused { "  PAUSED" } else { "" };
    let text = format!("{of}  {}  by {}{paused}", cells::unit(screen.mib), screen.sort.name());
    let whole = remark.as_ref().map(|remark| format!("{text}  {remark}"));
    let (text, remark) = match whole {
        Some(whole) if whole.chars().count() <= width => (whole, None),
        _ => (text, remark),
    };
    (Paragraph::new(text).style(Style::new().reversed()), remark)
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
    let more = match more {
        0 => String::new(),
        more => format!("; {} more", output::counted(more as u64, "CPU")),
    };
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

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::screen::Sort;
    use super::*;

    fn lines(columns: u16, remark: &str) -> Vec<String> {
        let mut screen = Screen::new(Sort::Node, false);
        screen.trouble = Some(remark.to_owned());
        let mut terminal = Terminal::new(TestBackend::new(columns, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &screen)).unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect();
        cells.chunks(columns.into()).map(line).collect()
    }

    #[test]
    fn a_remark_without_room_on_the_first_line_is_read_below_it() {
        let remark = "lock:contention_begin: not counted; expected root, a mounted tracefs, and a \
                      kernel that has it";
        assert!(lines(200, remark)[0].trim_end().ends_with("kernel that has it"));
        for columns in [40, 80] {
            let lines = lines(columns, remark);
            assert!(!lines[0].contains("lock"), "{lines:?}");
            let below: Vec<&str> = lines[1..4].iter().map(|line| line.trim()).collect();
            let below = below.join(" ");
            assert!(below.starts_with(remark), "{columns}: {below}");
        }
    }
}
