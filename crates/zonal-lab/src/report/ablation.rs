//! What each table owes to each mechanism, on one page: a small plot for each experiment, with a
//! row for each mechanism and a point for each published cell.

use std::fmt::{self, Arguments};

use super::page::{marked, page};
use super::text::{escape, grouped};
use crate::experiment::Extent;
use crate::experiment::ablation::{Ablation, FAR, Moved, near};

/// A plot: the width of the names, of the rest, a row's height, and the height of the scale.
const NAMES: f64 = 110.0;
const WIDTH: f64 = 330.0;
const ROW: f64 = 18.0;
const SCALE: f64 = 34.0;
/// Marks of the scale, in targets.
const MARKS: [f64; 5] = [-10.0, -1.0, 0.0, 1.0, 10.0];
/// The name of the row with all mechanisms.
const WHOLE: &str = "as it is";

/// The page.
pub fn ablation_html(ablations: &[Ablation], command: &str) -> String {
    let brief = ablations.iter().any(|one| one.extent == Extent::Brief);
    let time = match brief {
        true => {
            ", played for less time than the experiments themselves, so figures differ from theirs"
        }
        false => "",
    };
    let plots: String = ablations.iter().map(plot).collect();
    let parts: String = ablations.iter().map(part).collect();
    page(
        "What the tables owe to each mechanism (simulated)",
        &format!(
            "<p>Each published table again, without one mechanism of the model after the other: \
             each row of a plot is the table without that one. A point is a published cell: in the \
             middle it agrees, within the band it is within its target, and the scale is in \
             targets, growing by logarithms. Cells that others stand against, and those whose \
             cause is not in the model, are left out. Published rows alone{time}.</p>\
             <p>Make these tables again: <code>{}</code></p>\
             <div class=\"plots\">{plots}</div>{parts}",
            escape(command)
        ),
    )
}

/// Every cell of every table as a line, with a line of names before.
///
/// # Panics
/// Never: a vector takes every line.
pub fn ablation_csv(ablations: &[Ablation]) -> String {
    let mut lines = csv::Writer::from_writer(Vec::new());
    let mut line = |fields: [&str; 9]| lines.write_record(fields).expect("a vector takes it");
    line([
        "experiment",
        "seed",
        "without",
        "row",
        "column",
        "published",
        "as_it_is",
        "simulated",
        "off_in_targets",
    ]);
    for ablation in ablations {
        for (name, cells) in tables(ablation) {
            for cell in cells {
                line([
                    ablation.whole.experiment,
                    &ablation.whole.seed.to_string(),
                    name,
                    cell.row,
                    cell.column,
                    &cell.published.to_string(),
                    &cell.whole.to_string(),
                    &cell.simulated.to_string(),
                    &format!("{:.3}", cell.off),
                ]);
            }
        }
    }
    let bytes = lines.into_inner().expect("a vector takes it");
    String::from_utf8(bytes).expect("text in, text out")
}

/// Each table by its mechanism, the whole one first, without a name in lines.
fn tables(ablation: &Ablation) -> impl Iterator<Item = (&'static str, Vec<Moved<'_>>)> {
    let without = ablation.without.iter();
    std::iter::once(("", ablation.cells(None)))
        .chain(without.map(|one| (one.mechanism, ablation.cells(Some(one)))))
}

fn part(ablation: &Ablation) -> String {
    let cells = ablation.cells(None);
    let whole = [
        WHOLE.to_owned(),
        format!("{} of {}", near(&cells), cells.len()),
        String::new(),
        String::new(),
    ];
    let rows = ablation.without.iter().map(|one| {
        let cells = ablation.cells(Some(one));
        vec![
            format!("<code>no-{}</code>", one.mechanism),
            format!("{} of {}", near(&cells), cells.len()),
            escape(one.left),
            escape(&ablation.sentence(one)),
        ]
    });
    let rows = std::iter::once(whole.to_vec()).chain(rows);
    let table = marked("words", &["without", "within target", "then", "what it comes to"], rows);
    format!(
        "<h2 id=\"{0}\">{0}</h2><p>{1}</p><p class=\"conclusion\">{2}</p>{table}",
        escape(ablation.whole.experiment),
        escape(ablation.about),
        escape(&ablation.conclusion())
    )
}

/// Where so many targets are: linear near the middle, by logarithms further out.
fn place(off: f64) -> f64 {
    let part = off.signum() * (1.0 + off.abs()).ln() / (1.0 + FAR).ln();
    NAMES + WIDTH * (0.5 + 0.46 * part)
}

fn plot(ablation: &Ablation) -> String {
    let rows: Vec<_> = tables(ablation).collect();
    let bottom = ROW * rows.len() as f64;
    let (width, height) = (NAMES + WIDTH, bottom + SCALE);
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" font-size=\"12\">");
    let (left, right) = (place(-1.0), place(1.0));
    let mut add = |text: Arguments<'_>| svg.push_str(&fmt::format(text));
    add(format_args!(
        "<rect x=\"{left:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom}\" fill=\"var(--rule)\" \
         opacity=\"0.5\"/>",
        right - left
    ));
    for mark in MARKS {
        let x = place(mark);
        add(format_args!(
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom}\" stroke=\"var(--rule)\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"var(--quiet)\">{mark}\
             </text>",
            bottom + 14.0
        ));
    }
    add(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"var(--quiet)\">targets from \
         the published figure</text>",
        place(0.0),
        bottom + 29.0
    ));
    for (at, (name, cells)) in rows.iter().enumerate() {
        let y = ROW * (at as f64 + 0.5);
        let (name, ink) = if name.is_empty() { (WHOLE, "quiet") } else { (*name, "bar") };
        add(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"var(--ink)\">{}</text>",
            NAMES - 6.0,
            y + 4.0,
            escape(name)
        ));
        for cell in cells {
            add(format_args!(
                "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"var(--{ink})\" \
                 opacity=\"0.7\"><title>{}, {}, {}: {} (published {}, as it is {})</title>\
                 </circle>",
                place(cell.off),
                escape(name),
                escape(cell.row),
                escape(cell.column),
                grouped(cell.simulated),
                grouped(cell.published),
                grouped(cell.whole)
            ));
        }
    }
    svg.push_str("</svg>");
    let name = escape(ablation.whole.experiment);
    format!("<figure><figcaption><a href=\"#{name}\">{name}</a></figcaption>{svg}</figure>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_even_about_the_middle_and_nothing_falls_off_it() {
        assert_eq!(place(0.0), NAMES + WIDTH / 2.0);
        let offs = [-FAR, -10.0, -1.0, 0.0, 1.0, 10.0, FAR];
        let places: Vec<f64> = offs.iter().map(|off| place(*off)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(places[0] > NAMES && places[6] < NAMES + WIDTH, "{places:?}");
        assert!((places[6] + places[0] - 2.0 * places[3]).abs() < 1e-9);
    }
}
