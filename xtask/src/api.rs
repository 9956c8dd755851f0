//! The public API of every library crate, as a checked-in list: `api/CRATE.txt`, one item a line.
//! What a crate offers grows and shrinks on purpose only, and `unsafe` and `Send` are seen in the
//! difference.
//!
//! The items come from rustdoc's JSON form, an unstable option that the pinned stable toolchain
//! accepts when it is unlocked. It is unlocked for rustdoc alone, so that nothing is recompiled:
//! cargo runs this program as `rustdoc` ([`as_rustdoc`]). A link in the texts that leads nowhere is
//! an error on the way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::tools::{cargo, libraries, target_directory};

/// Set where cargo calls this program in place of rustdoc.
const AS_RUSTDOC: &str = "XTASK_AS_RUSTDOC";
/// Where the lists are, below the root of the repository.
const LISTS: &str = "api";
/// Libraries that the core's feature `history` is off for, and those around it.
const WITHOUT_HISTORY: [&str; 5] =
    ["zonal", "zonal-cache", "zonal-core", "zonal-kernel", "zonal-uring"];
/// What is looked for in the texts on the way: links that lead nowhere.
const LINTS: &str =
    "-A warnings -D rustdoc::broken_intra_doc_links -D rustdoc::private_intra_doc_links";
/// Auto traits that say nothing of threads or memory.
const QUIET: [&str; 5] = [
    "core::marker::Freeze for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

/// Compares the lists with the sources, or writes them. `false`: something differs.
pub fn run(root: &Path, write: bool) -> Result<bool> {
    let mut same = true;
    let crates = libraries(root)?;
    let (without, with): (Vec<&str>, Vec<&str>) =
        crates.iter().map(String::as_str).partition(|name| WITHOUT_HISTORY.contains(name));
    document(root, &without)?;
    document(root, &with)?;
    for name in &crates {
        let path = root.join(LISTS).join(format!("{name}.txt"));
        let items = items(root, name)?;
        if write {
            std::fs::create_dir_all(root.join(LISTS))?;
            std::fs::write(&path, text(&items))
                .with_context(|| format!("{}: cannot be written", path.display()))?;
            println!("{}: {} items", path.display(), items.len());
            continue;
        }
        let listed = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = difference(&listed, &items);
        same &= lines.is_empty();
        lines.iter().for_each(|line| println!("{LISTS}/{name}.txt: {line}"));
    }
    for stale in stale(root, &crates)? {
        println!("{}: no library crate has this name; remove the file", stale.display());
        same = false;
    }
    match same {
        true => println!("api: {} crates", crates.len()),
        false => println!("api: if this is meant, `cargo xtask api --write` and commit the lists"),
    }
    Ok(same)
}

/// Has rustdoc write the items of some crates. All in one go, so that what they depend on is
/// compiled once.
fn document(root: &Path, names: &[&str]) -> Result<()> {
    let status = cargo(root)
        .args(["doc", "--quiet", "--no-deps", "--lib"])
        .args(names.iter().flat_map(|name| ["--package", name]))
        .env("RUSTDOCFLAGS", format!("-Z unstable-options --output-format json {LINTS}"))
        .env("RUSTDOC", std::env::current_exe()?)
        .env(AS_RUSTDOC, "1")
        .status()?;
    if !status.success() {
        bail!("{}: rustdoc ended with {status}", names.join(", "));
    }
    Ok(())
}

/// The public items of a crate that rustdoc has written, sorted.
fn items(root: &Path, name: &str) -> Result<BTreeSet<String>> {
    let file = format!("{}.json", name.replace('-', "_"));
    let path = target_directory(root).join("doc").join(file);
    let api = public_api::Builder::from_rustdoc_json(&path)
        .omit_blanket_impls(true)
        .build()
        .with_context(|| format!("{}: not a form that public-api reads", path.display()))?;
    let items = api.into_items().map(|item| item.to_string());
    Ok(items.filter(|item| !QUIET.iter().any(|quiet| item.contains(quiet))).collect())
}

fn text(items: &BTreeSet<String>) -> String {
    items.iter().map(|item| format!("{item}\n")).collect()
}

/// Items only in the list (`-`) and only in the code (`+`).
fn difference(listed: &str, items: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<&str> = listed.lines().collect();
    let gone = listed.iter().filter(|line| !items.contains(**line)).map(|line| format!("- {line}"));
    let new = items.iter().filter(|item| !listed.contains(item.as_str()));
    gone.chain(new.map(|item| format!("+ {item}"))).collect()
}

/// Lists of crates that no longer exist.
fn stale(root: &Path, crates: &[String]) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root.join(LISTS)) else { return Ok(Vec::new()) };
    let mut stale = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if !crates.iter().any(|known| known == name) {
            stale.push(path);
        }
    }
    Ok(stale)
}

/// Where cargo has called this program in place of rustdoc: runs rustdoc, with the right to
/// unstable options. `None`: it has not.
pub fn as_rustdoc() -> Option<ExitCode> {
    std::env::var_os(AS_RUSTDOC)?;
    let status = Command::new("rustdoc")
        .args(std::env::args_os().skip(1))
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove(AS_RUSTDOC)
        .status();
    match status {
        Ok(status) => Some(ExitCode::from(status.code().unwrap_or(1) as u8)),
        Err(error) => {
            eprintln!("xtask: rustdoc could not be started: {error}");
            Some(ExitCode::from(2))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_comes_or_goes_is_told() {
        let items = |all: &[&str]| all.iter().map(|item| (*item).to_owned()).collect();
        let now: BTreeSet<String> = items(&["pub fn a::b()", "pub unsafe fn a::c()"]);
        assert!(difference(&text(&now), &now).is_empty());
        let told = difference("pub fn a::b()\npub fn a::c()\n", &now);
        assert_eq!(told, ["- pub fn a::c()", "+ pub unsafe fn a::c()"]);
        assert_eq!(difference("", &now).len(), 2);
    }

    #[test]
    fn the_libraries_are_found_and_have_lists() {
        let root = crate::repository_root();
        let crates = libraries(&root).unwrap();
        assert!(crates.iter().any(|name| name == "zonal-core"), "{crates:?}");
        assert!(!crates.iter().any(|name| name == "xtask"), "{crates:?}");
        assert!(stale(&root, &crates).unwrap().is_empty());
        for name in crates {
            assert!(root.join(LISTS).join(format!("{name}.txt")).is_file(), "{name}");
        }
    }
}
