//! A finished table as a line of text, so that a long report that was interrupted need not make it
//! again.

use serde::{Deserialize, Serialize};

use super::not_modelled;
use super::table::{Cell, Experiment, FiguresIn, SCHEMA_VERSION, Table};
use crate::provenance::Label;
use crate::sweep::version;

const LABELS: [Label; 5] =
    [Label::Prediction, Label::Seen, Label::Fitted, Label::Reference, Label::NotModelled];

/// What the line has. Figures are texts: those read back are the same to the last bit.
#[derive(Serialize, Deserialize)]
struct Form {
    /// The build that made it: another one's figures are made again.
    version: String,
    experiment: String,
    machine: String,
    seed: u64,
    command: String,
    source: String,
    result_hash: String,
    in_rows: bool,
    notes: Vec<String>,
    cells: Vec<CellForm>,
}

#[derive(Serialize, Deserialize)]
struct CellForm {
    row: String,
    column: String,
    published: Option<String>,
    simulated: String,
    calibrated: bool,
    label: Option<String>,
    factor: Option<String>,
    points: Option<String>,
}

impl Table {
    /// The table as one line of JSON without its end, for [`Table::from_line`].
    ///
    /// # Panics
    /// Never: texts and whole numbers have JSON.
    pub fn to_line(&self) -> String {
        let text = |value: f64| value.to_string();
        let cells = self.cells.iter().map(|cell| CellForm {
            row: cell.row.clone(),
            column: cell.column.clone(),
            published: cell.published.map(text),
            simulated: text(cell.simulated),
            calibrated: cell.calibrated,
            label: cell.label.map(|label| label.name().to_owned()),
            factor: cell.factor.map(text),
            points: cell.points.map(text),
        });
        let form = Form {
            version: version().to_owned(),
            experiment: self.experiment.to_owned(),
            machine: self.machine.clone(),
            seed: self.seed,
            command: self.command.clone(),
            source: self.source.clone(),
            result_hash: self.result_hash.clone(),
            in_rows: self.figures_in == FiguresIn::Rows,
            notes: self.notes.clone(),
            cells: cells.collect(),
        };
        serde_json::to_string(&form).expect("texts and whole numbers have JSON")
    }

    /// The table of a line. `None` if the line is torn or of another build, whose tables may have
    /// other figures.
    pub fn from_line(line: &str) -> Option<Table> {
        let form: Form = serde_json::from_str(line).ok()?;
        if form.version != version() {
            return None;
        }
        let experiment = Experiment::named(&form.experiment).ok()?;
        let cells: Option<Vec<Cell>> =
            form.cells.iter().map(|cell| cell.read(experiment.name)).collect();
        Some(Table {
            schema_version: SCHEMA_VERSION,
            experiment: experiment.name,
            kind: "simulated",
            machine: form.machine,
            seed: form.seed,
            command: form.command,
            source: form.source,
            target_percent: experiment.target_percent,
            result_hash: form.result_hash,
            cells: cells?,
            figures_in: if form.in_rows { FiguresIn::Rows } else { FiguresIn::Columns },
            notes: form.notes,
        })
    }
}

impl CellForm {
    /// The cell; nothing if a text is no figure.
    fn read(&self, experiment: &str) -> Option<Cell> {
        let figure = |text: &Option<String>| match text {
            Some(text) => text.parse().ok().map(Some),
            None => Some(None),
        };
        let simulated = self.simulated.parse().ok()?;
        let mut cell = Cell::new(&self.row, &self.column, figure(&self.published)?, simulated);
        cell.calibrated = self.calibrated;
        let named = |name: &String| LABELS.into_iter().find(|label| label.name() == name);
        cell.label = self.label.as_ref().and_then(named);
        if cell.label == Some(Label::NotModelled) {
            cell.not_modelled = not_modelled::why([experiment, &self.row, &self.column]);
        }
        (cell.factor, cell.points) = (figure(&self.factor)?, figure(&self.points)?);
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut cells = vec![
            Cell::new("elapsed_s", "vanilla", Some(0.1 + 0.2), 1.0 / 3.0),
            // The error of this one is infinite, which JSON has no number for.
            Cell::new("kswapd_pages_scanned", "vanilla", Some(0.0), 1e300),
            Cell::new("pages_in", "zlcfirst", Some(63840.0), 0.0),
            Cell::new("pages_in", "zonal", None, f64::MIN_POSITIVE),
        ];
        (cells[0].label, cells[0].calibrated) = (Some(Label::Fitted), true);
        (cells[1].factor, cells[2].points) = (Some(1.5), Some(2.9));
        let why = not_modelled::why(["zone-reclaim-fsmark", "pages_in", "zlcfirst"]);
        (cells[2].label, cells[2].not_modelled) = (Some(Label::NotModelled), why);
        Table {
            schema_version: SCHEMA_VERSION,
            experiment: "zone-reclaim-fsmark",
            kind: "simulated",
            machine: "westmere-2011-24".into(),
            seed: 7,
            command: "zonal lab run zone-reclaim-fsmark --seed 7".into(),
            source: "a \"source\"\nof two lines".into(),
            target_percent: 10.0,
            result_hash: "0123".into(),
            cells,
            figures_in: FiguresIn::Rows,
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn a_table_that_was_kept_is_the_same_to_the_last_bit() {
        let line = table().to_line();
        assert!(!line.contains('\n'));
        assert_eq!(Table::from_line(&line), Some(table()));
    }

    #[test]
    fn a_torn_line_and_one_of_another_build_are_none() {
        let line = table().to_line();
        for end in [0, 1, line.len() / 2, line.len() - 1] {
            assert_eq!(Table::from_line(&line[..end]), None);
        }
        assert_eq!(Table::from_line(&line.replace(version(), "0.0.9+0")), None);
        assert_eq!(Table::from_line(&line.replace("zone-reclaim-fsmark", "no-such")), None);
    }
}
