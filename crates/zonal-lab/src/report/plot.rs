//! Plots as SVG: drawn here, in the page's own font and colours, without scripts.

use std::fmt::Write;

use super::escape;

/// Lines of a plot: its width, its height, and what its axes take at the left and below.
const LINES: (f64, f64, f64, f64) = (900.0, 300.0, 64.0, 44.0);
/// Bars: the width of a plot, a row's height, and what values take at the right.
const BARS: (f64, f64, f64) = (440.0, 22.0, 76.0);
/// How wide a letter of the plots' font is at most, on average.
const LETTER: f64 = 6.4;
/// Colours of lines that can be told apart, also by most who see some colours alike (P. Tol).
const COLOURS: [&str; 7] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#787878"];

/// Lines over the same places.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// What is shown.
    pub title: String,
    /// Its unit, beside the vertical axis.
    pub y: String,
    /// What lies below the plot.
    pub x: String,
    /// The places, evenly spaced.
    pub places: Vec<String>,
    /// The lines.
    pub series: Vec<Series>,
}

/// A line: at each place its values, if there are any.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// What it is called.
    pub name: String,
    /// Its values, several where several seeds were run.
    pub values: Vec<Vec<f64>>,
}

/// A row of bars: its name, the simulated figure, and the published one if there is one.
pub(super) type Bar<'a> = (&'a str, f64, Option<f64>);

/// One figure of several runs: simulated as bars, published as circles.
pub(super) fn bars(title: &str, rows: &[Bar<'_>]) -> String {
    let (width, row_height, right) = BARS;
    let letters = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let left = (letters as f64 * LETTER + 10.0).min(width / 2.0);
    let all = || rows.iter().flat_map(|(_, value, known)| [Some(*value), *known]).flatten();
    let axis = Axis::over(all(), 3.0, left, width - right);
    let bottom = rows.len() as f64 * row_height + 6.0;
    let mut svg = open((width, bottom + 36.0), title);
    for (value, x) in axis.ticks() {
        line(&mut svg, "grid", (x, 2.0), (x, bottom));
        text(&mut svg, ("middle", x, bottom + 14.0), &short(value));
    }
    for (at, (name, value, known)) in rows.iter().enumerate() {
        let middle = (at as f64 + 0.5) * row_height + 3.0;
        text(&mut svg, ("end", left - 6.0, middle + 4.0), name);
        let (from, to) = (axis.at(0.0).min(axis.at(*value)), axis.at(0.0).max(axis.at(*value)));
        let _ = write!(
            svg,
            "<rect class=\"bar\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"/>",
            middle - 6.0,
            (to - from).max(1.0),
        );
        let mut end = to;
        if let Some(known) = known {
            let x = axis.at(*known);
            let _ = write!(
                svg,
                "<circle class=\"published\" cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"5\"/>"
            );
            end = end.max(x + 5.0);
        }
        text(&mut svg, ("start", end + 5.0, middle + 4.0), &short(*value));
    }
    line(&mut svg, "axis", (axis.at(0.0), 2.0), (axis.at(0.0), bottom));
    let below = match rows.iter().any(|(.., known)| known.is_some()) {
        true => "simulated (bar), published (circle)",
        false => "simulated; nothing was published",
    };
    text(&mut svg, ("middle", f64::midpoint(left, width - right), bottom + 30.0), below);
    figure(title, &svg, "")
}

/// Lines with a point at each mean, and a bar from the lowest to the highest value.
pub(super) fn lines(lines: &Lines) -> String {
    let (width, height, left, below) = LINES;
    let bottom = height - below;
    let all = lines.series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let axis = Axis::over(all, 5.0, bottom, 10.0);
    let mut svg = open((width, height), &lines.title);
    for (value, y) in axis.ticks() {
        line(&mut svg, "grid", (left, y), (width, y));
        text(&mut svg, ("end", left - 6.0, y + 4.0), &short(value));
    }
    let step = (width - left) / lines.places.len().max(1) as f64;
    let place = |at: usize| left + (at as f64 + 0.5) * step;
    for (at, name) in lines.places.iter().enumerate() {
        text(&mut svg, ("middle", place(at), bottom + 16.0), name);
    }
    text(&mut svg, ("middle", f64::midpoint(left, width), bottom + 36.0), &lines.x);
    let _ = write!(
        svg,
        "<text text-anchor=\"middle\" transform=\"translate(12 {:.1}) rotate(-90)\">{}</text>",
        bottom / 2.0,
        escape(&lines.y),
    );
    for (at, series) in lines.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let known = series.values.iter().enumerate().filter(|(_, values)| !values.is_empty());
        let mut points = String::new();
        for (at, values) in known {
            let (x, mean) = (place(at), values.iter().sum::<f64>() / values.len() as f64);
            let _ = write!(points, "{x:.1},{:.1} ", axis.at(mean));
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
                axis.at(mean)
            );
            let (low, high) = ends(values.iter().copied());
            let _ = write!(
                svg,
                "<line stroke=\"{colour}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>",
                axis.at(low),
                axis.at(high)
            );
        }
        let points = points.trim_end();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{points}\"/>"
        );
    }
    line(&mut svg, "axis", (left, bottom), (width, bottom));
    line(&mut svg, "axis", (left, 4.0), (left, bottom));
    let entry = |(at, series): (usize, &Series)| {
        let colour = COLOURS[at % COLOURS.len()];
        let name = if series.name.is_empty() { "all" } else { &series.name };
        format!("<span><b style=\"color:{colour}\">&#9632;</b> {}</span>", escape(name))
    };
    let legend: String = lines.series.iter().enumerate().map(entry).collect();
    figure(&lines.title, &svg, &format!("<p class=\"legend\">{legend}</p>"))
}

