//! Dependencies: one table for the workspace, a reason on each line, none for the core.
//!
//! A small reader of the part of TOML that manifests use; cargo itself refuses invalid TOML.

use super::finding::Finding;
use super::tree::{File, Tree};

/// The crate that has no dependencies, so that any kernel can take it in.
const CORE: &str = "crates/zonal-core/Cargo.toml";

/// A loom build is a test build, and loom only works as an ordinary dependency under this `cfg`.
const CORE_TEST_TABLE: &str = "target.'cfg(loom)'.dependencies";

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (file, text) in tree.texts() {
        if file.path != "Cargo.toml" && !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        let entries = entries(text);
        let is_root =
            entries.iter().any(|entry| entry.table.split('.').next() == Some("workspace"));
        for entry in entries.iter().filter(|entry| entry.is_dependency()) {
            match entry.fault(file, is_root) {
                Some(message) => {
                    findings.push(Finding::new(&file.path, entry.line, "dependency", message));
                }
                None => continue,
            }
        }
    }
}

/// `key = value # comment` in a table. `[dependencies.x]` reads as `x = {…}` in `dependencies`.
#[derive(Debug, Default)]
struct Entry {
    table: String,
    key: String,
    value: String,
    comment: String,
    line: usize,
}

impl Entry {
    /// The last part of the table's name is one of the three kinds.
    fn is_dependency(&self) -> bool {
        let kind = self.table.rsplit('.').next().unwrap_or_default();
        matches!(kind, "dependencies" | "dev-dependencies" | "build-dependencies")
    }

    /// The fault of this dependency, if any.
    fn fault(&self, file: &File, is_root: bool) -> Option<String> {
        let name = self.key.split('.').next().unwrap_or_default().trim_matches('"');
        let shipped = !self.table.ends_with("dev-dependencies") && self.table != CORE_TEST_TABLE;
        if file.path == CORE && shipped {
            return Some(format!("zonal-core has no dependencies, so not `{name}`"));
        }
        let value: String = self.value.split_whitespace().collect();
        let from_workspace = (self.key.ends_with(".workspace") && value == "true")
            || value.contains("workspace=true");
        if from_workspace {
            return None;
        }
        if !is_root {
            return Some(format!("write `{name}.workspace = true`: versions stand in one table"));
        }
        let is_ours = self.key.ends_with(".path") || value.contains("path=");
        let has_reason = self.comment.split_whitespace().count() >= 2;
        (!is_ours && !has_reason)
            .then(|| format!("`{name}` carries no comment that says why we do not do it ourselves"))
    }
}

/// All entries of a manifest.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut table = String::new();
    // A dependency with a table of its own collects its lines; a value may go over several lines.
    let mut collecting = false;
    let mut open_brackets = 0_i32;
    for (index, line) in text.lines().enumerate() {
        let (code, comment) = split_comment(line);
        let code = code.trim();
        if open_brackets > 0 {
            open_brackets += bracket_balance(code);
            extend(&mut entries, code, comment);
        } else if let Some(name) = code.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim_matches(['[', ']']).trim();
            let own = dependency_table(name);
            collecting = own.is_some();
            table = own.map_or(name, |(parent, _)| parent).to_owned();
            if let Some((_, key)) = own {
                let (table, comment) = (table.clone(), comment.to_owned());
                let (key, value) = (key.to_owned(), String::new());
                entries.push(Entry { table, key, value, comment, line: index + 1 });
            } else {
                // Without an entry, `[workspace]` alone would not be seen.
                entries.push(Entry { table: table.clone(), line: index + 1, ..Entry::default() });
                let header = entries.len() - 1;
                entries[header].table.push_str(".header");
            }
        } else if collecting && !code.is_empty() {
            extend(&mut entries, code, comment);
        } else if let Some((key, value)) = code.split_once('=') {
            open_brackets = bracket_balance(value);
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let (table, comment) = (table.clone(), comment.to_owned());
            entries.push(Entry { table, key, value, comment, line: index + 1 });
        }
    }
    entries
}

