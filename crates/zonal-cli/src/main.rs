//! The program `zonal`.
//!
//! Data goes to stdout, notes and progress to stderr. Exit codes: 0 pass, 1 a property failed,
//! 2 usage or bad input; 128 and a signal's number where that ended the work early.

mod advise;
mod bench;
mod cause;
mod cli;
mod conform;
#[cfg(test)]
mod documented;
mod exporter;
mod lab;
mod output;
mod policy;
mod policy_args;
mod pressure;
mod record;
mod replay;
mod scratch;
mod shell;
mod state;
mod top;
mod trace;
mod verdict;
mod verify;
mod watch;
mod written;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::verdict::{Interrupted, Verdict};
use zonal_replay::state::Text;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(instead) => return ExitCode::from(output::instead(&instead)),
    };
    let result = match cli.command {
        Command::Replay(args) => replay::run(&args),
        Command::Trace(command) => trace::run(&command),
        Command::Record(args) => record::command::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Exporter(args) => exporter::run(&args),
        Command::RecordGuard => return record::guard(),
        Command::Conform(args) => conform::run(&args),
        Command::Bench(args) => bench::run_bench(&args),
        Command::Lab(command) => lab::run(&command),
        Command::Zoneinfo(args) => state::run(Text::Zoneinfo, &args),
        Command::Buddyinfo(args) => state::run(Text::Buddyinfo, &args),
        Command::Pagetypeinfo(args) => state::run(Text::Pagetypeinfo, &args),
        Command::Vmstat(args) => state::run_vmstat(&args),
        Command::Numastat(args) => state::run_of_node(Text::Numastat, &args),
        Command::Meminfo(args) => state::run_of_node(Text::Meminfo, &args),
        Command::Policy(args) => policy::show(&args),
        Command::Completions(args) => shell::completions(&args, &Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
        Command::Pressure(args) => pressure::run(&args),
    };
    match result {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Ok(Verdict::Interrupted(signal)) => ExitCode::from(verdict::exit_code(signal)),
        Err(error) if output::is_enough(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = trace::remedy(&error).unwrap_or_else(|| output::chain(&error));
            let interrupted = error.downcast_ref::<Interrupted>();
            let code = interrupted.map_or(2, |by| verdict::exit_code(by.signal));
            output::note(&format!("error: {text}"));
            ExitCode::from(code)
        }
    }
}
