//! An experiment on a page: what was run, its table as it was published, and a plot for each
//! figure.

use super::page::{marked, page};
use super::plot::{Bar, Lines, Series, bars, lines};
use super::text::escape;
use super::text::grouped;
use crate::experiment::{Cell, FiguresIn, Table};
use crate::machine::Machine;
use crate::provenance::Label;

/// What stands before the size in the name of a row that ran on a machine of another size.
const SIZED: &str = ", ";

/// The page of one experiment.
pub fn html(table: &Table) -> String {
    page(&format!("{} (simulated)", table.experiment), &part(table))
}

/// What such a page says below its title.
pub fn part(table: &Table) -> String {
    let notes: String =
        table.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    format!(
        "<p class=\"conclusion\">{}</p><p>Simulated on <b>{}</b>, seed {}, result \
         <code>{}</code>. Run it again: <code>{}</code></p><p>Published: {}</p>{}<p>{}</p>\
         {}{}<ul>{notes}</ul>",
        escape(&table.conclusion()),
        escape(&table.machine),
        table.seed,
        table.result_hash.get(..16).unwrap_or(&table.result_hash),
        escape(&table.command),
        escape(&table.source),
        grid(table, &|row| sized(row).is_none()),
        legend(table),
        plots(table),
        sizes(table),
    )
}

fn legend(table: &Table) -> String {
    let misses = table.unexplained().count();
    let far = match misses {
        0 => "no published cell is beyond its target".into(),
        1 => "one published cell is <span class=\"miss\">beyond its target</span>".into(),
        _ => {
            format!("{misses} published cells are <span class=\"miss\">beyond</span> their target")
        }
    };
    format!(
        "Each cell: simulated; below it published, and how far simulated is from that. \
         <i>Fitted</i>: it set a figure; <i>seen</i>: one was chosen with it in view; \
         <i>reference</i>: others stand against it; <i>not modelled</i>: its cause is missing, so \
         that it says nothing, near or far; all others are predictions. \
         Target {} % where a cell does not say points or a factor; {far}.",
        table.target_percent
    )
}

/// Rows of other sizes, for who wants the figures of the lines.
fn sizes(table: &Table) -> String {
    match table.cells.iter().any(|cell| sized(&cell.row).is_some()) {
        true => format!(
            "<details><summary>Every figure of machines of other sizes</summary>{}</details>",
            grid(table, &|row| sized(row).is_some())
        ),
        false => String::new(),
    }
}

/// The table: rows as they were published, with a column for each column.
fn grid(table: &Table, shows: &dyn Fn(&str) -> bool) -> String {
    let (rows, columns) = (names(table, |cell| &cell.row), names(table, |cell| &cell.column));
    let fields = rows.into_iter().filter(|row| shows(row)).map(|row| {
        let cells = columns.iter().map(|column| {
            let cell = table.cells.iter().find(|c| c.row == row && c.column == *column);
            cell.map_or_else(String::new, |cell| field(table, cell))
        });
        std::iter::once(escape(row)).chain(cells).collect()
    });
    let head: Vec<&str> = std::iter::once("").chain(columns.iter().copied()).collect();
    marked("cells", &head, fields)
}

fn field(table: &Table, cell: &Cell) -> String {
    let Some(published) = cell.published else { return grouped(cell.simulated) };
    let far = match (cell.points, cell.factor) {
        (Some(_), _) => format!("{:+.1} points", cell.simulated - published),
        (_, Some(_)) if published > 0.0 => format!("&times;{:.2}", cell.simulated / published),
        _ => cell.error_percent.map_or_else(String::new, |error| format!("{error:+.1} %")),
    };
    let class = match (cell.not_modelled, table.is_miss(cell)) {
        (Some(_), _) => "without",
        (None, true) => "miss",
        (None, false) => "near",
    };
    let said = match cell.label {
        None | Some(Label::Prediction) => String::new(),
        Some(label) => {
            let why = cell
                .not_modelled
                .map_or_else(String::new, |why| format!(" title=\"{}\"", escape(why)));
            format!(", <i{why}>{}</i>", label.name())
        }
    };
    format!(
        "{}<small>{}, <span class=\"{class}\">{far}</span>{said}</small>",
        grouped(cell.simulated),
        grouped(published),
    )
}

/// A plot for each figure; rows of other sizes as lines over size.
fn plots(table: &Table) -> String {
    type Name = fn(&Cell) -> &str;
    let [row, column]: [Name; 2] = [|cell| &cell.row, |cell| &cell.column];
    let (figure, case) = match table.figures_in {
        FiguresIn::Columns => (column, row),
        FiguresIn::Rows => (row, column),
    };
    let (mut small, mut large) = (String::new(), String::new());
    for name in names(table, figure) {
        let cells: Vec<&Cell> = table.cells.iter().filter(|cell| figure(cell) == name).collect();
        // A change in percent is no length on the axis of what changes.
        let percent = |cell: &Cell| case(cell).ends_with("_percent");
        let mixed = !cells.iter().all(|cell| percent(cell));
        let shown = |cell: &&&Cell| sized(case(cell)).is_none() && !(mixed && percent(cell));
        let own = cells.iter().filter(shown);
        let rows: Vec<Bar<'_>> =
            own.map(|cell| (case(cell), cell.simulated, cell.published)).collect();
        small += &bars(name, &rows);
        let other: Vec<(&str, u32, f64)> = cells
            .iter()
            .filter_map(|cell| sized(case(cell)).map(|(name, cpus)| (name, cpus, cell.simulated)))
            .collect();
        if !other.is_empty() {
            let own = Machine::named(&table.machine).ok().map(|machine| machine.cpus());
            let kept = |(row, _, _): &Bar<'_>| other.iter().any(|(name, ..)| name == row);
            let rows = rows.iter().filter(|row| kept(row));
            let own = rows.filter_map(|(row, value, _)| Some((*row, own?, *value)));
            large += &lines(&by_size(name, own.chain(other.iter().copied()).collect()));
        }
    }
    format!("<div class=\"plots\">{small}</div>{large}")
}

