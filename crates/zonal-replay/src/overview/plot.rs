//! A page, and curves on it as SVG whose colours follow the page's, with the values of each moment
//! under the pointer.

use plotters::prelude::*;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--ink:#222;--rule:#ddd;\
--tint:#f4f4f4}\
@media(prefers-color-scheme:dark){:root{--back:#16181b;--ink:#ddd;--rule:#3a3d42;--tint:#24272b}}\
body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;\
color:var(--ink);background:var(--back)}figure{margin:2em 0}figcaption{font-weight:600}\
svg{width:100%;height:auto;overflow:visible}.hover{fill:var(--ink);opacity:0}\
.hover:hover{opacity:1}.hover rect{opacity:.15}.hover text{font:13px system-ui,sans-serif;\
pointer-events:none;paint-order:stroke;stroke:var(--back);stroke-width:3px}\
.verdict{background:var(--tint);padding:1em;font-size:17px}.legend span{margin-right:1.2em}\
table{border-collapse:collapse;width:100%}td,th{padding:.2em .5em;text-align:right;\
border-bottom:1px solid var(--rule);font-variant-numeric:tabular-nums}\
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere}.bar{width:40%}\
@media(max-width:40em){.plot{overflow-x:auto}.plot svg{width:640px}.bar{width:25%}}\
pre{background:var(--tint);padding:1em;overflow:auto;font-size:12px}\
.bar span{display:block;height:.9em;background:#0077BB}";
const PLOT: (u32, u32) = (900, 240);
/// Space around the curves, as the chart below lays them out.
const MARGIN: u32 = 10;
const LEFT: u32 = 100;
const BELOW: u32 = 36;
const FONT: (&str, u32) = ("system-ui,sans-serif", 15);
const INK: RGBColor = RGBColor(34, 34, 34);
const RULE: RGBColor = RGBColor(221, 221, 221);
/// Colours that most can tell apart (P. Tol's vibrant scheme), on white and on black.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 119, 187), RGBColor(238, 119, 51), RGBColor(0, 153, 136), RGBColor(204, 51, 17)];

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// In proportion, from 0 up.
    Linear,
    /// Each step up is a multiple, from below the smallest value up: for values that differ by
    /// orders of magnitude. 0 is at the bottom.
    Log,
}

/// A curve: its name, and its points in seconds and units.
pub(crate) struct Curve {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// The value at the moment of one of its points. Not every curve has them all.
    fn at(&self, time: f64) -> Option<f64> {
        let at = self.points.binary_search_by(|(other, _)| other.total_cmp(&time)).ok()?;
        Some(self.points[at].1)
    }
}

/// A page of this title, by day and by night, with this body: nothing from elsewhere.
pub(crate) fn document(title: &str, body: &str) -> String {
    let (title, rules) = (escape(title), rules());
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{rules}</style></head><body><h1>{title}</h1>{body}\
         </body></html>\n"
    )
}

/// Rules by which drawn colours follow the page's.
fn rules() -> String {
    [(INK, "ink"), (RULE, "rule")]
        .into_iter()
        .flat_map(|(colour, name)| {
            ["fill", "stroke"]
                .map(|what| format!("svg [{what}=\"{}\"]{{{what}:var(--{name})}}", web(colour)))
        })
        .collect()
}

/// Curves over the same seconds, with a title, a unit and a sentence.
pub(crate) fn curves(
    (title, unit, sentence): (&str, &str, &str),
    scale: Scale,
    seconds: f64,
    curves: &[Curve],
) -> String {
    let mut svg = String::new();
    let drawn = draw(&mut svg, unit, scale, seconds, curves);
    let legend: String = curves
        .iter()
        .zip(COLOURS)
        .map(|(curve, colour)| {
            let colour = web(colour);
            format!("<span><b style=\"color:{colour}\">&#9632;</b> {}</span>", escape(curve.name))
        })
        .collect();
    let title = escape(title);
    let plot = match drawn {
        Ok(()) => {
            let hover = hover(seconds, unit, curves);
            let svg = svg.replace("</svg>", &format!("{hover}</svg>"));
            format!("<div class=\"plot\" role=\"img\" aria-label=\"{title}\">{svg}</div>")
        }
        Err(error) => format!("<p>no plot: {}</p>", escape(&error)),
    };
    format!(
        "<figure><figcaption>{title}</figcaption>{plot}<p class=\"legend\">{legend}</p>\
         <p>{}</p></figure>",
        escape(sentence)
    )
}

