//! Numbers of the lab's model say where they are from: a constant without provenance could be
//! fitted to any table. They stand in a `given!` block, which asks for it. Units are in `units.rs`.

use super::finding::Finding;
use super::tree::Tree;

/// Where every constant has its provenance.
const PLACES: [&str; 6] = [
    "crates/zonal-lab/src/cost/",
    "crates/zonal-lab/src/experiment/",
    "crates/zonal-lab/src/pagecache/",
    "crates/zonal-lab/src/platform",
    "crates/zonal-lab/src/variant.rs",
    "crates/zonal-lab/src/workload/",
];

/// Forms and bounds of the model itself, which say nothing of a machine or a kernel.
const OF_THE_MODEL: [&str; 23] = [
    "BRIEF_COLUMNS",
    "CHUNK_KIB",
    "CHUNK_LINES",
    "DEPTH_MAX",
    "DIRTY",
    "EMPTY",
    "FAR",
    "FRAGMENT_BYTES",
    "FRAGMENT_KIB",
    "HELD",
    "HOLDER_SHIFT",
    "HUGE_ORDER",
    "LINE_BYTES",
    "PAGE_CHUNKS",
    "PARTS",
    "PUBLISHED_ROWS",
    "SCHEMA_VERSION",
    "SHARED",
    "SHUFFLED_MAX",
    "STILL",
    "TABLE_PAGES",
    "TIMES_MAX",
    "VERSION_BITS",
];

/// Of these, where no other number may stand either: what a load does and what it costs.
const STRICT: [&str; 5] = [
    "crates/zonal-lab/src/cost/",
    "crates/zonal-lab/src/pagecache/",
    "crates/zonal-lab/src/platform",
    "crates/zonal-lab/src/variant.rs",
    "crates/zonal-lab/src/workload/",
];

/// Parts of a whole and of a second: units, whatever they divide.
const UNITS: [u64; 4] = [100, 1000, 1_000_000, 1_000_000_000];
/// Numbers below are forms of an expression: a half, a bit, seven eighths.
const FORMS: u64 = 100;
/// Ends of names of functions that take a time, or of what they take.
const TIMES: [&str; 6] = ["_ns", "_us", "_ms", "cycles", "work", "spend"];

pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let within = |path: &str, places: &[&str]| places.iter().any(|p| path.starts_with(p));
    for file in tree.files.iter().filter(|f| within(&f.path, &PLACES)) {
        let Some(rust) = &file.rust else { continue };
        let mut bare = Vec::new();
        for (index, line) in rust.code.lines().enumerate() {
            if let Some(name) = number(line).filter(|name| !OF_THE_MODEL.contains(name)) {
                bare.push((index + 1, name.to_owned()));
            }
        }
        if within(&file.path, &STRICT) {
            let found = literals(&rust.code).into_iter().filter(|(at, _)| !rust.is_test(*at));
            let lines = found.map(|(at, text)| (rust.line(at), text.to_owned()));
            let known: Vec<usize> = bare.iter().map(|(line, _)| *line).collect();
            bare.extend(lines.filter(|(line, _)| !known.contains(line)));
        }
        for (line, name) in bare {
            let message = format!(
                "`{name}` does not say where it is from; put it into a `given!` block, with its \
                 provenance"
            );
            findings.push(Finding::new(&file.path, line, "lab-number", message));
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

/// Numbers in code that are neither units nor forms of an expression, with their places: in
/// constants and statics of any type, as times that a function takes, and any of a hundred or more.
/// Those of `given!` blocks and of a parameter's `default`, `min` and `max` are none: both ask for
/// provenance.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    let given: Vec<_> = code
        .match_indices("given! {")
        .map(|(from, _)| from..code[from..].find("\n}").map_or(code.len(), |end| from + end))
        .collect();
    while at < bytes.len() {
        let follows =
            at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || b"_.".contains(&bytes[at - 1]));
        if !bytes[at].is_ascii_digit() || follows {
            at += 1;
            continue;
        }
        let rest = &code[at..];
        let length =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let text = &rest[..length];
        let value = value(text);
        let place = at;
        at += length;
        let line = code[..place].rfind('\n').map_or(0, |end| end + 1);
        let field = code[line..].trim_start();
        let bounds = ["default:", "min:", "max:"].iter().any(|name| field.starts_with(name));
        if bounds || given.iter().any(|range| range.contains(&place)) {
            continue;
        }
        let item = item(&code[..place]);
        if item.is_some_and(|name| OF_THE_MODEL.contains(&name)) {
            continue;
        }
        // A bit of a flag is `Name = 128,`.
        let flag = code[..place].ends_with("= ") && code[at..].starts_with(',');
        let large = value >= FORMS && !UNITS.contains(&value) && !flag;
        let time = value > 0 && is_time(&code[line..place], &code[at..]);
        if large || time || (item.is_some() && value > 2) {
            found.push((place, text));
        }
    }
    found
}

/// The value of a literal; forms of another base, which are patterns of bits, are 0.
fn value(text: &str) -> u64 {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    match digits[end..].starts_with(['x', 'b', 'o']) {
        true => 0,
        false => digits[..end].parse().unwrap_or(u64::MAX),
    }
}

/// Whether a literal is all that a function takes for a time.
fn is_time(before: &str, after: &str) -> bool {
    let name = before.trim_end().strip_suffix('(').unwrap_or_default();
    TIMES.iter().any(|time| name.ends_with(time)) && after.starts_with([')', ','])
}

/// The constant or static whose value the code ends in.
fn item(before: &str) -> Option<&str> {
    let ends = [";\n", "}\n", "{\n"].map(|end| before.rfind(end).map_or(0, |at| at + 2));
    let statement = &before[ends.into_iter().max()?..];
    let (head, _) = statement.split_once(" = ").or_else(|| statement.split_once(" =\n"))?;
    let mut words = head.split_whitespace().skip_while(|w| !["const", "static"].contains(w));
    words.next()?;
    Some(words.next()?.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::{literals, number};

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

    #[test]
    fn numbers_that_hide_are_found() {
        for code in [
            "const TIMES: [u64; 2] = [420, 7];",
            "const SHORT: [u64; 2] = [7, 8];",
            "static FAULT: u64 = 42;",
            "const FAULT: u64 =\n    42;",
            "const FAULT: u128 = 42;",
            "const FAULT: u64 = (42);",
            "const FAULT: u64 = OTHER * 42;",
            "fn f() {\n    lab.kernel_ns(64);\n}",
            "fn f() {\n    lab.user_ns(7, order);\n}",
            "fn f() {\n    let fault = 420_u64;\n}",
            "fn f() {\n    lab.hold(lock, 4_200);\n}",
            "fn f() {\n    half(420)\n}",
        ] {
            assert!(!literals(code).is_empty(), "{code}");
        }
    }

    #[test]
    fn units_forms_bounds_and_what_has_provenance_are_none() {
        for code in [
            "given! {\n    FAULT_NS: u64 = 420,\n        Provenance::estimated(\"\");\n}\n",
            "fn f() {\n    half * 7 / 8 + part / 1000 + (all >> 64)\n}",
            "            default: 36_000,\n            min: 1,\n            max: 1_000_000,\n",
            "const EMPTY: u64 = 0;",
            "fn f() {\n    let hash = 0x9E37_79B9_7F4A_7C15;\n    lab.kernel_ns(FAULT_NS);\n}",
            "const KINDS: [Kind; 2] = [FIRST, SECOND];",
        ] {
            assert_eq!(literals(code), [], "{code}");
        }
    }
}
