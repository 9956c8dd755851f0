//! The crates as a registry gets them: what their manifests say, and what their archives hold.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tools::{cargo, target_directory};

/// What each manifest must say. `repository` is not among it: there is no address yet. This is the
/// one place that says so; with one, `repository.workspace = true` goes into each manifest, and
/// cargo's warning about it ends.
const FIELDS: [&str; 7] =
    ["description", "license", "readme", "keywords", "categories", "rust_version", "edition"];
/// What each archive must hold, as files of their own.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Crates that can be published: name and version.
pub fn publishable(root: &Path) -> Result<Vec<(String, String)>> {
    let mut metadata = cargo(root);
    let output = metadata.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed");
    let value: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = value["packages"].as_array().context("cargo metadata has no packages")?;
    let mut crates = Vec::new();
    for package in packages.iter().filter(|package| package["publish"].is_null()) {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let missing = missing(package);
        ensure!(missing.is_empty(), "crates/{name}/Cargo.toml has no {}", missing.join(", "));
        crates.push((name, version));
    }
    Ok(crates)
}

/// Where a dry run of cargo publish leaves archives, below the target directory.
const ARCHIVES: &str = "package/tmp-crate";

/// Removes what earlier runs left, so that nothing old is looked at.
pub fn forget(root: &Path) -> Result<()> {
    let archives = target_directory(root).join(ARCHIVES);
    if archives.exists() {
        std::fs::remove_dir_all(archives)?
    }
    Ok(())
}

/// Looks into the archive of each crate. Returns how many files there are in all.
pub fn look(root: &Path, crates: &[(String, String)]) -> Result<usize> {
    let mut files = 0;
    for (name, version) in crates {
        let folder = format!("{name}-{version}");
        let archive = target_directory(root).join(ARCHIVES).join(format!("{folder}.crate"));
        let mut tar = Command::new("tar");
        let listed =
            tar.args(["--list", "--verbose", "--gzip", "--file"]).arg(&archive).output()?;
        ensure!(listed.status.success(), "{}: tar cannot read it", archive.display());
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for file in FILES {
            let path = format!(" {folder}/{file}");
            let line = listed.lines().find(|line| line.ends_with(&path));
            let line = line.with_context(|| format!("{}: no {file}", archive.display()))?;
            ensure!(line.starts_with('-'), "{}: {file} is no file", archive.display());
        }
        files += listed.lines().count();
    }
    Ok(files)
}

/// Fields that are absent or empty.
fn missing(package: &Value) -> Vec<&'static str> {
    let is_absent = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    };
    FIELDS.into_iter().filter(|field| is_absent(&package[*field])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manifest_that_lacks_something_is_named() {
        let whole = json!({
            "description": "d", "license": "MIT", "readme": "README.md", "keywords": ["k"],
            "categories": ["c"], "rust_version": "1.95", "edition": "2024",
        });
        assert!(missing(&whole).is_empty());
        let mut partly = whole.clone();
        partly["keywords"] = json!([]);
        partly["readme"] = Value::Null;
        partly["license"] = json!(" ");
        assert_eq!(missing(&partly), ["license", "readme", "keywords"]);
    }

    #[test]
    fn every_crate_of_the_repository_can_be_published() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let crates = publishable(root).unwrap();
        assert!(crates.len() >= 14 && crates.iter().all(|(name, _)| name != "xtask"), "{crates:?}");
        for (name, _) in &crates {
            for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
                let here = std::fs::read(root.join("crates").join(name).join(file)).unwrap();
                assert!(here == std::fs::read(root.join(file)).unwrap(), "{name}: {file}");
            }
        }
    }
}
