//! `zonal lab calibrate`: this machine as a machine of the lab, measured.

use std::fs;

use anyhow::Context;
use zonal_lab::calibrate::{self, Effort};
use zonal_lab::machine::Machine;

use super::args::CalibrateArgs;
use super::machines;
use super::moves;
use super::places;
use super::prices::Stored;
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// A topology that cannot be read, a CPU that may not be used, or a file that cannot be written.
pub fn run(args: &CalibrateArgs) -> anyhow::Result<Verdict> {
    let file = args.output.clone().or_else(places::measured_file).with_context(
        || "neither XDG_DATA_HOME nor HOME is set; name a file for the machine with -o",
    )?;
    if cfg!(debug_assertions) {
        output::note("built without optimisation: times are longer than this machine's");
    }
    if let (None, Some(folder)) = (&args.output, file.parent()) {
        let expected = "expected a folder that can be made";
        fs::create_dir_all(folder).with_context(|| format!("{}: {expected}", folder.display()))?;
    }
    let target = output::Target::new(&file)?;
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let bar = output::progress("measuring", "rounds", Some(1));
    let machine = calibrate::measure(effort, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    target.write(&calibrate::text(&machine))?;
    output::note(&format!("measured; stored in {}", file.display()));
    for (figure, source) in calibrate::unmeasured(&machine) {
        output::note(&format!("{figure}: {source}"));
    }
    let prices = if args.output.is_none() && !args.no_touch { prices(&machine)? } else { None };
    machines::print(machine, prices, args.json)
}

/// Measures what the kernel takes to move a block, for recordings that are made later. Where it
/// cannot be measured the machine is one all the same.
///
/// # Errors
/// What could not be put back.
fn prices(machine: &Machine) -> anyhow::Result<Option<Stored>> {
    let bar = output::progress("measuring the kernel", "turns", Some(1));
    let measured = moves::measure(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let stored = measured?.and_then(|moves| {
        let stored = Stored::new(machine, moves);
        let file = stored.store()?;
        let taken = moves.block_ns();
        output::note(&format!(
            "{moves}: {taken:.1} ns in recordings; stored in {}",
            file.display()
        ));
        Ok(stored)
    });
    let left_out = |error| output::note(&format!("what a block takes is not measured: {error:#}"));
    Ok(stored.map_err(left_out).ok())
}
