//! Plots as SVG, without fonts or scripts, in colours that the page's style knows.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::data::float::FloatPrettyPrinter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::text::escape;
use super::text::grouped;

/// Width and height of a plot of lines.
const LINES: (u32, u32) = (900, 300);
/// Bars: the width of a plot, a row's height, and what lies above and below the rows.
const BARS: (u32, u32, u32) = (400, 22, 46);
/// The page's font; what plotters calls 15 are twelve pixels.
const FONT: (&str, u32) = ("system-ui,sans-serif", 15);
const INK: RGBColor = RGBColor(34, 34, 34);
const QUIET: RGBColor = RGBColor(102, 102, 102);
const RULE: RGBColor = RGBColor(221, 221, 221);
const SIMULATED: RGBColor = RGBColor(200, 100, 60);
/// Colours that follow the page's, and their names there.
const THEMED: [(RGBColor, &str); 4] =
    [(INK, "ink"), (QUIET, "quiet"), (RULE, "rule"), (SIMULATED, "bar")];
/// Colours of lines that can be told apart, also by most who see some colours alike (P. Tol's
/// vibrant scheme), on white and on black.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 119, 187),
    RGBColor(238, 119, 51),
    RGBColor(0, 153, 136),
    RGBColor(204, 51, 17),
    RGBColor(238, 51, 119),
    RGBColor(51, 187, 238),
    RGBColor(120, 120, 120),
];

/// Lines over the same places.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// The curves shown.
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
pub(crate) struct Series {
    /// Its name.
    pub name: String,
    /// Its values, several where several seeds were run.
    pub values: Vec<Vec<f64>>,
}

/// A row of bars: its name, the simulated figure, and the published one if there is one.
pub(super) type Bar<'a> = (&'a str, f64, Option<f64>);

