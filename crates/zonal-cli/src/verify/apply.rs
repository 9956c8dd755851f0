//! `--apply`: a confirmed setting as a file of `sysctl.d`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use zonal_replay::verify::{Finding, Outcome, Tried};

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
    let short = name.rsplit('.').next().unwrap_or(name);
    let path = directory.join(format!("90-zonal-{short}.conf"));
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
    Ok(format!(
        "--apply: {at} sets {name} to {value} at the next boot; now: `sysctl -p {at}`. To undo: \
         `rm {at}` and `sysctl {name}={was}`"
    ))
}
