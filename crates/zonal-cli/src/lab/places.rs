//! Where `zonal lab calibrate` stores what it measured on this host.

use std::path::PathBuf;

/// The prices of this host's kernel, beside the machine.
pub fn prices_file() -> Option<PathBuf> {
    measured_file().map(|file| file.with_file_name("prices.json"))
}

/// The measured machine, if this user has a place.
pub fn measured_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let data = set("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/share")))?;
    Some(data.join("zonal/this.toml"))
}
