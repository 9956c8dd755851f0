//! The page: one file with its style and its plots inside, as that of an overview.

use crate::overview::plot::{Curve, Scale, curves, document, escape};

use super::{Fidelity, Pair, Series};

/// A page with `text`, the report for people, and four plots for each place.
pub fn html(title: &str, text: &str, fidelity: &Fidelity) -> String {
    let plots: String = fidelity.places.iter().map(|series| place(series, fidelity)).collect();
    let polls = match fidelity.polls {
        0 => "of lists and marks nothing was recorded, so they are the model's alone".to_owned(),
        1 => "of lists and marks, a sample of /proc/zoneinfo".to_owned(),
        polls => format!("of lists and marks, {polls} samples of /proc/zoneinfo"),
    };
    let body = format!(
        "<p>Model and recorded kernel in bins of {} ms. The kernel's side of refills and drains \
         is its own events; {polls}.</p>{plots}<h2>All of it</h2><pre tabindex=\"0\">{}</pre>",
        fidelity.bin_ns / 1_000_000,
        escape(text)
    );
    document(title, &body)
}

fn place(series: &Series, fidelity: &Fidelity) -> String {
    let name = format!("{}, CPU {}", series.zone, series.cpu);
    let plots = [
        ("Refilled", "pages in a bin", &series.refill_pages),
        ("Drained", "pages in a bin", &series.drain_pages),
        ("Pages on the lists", "pages", &series.count),
        ("High, at which lists are drained", "pages", &series.high),
    ];
    let plots = plots.into_iter().map(|(what, unit, pair)| {
        plot(&format!("{what}, {name}"), unit, pair, fidelity.bin_ns as f64 / 1e9)
    });
    format!("<h2>{}</h2>{}", escape(&name), plots.collect::<String>())
}

/// The model beside the kernel, as far as each is known.
fn plot(title: &str, unit: &str, pair: &Pair, bin_s: f64) -> String {
    let curve = |name: &'static str, side: &[Option<u64>]| {
        let known = side.iter().enumerate();
        let points = known
            .filter_map(|(bin, value)| Some(((bin as f64 + 0.5) * bin_s, (*value)? as f64)))
            .collect();
        Curve { name, points }
    };
    let both = [curve("model", &pair.model), curve("kernel", &pair.kernel)];
    let known: Vec<Curve> = both.into_iter().filter(|curve| !curve.points.is_empty()).collect();
    let sentence = match (pair.mean_difference, pair.kernel_mean) {
        (Some(off), Some(mean)) => {
            format!(
                "A bin of the model is {off:.1} pages off in the mean; the kernel's is {mean:.1}."
            )
        }
        _ => "The kernel's side is not known.".to_owned(),
    };
    let seconds = pair.model.len() as f64 * bin_s;
    curves((title, unit, &sentence), Scale::Linear, seconds, &known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fidelity(polls: usize, kernel: Vec<Option<u64>>) -> Fidelity {
        let pair = |kernel: &[Option<u64>]| Pair::new(vec![Some(1000), Some(3)], kernel.to_vec());
        let all = vec![Some(5), Some(7)];
        let series = Series {
            zone: "node 0, <Normal>".to_owned(),
            cpu: 3,
            refill_pages: pair(&all),
            refill_holds: pair(&all),
            drain_pages: pair(&all),
            drain_holds: pair(&all),
            count: pair(&kernel),
            high: pair(&kernel),
        };
        Fidelity { bin_ns: 100_000_000, bins: 2, polls, places: vec![series] }
    }

    #[test]
    fn the_page_is_for_any_screen_and_says_what_is_not_known() {
        let page = html("a & b", "text <1>", &fidelity(0, vec![None, None]));
        for part in [
            "width=device-width",
            "prefers-color-scheme:dark",
            "<title>a &amp; b</title>",
            "text &lt;1&gt;",
            "aria-label=\"Refilled, node 0, &lt;Normal&gt;, CPU 3\"",
            "they are the model's alone",
            "model: 1,000, kernel: 5 pages in a bin",
            "The kernel's side is not known.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("</b> kernel").count(), 2, "no name without a curve: {page}");
    }

    #[test]
    fn values_of_a_moment_are_those_of_that_moment() {
        // The kernel's lists are known from the second bin on.
        let page = html("a", "", &fidelity(1, vec![None, Some(70)]));
        assert!(page.contains("0.050 s: model: 1,000 pages"), "{page}");
        assert!(page.contains("0.150 s: model: 3, kernel: 70 pages"), "{page}");
        assert!(page.contains("a sample of /proc/zoneinfo"), "{page}");
    }
}
