//! `cargo xtask predict`: the predictions of `results/predictions`, made by the lab.
//!
//! A registration is a log: a folder of its own, whose files stay as they were made. When figures
//! of machines change, the next one begins.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::tools;

/// Every identifier, in order.
const IDS: [&str; 20] = [
    "A1", "A2", "B1", "G1", "G2", "H1", "H2", "K1", "K2", "L1", "L2", "L3", "L4", "L5", "L6", "M1",
    "M2", "U1", "U2", "U3",
];

/// The registration that is being made, below `results/predictions`; the first is beside it.
const REGISTRATION: &str = "2026-11-29";

/// Makes the files of these identifiers, of all without, each from seeds 1 to 5.
pub fn run(root: &Path, ids: &[&str]) -> Result<bool> {
    let ids = if ids.is_empty() { &IDS[..] } else { ids };
    if let Some(id) = ids.iter().find(|id| !IDS.contains(id)) {
        anyhow::bail!("no prediction is called {id}; expected one of {}", IDS.join(", "));
    }
    let described = tools::said(root, "git", &["describe", "--always", "--dirty", "--abbrev=12"])?;
    let folder = root.join("results/predictions").join(REGISTRATION);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    for id in ids {
        let example = ["run", "--release", "-q", "-p", "zonal-lab", "--example", "predict", "--"];
        let words = [&example[..], &[id, "--commit", &described]].concat();
        let rows = made(root, &words)?;
        let file = folder.join(format!("{id}.csv"));
        std::fs::write(&file, rows).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(true)
}

/// What cargo runs and prints; its progress is seen.
fn made(root: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let output = tools::cargo(root).args(words).stderr(Stdio::inherit()).output();
    let output = output.context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo {} failed", words.join(" "));
    Ok(output.stdout)
}
