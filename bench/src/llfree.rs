//! LLFree (`luhsra/llfree-rs`), from a checkout that the user names: nothing of it is copied, and
//! nothing is fetched. A package beside the other programs of the target folder takes it and our
//! `llfree/main.rs` together.

use std::fs;
use std::path::{Path, PathBuf};

/// Writes the package for the checkout at `checkout` into a folder below `target`; returns its
/// manifest.
pub fn package(checkout: &Path, target: &Path) -> Result<PathBuf, String> {
    let core = checkout.join("core");
    let expected = format!("expected a checkout of llfree-rs at {}", checkout.display());
    let manifest = fs::read_to_string(core.join("Cargo.toml"))
        .map_err(|error| format!("{expected}: core/Cargo.toml: {error}"))?;
    if !manifest.lines().any(|line| line.trim() == r#"name = "llfree""#) {
        return Err(format!("{expected}: core/Cargo.toml is of another package"));
    }
    let core = fs::canonicalize(core).map_err(|error| format!("{expected}: {error}"))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = target.join("llfree");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        // An equal file keeps its time, and cargo has nothing to do.
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return Ok(path);
        }
        let failed = |error| format!("cannot write {}: {error}", path.display());
        fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text)).map_err(failed)?;
        Ok(path)
    };
    // The same versions of what both need, the first time.
    if !folder.join("Cargo.lock").exists() {
        let lock = fs::read_to_string(here.join("Cargo.lock")).unwrap_or_default();
        write("Cargo.lock", &lock)?;
    }
    write("Cargo.toml", &text(here, &core))
}

/// The package's manifest. The profile is that of the other peers.
fn text(here: &Path, core: &Path) -> String {
    let quoted = |path: PathBuf| format!("{:?}", path.display().to_string());
    let (main, bench) = (here.join("llfree/main.rs"), here.join("../crates/zonal-bench"));
    let (main, bench, core) = (quoted(main), quoted(bench), quoted(core.to_owned()));
    format!(
        r#"# Written by zonal-bench-peers.
[workspace]

[package]
name = "peer-llfree"
version = "0.1.0"
edition = "2024"
publish = false

[[bin]]
name = "peer-llfree"
path = {main}

[dependencies]
# Without its debug messages, as a release of a kernel has it.
llfree = {{ path = {core}, features = ["std", "log_error"] }}
zonal-bench = {{ path = {bench} }}

[profile.release]
debug = false
lto = "thin"
codegen-units = 4
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_checkout_is_refused_and_named() {
        let nowhere = package(Path::new("/nowhere/at/all"), Path::new("/nowhere")).unwrap_err();
        assert!(nowhere.contains("/nowhere/at/all") && nowhere.contains("expected"), "{nowhere}");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/zonal-bench");
        assert!(package(&here, Path::new("/nowhere")).is_err());
    }

    #[test]
    fn paths_with_quotes_and_blanks_are_one_string() {
        let text = text(Path::new("/a b/c"), Path::new("/d \"e\"/core"));
        assert!(text.contains(r#"llfree = { path = "/d \"e\"/core", "#), "{text}");
        assert!(text.contains(r#"path = "/a b/c/llfree/main.rs""#), "{text}");
    }
}
