//! Values of the host's settings: written, and put back.
//!
//! The kernel computes the bounds of lists when `vm.percpu_pagelist_high_fraction` is written, from
//! a low watermark with its boost (LB E.4). The boost passes with the next background reclaim; the
//! bounds stay until somebody writes a setting again, up to three times as long as before.
//! Watermarks that are computed anew have no boost, and bounds follow them: so
//! `vm.watermark_scale_factor` is written once more, with the value that it has.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::machine::HIGH_FRACTION;

/// The kernel's own bounds of lists.
const AUTO: &str = "0";

/// Writes to a file that must be there: settings are never made.
pub(crate) fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}

/// Writes a value that a setting had before, and what follows (UNDO-6).
pub(super) fn put_back(path: &Path, value: &str) -> io::Result<()> {
    write(path, value)?;
    // The value is back. Bounds that stay long are no reason to say that it is not.
    let _ = settle(path, value);
    Ok(())
}

/// Takes the boosts of all zones back where lists have their bounds from the watermarks again, and
/// a zone is boosted.
fn settle(path: &Path, value: &str) -> io::Result<()> {
    let is_fraction = path.file_name().is_some_and(|name| name == HIGH_FRACTION);
    let (true, AUTO, Some(proc)) = (is_fraction, value.trim(), path.ancestors().nth(3)) else {
        return Ok(());
    };
    if is_boosted(&fs::read_to_string(proc.join("zoneinfo"))?) {
        let factor = path.with_file_name("watermark_scale_factor");
        write(&factor, fs::read_to_string(&factor)?.trim())?;
    }
    Ok(())
}

fn is_boosted(zoneinfo: &str) -> bool {
    let boosts = zoneinfo.lines().filter_map(|line| line.trim().strip_prefix("boost "));
    boosts.map(str::trim).any(|pages| pages != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_computed_anew_where_a_zone_is_boosted() {
        let proc = tempfile::tempdir().unwrap();
        let vm = proc.path().join("sys/vm");
        fs::create_dir_all(&vm).unwrap();
        let (fraction, factor) = (vm.join(HIGH_FRACTION), vm.join("watermark_scale_factor"));
        let zoneinfo = |boost: u32| {
            let text = format!("Node 0, zone   Normal\n        boost    {boost}\n        min 5\n");
            fs::write(proc.path().join("zoneinfo"), text).unwrap();
        };
        // A write takes the blank and the newline away: that it was made shows.
        let is_written = |path: &Path, value: &str| {
            fs::write(&factor, " 10\n").unwrap();
            settle(path, value).unwrap();
            fs::read_to_string(&factor).unwrap() == "10"
        };
        zoneinfo(38_377);
        assert!(is_written(&fraction, "0\n"));
        assert!(!is_written(&fraction, "8"), "bounds of a fraction do not follow marks");
        assert!(!is_written(&vm.join("min_free_kbytes"), "0"), "marks are computed anew by it");
        zoneinfo(0);
        assert!(!is_written(&fraction, "0"));
        fs::remove_file(proc.path().join("zoneinfo")).unwrap();
        assert!(settle(&fraction, "0").is_err());
    }
}
