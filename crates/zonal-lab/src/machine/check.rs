//! Which machines can be.

use thiserror::Error;

use super::Machine;

/// Most CPUs of a lab machine.
pub const CPUS_MAX: u32 = 4096;
/// Most nodes.
pub const NODES_MAX: u32 = 64;

/// Why a machine cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MachineError {
    /// The text is no machine.
    #[error("line {line}: {what}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// No preset has this name.
    #[error("no machine is called '{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A figure that cannot be.
    #[error("{field}: {what}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong, and what would do.
        what: String,
    },
}

/// Checks every figure, alone and against the others.
pub fn check(machine: &Machine) -> Result<(), MachineError> {
    let field = |field, what: String| Err(MachineError::Field { field, what });
    let counts = [
        ("sockets", machine.sockets),
        ("nodes_per_socket", machine.nodes_per_socket),
        ("cores_per_socket", machine.cores_per_socket),
        ("threads_per_core", machine.threads_per_core),
        ("cache.llc_cores", machine.cache.llc_cores),
    ];
    for (name, count) in counts {
        if !(1..=CPUS_MAX).contains(&count) {
            return field(name, format!("{count}, but it must be 1 to {CPUS_MAX}"));
        }
    }
    let cpus = counts[..4].iter().filter(|(name, _)| *name != "nodes_per_socket");
    let cpus: u64 = cpus.map(|(_, count)| u64::from(*count)).product();
    if cpus > u64::from(CPUS_MAX) {
        return field(
            "sockets",
            format!("{cpus} CPUs in all, but at most {CPUS_MAX} are possible"),
        );
    }
    if machine.nodes() > NODES_MAX || machine.nodes_per_socket > machine.cores_per_socket {
        let what = format!("{} nodes; at most {NODES_MAX}, and one per core", machine.nodes());
        return field("nodes_per_socket", what);
    }
    if !machine.cores_per_socket.is_multiple_of(machine.nodes_per_socket) {
        return field("nodes_per_socket", "the cores of a socket do not divide by it".into());
    }
    if !machine.cores_per_socket.is_multiple_of(machine.cache.llc_cores) {
        return field("cache.llc_cores", "the cores of a socket do not divide by it".into());
    }
    if !(0.01..=100.0).contains(&machine.ghz) {
        return field("ghz", format!("{} is no clock rate; 0.01 to 100", machine.ghz));
    }
    if !(32..=64 << 20).contains(&machine.memory_mib) {
        return field("memory_mib", format!("{}; 32 MiB to 64 TiB per node", machine.memory_mib));
    }
    if let Some(rows) = &machine.distances {
        let nodes = machine.nodes() as usize;
        if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
            return field("distances", format!("needs {nodes} rows of {nodes} numbers"));
        }
        for (from, row) in rows.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                if (from == to) != (*distance == 10) || *distance < 10 {
                    let what = format!("{distance} from node {from} to {to}; 10 is a node itself");
                    return field("distances", what);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_can_be_and_name_a_source_for_each_cost() {
        for machine in Machine::presets() {
            check(&machine).unwrap();
            for figure in ["ghz", "cache", "line", "work", "memory_mib"] {
                let named = machine.sources.keys().any(|key| key.starts_with(figure));
                assert!(named, "{}: no source for {figure}", machine.name);
            }
        }
    }

    #[test]
    fn a_machine_that_cannot_be_is_refused_with_its_field() {
        let mut good = Machine::presets().remove(0);
        let base = toml::to_string(&good).unwrap();
        for (from, to, expected) in [
            ("sockets = 2", "sockets = 0", "sockets"),
            ("sockets = 2", "sockets = 4000", "CPUs in all"),
            ("llc_cores = 2", "llc_cores = 3", "cache.llc_cores"),
            ("threads_per_core = 1", "threads_per_core = \"x\"", "line "),
            ("ghz = ", "megahertz = ", "line "),
        ] {
            assert!(base.contains(from), "{from} is not in {base}");
            let error = Machine::parse(&base.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        good.distances = Some(vec![vec![10]; 2]);
        assert!(check(&good).is_err());
    }

    #[test]
    fn cpus_are_numbered_as_linux_does() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        assert_eq!((machine.cpus(), machine.nodes()), (88, 2));
        assert_eq!((machine.core_of(0), machine.core_of(44)), (0, 0));
        let node = |cpu| machine.node_of_core(machine.core_of(cpu));
        assert_eq!([node(0), node(21), node(22), node(43), node(44), node(66)], [0, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn resizing_keeps_the_shape() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        for cpus in [2, 8, 44, 176, 512, 1024] {
            assert_eq!(machine.resized(cpus).unwrap().cpus(), cpus);
        }
        assert!(machine.resized(0).is_err() && machine.resized(90).is_err());
    }
}
