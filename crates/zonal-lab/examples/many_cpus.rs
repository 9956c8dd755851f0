//! The bench's loops on machines with more CPUs than any we have, **simulated**: a Markdown table.
//!
//! ```text
//! cargo run --release -p zonal-lab --example many_cpus -- [RUN_US [CPUS,...]]
//! ```
//! An operation is that of `zonal bench`: a block allocated and freed, a page for `stream`, a step
//! for `mix`. Blocks are not written. The lab has no bulk calls, so `bulk4096` is missing.

use zonal_lab::LabError;
use zonal_lab::machine::Machine;
use zonal_lab::recipe::Recipe;

const MACHINE: &str = "turin-2024-384";
const POLICIES: [&str; 2] = ["zonal", "linux-6.18"];
const CPUS: [u32; 4] = [2, 16, 64, 256];
const RUN_US: u64 = 4000;

/// A loop: its name in the bench, its workload, and calls of an operation.
const LOOPS: [(&str, &str, f64); 6] = [
    ("pair", "burst:hold=1,order=0,lines=0", 2.0),
    ("32+32", "burst:hold=32,order=0,lines=0", 2.0),
    ("32+32, order 3", "burst:hold=32,order=3,lines=0", 2.0),
    ("4096 singles", "burst:hold=4096,order=0,lines=0", 2.0),
    ("stream", "handoff:depth=512,order=0,lines=0", 2.0),
    ("mix", "mix:lines=0", 1.0),
];

/// The figures of a loop on so many CPUs, as a row.
fn row(name: &str, workload: &str, calls: f64, cpus: u32, run_us: u64) -> Result<String, LabError> {
    let mut row = format!("| {name} | {cpus} |");
    for policy in POLICIES {
        let mut recipe = Recipe::new(&format!("{MACHINE}@{cpus}"), policy, workload);
        (recipe.warm_us, recipe.run_us) = (run_us, run_us);
        let figures = recipe.plan(&|name| Ok(Machine::named(name)?))?.run()?;
        let get = |name| figures.get(name).unwrap_or(f64::NAN);
        let cycles = get("cycles_per_call") * calls;
        let (waits, listed) = (get("lock_wait_percent"), get("listed_pages") / f64::from(cpus));
        row += &format!(" {cycles:.0} | {waits:.1} | {listed:.0} |");
    }
    Ok(row)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let run_us = arguments.next().map_or(Ok(RUN_US), |us| us.parse())?;
    let cpus: Vec<u32> = match arguments.next() {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => CPUS.to_vec(),
    };
    let columns = POLICIES.map(|policy| {
        format!(" {policy}: cycles per operation | waits for locks, % | pages kept for each CPU |")
    });
    println!("| loop | CPUs |{}", columns.concat());
    println!("|--|--:|{}", "--:|".repeat(3 * POLICIES.len()));
    for (name, workload, calls) in LOOPS {
        for &cpus in &cpus {
            println!("{}", row(name, workload, calls, cpus, run_us)?);
        }
    }
    println!("\nSimulated: {MACHINE}, all CPUs, {run_us} us after as many of warming up, seed 1.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_is_a_workload_that_makes_calls_and_is_refused_none() {
        for (name, workload, calls) in LOOPS {
            let row = row(name, workload, calls, 2, 200).unwrap();
            assert!(!row.contains("NaN") && row.starts_with(&format!("| {name} | 2 |")), "{row}");
        }
    }
}
