//! Where a figure is from, and which published cells were in view when it was chosen.
//!
//! Figures of machines, defaults of workloads and constants of their costs carry a
//! [`Provenance`]. What a cell of an experiment may be called follows from them
//! (`experiment/label.rs`).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How a figure was got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// Timed or counted by the project itself.
    Measured,
    /// A data sheet, a paper, a manual, a default of the kernel.
    Sourced,
    /// Neither; the reason is given.
    Estimated,
    /// Chosen among several with published cells in view.
    Seen,
    /// Set so that published cells come out.
    Fitted,
}

/// Published cells, each `EXPERIMENT/ROW/COLUMN`; without a column the whole row, without a row the
/// whole table.
type Cells = Cow<'static, [Cow<'static, str>]>;

/// Where a figure is from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Provenance {
    origin: Origin,
    how: Cow<'static, str>,
    address: Option<Cow<'static, str>>,
    fitted_to: Cells,
    in_view: Cells,
}

/// A number of the model with its provenance.
#[derive(Clone, Debug)]
pub struct Given {
    /// Its name in the code.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Where it is from.
    pub from: Provenance,
}

/// What may be said of a published cell, from the most to the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Nothing that it depends on was fitted to it or chosen with it in view.
    Prediction,
    /// A figure was chosen with it in view.
    Seen,
    /// A figure was set by it.
    Fitted,
    /// What the other cells stand against: it agrees whatever is simulated.
    Reference,
    /// Its cause is not in the model: whether it agrees says nothing.
    #[serde(rename = "not modelled")]
    NotModelled,
}

