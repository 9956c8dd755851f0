//! Programs that steps start.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fuzz::target_directory;

/// The cargo that runs this, in the repository.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// A program that is installed, or lies in `target/tools/bin`.
pub fn find(root: &Path, program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = target_directory(root).join("tools/bin");
    let mut directories = std::env::split_paths(&path).chain([ours]);
    directories.find_map(|at| Some(at.join(program)).filter(|file| file.is_file()))
}
