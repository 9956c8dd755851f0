//! The page: one file with its style and its plots inside.

use plotters::prelude::*;

use super::{Fidelity, Pair, Series};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;\
padding:0 1em;color:#222}pre{background:#f4f4f4;padding:1em;overflow:auto;font-size:12px}\
svg{max-width:100%;height:auto}";
const PLOT: (u32, u32) = (900, 240);
const KERNEL: RGBColor = RGBColor(120, 120, 120);
const MODEL: RGBColor = RGBColor(200, 80, 30);

/// A page with `text`, the report for people, and four plots for each place.
pub fn html(title: &str, text: &str, fidelity: &Fidelity) -> String {
    let plots: String = fidelity.places.iter().map(|series| place(series, fidelity)).collect();
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>\
         <p>Model (line) and recorded kernel (grey) in bins of {} ms. The kernel's side of \
         refills and drains is its own events; of lists and marks, {} samples of \
         /proc/zoneinfo.</p>{plots}<h2>All of it</h2><pre>{}</pre></body></html>\n",
        fidelity.bin_ns / 1_000_000,
        fidelity.polls,
        escape(text)
    )
}

fn place(series: &Series, fidelity: &Fidelity) -> String {
    let name = format!("{}, CPU {}", series.zone, series.cpu);
    let plots = [
        ("refilled pages in a bin", &series.refill_pages),
        ("drained pages in a bin", &series.drain_pages),
        ("pages on the lists", &series.count),
        ("high, in pages", &series.high),
    ];
    let plots = plots.into_iter().map(|(what, pair)| plot(what, pair, fidelity.bin_ns));
    format!("<h2>{}</h2>{}", escape(&name), plots.collect::<String>())
}

fn plot(what: &str, pair: &Pair, bin_ns: u64) -> String {
    let mut svg = String::new();
    match draw(&mut svg, what, pair, bin_ns as f64 / 1e9) {
        Ok(()) => format!("<figure>{svg}</figure>"),
        Err(error) => format!("<p>no plot of {what}: {}</p>", escape(&error)),
    }
}

fn draw(svg: &mut String, what: &str, pair: &Pair, seconds: f64) -> Result<(), String> {
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let all = pair.model.iter().chain(&pair.kernel).flatten();
    let top = all.copied().max().unwrap_or(0).max(1) as f64 * 1.05;
    let bins = pair.model.len() as f64;
    let area = SVGBackend::with_string(svg, PLOT).into_drawing_area();
    area.fill(&WHITE).map_err(|e| fail(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(what, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..bins * seconds, 0.0..top)
        .map_err(|e| fail(&e))?;
    let mesh = chart.configure_mesh().disable_x_mesh().x_desc("seconds").draw();
    mesh.map_err(|e| fail(&e))?;
    for (side, colour, width) in [(&pair.kernel, KERNEL, 3), (&pair.model, MODEL, 1)] {
        let known = side.iter().enumerate();
        let known =
            known.filter_map(|(bin, value)| Some(((bin as f64 + 0.5) * seconds, (*value)? as f64)));
        let line = LineSeries::new(known, colour.stroke_width(width));
        chart.draw_series(line).map_err(|e| fail(&e))?;
    }
    area.present().map_err(|e| fail(&e))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