/// One figure of several runs: simulated as bars, published as circles.
pub(super) fn bars(title: &str, rows: &[Bar<'_>]) -> String {
    let mut svg = String::new();
    let drawn = draw_bars(&mut svg, rows);
    figure(title, drawn.map(|()| svg), "")
}

/// Lines with a point at each mean, and a bar from the lowest to the highest value.
pub(crate) fn lines(lines: &Lines) -> String {
    let mut svg = String::new();
    let drawn = draw_lines(&mut svg, lines);
    let entry = |(at, series): (usize, &Series)| {
        let colour = web(colour(at));
        let name = if series.name.is_empty() { "all" } else { &series.name };
        format!("<span><b style=\"color:{colour}\">&#9632;</b> {}</span>", escape(name))
    };
    let legend: String = lines.series.iter().enumerate().map(entry).collect();
    let legend = format!("<p class=\"legend\">{legend}</p>");
    figure(&lines.title, drawn.map(|()| svg), &legend)
}

/// The style of plots: colours follow the page's light or dark ones.
pub(super) fn style() -> String {
    let rules = |(colour, name)| {
        let colour = web(colour);
        ["fill", "stroke"]
            .map(|what| format!("svg [{what}=\"{colour}\"]{{{what}:var(--{name})}}"))
            .concat()
    };
    THEMED.map(rules).concat()
}

fn figure(title: &str, drawn: Result<String, String>, below: &str) -> String {
    let title = escape(title);
    match drawn {
        Ok(svg) => format!(
            "<figure><figcaption>{title}</figcaption>\
             <div role=\"img\" aria-label=\"{title}\">{svg}</div>{below}</figure>"
        ),
        Err(error) => format!("<p>no plot of {title}: {}</p>", escape(&error)),
    }
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

/// A colour as the SVG has it.
fn web(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

fn fail(error: impl Display) -> String {
    error.to_string()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_bars(svg: &mut String, rows: &[Bar<'_>]) -> Result<(), String> {
    let (width, row_height, rest) = BARS;
    let count = rows.len().max(1);
    let area = SVGBackend::with_string(svg, (width, count as u32 * row_height + rest));
    let area = area.into_drawing_area();
    let names = widest(&area, rows.iter().map(|(name, ..)| (*name).to_owned()))?;
    let values = widest(&area, rows.iter().map(|(_, value, _)| grouped(*value)))?;
    let all = rows.iter().flat_map(|(_, value, known)| [Some(*value), *known]).flatten();
    let (low, high) = ends(all);
    let ticks = widest(&area, [tick(low.round()), tick(high.round())].into_iter())?;
    let (left, right) = ((names + 10).min(width * 3 / 5), (values + 12).min(width / 3));
    let (last, bottom) = (count as f64 - 1.0, count as f64 - 0.5);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(4)
        .margin_right(right)
        .x_label_area_size(38)
        .y_label_area_size(left)
        .build_cartesian_2d(low..high, bottom..-0.5)
        .map_err(fail)?;
    let name = |at: &f64| place(*at, last, |at| rows.get(at).map(|(name, ..)| *name));
    let below = match rows.iter().any(|(.., known)| known.is_some()) {
        true => "simulated (bar), published (circle)",
        false => "simulated; nothing was published",
    };
    chart
        .configure_mesh()
        .axis_style(TRANSPARENT)
        .disable_y_mesh()
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .label_style(text(&area))
        .set_all_tick_mark_size(4)
        .x_labels(((width - left - right) / (ticks + 12)).clamp(2, 5) as usize)
        .x_label_formatter(&|value| tick(*value))
        .x_desc(below)
        .y_labels(count)
        .y_label_formatter(&name)
        .draw()
        .map_err(fail)?;
    let at = |row: usize| row as f64;
    let bars = rows.iter().enumerate().map(|(row, (_, value, _))| {
        let mut bar =
            Rectangle::new([(0.0, at(row) - 0.5), (*value, at(row) + 0.5)], SIMULATED.filled());
        bar.set_margin(5, 5, 0, 0);
        bar
    });
    chart.draw_series(bars).map_err(fail)?;
    let known = rows.iter().enumerate().filter_map(|(row, (.., known))| Some((row, (*known)?)));
    let circles = known.map(|(row, known)| Circle::new((known, at(row)), 5, INK.stroke_width(2)));
    chart.draw_series(circles).map_err(fail)?;
    let style = text(&area).pos(Pos::new(HPos::Left, VPos::Center));
    let values = rows.iter().enumerate().map(|(row, (_, value, known))| {
        let end = known.map_or(*value, |known| known.max(*value)).max(0.0);
        EmptyElement::at((end, at(row))) + Text::new(grouped(*value), (10, 0), style.clone())
    });
    chart.draw_series(values).map_err(fail)?;
    let zero = PathElement::new(vec![(0.0, -0.5), (0.0, bottom)], QUIET);
    chart.draw_series([zero]).map_err(fail)?;
    area.present().map_err(fail)
}

fn draw_lines(svg: &mut String, lines: &Lines) -> Result<(), String> {
    let area = SVGBackend::with_string(svg, LINES).into_drawing_area();
    let all = lines.series.iter().flat_map(|series| series.values.iter().flatten().copied());
    let (low, high) = ends(all);
    let (low, high) = (low * 1.05, high * 1.05);
    let last = lines.places.len().max(1) as f64 - 1.0;
    let ticks = widest(&area, [tick(low), tick(high)].into_iter())?;
    let names = widest(&area, lines.places.iter().cloned())?;
    let mut chart = ChartBuilder::on(&area)
        .margin_top(8)
        .x_label_area_size(44)
        .y_label_area_size(ticks + 28)
        .build_cartesian_2d(-0.5..last + 0.5, low..high)
        .map_err(fail)?;
    let name = |at: &f64| place(*at, last, |at| lines.places.get(at).map(String::as_str));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(QUIET)
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .label_style(text(&area))
        .set_all_tick_mark_size(4)
        .x_labels(lines.places.len().min((LINES.0 / (names + 8)) as usize).max(1))
        .x_label_formatter(&name)
        .x_desc(&lines.x)
        .y_labels(7)
        .y_label_formatter(&|value| tick(*value))
        .y_desc(&lines.y)
        .draw()
        .map_err(fail)?;
    for (at, series) in lines.series.iter().enumerate() {
        draw_series(&mut chart, colour(at), series)?;
    }
    area.present().map_err(fail)
}

fn draw_series(chart: &mut Chart<'_, '_>, colour: RGBColor, series: &Series) -> Result<(), String> {
    let known = series.values.iter().enumerate().filter(|(_, values)| !values.is_empty());
    let points: Vec<(f64, &[f64], f64)> = known
        .map(|(at, values)| {
            (at as f64, &**values, values.iter().sum::<f64>() / values.len() as f64)
        })
        .collect();
    let means = points.iter().map(|(at, _, mean)| (*at, *mean));
    chart.draw_series(LineSeries::new(means, colour.stroke_width(2))).map_err(fail)?;
    let bars = points.iter().map(|(at, values, mean)| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        ErrorBar::new_vertical(*at, low, *mean, high, colour.filled(), 7)
    });
    chart.draw_series(bars).map(|_| ()).map_err(fail)
}

fn text(area: &Area<'_>) -> TextStyle<'static> {
    FONT.into_text_style(area).color(&INK)
}

/// How wide the widest of `texts` is: an eighth more than plotters guesses, for wide fonts.
fn widest(area: &Area<'_>, mut texts: impl Iterator<Item = String>) -> Result<u32, String> {
    let style = text(area);
    texts.try_fold(0, |widest, text| {
        let (width, _) = area.estimate_text_size(&text, &style).map_err(fail)?;
        Ok((width + width / 8).max(widest))
    })
}

/// The name of a place of an axis from 0 to `last`.
fn place<'a>(at: f64, last: f64, name: impl Fn(usize) -> Option<&'a str>) -> String {
    let whole = (at - at.round()).abs() < 0.01 && (0.0..=last).contains(&at.round());
    let name = if whole { name(at.round() as usize) } else { None };
    name.unwrap_or_default().to_owned()
}

/// From the lowest to the highest value and zero.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite());
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    (low, if high > low { high } else { low + 1.0 })
}

/// A figure beside an axis.
fn tick(value: f64) -> String {
    let small = FloatPrettyPrinter { allow_scientific: false, min_decimal: 0, max_decimal: 5 };
    if value.abs() < 1000.0 { small.print(value) } else { grouped(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of a colour, in `<tag … fill=… stroke=…>`.
    fn colours(plot: &str) -> impl Iterator<Item = &str> {
        plot.match_indices("=\"#").filter_map(|(at, _)| plot.get(at + 2..at + 9))
    }

    #[test]
    fn bars_are_drawn_in_colours_that_the_page_changes_by_night() {
        let plot = bars("a <figure> \"quoted\"", &[("a & b", 3.0, Some(4.5)), ("c", -27.5, None)]);
        let style = style();
        assert!(colours(&plot).count() > 10, "{plot}");
        for colour in colours(&plot) {
            assert!(style.contains(&format!("[fill=\"{colour}\"]")), "{colour} stays in the dark");
        }
        for part in
            ["a &lt;figure&gt; &quot;quoted&quot;", "\na &amp; b\n", "\n-27.50\n", "<circle"]
        {
            assert!(plot.contains(part), "{part} is not in {plot}");
        }
    }

    #[test]
    fn plots_without_figures_or_room_are_plots() {
        let over = |places| Lines {
            title: "none".into(),
            y: "pages".into(),
            x: "policy".into(),
            places,
            series: Vec::new(),
        };
        let odd = [f64::NAN, f64::INFINITY, 0.0].map(|value| ("odd", value, None));
        for plot in [
            lines(&over(Vec::new())),
            lines(&over(vec!["long".repeat(99); 3])),
            bars("none", &[]),
            bars("zero", &[("a", 0.0, None)]),
            bars("odd", &odd),
        ] {
            assert!(plot.contains("</svg>"), "{plot}");
        }
    }

    #[test]
    fn every_place_of_lines_has_its_name_and_a_point_below_the_highest_value() {
        for count in [1, 2, 3, 9, 10, 11, 16] {
            let plot = lines(&Lines {
                title: "by size".into(),
                y: "pages".into(),
                x: "CPUs".into(),
                places: (0..count).map(|at| format!("at{at}")).collect(),
                series: vec![Series {
                    name: "one".into(),
                    values: (0..count).map(|at| vec![f64::from(at), 2.0, 1e6]).collect(),
                }],
            });
            for at in 0..count {
                assert!(plot.contains(&format!("\nat{at}\n")), "{at} of {count}: {plot}");
            }
            assert_eq!(plot.matches("<circle").count(), count as usize, "{plot}");
            assert!(plot.contains("\n1,000,000\n"), "{plot}");
        }
    }
}
