//! One-way layers in the core: a module uses only modules to its left.
//!
//! [`LAYERS`] is the table. `ARCHITECTURE.md` shows the same one, and the check compares the two.
//! Test code may use anything; the layers are about shipped code. `lib.rs` is above all. A file
//! `history/LAYER` is a module of that layer, mounted there by `#[path]`.

use super::finding::Finding;
use super::scan::{Rust, words};
use super::tree::{File, Tree};

/// The core's modules, lowest first.
const LAYERS: &[&str] = &[
    "types", "early", "gfp", "sync", "lanes", "prefetch", "platform", "frame", "vmstat", "buddy",
    "zone", "pcp", "policy", "zonelist", "machine", "reclaim", "alloc",
];

const CORE: &str = "crates/zonal-core/src/";

/// Where the table may be described.
const ARCHITECTURE: &[&str] = &["docs/explanation/architecture.md", "ARCHITECTURE.md"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, rust) in tree.rust() {
        let Some(path) = file.path.strip_prefix(CORE) else { continue };
        let module = module_path(path);
        let Some(&top) = module.first() else { continue };
        if !file.is_test() {
            uses_of(file, rust, top, module.len(), findings);
        }
    }
    description(tree, findings);
}

/// `buddy/list.rs` is `["buddy", "list"]`; `lib.rs` is the root, so nothing, and so is the page
/// about what is below `history`. `history/pcp/cold.rs` is `["pcp", "history", "cold"]`.
fn module_path(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib"))) {
        parts.pop();
    }
    match parts[..] {
        ["history"] => parts.clear(),
        ["history", _, ..] => parts.swap(0, 1),
        _ => {}
    }
    parts
}

/// Checks what the module `top` names in the crate's root; `depth` is how deep this file lies.
fn uses_of(file: &File, rust: &Rust, top: &str, depth: usize, findings: &mut Vec<Finding>) {
    let mut report = |line: usize, message: String| {
        findings.push(Finding::new(&file.path, line, "layers", message));
    };
    let Some(own) = LAYERS.iter().position(|&layer| layer == top) else {
        report(1, format!("module `{top}` is not in the table of {}", file!()));
        return;
    };
    for (at, name) in root_names(rust, depth) {
        if rust.is_test(at) {
            continue;
        }
        match LAYERS.iter().position(|&layer| layer == name) {
            Some(used) if used <= own => {}
            Some(_) => {
                let below = if own == 0 { "nothing".into() } else { LAYERS[..own].join(", ") };
                report(
                    rust.line(at),
                    format!("`{top}` uses `{name}`, which is to its right; it may use {below}"),
                );
            }
            None => report(
                rust.line(at),
                format!("crate::{name} is not in the table: name the module it comes from"),
            ),
        }
    }
}

/// First segments of the paths that start at the crate's root, with their offsets.
fn root_names(rust: &Rust, depth: usize) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let inline = rust.inline_modules();
    for (at, word) in rust.words() {
        let after = match word {
            "crate" => after_path_sign(&rust.code, at + word.len()),
            "super" => {
                let nested = inline.iter().filter(|range| range.contains(&at)).count();
                after_supers(&rust.code, at, depth + nested)
            }
            _ => None,
        };
        if let Some(start) = after {
            names.extend(tree_heads(&rust.code, start));
        }
    }
    names
}

/// Offset after the `::` that follows `at`.
fn after_path_sign(code: &str, at: usize) -> Option<usize> {
    let rest = code[at..].trim_start();
    let path = rest.strip_prefix("::")?;
    Some(code.len() - path.len())
}

/// Offset after exactly `count` times `super::`, if there are so many: there the root's names are.
fn after_supers(code: &str, at: usize, count: usize) -> Option<usize> {
    let mut at = at;
    for _ in 0..count {
        let rest = code[at..].trim_start().strip_prefix("super")?;
        at = after_path_sign(code, code.len() - rest.len())?;
    }
    Some(at)
}

/// `a::b` names `a`; `{a::b, c::{d, e}}` names `a` and `c`. Macros belong to no module.
fn tree_heads(code: &str, start: usize) -> Vec<(usize, &str)> {
    let rest = code[start..].trim_start();
    let start = code.len() - rest.len();
    let mut heads = Vec::new();
    let mut head_at = |at: usize| {
        let name = words(&code[at..])
            .next()
            .filter(|&(offset, _)| code[at..at + offset].chars().all(char::is_whitespace));
        if let Some((offset, name)) = name {
            let is_macro = code[at + offset + name.len()..].starts_with('!');
            if name != "self" && !is_macro {
                heads.push((at + offset, name));
            }
        }
    };
    if !rest.starts_with('{') {
        head_at(start);
        return heads;
    }
    let mut nesting = 0_usize;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => nesting += 1,
            '}' => nesting -= 1,
            _ => {}
        }
        if nesting == 0 {
            break;
        }
        if nesting == 1 && (c == '{' || c == ',') {
            head_at(start + at + 1);
        }
    }
    heads
}

