//! Published tables, as they are kept with the project: comments say the source, then one line of
//! names and one line for each row.

/// A published table.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Where it is from: its comments.
    pub source: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Published {
    /// A table from its text.
    pub fn parse(text: &str) -> Published {
        let (comments, lines): (Vec<&str>, Vec<&str>) =
            text.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with('#'));
        let fields = |line: &&str| line.split(',').map(str::to_owned).collect::<Vec<String>>();
        let mut lines = lines.iter();
        Published {
            source: comments
                .iter()
                .map(|c| c.trim_start_matches(['#', ' ']))
                .collect::<Vec<_>>()
                .join(" "),
            columns: lines.next().map(fields).unwrap_or_default(),
            rows: lines.map(fields).collect(),
        }
    }

    /// The first column of every row.
    pub fn rows(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row.first().map(String::as_str))
    }

    /// A figure, if the table has it.
    pub fn figure(&self, row: &str, column: &str) -> Option<f64> {
        let column = self.columns.iter().position(|name| name == column)?;
        let row = self.rows.iter().find(|fields| fields.first().is_some_and(|f| f == row))?;
        row.get(column)?.parse().ok()
    }
}
