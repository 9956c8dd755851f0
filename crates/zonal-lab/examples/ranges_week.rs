//! A week of a mixed load of ranges: the largest range that can be had over time, beside first fit
//! and Linux' rules. All simulated: the same figures come out on every machine.
//!
//! ```text
//! cargo run --release -p zonal-lab --example ranges_week -- [PLOT.html]
//! ```

use zonal_lab::LabError;
use zonal_lab::ranges::{Outcome, Rules, Setup, plot};

/// 512 MiB, 70 % in use on average.
const WEEK: Setup = Setup { pages: 1 << 17, used: 0.7, seed: 0 };
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runs = runs(WEEK)?;
    println!("Simulated: 512 MiB, 70 % in use on average, a week, seeds 1 to 3.\n");
    println!(
        "| rules | longest run, lowest | median | lowest part of the free pages | refused of \
         a million | pages wasted |"
    );
    println!("|--|--:|--:|--:|--:|--:|");
    for (rules, weeks) in &runs {
        let mib = |pages: u64| pages as f64 / 256.0;
        let least = weeks.iter().map(|week| week.longest().0).min().unwrap_or(0);
        let median = middle(weeks.iter().map(|week| week.longest().1 as f64)) as u64;
        let share = weeks.iter().map(Outcome::least_share).fold(1.0, f64::min);
        let refused = weeks.iter().map(|week| week.refused as f64 / week.asked as f64);
        let wasted = middle(weeks.iter().map(|week| week.wasted));
        println!(
            "| {rules} | {:.0} MiB | {:.0} MiB | {:.1} % | {:.0} | {:.1} % |",
            mib(least),
            mib(median),
            100.0 * share,
            1e6 * middle(refused),
            100.0 * wasted,
        );
    }
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, plot(&runs))?;
    }
    Ok(())
}

fn runs(week: Setup) -> Result<Vec<(Rules, Vec<Outcome>)>, LabError> {
    let seeds = |rules| -> Result<Vec<Outcome>, LabError> {
        SEEDS.map(|seed| Setup { seed, ..week }.run(rules)).collect()
    };
    Rules::ALL.into_iter().map(|rules| Ok((rules, seeds(rules)?))).collect()
}

fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[test]
fn a_plot_has_a_line_for_each_of_the_rules() {
    let plot = plot(&runs(Setup { pages: 1 << 15, ..WEEK }).unwrap());
    for rules in Rules::ALL {
        let name = rules.to_string().replace('\'', "&#39;");
        assert!(plot.contains(&name) || plot.contains(&rules.to_string()), "{rules}");
    }
    assert!(plot.contains("simulated"));
}
