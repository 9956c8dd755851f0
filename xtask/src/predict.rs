//! `cargo xtask predict`: the predictions of `results/predictions`, made by the lab.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Every identifier, in order.
const IDS: [&str; 20] = [
    "A1", "A2", "B1", "G1", "G2", "H1", "H2", "K1", "K2", "L1", "L2", "L3", "L4", "L5", "L6", "M1",
    "M2", "U1", "U2", "U3",
];

/// Makes the files of these identifiers, of all without, each from seeds 1 to 5.
pub fn run(root: &Path, ids: &[&str]) -> Result<bool> {
    let ids = if ids.is_empty() { &IDS[..] } else { ids };
    if let Some(id) = ids.iter().find(|id| !IDS.contains(id)) {
        anyhow::bail!("no prediction is called {id}; expected one of {}", IDS.join(", "));
    }
    let described = output(root, "git", &["describe", "--always", "--dirty", "--abbrev=12"])?;
    let folder = root.join("results").join("predictions");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    for id in ids {
        let example = ["run", "--release", "-q", "-p", "zonal-lab", "--example", "predict", "--"];
        let words = [&example[..], &[id, "--commit", described.trim()]].concat();
        let rows = output(root, env!("CARGO"), &words)?;
        let file = folder.join(format!("{id}.csv"));
        std::fs::write(&file, rows).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(true)
}

fn output(root: &Path, program: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).current_dir(root).stderr(std::process::Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} {} failed", words.join(" "));
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed no text"))
}
