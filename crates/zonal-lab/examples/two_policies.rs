//! One load on a machine of 2023 under two policies, and what the difference is made of. All
//! simulated: the same two lines come out on every machine.
//!
//! ```text
//! cargo run --release -p zonal-lab --example two_policies
//! ```

use zonal_lab::LabError;
use zonal_lab::machine::Machine;
use zonal_lab::recipe::Recipe;

fn main() -> Result<(), LabError> {
    for policy in ["linux-6.18", "zonal"] {
        let mut recipe = Recipe::new("icelake-2023-128@2", policy, "handoff");
        recipe.set("warm_us", "300")?;
        recipe.set("run_us", "300")?;
        let figures = recipe.plan(&|name| Ok(Machine::named(name)?))?.run()?;
        let figure = |name| figures.get(name).unwrap_or(f64::NAN);
        println!(
            "{policy:<10} {:.0} cycles a call, {:.1} % of them waiting for zone locks",
            figure("cycles_per_call"),
            figure("lock_wait_percent"),
        );
        println!("           {}", recipe.command()); // the same run from the command line
    }
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
