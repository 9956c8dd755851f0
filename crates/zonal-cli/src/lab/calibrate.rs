//! `zonal lab calibrate`: this machine as a machine of the lab, measured.

use std::fs;

use anyhow::Context;
use zonal_lab::calibrate::{self, Effort};

use super::args::CalibrateArgs;
use super::machines;
use crate::output;
use crate::verdict::Verdict;

/// Runs the command.
///
/// # Errors
/// A topology that cannot be read, a CPU that may not be used, or a file that cannot be written.
pub fn run(args: &CalibrateArgs) -> anyhow::Result<Verdict> {
    let file = args.output.clone().or_else(machines::measured_file).with_context(
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
    let bar = output::progress("measuring", "figures", Some(1));
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
    machines::print(machine, args.json)
}