fn figure(title: &str, svg: &str, below: &str) -> String {
    let title = escape(title);
    format!("<figure><figcaption>{title}</figcaption>{svg}</svg>{below}</figure>")
}

fn open((width, height): (f64, f64), title: &str) -> String {
    let title = escape(title);
    format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\"><title>{title}</title>")
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = write!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, (anchor, x, y): (&str, f64, f64), words: &str) {
    let words = escape(words);
    let _ = write!(svg, "<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

/// The lowest and the highest value.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// An axis: it has zero, all values and whole steps.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Over `values`, in about `steps` steps, from `from` to `to` of the picture.
    fn over(values: impl Iterator<Item = f64>, steps: f64, from: f64, to: f64) -> Axis {
        let (low, high) = ends(values.filter(|value| value.is_finite()));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / steps;
        let ten = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|part| part * ten);
        let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Axis { low, high, step, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Each step, and where it stands.
    fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        (0..=count).map(|at| {
            let value = self.low + f64::from(at) * self.step;
            (value, self.at(value))
        })
    }
}

/// A figure in little room: three digits, and what stands for the rest.
fn short(value: f64) -> String {
    let units = [(1e9, " G"), (1e6, " M"), (1e4, " k")];
    let (size, unit) = units
        .into_iter()
        .find(|(size, _)| value.abs() >= *size)
        .map_or((1.0, ""), |(size, unit)| (if unit == " k" { 1e3 } else { size }, unit));
    let value = value / size;
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_zero_and_every_value_in_whole_steps() {
        for values in [vec![3.0, 91.0], vec![-27.0, 100.0], vec![0.0], vec![], vec![2e8, f64::NAN]]
        {
            let axis = Axis::over(values.iter().copied(), 4.0, 10.0, 110.0);
            let ticks: Vec<(f64, f64)> = axis.ticks().collect();
            assert!((2..=7).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(ticks.iter().any(|(value, _)| value.abs() < axis.step / 1e6), "{ticks:?}");
            for value in values.into_iter().filter(|value| value.is_finite()) {
                assert!((10.0..=110.0).contains(&axis.at(value)), "{value}");
            }
        }
    }

    #[test]
    fn figures_in_little_room_keep_three_digits() {
        let texts = [0.0, 0.05, 12.345, 9999.0, 21_357_056.0, -27.0, 100.0].map(short);
        assert_eq!(texts, ["0", "0.05", "12.3", "9999", "21.4 M", "-27", "100"]);
    }
}
