//! What the library exports: the functions of the header, each in the version script, and nothing
//! else that begins with `zonal`.
//!
//! `zonal.map` is the list of the ABI: a function never leaves it, and what is new stands under a
//! version of its own.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{library_directory, root};

/// Names of functions: words that begin with `zonal_` and stand before a parenthesis, in code.
fn functions_of_the_header() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/zonal.h")).unwrap();
    let declared = header.split("/* Structs of their size").next().unwrap();
    let code = declared.lines().filter(|line| !line.trim_start().starts_with("//"));
    let heads = code.filter(|line| !line.starts_with("typedef") && !line.starts_with(' '));
    let name = |line: &str| {
        let before = line.split_once('(')?.0;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("zonal_").then(|| name.to_owned())
    };
    heads.filter_map(name).collect()
}

fn functions_of_the_map() -> BTreeSet<String> {
    let map = std::fs::read_to_string(root().join("zonal.map")).unwrap();
    let words = map.split([';', '{', '}', ':', '\n']).map(str::trim);
    words.filter(|word| word.starts_with("zonal_")).map(str::to_owned).collect()
}

#[test]
fn header_and_version_script_name_the_same_functions() {
    let header = functions_of_the_header();
    assert!(header.len() > 30, "{header:?}");
    assert_eq!(header, functions_of_the_map());
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let library = library_directory().join("libzonal_c.so");
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output()
    else {
        eprintln!("SKIPPED: nm is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let symbols = text.lines().filter_map(|line| line.rsplit(' ').next());
    let exported: BTreeSet<String> =
        symbols.filter(|name| name.starts_with("zonal")).map(str::to_owned).collect();
    assert_eq!(exported, functions_of_the_header());
}