/// Constants with their provenance: `NAME: type = value, provenance;` each. Beside them stands
/// `GIVEN`, the list of them all.
macro_rules! given {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $type:ty = $value:expr, $from:expr;)*) => {
        $($(#[$doc])* $vis const $name: $type = $value;)*

        /// The numbers of this module, each with its provenance.
        pub(crate) const GIVEN: &[crate::provenance::Given] = &[
            $(crate::provenance::Given {
                name: stringify!($name),
                value: $name as f64,
                from: $from,
            },)*
        ];
    };
}
pub(crate) use given;

/// Names of cells, for constants.
macro_rules! cells {
    ($($name:literal),+ $(,)?) => {
        &[$(std::borrow::Cow::Borrowed($name)),+]
    };
}
pub(crate) use cells;

const NO_CELLS: Cells = Cow::Borrowed(&[]);

impl Provenance {
    const fn plain(origin: Origin, how: &'static str) -> Provenance {
        let how = Cow::Borrowed(how);
        Provenance { origin, how, address: None, fitted_to: NO_CELLS, in_view: NO_CELLS }
    }
    /// Timed or counted by the project: how, and on what.
    pub const fn measured(how: &'static str) -> Provenance {
        Provenance::plain(Origin::Measured, how)
    }
    /// From a data sheet, a paper, a manual or a kernel's defaults: which.
    pub const fn sourced(how: &'static str) -> Provenance {
        Provenance::plain(Origin::Sourced, how)
    }
    /// An estimate: the reason.
    pub const fn estimated(how: &'static str) -> Provenance {
        Provenance::plain(Origin::Estimated, how)
    }
    /// Chosen with these cells in view: the choice.
    pub const fn seen(how: &'static str, cells: &'static [Cow<'static, str>]) -> Provenance {
        let (how, in_view) = (Cow::Borrowed(how), Cow::Borrowed(cells));
        Provenance { origin: Origin::Seen, how, address: None, fitted_to: NO_CELLS, in_view }
    }
    /// Set so that these cells come out.
    pub const fn fitted(how: &'static str, cells: &'static [Cow<'static, str>]) -> Provenance {
        let (how, fitted_to) = (Cow::Borrowed(how), Cow::Borrowed(cells));
        Provenance { origin: Origin::Fitted, how, address: None, fitted_to, in_view: NO_CELLS }
    }
    /// Timed on this host.
    #[cfg(feature = "calibrate")]
    pub(crate) fn timed(how: String) -> Provenance {
        Provenance { how: how.into(), ..Provenance::plain(Origin::Measured, "") }
    }
    /// Not timed on this host: what stands in for it, and why.
    #[cfg(feature = "calibrate")]
    pub(crate) fn stand_in(how: String) -> Provenance {
        Provenance { how: how.into(), ..Provenance::plain(Origin::Estimated, "") }
    }

    /// How the figure was got.
    pub fn origin(&self) -> Origin {
        self.origin
    }
    /// The source, the reason or the choice, in words.
    pub fn how(&self) -> &str {
        &self.how
    }

    /// Where the source can be opened: a page, or a file of the project.
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// What it makes of a published cell.
    pub(crate) fn label(&self, experiment: &str, row: &str, column: &str) -> Label {
        let named = |cells: &Cells| cells.iter().any(|name| names(name, [experiment, row, column]));
        match () {
            () if named(&self.fitted_to) => Label::Fitted,
            () if named(&self.in_view) => Label::Seen,
            () => Label::Prediction,
        }
    }

    /// All cells that it names.
    #[cfg(test)]
    pub(crate) fn cells(&self) -> impl Iterator<Item = &str> {
        self.fitted_to.iter().chain(self.in_view.iter()).map(|name| &**name)
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Measured => "measured",
            Origin::Sourced => "sourced",
            Origin::Estimated => "estimated",
            Origin::Seen => "seen",
            Origin::Fitted => "fitted",
        };
        write!(f, "{origin}: {}", self.how)?;
        if let Some(address) = &self.address {
            write!(f, " <{address}>")?;
        }
        for (what, cells) in [("fitted to", &self.fitted_to), ("in view", &self.in_view)] {
            if !cells.is_empty() {
                write!(f, "; {what}: {}", cells.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Label {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Label::Prediction => "prediction",
            Label::Seen => "seen",
            Label::Fitted => "fitted",
            Label::Reference => "reference",
            Label::NotModelled => "not modelled",
        }
    }
}

/// Whether `EXPERIMENT/ROW/COLUMN`, or the beginning of it, names a cell.
fn names(name: &str, cell: [&str; 3]) -> bool {
    let mut parts = name.split('/');
    cell.iter().all(|part| parts.next().is_none_or(|named| named == *part))
}

/// Whether that is something to open: a page, or a file of the project by its path.
fn opens(address: &str) -> bool {
    let page = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    let inner = page.unwrap_or(address);
    let plain = |c: char| c.is_ascii_graphic() && !"<>\"'".contains(c);
    inner.contains('/') && !inner.starts_with('/') && inner.chars().all(plain)
}

/// As a machine's file has it: `{ estimated = "the reason" }`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sourced: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    estimated: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fitted: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fitted_to: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    in_view: Vec<String>,
}

impl TryFrom<Form> for Provenance {
    type Error = String;

    fn try_from(form: Form) -> Result<Provenance, String> {
        let ways = [
            (Origin::Measured, form.measured),
            (Origin::Sourced, form.sourced),
            (Origin::Estimated, form.estimated),
            (Origin::Seen, form.seen),
            (Origin::Fitted, form.fitted),
        ];
        let mut said = ways.into_iter().filter_map(|(origin, how)| Some((origin, how?)));
        let (Some((origin, how)), None) = (said.next(), said.next()) else {
            return Err("expected one of measured, sourced, estimated, seen or fitted, as in \
                        { sourced = \"which data sheet\" }"
                .into());
        };
        let (fitted_to, in_view) = (form.fitted_to, form.in_view);
        if (origin == Origin::Fitted) == fitted_to.is_empty() {
            return Err(
                "fitted_to names the cells of a figure that is fitted, and of no other, as \
                        in fitted_to = [\"pcp-unix/base/score\"]"
                    .into(),
            );
        }
        let chosen = [Origin::Seen, Origin::Fitted].contains(&origin);
        if (origin == Origin::Seen && in_view.is_empty()) || (!chosen && !in_view.is_empty()) {
            return Err(
                "in_view names the cells that a figure was chosen with, which is then seen \
                        or fitted, as in in_view = [\"pcp-unix/patch3/score\"]"
                    .into(),
            );
        }
        if let Some(address) = form.address.as_deref().filter(|address| !opens(address)) {
            return Err(format!(
                "address = \"{address}\" cannot be opened; expected a page, as in \
                 https://7-cpu.com/cpu/Westmere.html, or a file of the project by its path"
            ));
        }
        let address = form.address.map(Cow::Owned);
        let owned = |cells: Vec<String>| cells.into_iter().map(Cow::Owned).collect();
        let (fitted_to, in_view) = (owned(fitted_to), owned(in_view));
        Ok(Provenance { origin, how: how.into(), address, fitted_to, in_view })
    }
}

impl From<Provenance> for Form {
    fn from(from: Provenance) -> Form {
        let how = Some(from.how.into_owned());
        let texts = |cells: Cells| cells.iter().map(|cell| cell.to_string()).collect();
        let (fitted_to, in_view) = (texts(from.fitted_to), texts(from.in_view));
        let address = from.address.map(Cow::into_owned);
        let form = Form { address, fitted_to, in_view, ..Form::default() };
        match from.origin {
            Origin::Measured => Form { measured: how, ..form },
            Origin::Sourced => Form { sourced: how, ..form },
            Origin::Estimated => Form { estimated: how, ..form },
            Origin::Seen => Form { seen: how, ..form },
            Origin::Fitted => Form { fitted: how, ..form },
        }
    }
}