/// ARCHITECTURE shows the table, as `types -> gfp -> …`, however its lines are broken.
fn description(tree: &Tree, findings: &mut Vec<Finding>) {
    if !tree.files.iter().any(|file| file.path.starts_with(CORE)) {
        return;
    }
    let mut texts = tree.texts().filter(|(file, _)| ARCHITECTURE.contains(&file.path.as_str()));
    let squeeze = |text: &str| {
        let arrows = text.replace('→', "->");
        arrows.chars().filter(|c| !c.is_whitespace() && *c != '`').collect::<String>()
    };
    let table = LAYERS.join(" -> ");
    if !texts.any(|(_, text)| squeeze(text).contains(&squeeze(&table))) {
        let message = format!("the core's layers are not described here as `{table}`");
        findings.push(Finding::new(ARCHITECTURE[0], 1, "layers", message));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::{LAYERS, check};

    fn in_core(path: &str, text: &str) -> Vec<String> {
        let path = format!("crates/zonal-core/src/{path}");
        let table = LAYERS.join(" -> ");
        let lib = ("crates/zonal-core/src/lib.rs", "mod zone;\n#[cfg(test)]\nmod model;\n");
        findings(check, &[(&path, text), lib, ("docs/explanation/architecture.md", &table)])
            .into_iter()
            .map(|finding| finding.replace("crates/zonal-core/src/", ""))
            .collect()
    }

    #[test]
    fn modules_to_the_left_may_be_used() {
        let text = "use crate::types::Pfn;\nuse crate::{self, frame, buddy::{pcp, X}};\n\
                    pub(crate) use super::sync::Lock;\nfn f() { crate::zone::g(); \
                    crate::bug!(); }\n// use crate::alloc;\nconst S: &str = \"crate::alloc\";\n";
        assert_eq!(in_core("zone.rs", text), [""; 0]);
    }

    #[test]
    fn modules_to_the_right_may_not() {
        assert_eq!(in_core("zone.rs", "\nuse crate::pcp::X;\n"), ["zone.rs:2 layers"]);
        assert_eq!(in_core("zone.rs", "fn f() { crate::alloc::g() }\n"), ["zone.rs:1 layers"]);
        assert_eq!(in_core("types.rs", "use crate::gfp;\n"), ["types.rs:1 layers"]);
        let group = "use crate::{\n    types::{Pfn, Order},\n    alloc::Core,\n    frame,\n};\n";
        assert_eq!(in_core("zone/mod.rs", group), ["zone/mod.rs:3 layers"]);
        assert_eq!(in_core("buddy/list.rs", "use crate::zone;\n"), ["buddy/list.rs:1 layers"]);
    }

    #[test]
    fn super_is_followed_to_the_root() {
        assert_eq!(in_core("zone.rs", "use super::pcp::X;\n"), ["zone.rs:1 layers"]);
        assert_eq!(in_core("zone.rs", "use self::super::pcp;\n"), ["zone.rs:1 layers"]);
        assert_eq!(in_core("zone/mod.rs", "use super::pcp::X;\n"), ["zone/mod.rs:1 layers"]);
        assert_eq!(in_core("zone/a.rs", "use super::pcp::X;\n"), [""; 0]);
        assert_eq!(in_core("zone/a.rs", "use super::super::pcp;\n"), ["zone/a.rs:1 layers"]);
        assert_eq!(in_core("zone.rs", "mod a {\n    use super::pcp;\n}\n"), [""; 0]);
        let nested = "mod a {\n    use super::super::pcp;\n}\n";
        assert_eq!(in_core("zone.rs", nested), ["zone.rs:2 layers"]);
    }

    #[test]
    fn what_lies_below_history_is_of_the_layer_that_mounts_it() {
        assert_eq!(
            in_core("history/pcp.rs", "use crate::policy::X;\n"),
            ["history/pcp.rs:1 layers"]
        );
        assert_eq!(in_core("history/pcp/cold.rs", "use crate::zone::X;\n"), [""; 0]);
        let two_up = "use super::super::policy;\n";
        assert_eq!(in_core("history/pcp/mod.rs", two_up), ["history/pcp/mod.rs:1 layers"]);
        assert_eq!(in_core("history/misc.rs", ""), ["history/misc.rs:1 layers"]);
        assert_eq!(in_core("history/mod.rs", "//! What is here.\n"), [""; 0]);
    }

    #[test]
    fn names_outside_the_table_are_found() {
        assert_eq!(in_core("misc.rs", "fn f() {}\n"), ["misc.rs:1 layers"]);
        assert_eq!(in_core("zone.rs", "use crate::Pfn;\n"), ["zone.rs:1 layers"]);
    }

    #[test]
    fn tests_and_the_root_are_free() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::alloc::X;\n}\n";
        assert_eq!(in_core("zone.rs", text), [""; 0]);
        assert_eq!(in_core("zone/tests.rs", "use crate::alloc::X;\n"), [""; 0]);
        assert_eq!(in_core("model.rs", "use crate::alloc::X;\n"), [""; 0]);
    }

    #[test]
    fn the_architecture_page_shows_the_table() {
        let core = ("crates/zonal-core/src/types.rs", "");
        let page = "docs/explanation/architecture.md";
        let broken = LAYERS.join("` →\n`");
        assert_eq!(findings(check, &[core, (page, &broken)]), [""; 0]);
        let swapped = LAYERS.join(" -> ").replace("early -> gfp", "gfp -> early");
        assert_eq!(
            findings(check, &[core, (page, &swapped)]),
            ["docs/explanation/architecture.md:1 layers"]
        );
        assert_eq!(findings(check, &[core]), ["docs/explanation/architecture.md:1 layers"]);
    }
}
