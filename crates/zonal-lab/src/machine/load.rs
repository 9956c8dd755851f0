//! Machines by name and from files.

use std::fs;
use std::path::Path;

use super::{Machine, MachineError, check};

/// Presets, as they stand in the files: those of published tables, oldest first, then those from
/// data sheets.
const PRESETS: &[&str] = &[
    include_str!("../../machines/xeon-2007-8.toml"),
    include_str!("../../machines/westmere-2011-24.toml"),
    include_str!("../../machines/broadwell-2017-88.toml"),
    include_str!("../../machines/rome-2019-256.toml"),
    include_str!("../../machines/icelake-2023-128.toml"),
    include_str!("../../machines/sapphire-2023-224.toml"),
    include_str!("../../machines/skylake-2017-112.toml"),
    include_str!("../../machines/skylake-2017-104.toml"),
    include_str!("../../machines/skylake-2017-224.toml"),
    include_str!("../../machines/broadwell-2016-192.toml"),
    include_str!("../../machines/cascadelake-2019-80.toml"),
    include_str!("../../machines/ivybridge-2013-48.toml"),
    include_str!("../../machines/haswell-2013-8.toml"),
    include_str!("../../machines/skylake-2015-8.toml"),
    include_str!("../../machines/icelake-2021-128.toml"),
    include_str!("../../machines/zen1-2017-128.toml"),
    include_str!("../../machines/sapphire-2023-112.toml"),
    include_str!("../../machines/host-2021-36.toml"),
    include_str!("../../machines/host-2023-176.toml"),
    include_str!("../../machines/host-2025-316.toml"),
    include_str!("../../machines/altra-2020-72.toml"),
    include_str!("../../machines/grace-2023-72.toml"),
    include_str!("../../machines/sierraforest-2024-144.toml"),
    include_str!("../../machines/turin-2024-384.toml"),
    include_str!("../../machines/graviton4-2024-192.toml"),
    include_str!("../../machines/sapphire-cxl-2023-112.toml"),
    include_str!("../../machines/genoa-2022-384.toml"),
];

/// The two parts of `NAME@SIZE`; a name alone has no size. Only the path of a file may have an @ of
/// its own.
pub fn split_size(name: &str) -> (&str, Option<&str>) {
    const FILE: &str = ".toml";
    let path = name.rfind(FILE).map_or(0, |at| at + FILE.len());
    match name[path..].find('@') {
        Some(at) => (&name[..path + at], Some(&name[path + at + 1..])),
        None => (name, None),
    }
}

impl Machine {
    /// A machine from the text of its file.
    ///
    /// # Errors
    /// [`MachineError`] with the line: for text that is no machine, or with the field for one that
    /// cannot be.
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.get(..start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            MachineError::Text { line, what: error.message().trim().replace('\n', "; ") }
        })?;
        check::check(&machine).map_err(|error| match error {
            MachineError::Field { field, what, .. } => {
                MachineError::Field { field, line: line_of(text, field), what }
            }
            other => other,
        })?;
        Ok(machine)
    }

    /// The machine of a file.
    ///
    /// # Errors
    /// [`MachineError::File`] with the file, the line and what was expected.
    pub fn load(path: &Path) -> Result<Machine, MachineError> {
        let wrong = |what: &dyn std::fmt::Display| MachineError::File {
            file: path.display().to_string(),
            what: what.to_string(),
        };
        let expected = "expected a machine's TOML, as `zonal lab machine NAME --toml` prints one";
        let text = fs::read_to_string(path)
            .map_err(|error| wrong(&format!("cannot be read: {error}; {expected}")))?;
        Machine::parse(&text).map_err(|error| wrong(&error))
    }

    /// The text of its file; parsing it gives the machine back.
    ///
    /// # Panics
    /// Never: every figure of a machine has a form in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a machine has a text")
    }

    /// Every preset.
    ///
    /// # Panics
    /// If a preset's file is no machine, which a test rules out.
    pub fn presets() -> Vec<Machine> {
        let parse = |text: &&str| Machine::parse(text).expect("a preset is a machine");
        PRESETS.iter().map(parse).collect()
    }

    /// The preset of this name, or one of another size: `NAME@CPUS`, or `NAME@CPUS/NODES` with
    /// `NODES` sockets of one node each.
    ///
    /// # Errors
    /// [`MachineError::Unknown`] with the names there are, or a size that cannot be.
    pub fn named(name: &str) -> Result<Machine, MachineError> {
        let (base, size) = split_size(name);
        let mut presets = Machine::presets();
        let names = presets.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>();
        let unknown = || MachineError::Unknown { name: base.to_owned(), known: names.join(", ") };
        let at = names.iter().position(|known| *known == base).ok_or_else(unknown)?;
        let machine = presets.swap_remove(at);
        size.map_or(Ok(machine.clone()), |size| machine.sized(size))
    }

    /// This machine in the size that `CPUS` or `CPUS/NODES` says.
    ///
    /// # Errors
    /// [`MachineError::Field`] if that is no size, or one that this machine cannot have.
    pub fn sized(&self, size: &str) -> Result<Machine, MachineError> {
        let (cpus, nodes) = match size.split_once('/') {
            Some((cpus, nodes)) => (cpus.parse(), Some(nodes.parse())),
            None => (size.parse(), None),
        };
        match (cpus, nodes.transpose()) {
            (Ok(cpus), Ok(None)) => self.resized(cpus),
            (Ok(cpus), Ok(Some(nodes))) => self.resized_nodes(cpus, nodes),
            _ => Err(MachineError::field(
                "size",
                format!("'{size}' is no size; expected CPUS or CPUS/NODES, as 512 or 1024/16"),
            )),
        }
    }
}

