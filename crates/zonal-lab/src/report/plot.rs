//! Plots as SVG, without fonts or scripts, in colours that the page's style knows.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::data::float::FloatPrettyPrinter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::text::escape;
use super::text::grouped;

/// Width and height of a plot of lines, and of each of several small ones.
const LINES: (u32, u32) = (900, 300);
const SMALL: (u32, u32) = (430, 240);
/// Classes of what is around a plot: on a narrow screen it becomes smaller, or, where its letters
/// would become too small to read, keeps a width and scrolls.
const SHRINKS: &str = "plot";
const SCROLLS: &str = "wide";
/// Lines that one plot shows; more have a small plot each.
const LINES_MAX: usize = 4;
/// Small plots whose lines stand behind each other's.
const BEHIND_MAX: usize = 12;
/// Opacity of a line behind another one: darker than the grid, lighter than the axes.
const BEHIND: f64 = 0.5;
/// Half of the side of what the mouse finds around a point.
const NEAR: i32 = 9;
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
    figure((title, SHRINKS), drawn.map(|said| told(svg, &said)), "")
}

/// Lines with a point at each mean, and a bar from the lowest to the highest value. More than a
/// few are small plots of the same axes, one for each line, with the others in grey behind it.
/// Where every value is nothing one sentence says so.
pub(crate) fn lines(lines: &Lines) -> String {
    let mut values =
        lines.series.iter().flat_map(|series| series.values.iter().flatten()).peekable();
    if values.peek().is_some() && values.all(|value| *value == 0.0) {
        return format!("<p class=\"many\"><b>{}</b>: 0 in every run.</p>", escape(&lines.title));
    }
    if lines.series.len() > LINES_MAX {
        return small(lines);
    }
    let shown: Vec<usize> = (0..lines.series.len()).collect();
    let mut svg = String::new();
    let drawn = draw_lines(&mut svg, lines, LINES, &shown);
    let entry = |(at, series): (usize, &Series)| {
        let colour = web(colour(at));
        format!("<span><b style=\"color:{colour}\">&#9632;</b> {}</span>", escape(series.name()))
    };
    // Spaces between the entries are where the legend may break.
    let legend: Vec<String> = lines.series.iter().enumerate().map(entry).collect();
    let legend = format!("<p class=\"legend\">{}</p>", legend.join(" "));
    figure((&lines.title, SCROLLS), drawn.map(|said| told(svg, &said)), &legend)
}

/// A small plot for each line.
fn small(lines: &Lines) -> String {
    let plot = |(at, series): (usize, &Series)| {
        let mut svg = String::new();
        let drawn = draw_lines(&mut svg, lines, SMALL, &[at]);
        figure((series.name(), SHRINKS), drawn.map(|said| told(svg, &said)), "")
    };
    let plots: String = lines.series.iter().enumerate().map(plot).collect();
    let behind = match lines.series.len() <= BEHIND_MAX {
        true => "; the others are grey",
        false => "",
    };
    format!(
        "<p class=\"many\"><b>{}</b>: one line in each plot, all with the same axes{behind}.</p>\
         <div class=\"plots\">{plots}</div>",
        escape(&lines.title)
    )
}

impl Series {
    fn name(&self) -> &str {
        if self.name.is_empty() { "all" } else { &self.name }
    }
}

/// What a browser says of a place of a plot when the mouse is over it: its left, top, right and
/// bottom, and the text.
type Said = ([i32; 4], String);

