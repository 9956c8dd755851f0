//! Numbers of the lab's model say where they are from: a constant without provenance could be
//! fitted to any table. They stand in a `given!` block, which asks for it. Units are in `units.rs`.

use super::finding::Finding;
use super::tree::Tree;

/// Where every constant has its provenance.
const PLACES: [&str; 6] = [
    "crates/zonal-lab/src/cost/",
    "crates/zonal-lab/src/experiment/",
    "crates/zonal-lab/src/pagecache/",
    "crates/zonal-lab/src/platform.rs",
    "crates/zonal-lab/src/variant.rs",
    "crates/zonal-lab/src/workload/",
];

/// Forms and bounds of the model itself, which say nothing of a machine or a kernel.
const OF_THE_MODEL: [&str; 17] = [
    "CHUNK_LINES",
    "DEPTH_MAX",
    "DIRTY",
    "EMPTY",
    "FRAGMENT_BYTES",
    "FRAGMENT_KIB",
    "HOLDER_SHIFT",
    "HUGE_ORDER",
    "LINE_BYTES",
    "PAGE_CHUNKS",
    "PARTS",
    "SCHEMA_VERSION",
    "SHARED",
    "SHUFFLED_MAX",
    "TABLE_PAGES",
    "TIMES_MAX",
    "VERSION_BITS",
];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|f| PLACES.iter().any(|p| f.path.starts_with(p))) {
        let Some(rust) = &file.rust else { continue };
        for (index, line) in rust.code.lines().enumerate() {
            if let Some(name) = number(line).filter(|name| !OF_THE_MODEL.contains(name)) {
                let message = format!(
                    "`{name}` does not say where it is from; put it into a `given!` block, with \
                     its provenance"
                );
                findings.push(Finding::new(&file.path, index + 1, "lab-number", message));
            }
        }
    }
}

/// The name of the constant that a line of code makes of a number.
fn number(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("const ")?;
    let item = before.trim();
    if !(item.is_empty() || item.starts_with("pub")) {
        return None;
    }
    let (name, rest) = after.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    let is_number = ["u8", "u16", "u32", "u64", "usize", "i64", "f64"].contains(&kind);
    (is_number && value.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_constant_of_a_number_is_found_and_others_are_not() {
        assert_eq!(number("const FAULT_NS: u64 = 420;"), Some("FAULT_NS"));
        assert_eq!(number("    pub(super) const WAYS: usize = 16;"), Some("WAYS"));
        for line in [
            "    FAULT_NS: u64 = 420,",
            "const NONE: u32 = u32::MAX;",
            "const KIND: Kind = Kind {",
            "const fn seven() -> u64 {",
            "let first: u64 = 3;",
        ] {
            assert_eq!(number(line), None, "{line}");
        }
    }
}
