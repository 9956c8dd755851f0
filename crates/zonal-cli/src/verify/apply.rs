//! `--apply`: a confirmed setting as a file of `sysctl.d`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use zonal_replay::verify::{Finding, Outcome, Tried};

use crate::output;

/// The file of a setting.
fn file_of(directory: &Path, tried: &Tried) -> PathBuf {
    let short = tried.name.rsplit('.').next().unwrap_or(&tried.name);
    directory.join(format!("90-zonal-{short}.conf"))
}

/// Refuses a directory that the file could not be written to, before hours are spent on a verdict.
///
/// # Errors
/// What was expected.
pub fn check(directory: &Path, tried: &Tried) -> anyhow::Result<()> {
    let path = file_of(directory, tried);
    output::check_folder("--apply", &path)?;
    let at = path.display();
    ensure!(!path.exists(), "--apply: {at} is there already: move it away, or name another DIR");
    Ok(())
}

/// Writes the file, if the setting was confirmed; says what was done, and how to undo it.
///
/// # Errors
/// A file that is there already or cannot be written.
pub fn apply(directory: &Path, tried: &Tried, outcome: &Outcome) -> anyhow::Result<String> {
    let Tried { name, value, .. } = tried;
    if outcome.verdict != Finding::Confirmed {
        let verdict = outcome.verdict.name();
        return Ok(format!("--apply: nothing is written, the verdict is `{verdict}`"));
    }
    if outcome.interrupted.is_some() {
        return Ok("--apply: nothing is written, the trial was interrupted".to_owned());
    }
    let path = file_of(directory, tried);
    let at = path.display();
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(&path).with_context(|| {
            format!(
                "--apply: {at}: expected a directory that can be written, and no such file in it"
            )
        })?;
    let was = &outcome.registered.now;
    let text = format!(
        "# Written by zonal verify: {}.\n# Before: {name} = {was}\n{name} = {value}\n",
        outcome.reason
    );
    file.write_all(text.as_bytes()).with_context(|| format!("{at}"))?;
    let when = match is_read_at_boot(directory) {
        true => "at the next boot; now:",
        false => {
            "nowhere by itself: systems read /etc/sysctl.d and the like at boot, and a file in \
             another directory only when told to:"
        }
    };
    Ok(format!(
        "--apply: {at} sets {name} to {value} {when} `sysctl -p {at}`. To undo: `rm {at}` and \
         `sysctl '{name}={was}'`"
    ))
}

/// Whether the files of a directory are read when a system starts.
fn is_read_at_boot(directory: &Path) -> bool {
    let own = directory.canonicalize();
    let own = own.as_deref().unwrap_or(directory);
    // Not /run, which is empty after a boot.
    ["/etc/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"]
        .iter()
        .map(Path::new)
        .any(|read| own == read || read.canonicalize().is_ok_and(|read| own == read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_nobody_reads_sets_nothing_at_the_next_boot() {
        assert!(is_read_at_boot(Path::new("/etc/sysctl.d")));
        assert!(is_read_at_boot(Path::new("/usr/lib/sysctl.d/")));
        let folder = tempfile::tempdir().unwrap();
        for other in [folder.path(), Path::new("/run/sysctl.d"), Path::new("/etc"), Path::new("")] {
            assert!(!is_read_at_boot(other), "{}", other.display());
        }
    }
}