/// A plot with what is said of its places.
fn told(mut svg: String, said: &[Said]) -> String {
    let place = |([left, top, right, bottom], text): &Said| {
        let (width, height) = ((right - left).max(1), (bottom - top).max(1));
        format!(
            "<rect class=\"says\" x=\"{left}\" y=\"{top}\" width=\"{width}\" \
             height=\"{height}\" fill=\"transparent\"><title>{}</title></rect>\n",
            escape(text)
        )
    };
    let places: String = said.iter().map(place).collect();
    if let Some(end) = svg.rfind("</svg>") {
        svg.insert_str(end, &places);
    }
    svg
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

fn figure((title, class): (&str, &str), drawn: Result<String, String>, below: &str) -> String {
    let title = escape(title);
    match drawn {
        Ok(svg) => format!(
            "<figure><figcaption>{title}</figcaption>\
             <div class=\"{class}\" role=\"img\" aria-label=\"{title}\">{svg}</div>{below}</figure>"
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

fn draw_bars(svg: &mut String, rows: &[Bar<'_>]) -> Result<Vec<Said>, String> {
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
    let said = rows.iter().enumerate().map(|(row, (name, value, known))| {
        let (_, top) = chart.backend_coord(&(low, at(row) - 0.5));
        let (_, bottom) = chart.backend_coord(&(low, at(row) + 0.5));
        let known = known.map_or_else(String::new, |known| format!(", published {}", tick(known)));
        ([0, top, width as i32, bottom], format!("{name}: simulated {}{known}", tick(*value)))
    });
    let said = said.collect();
    area.present().map_err(fail)?;
    Ok(said)
}

/// Draws the lines `shown` in their colours over all others in grey, if these are not many.
fn draw_lines(
    svg: &mut String,
    lines: &Lines,
    size: (u32, u32),
    shown: &[usize],
) -> Result<Vec<Said>, String> {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
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
        .x_labels(lines.places.len().min((size.0 / (names + 8)) as usize).max(1))
        .x_label_formatter(&name)
        .x_desc(&lines.x)
        .y_labels(size.1 as usize / 40)
        .y_label_formatter(&|value| tick(*value))
        .y_desc(&lines.y)
        .draw()
        .map_err(fail)?;
    if shown.len() < lines.series.len() && lines.series.len() <= BEHIND_MAX {
        for series in &lines.series {
            let means = series.points().map(|(at, _, mean)| (at as f64, mean));
            chart.draw_series(LineSeries::new(means, &QUIET.mix(BEHIND))).map_err(fail)?;
        }
    }
    let mut said = Vec::new();
    for at in shown.iter().copied() {
        let series = &lines.series[at];
        draw_series(&mut chart, colour(at), series)?;
        for (place, values, mean) in series.points().filter(|(_, _, mean)| mean.is_finite()) {
            let (x, y) = chart.backend_coord(&(place as f64, mean));
            let name = lines.places.get(place).map_or("", String::as_str);
            let text = series.says(values, mean, (name, lines));
            said.push(([x - NEAR, y - NEAR, x + NEAR, y + NEAR], text));
        }
    }
    area.present().map_err(fail)?;
    Ok(said_together(&said))
}

/// Each place with what is said of those that have their middle in it: of places that overlap the
/// mouse finds the last one alone.
fn said_together(said: &[Said]) -> Vec<Said> {
    let within = |[left, top, right, bottom]: [i32; 4], other: [i32; 4]| {
        let (x, y) = (i32::midpoint(other[0], other[2]), i32::midpoint(other[1], other[3]));
        (left..=right).contains(&x) && (top..=bottom).contains(&y)
    };
    let together = |(at, (place, text)): (usize, &Said)| {
        let others = said.iter().enumerate().filter(|(other, _)| *other != at);
        let near = others.filter(|(_, (other, _))| within(*place, *other));
        let near = near.map(|(_, (_, text))| text.as_str());
        let texts: Vec<&str> = [text.as_str()].into_iter().chain(near).collect();
        (*place, texts.join("\n"))
    };
    said.iter().enumerate().map(together).collect()
}

impl Series {
    /// Its places that have values, with these and their mean.
    fn points(&self) -> impl Iterator<Item = (usize, &[f64], f64)> {
        let known = self.values.iter().enumerate().filter(|(_, values)| !values.is_empty());
        known.map(|(at, values)| (at, &**values, values.iter().sum::<f64>() / values.len() as f64))
    }

    /// What is said of one place.
    fn says(&self, values: &[f64], mean: f64, (place, lines): (&str, &Lines)) -> String {
        let runs = match values.len() {
            1 => String::new(),
            count => {
                let (low, high) = (tick(least(values)), tick(most(values)));
                format!(" (mean of {count} runs, {low} to {high})")
            }
        };
        format!("{}, {} {place}: {} {}{runs}", self.name(), lines.x, tick(mean), lines.y)
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn draw_series(chart: &mut Chart<'_, '_>, colour: RGBColor, series: &Series) -> Result<(), String> {
    let means = series.points().map(|(at, _, mean)| (at as f64, mean));
    chart.draw_series(LineSeries::new(means, colour.stroke_width(2))).map_err(fail)?;
    let bars = series.points().map(|(at, values, mean)| {
        let (low, high) = (least(values), most(values));
        ErrorBar::new_vertical(at as f64, low, mean, high, colour.filled(), 7)
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
    fn lines_that_are_zero_everywhere_are_a_sentence() {
        let mut zero = many(5);
        for series in &mut zero.series {
            series.values.iter_mut().flatten().for_each(|value| *value = 0.0);
        }
        assert_eq!(lines(&zero), "<p class=\"many\"><b>many</b>: 0 in every run.</p>");
        zero.series[3].values[1][0] = 0.01;
        assert_eq!(lines(&zero).matches("<svg").count(), 5, "one value is worth a plot");
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

    /// Lines of this many series over two places.
    fn many(count: usize) -> Lines {
        let series = (0..count).map(|at| Series {
            name: format!("line{at} <&>"),
            values: vec![vec![at as f64, at as f64 + 1.0], vec![7.0]],
        });
        Lines {
            title: "many".into(),
            y: "pages".into(),
            x: "CPUs".into(),
            places: vec!["2".into(), "4".into()],
            series: series.collect(),
        }
    }

    #[test]
    fn each_point_and_each_bar_says_its_value_under_the_mouse() {
        let plot = lines(&many(2));
        let says = "<title>line1 &lt;&amp;&gt;, CPUs 2: 1.5 pages (mean of 2 runs, 1 to 2)</title>";
        assert!(plot.contains(says), "{plot}");
        assert!(plot.contains("CPUs 4: 7 pages</title>"), "one run has no mean: {plot}");
        assert_eq!(plot.matches("<title>").count(), 4);
        let plot = bars("one", &[("a & b", 3.25, Some(4.5)), ("c", -27.5, None)]);
        for says in ["a &amp; b: simulated 3.25, published 4.5<", "<title>c: simulated -27.5<"] {
            assert!(plot.contains(says), "{says} is not in {plot}");
        }
    }

    #[test]
    fn of_points_that_lie_upon_each_other_the_last_speaks_for_all() {
        let plot = lines(&many(3));
        let last = plot.rsplit("<title>").next().unwrap();
        for name in 0..3 {
            let says = format!("line{name} &lt;&amp;&gt;, CPUs 4: 7 pages");
            assert!(last.contains(&says), "{says} is not in {last}");
        }
        assert!(!last.contains("CPUs 2"), "points elsewhere speak for themselves: {last}");
        let apart = said_together(&[([0, 0, 18, 18], "a".into()), ([0, 10, 18, 28], "b".into())]);
        let texts: Vec<&str> = apart.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["a", "b"], "whose middle is free is found");
    }

    #[test]
    fn the_legend_may_break_between_its_entries() {
        let plot = lines(&many(LINES_MAX));
        assert_eq!(plot.matches("</span> <span>").count(), LINES_MAX - 1, "{plot}");
        assert!(plot.contains("<div class=\"wide\" role=\"img\""), "scrolls on its own: {plot}");
        assert!(!lines(&many(LINES_MAX + 1)).contains("wide"), "small ones fit");
    }

    #[test]
    fn many_lines_are_small_plots_with_the_same_axes() {
        let plot = lines(&many(LINES_MAX + 2));
        assert_eq!(plot.matches("<svg").count(), LINES_MAX + 2);
        assert!(!plot.contains("class=\"legend\""), "each plot has its name: {plot}");
        for at in 0..LINES_MAX + 2 {
            assert!(plot.contains(&format!("<figcaption>line{at} ")), "{plot}");
        }
        // The same value lies at the same height in each, though their highest ones differ.
        let plot = lines(&many(BEHIND_MAX));
        let sevens = plot.lines().filter(|line| line.contains("CPUs 4: 7 pages</title>"));
        let places: Vec<&str> = sevens.filter_map(|line| line.split("<title>").next()).collect();
        assert_eq!(places.len(), BEHIND_MAX, "{plot}");
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
        let grey = |plot: &str| plot.matches(&format!("stroke=\"{}\"", web(QUIET))).count();
        assert!(grey(&lines(&many(BEHIND_MAX))) / BEHIND_MAX > grey(&lines(&many(20))) / 20);
    }
}
