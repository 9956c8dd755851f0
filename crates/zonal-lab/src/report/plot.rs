//! Plots as SVG, without fonts or scripts.

use plotters::prelude::*;

use super::{escape, figure};
use crate::experiment::Cell;

const PLOT: (u32, u32) = (900, 360);
const PUBLISHED: RGBColor = RGBColor(120, 120, 120);
const SIMULATED: RGBColor = RGBColor(200, 80, 30);
/// Colours of lines that can be told apart, also by most who see some colours alike (P. Tol).
const COLOURS: [RGBColor; 7] = [
    RGBColor(68, 119, 170),
    RGBColor(238, 102, 119),
    RGBColor(34, 136, 51),
    RGBColor(204, 187, 68),
    RGBColor(102, 204, 238),
    RGBColor(170, 51, 119),
    RGBColor(120, 120, 120),
];

/// Lines over the same places.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// What is shown, and in which unit.
    pub title: String,
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

/// A column of a table: rows side by side, published as circles, simulated as a line with points.
pub(super) fn column(name: &str, cells: &[&Cell]) -> String {
    let mut svg = String::new();
    let drawn = draw_column(&mut svg, name, cells);
    page_part(drawn.map(|()| svg), name, "")
}

/// Lines with a point at each mean, and a bar from the lowest to the highest value.
pub(super) fn lines(lines: &Lines) -> String {
    let mut svg = String::new();
    let drawn = draw_lines(&mut svg, lines);
    let entry = |(at, series): (usize, &Series)| {
        let RGBColor(r, g, b) = colour(at);
        let name = if series.name.is_empty() { "all" } else { &series.name };
        format!("<span style=\"color:rgb({r},{g},{b})\">&#9632;</span> {} ", escape(name))
    };
    let legend: String = lines.series.iter().enumerate().map(entry).collect();
    page_part(drawn.map(|()| svg), &lines.title, &format!("<figcaption>{legend}</figcaption>"))
}

fn page_part(drawn: Result<String, String>, name: &str, below: &str) -> String {
    match drawn {
        Ok(svg) => format!("<figure>{svg}{below}</figure>"),
        Err(error) => format!("<p>no plot of {}: {}</p>", escape(name), escape(&error)),
    }
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn fail(error: impl std::fmt::Display) -> String {
    error.to_string()
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Axes with a name at each place.
fn axes<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    caption: &str,
    (x, places): (&str, &[String]),
    top: f64,
) -> Result<Chart<'a, 'b>, String> {
    area.fill(&WHITE).map_err(fail)?;
    let last = places.len().saturating_sub(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(90)
        .build_cartesian_2d(-0.5..last + 0.5, 0.0..(top * 1.1).max(f64::MIN_POSITIVE))
        .map_err(fail)?;
    let name = |at: &f64| {
        let whole = (at - at.round()).abs() < 0.01 && *at >= 0.0;
        let place = if whole { places.get(at.round() as usize) } else { None };
        place.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .x_desc(x)
        .x_labels(2 * places.len() + 1)
        .x_label_formatter(&name)
        .y_label_formatter(&|value| figure(*value))
        .disable_x_mesh()
        .draw()
        .map_err(fail)?;
    Ok(chart)
}

fn draw_column(svg: &mut String, column: &str, cells: &[&Cell]) -> Result<(), String> {
    let values = |cell: &&Cell| [Some(cell.simulated), cell.published];
    let top = cells.iter().flat_map(values).flatten().fold(0.0, f64::max);
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    let caption = format!("{column}, simulated (line) and published (circles)");
    let places: Vec<String> = cells.iter().map(|cell| cell.row.clone()).collect();
    let mut chart = axes(&area, &caption, ("", &places), top)?;
    let at = |(i, cell): (usize, &&Cell)| (i as f64, cell.simulated);
    let points: Vec<(f64, f64)> = cells.iter().enumerate().map(at).collect();
    chart.draw_series(LineSeries::new(points.clone(), &SIMULATED)).map_err(fail)?;
    let dots = points.into_iter().map(|point| Circle::new(point, 3, SIMULATED.filled()));
    chart.draw_series(dots).map_err(fail)?;
    let known = cells.iter().enumerate().filter_map(|(i, c)| Some((i as f64, c.published?)));
    let circles = known.map(|point| Circle::new(point, 6, PUBLISHED.stroke_width(2)));
    chart.draw_series(circles).map_err(fail)?;
    area.present().map_err(fail)
}

fn draw_lines(svg: &mut String, lines: &Lines) -> Result<(), String> {
    let all = lines.series.iter().flat_map(|series| series.values.iter().flatten());
    let top = all.copied().fold(0.0, f64::max);
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    let mut chart = axes(&area, &lines.title, (&lines.x, &lines.places), top)?;
    for (at, series) in lines.series.iter().enumerate() {
        let colour = colour(at);
        let places = series.values.iter().enumerate().filter(|(_, values)| !values.is_empty());
        let mean = |(place, values): (usize, &Vec<f64>)| {
            (place as f64, values.iter().sum::<f64>() / values.len() as f64)
        };
        let means: Vec<(f64, f64)> = places.clone().map(mean).collect();
        chart.draw_series(LineSeries::new(means.clone(), &colour)).map_err(fail)?;
        let dots = means.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
        chart.draw_series(dots).map_err(fail)?;
        let bars = places.filter(|(_, values)| values.len() > 1).map(|(place, values)| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            PathElement::new(vec![(place as f64, low), (place as f64, high)], colour)
        });
        chart.draw_series(bars).map_err(fail)?;
    }
    area.present().map_err(fail)
}