/// The line on which `field` stands, from 1: that of its key, or else of its table.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let (table, key) = field.split_once('.').unwrap_or(("", field));
    let (mut current, mut nearest) = ("", None);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            current = header.trim_start_matches('[').split(']').next().unwrap_or("").trim();
            if current == table {
                nearest = nearest.or(Some(index + 1));
            }
            continue;
        }
        let name = line.split_once('=').map_or("", |(name, _)| name.trim());
        if (current == table && name == key) || (current.is_empty() && name == field) {
            return Some(index + 1);
        }
        if current.is_empty() && !table.is_empty() && name == table {
            nearest = Some(index + 1);
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_size_and_the_path_of_a_file_may_have_an_at() {
        assert_eq!(split_size("a"), ("a", None));
        assert_eq!(split_size("a@16/4"), ("a", Some("16/4")));
        assert_eq!(split_size("a@16@3"), ("a", Some("16@3")));
        assert_eq!(split_size("x@y/a.toml"), ("x@y/a.toml", None));
        assert_eq!(split_size("x@y/a.toml@8"), ("x@y/a.toml", Some("8")));
        let error = Machine::named("rome-2019-256@16@3").unwrap_err().to_string();
        assert!(error.contains("'16@3' is no size"), "{error}");
    }

    #[test]
    fn the_line_of_a_figure_is_found_in_every_form_of_toml() {
        let text = "# a\nsockets = 2\n\n[cache]\nl2_kib = 1\n[line]\nllc = 3\n";
        assert_eq!(line_of(text, "sockets"), Some(2));
        assert_eq!(line_of(text, "cache.l2_kib"), Some(5));
        assert_eq!(line_of(text, "line.llc"), Some(7));
        assert_eq!(line_of(text, "line.core"), Some(6), "its table");
        assert_eq!(line_of("a = 1\ncache = { l2_kib = 1 }\n", "cache.l2_kib"), Some(2));
        assert_eq!(line_of("cache.l2_kib = 1\n", "cache.l2_kib"), Some(1));
        assert_eq!(line_of("", "ghz"), None);
    }

    #[test]
    fn sizes_are_part_of_a_name() {
        let machine = Machine::named("broadwell-2017-88@512").unwrap();
        assert_eq!((machine.cpus(), machine.name.as_str()), (512, "broadwell-2017-88@512"));
        let large = Machine::named("rome-2019-256@1024/16").unwrap();
        assert_eq!((large.cpus(), large.nodes(), large.sockets), (1024, 16, 16));
        assert_eq!(Machine::named(&large.name).unwrap(), large);
        for (name, expected) in [
            ("nonsense", "there are xeon-2007-8"),
            ("nonsense@8", "no machine is called 'nonsense'"),
            ("xeon-2007-8@x", "expected CPUS or CPUS/NODES"),
            ("xeon-2007-8@8/x", "expected CPUS or CPUS/NODES"),
            ("xeon-2007-8@0", "0 CPUs"),
            ("xeon-2007-8@9000", "9000 CPUs"),
            ("xeon-2007-8@8/0", "0 nodes"),
            ("xeon-2007-8@9/2", "9 CPUs"),
        ] {
            let error = Machine::named(name).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn a_machine_comes_back_from_its_text() {
        for machine in Machine::presets() {
            assert_eq!(Machine::parse(&machine.to_toml()).unwrap(), machine);
        }
    }

    #[test]
    fn a_file_is_named_in_its_error() {
        let error = Machine::load(Path::new("nowhere/m.toml")).unwrap_err().to_string();
        assert!(error.starts_with("nowhere/m.toml: cannot be read"), "{error}");
    }
}
