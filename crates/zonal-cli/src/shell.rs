//! `zonal completions` and `zonal man`: what shells and `man` know of the flags, out of their one
//! definition.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;
use crate::verdict::Verdict;

/// Flags of `zonal completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Flags of `zonal man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// An existing directory; pages that are there are written over.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// Prints what a shell needs to complete words of the program `all`.
pub fn completions(args: &CompletionsArgs, all: &Command) -> Result<Verdict> {
    // The generators offer hidden commands too, so those are left out here.
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut program = Command::new("zonal")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(shown);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "zonal", &mut script);
    output::data(&String::from_utf8(script)?)?;
    Ok(Verdict::Pass)
}

/// Writes a page of the manual for the program and one for each of its commands.
pub fn man(args: &ManArgs, mut program: Command) -> Result<Verdict> {
    program.build();
    write_pages(&program, &args.directory)?;
    Ok(Verdict::Pass)
}

/// Writes the page of a command that was built, and those of its commands.
fn write_pages(command: &Command, directory: &Path) -> Result<()> {
    let name = command.get_bin_name().unwrap_or("zonal").replace(' ', "-");
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(&name).render(&mut page)?;
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page).with_context(|| format!("{}: cannot be written", path.display()))?;
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|command| write_pages(command, directory))
}