fn draw(
    svg: &mut String,
    unit: &str,
    scale: Scale,
    seconds: f64,
    curves: &[Curve],
) -> Result<(), String> {
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
    let largest = values().fold(0.0, f64::max).max(1.0);
    let least = values().filter(|value| *value > 0.0).fold(largest, f64::min);
    // Where a value is drawn, and what the axis says there.
    let height = |value: f64| match scale {
        Scale::Linear => value,
        Scale::Log => value.max(least / 2.0).log10(),
    };
    let said = |height: f64| match scale {
        Scale::Linear => height,
        Scale::Log => 10_f64.powf(height),
    };
    let (bottom, top) = match scale {
        Scale::Linear => (0.0, largest * 1.05),
        Scale::Log => ((least / 2.0).log10(), (largest * 1.5).log10()),
    };
    let unit = match scale {
        Scale::Linear => unit.to_owned(),
        Scale::Log => format!("{unit} (log.)"),
    };
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..seconds, bottom..top)
        .map_err(|e| fail(&e))?;
    let text = FONT.into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RULE.stroke_width(0))
        .bold_line_style(RULE)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc("seconds")
        .y_desc(unit)
        .y_labels(8)
        .y_label_formatter(&|at: &f64| label(said(*at)))
        .draw()
        .map_err(|e| fail(&e))?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let line = LineSeries::new(
            curve.points.iter().map(|(time, value)| (*time, height(*value))),
            colour.stroke_width(2),
        );
        chart.draw_series(line).map_err(|e| fail(&e))?;
    }
    area.present().map_err(|e| fail(&e))
}

/// Columns that are seen under a pointer, with the values of their moment below the curves: at
/// once, and for a finger too, which gets no tooltips.
fn hover(seconds: f64, unit: &str, curves: &[Curve]) -> String {
    let Some(longest) = curves.iter().max_by_key(|curve| curve.points.len()) else {
        return String::new();
    };
    let (left, width) = (MARGIN + LEFT, PLOT.0 - 2 * MARGIN - LEFT);
    let height = PLOT.1 - 2 * MARGIN - BELOW;
    let (below, unit) = (PLOT.1, escape(unit));
    let step = (longest.points.len() / 200).max(1);
    let each = f64::from(width) * step as f64 / longest.points.len().max(1) as f64;
    longest
        .points
        .iter()
        .step_by(step)
        .map(|(time, _)| {
            let values: String = curves
                .iter()
                .filter_map(|curve| Some((curve.name, curve.at(*time)?)))
                .map(|(name, value)| format!("{}: {}, ", escape(name), grouped(value as u64)))
                .collect();
            let values = values.trim_end_matches(", ");
            let x = f64::from(left) + time / seconds * f64::from(width) - each / 2.0;
            format!(
                "<g class=\"hover\"><rect x=\"{x:.1}\" y=\"{MARGIN}\" width=\"{each:.1}\" \
                 height=\"{height}\"/><text x=\"{left}\" y=\"{below}\">{time:.3} s: {values} \
                 {unit}</text></g>"
            )
        })
        .collect()
}

/// Rows with a bar each.
pub(super) fn bars((title, unit, sentence): (&str, &str, &str), rows: &[(String, u64)]) -> String {
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let row = |(name, count): &(String, u64)| {
        let percent = *count as f64 * 100.0 / most as f64;
        format!(
            "<tr><td>{}</td><td>{count}</td><td class=\"bar\" title=\"{count} {unit}\">\
             <span style=\"width:{percent:.1}%\"></span></td></tr>",
            escape(name),
            count = grouped(*count)
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<figure><figcaption>{}</figcaption><table><thead><tr><th></th><th>{unit}</th><th></th>\
         </tr></thead><tbody>{rows}</tbody></table><p>{}</p></figure>",
        escape(title),
        escape(sentence)
    )
}

/// A number at an axis: three digits of it count.
fn label(value: f64) -> String {
    if value < 10.0 && value.fract() > 0.005 {
        return format!("{value:.1}");
    }
    let unit = 10_f64.powi((value.max(1.0).log10().floor() as i32 - 2).max(0));
    grouped(((value / unit).round() * unit) as u64)
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn web(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Text that HTML takes as text.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