fn extend(entries: &mut [Entry], code: &str, comment: &str) {
    let Some(entry) = entries.last_mut() else { return };
    entry.value.push_str(code);
    entry.comment.push_str(comment);
}

/// `dependencies.x` is table `dependencies`, key `x`.
fn dependency_table(name: &str) -> Option<(&str, &str)> {
    let (parent, key) = name.rsplit_once('.')?;
    let kind = parent.rsplit('.').next()?;
    matches!(kind, "dependencies" | "dev-dependencies" | "build-dependencies")
        .then_some((parent, key))
}

/// Splits at the `#` that is not in a string.
fn split_comment(line: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return (&line[..at], line[at + 1..].trim()),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    (line, "")
}

fn bracket_balance(code: &str) -> i32 {
    let mut quote = None;
    let mut balance = 0;
    for c in code.chars() {
        match (quote, c) {
            (None, '[' | '{') => balance += 1,
            (None, ']' | '}') => balance -= 1,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    balance
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    fn in_member(text: &str) -> Vec<String> {
        findings(check, &[("crates/a/Cargo.toml", text)])
    }

    fn in_root(text: &str) -> Vec<String> {
        findings(check, &[("Cargo.toml", &format!("[workspace]\nmembers = [\"a\"]\n{text}"))])
    }

    #[test]
    fn members_take_from_the_workspace() {
        let good = "[package]\nversion = \"1\"\n[dependencies]\na.workspace = true\n\
                    b = { workspace = true, features = [\n  \"x\",\n] }\n\
                    [dependencies.c]\nworkspace = true\noptional = true\n\
                    [features]\nx = [\"b/y\"]\n";
        assert_eq!(in_member(good), [""; 0]);
        for bad in ["b = \"1\"", "b = { version = \"1\" }  # a good reason", "b.version = \"1\""] {
            let text = format!("[dependencies]\na.workspace = true\n{bad}\n");
            assert_eq!(in_member(&text), ["crates/a/Cargo.toml:3 dependency"], "{bad}");
        }
        for table in ["dev-dependencies", "build-dependencies", "target.'cfg(x)'.dependencies"] {
            let text = format!("[{table}]\nb = \"1\"\n");
            assert_eq!(in_member(&text), ["crates/a/Cargo.toml:2 dependency"], "{table}");
        }
        let table = "[dependencies.b]\nversion = \"1\"\n[lib]\nname = \"x\"\n";
        assert_eq!(in_member(table), ["crates/a/Cargo.toml:1 dependency"]);
    }

    #[test]
    fn the_workspace_gives_reasons() {
        let good = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\n\
                    a = \"1\" # does it better\nb = { version = \"1\", features = [ # for x\n\
                    \"y\" ] } # and y\n";
        assert_eq!(in_root(good), [""; 0]);
        for bad in ["a = \"1\"", "a = \"1\" #", "a = \"1\" # why", "a = \"1 # in a string\""] {
            let text = format!("[workspace.dependencies]\n# A comment above is for all.\n{bad}\n");
            assert_eq!(in_root(&text), ["Cargo.toml:5 dependency"], "{bad}");
        }
        let own = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\nb = \"1\" # the peer b\n";
        assert_eq!(in_root(own), ["Cargo.toml:6 dependency"]);
    }

    #[test]
    fn the_core_has_none() {
        let core = |text| findings(check, &[("crates/zonal-core/Cargo.toml", text)]);
        let good = "[dependencies]\n\n[dev-dependencies]\nproptest.workspace = true\n\
                    [target.'cfg(loom)'.dependencies]\nloom.workspace = true\n";
        assert_eq!(core(good), [""; 0]);
        let bad = "[dependencies]\nlibc.workspace = true\n";
        assert_eq!(core(bad), ["crates/zonal-core/Cargo.toml:2 dependency"]);
        let bad = "[target.'cfg(unix)'.dependencies]\nlibc.workspace = true\n";
        assert_eq!(core(bad), ["crates/zonal-core/Cargo.toml:2 dependency"]);
        let bad = "[build-dependencies]\ncc.workspace = true\n";
        assert_eq!(core(bad), ["crates/zonal-core/Cargo.toml:2 dependency"]);
    }
}
