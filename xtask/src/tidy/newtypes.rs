//! Newtypes of the core keep their field to themselves, so that no value can be made that its
//! constructors would refuse. Ids promise nothing and are open.

use super::finding::Finding;
use super::tree::Tree;

const CORE: &str = "crates/zonal-core/src/";
/// Those of which every number is one.
const IDS: [&str; 4] = ["Pfn", "NodeId", "CpuId", "ZoneId"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let core = tree.rust().filter(|(file, _)| file.path.starts_with(CORE) && !file.is_test());
    for (file, rust) in core {
        for (index, line) in rust.code.lines().enumerate() {
            if let Some(name) = open_newtype(line).filter(|name| !IDS.contains(name)) {
                let message = format!("`{name}` has a public field; only ids may");
                findings.push(Finding::new(&file.path, index + 1, "open-newtype", message));
            }
        }
    }
}

/// The name in `pub struct Name(pub T);`.
fn open_newtype(line: &str) -> Option<&str> {
    let (name, fields) = line.trim_start().strip_prefix("pub struct ")?.split_once('(')?;
    fields.starts_with("pub ").then(|| name.split('<').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::check;

    #[test]
    fn only_ids_of_the_core_have_public_fields() {
        let text = "pub struct Pfn(pub u64);\npub struct Count(pub u32);\npub struct Order(u8);\n\
                    pub struct Word(pub(crate) u64);\npub struct Of<T>(pub T);\n";
        let files = [("crates/zonal-core/src/a.rs", text), ("crates/zonal/src/a.rs", text)];
        let found = [
            "crates/zonal-core/src/a.rs:2 open-newtype",
            "crates/zonal-core/src/a.rs:5 open-newtype",
        ];
        assert_eq!(findings(check, &files), found);
    }
}