/// The name and the size of a row that ran on a machine of another size: `exact, 512 CPUs`.
fn sized(row: &str) -> Option<(&str, u32)> {
    let (name, size) = row.rsplit_once(SIZED)?;
    Some((name, size.strip_suffix(" CPUs")?.parse().ok()?))
}

fn by_size(figure: &str, mut points: Vec<(&str, u32, f64)>) -> Lines {
    points.sort_by_key(|(_, cpus, _)| *cpus);
    let mut sizes: Vec<u32> = points.iter().map(|(_, cpus, _)| *cpus).collect();
    sizes.dedup();
    let mut series: Vec<Series> = Vec::new();
    for (name, cpus, value) in points {
        let at = series.iter().position(|known| known.name == name).unwrap_or_else(|| {
            series.push(Series { name: name.to_owned(), values: vec![Vec::new(); sizes.len()] });
            series.len() - 1
        });
        if let Some(place) = sizes.iter().position(|size| *size == cpus) {
            series[at].values[place].push(value);
        }
    }
    Lines {
        title: format!("{figure} by size, simulated"),
        y: figure.to_owned(),
        x: "CPUs of the machine".into(),
        places: sizes.iter().map(u32::to_string).collect(),
        series,
    }
}

fn names(table: &Table, of: fn(&Cell) -> &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &table.cells {
        if !names.contains(&of(cell)) {
            names.push(of(cell));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut cells = vec![
            Cell::new("base", "time_s", Some(100.0), 100.0),
            Cell::new("fix", "time_s", Some(50.0), 75.0),
            Cell::new("fix", "wait_percent", Some(5.0), 7.0),
            Cell::new("fix", "pages", Some(1_000_000.0), 1_234_567.0),
            Cell::new("<late>", "time_s", None, -3.0),
            Cell::new("base, 4 CPUs", "time_s", None, 40.0),
            Cell::new("base, 16 CPUs", "time_s", None, 60.0),
        ];
        cells[0].label = Some(Label::Fitted);
        (cells[2].points, cells[3].factor) = (Some(3.0), Some(1.5));
        let mut without = Cell::new("fix", "reads", Some(5.0), 9.0);
        (without.label, without.not_modelled) = (Some(Label::NotModelled), Some("no <cause>"));
        cells.push(without);
        Table {
            schema_version: 1,
            experiment: "made-up",
            kind: "simulated",
            machine: "xeon-2007-8".into(),
            seed: 7,
            command: "zonal lab run made-up --seed 7 --cpus 4,16".into(),
            source: "nobody".into(),
            target_percent: 10.0,
            result_hash: "0123456789abcdef".repeat(4),
            cells,
            figures_in: FiguresIn::Columns,
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn each_cell_says_what_was_published_and_how_far_it_is() {
        let page = part(&table());
        for part in [
            "100<small>100, <span class=\"near\">+0.0 %</span>, <i>fitted</i></small>",
            "75<small>50, <span class=\"miss\">+50.0 %</span></small>",
            "7<small>5, <span class=\"near\">+2.0 points</span></small>",
            "1,234,567<small>1,000,000, <span class=\"near\">&times;1.23</span></small>",
            "<td>&lt;late&gt;</td><td>-3</td>",
            "one published cell is",
            "9<small>5, <span class=\"without\">+80.0 %</span>, \
             <i title=\"no &lt;cause&gt;\">not modelled</i></small>",
            "zonal lab run made-up --seed 7 --cpus 4,16",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }

    #[test]
    fn a_table_concludes_in_one_sentence() {
        let says = table().conclusion();
        assert_eq!(
            says,
            "3 of 4 published cells are within their target, 1 of 1 changes against the first of \
             their kind go the published way; furthest is fix, time_s: +50.00 %, but the target \
             is 10 %; one more is not modelled."
        );
        assert!(part(&table()).contains(&escape(&says)));
        let mut other = table();
        other.cells[1].simulated = 101.0;
        assert!(other.conclusion().contains("0 of 1 changes"), "{}", other.conclusion());
        other.cells.retain(|cell| cell.published.is_none());
        assert!(other.conclusion().starts_with("Nothing was published"));
    }

    #[test]
    fn rows_of_other_sizes_are_a_line_with_the_machine_of_the_table_among_them() {
        let page = part(&table());
        assert_eq!(page.matches("<p class=\"legend\">").count(), 1);
        let places: Vec<usize> =
            ["\n4\n", "\n8\n", "\n16\n"].iter().filter_map(|size| page.find(size)).collect();
        assert!(places.len() == 3 && places.is_sorted(), "{places:?}");
        let turned = Table { figures_in: FiguresIn::Rows, ..table() };
        assert!(part(&turned).contains("<figcaption>fix</figcaption>"));
    }

    #[test]
    fn a_bar_in_percent_stands_beside_no_other() {
        let says = ["pages: simulated 1,234,567", "wait_percent: simulated 7"];
        let turned = Table { figures_in: FiguresIn::Rows, ..table() };
        assert_eq!(says.map(|says| part(&turned).contains(says)), [true, false]);
        let mut alone = turned;
        alone.cells.retain(|cell| cell.column == "wait_percent");
        assert_eq!(says.map(|says| part(&alone).contains(says)), [false, true]);
    }
}
