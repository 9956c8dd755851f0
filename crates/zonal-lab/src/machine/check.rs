//! Which machines can be.

use thiserror::Error;

use super::Machine;

/// Most CPUs of a lab machine.
pub(crate) const CPUS_MAX: u32 = 4096;
/// Most nodes.
pub(super) const NODES_MAX: u32 = 64;
/// The largest cache: 16 GiB.
const CACHE_KIB_MAX: u64 = 16 << 20;
/// All caches together: 1 TiB, of which each KiB has a word in a table.
const CACHES_KIB_MAX: u64 = 1 << 30;
/// All memory: 64 TiB.
const MEMORY_MIB_MAX: u64 = 64 << 20;
/// The longest that one access or step may take.
const CYCLES_MAX: u64 = 1_000_000;
/// Most lines that a core has under way.
const IN_FLIGHT_MAX: u32 = 1024;
/// The fastest memory of a node.
const GB_S_MAX: f64 = 100_000.0;

/// Why a machine cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MachineError {
    /// The text is no machine.
    #[error("line {line}: {what}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// The fault.
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
    #[error("{}{field}: {what}", at(*line))]
    Field {
        /// Which.
        field: &'static str,
        /// Line, from 1, where there is a text.
        line: Option<usize>,
        /// The fault, and what is valid.
        what: String,
    },
    /// A file that is no machine.
    #[error("{file}: {what}")]
    File {
        /// The file.
        file: String,
        /// The fault and its place.
        what: String,
    },
}

impl MachineError {
    /// A figure that cannot be, of a machine without a text.
    pub fn field(field: &'static str, what: String) -> MachineError {
        MachineError::Field { field, line: None, what }
    }
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

/// Checks every figure, alone and against the others.
pub(super) fn check(machine: &Machine) -> Result<(), MachineError> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || "._-@/".contains(c);
    if machine.name.is_empty() || machine.name.len() > 64 || !machine.name.chars().all(in_name) {
        let what = format!("'{}'; expected 1 to 64 letters, digits and ._-", machine.name);
        return Err(MachineError::field("name", what));
    }
    if !(0.01..=100.0).contains(&machine.ghz) {
        let what = format!("{} is no clock rate; expected 0.01 to 100", machine.ghz);
        return Err(MachineError::field("ghz", what));
    }
    if let Some(boost) = machine.boost_ghz
        && !(machine.ghz..=100.0).contains(&boost)
    {
        let what = format!("{boost}; expected ghz, which is {}, to 100", machine.ghz);
        return Err(MachineError::field("boost_ghz", what));
    }
    if !(32..=64 << 20).contains(&machine.memory_mib) {
        let what = format!("{}; expected 32 (MiB) to 67108864 per node", machine.memory_mib);
        return Err(MachineError::field("memory_mib", what));
    }
    if let Some(low) = machine.low_memory_mib
        && !(32..=4096).contains(&low)
    {
        let what = format!("{low}; expected 32 (MiB) to 4096, as the first 4 GiB hold no more");
        return Err(MachineError::field("low_memory_mib", what));
    }
    disk(machine)?;
    far(machine)?;
    cpus(machine)?;
    memory(machine)?;
    caches(machine)?;
    costs(machine)?;
    distances(machine)
}

/// How CPUs are shared out over sockets, nodes and caches.
fn cpus(machine: &Machine) -> Result<(), MachineError> {
    let field = |field, what: String| Err(MachineError::field(field, what));
    let counts = [
        ("sockets", machine.sockets),
        ("cores_per_socket", machine.cores_per_socket),
        ("threads_per_core", machine.threads_per_core),
        ("nodes", machine.nodes),
        ("cache.llc_cores", machine.cache.llc_cores),
    ];
    for (name, count) in counts {
        if !(1..=CPUS_MAX).contains(&count) {
            return field(name, format!("{count}; expected 1 to {CPUS_MAX}"));
        }
    }
    let cpus: u64 = counts[..3].iter().map(|(_, count)| u64::from(*count)).product();
    if cpus > u64::from(CPUS_MAX) {
        return field("sockets", format!("{cpus} CPUs in all; expected at most {CPUS_MAX}"));
    }
    if u64::from(machine.offline_cpus) >= cpus {
        let what = format!("{}; there are {cpus} CPUs in all", machine.offline_cpus);
        return field("offline_cpus", what);
    }
    let Machine { sockets, nodes, cores_per_socket, .. } = *machine;
    if nodes > NODES_MAX || nodes > machine.cores() {
        return field("nodes", format!("{nodes}; expected at most {NODES_MAX}, and one per core"));
    }
    let whole = nodes.is_multiple_of(sockets) || sockets.is_multiple_of(nodes);
    if !whole || !machine.cores().is_multiple_of(nodes) {
        let what = format!(
            "{nodes} for {sockets} sockets of {cores_per_socket} cores; expected a multiple or a \
             divisor of the sockets that divides the cores evenly"
        );
        return field("nodes", what);
    }
    let interleaved = machine.interleaved_nodes;
    if interleaved == 0 || !nodes.is_multiple_of(interleaved) {
        let what = format!("{interleaved}; expected a divisor of the {nodes} nodes");
        return field("interleaved_nodes", what);
    }
    if !cores_per_socket.is_multiple_of(machine.cache.llc_cores) {
        let what = format!(
            "{}; expected a divisor of the {cores_per_socket} cores of a socket",
            machine.cache.llc_cores
        );
        return field("cache.llc_cores", what);
    }
    Ok(())
}

/// All nodes together.
fn memory(machine: &Machine) -> Result<(), MachineError> {
    let far = machine.far.map_or(0, |far| far.memory_mib);
    let all = u64::from(machine.nodes()) * machine.memory_mib + far;
    match all <= MEMORY_MIB_MAX {
        true => Ok(()),
        false => {
            let what = format!("{all} MiB in all nodes; expected at most {MEMORY_MIB_MAX}");
            Err(MachineError::field("memory_mib", what))
        }
    }
}

/// Far memory is farther than all other.
fn far(machine: &Machine) -> Result<(), MachineError> {
    let Some(far) = &machine.far else { return Ok(()) };
    let wrong = |field, what: String| Err(MachineError::field(field, what));
    if !(32..=64 << 20).contains(&far.memory_mib) {
        let what = format!("{}; expected 32 (MiB) to 67108864", far.memory_mib);
        return wrong("far.memory_mib", what);
    }
    if !(machine.line.dram..=CYCLES_MAX).contains(&far.line) {
        let what = format!(
            "{}; expected {} (what is nearer) to {CYCLES_MAX}",
            far.line, machine.line.dram
        );
        return wrong("far.line", what);
    }
    if !(0.1..=GB_S_MAX).contains(&far.gb_s) {
        let what = format!("{}; expected 0.1 to {GB_S_MAX} gigabytes a second", far.gb_s);
        return wrong("far.gb_s", what);
    }
    if far.distance <= 10 {
        return wrong("far.distance", format!("{}; expected more than 10", far.distance));
    }
    Ok(())
}

fn caches(machine: &Machine) -> Result<(), MachineError> {
    let cache = &machine.cache;
    let sizes = [
        ("cache.l1_kib", cache.l1_kib),
        ("cache.l2_kib", cache.l2_kib),
        ("cache.llc_kib", cache.llc_kib),
    ];
    let mut below = 1;
    for (name, kib) in sizes {
        if !(below..=CACHE_KIB_MAX).contains(&kib) {
            let what = format!("{kib}; expected {below} (what is nearer) to {CACHE_KIB_MAX}");
            return Err(MachineError::field(name, what));
        }
        below = kib;
    }
    let (cores, llcs) = (machine.cores(), machine.cores().div_ceil(cache.llc_cores));
    let all = u64::from(cores) * cache.l2_kib + u64::from(llcs) * cache.llc_kib;
    if all > CACHES_KIB_MAX {
        let what = format!(
            "{} of {cores} cores, with {} of {llcs} last-level caches; expected at most \
             {CACHES_KIB_MAX} KiB in all",
            cache.l2_kib, cache.llc_kib
        );
        return Err(MachineError::field("cache.l2_kib", what));
    }
    Ok(())
}

/// A nearer place never takes longer, and no figure reaches a millisecond.
fn disk(machine: &Machine) -> Result<(), MachineError> {
    let Some(disk) = &machine.disk else { return Ok(()) };
    let figures = [
        ("disk.mib_s", disk.mib_s, 1, 1 << 20),
        ("disk.seek_us", disk.seek_us, 0, 1_000_000),
        ("disk.requests", disk.requests, 8, 1 << 16),
        ("disk.request_kib", disk.request_kib, 4, 1 << 20),
        ("disk.idle_us", disk.idle_us, 0, 1_000_000),
        ("disk.readahead_kib", disk.readahead_kib, 4, 1 << 20),
    ];
    for (name, value, least, most) in figures {
        if !(least..=most).contains(&value) {
            let what = format!("{value}; expected {least} to {most}");
            return Err(MachineError::field(name, what));
        }
    }
    Ok(())
}

fn costs(machine: &Machine) -> Result<(), MachineError> {
    let (line, work) = (&machine.line, &machine.work);
    let content = machine.content.unwrap_or_default();
    let rows: [&[(&'static str, u64)]; 3] = [
        &[
            ("line.l1", line.l1),
            ("line.l2", line.l2),
            ("line.llc", line.llc),
            ("line.core", line.core),
            ("line.socket", line.socket),
            ("line.remote", line.remote),
        ],
        &[("line.l2", line.l2), ("line.dram", line.dram), ("line.dram_remote", line.dram_remote)],
        &[
            ("line.l2", line.l2),
            ("content.llc", content.llc.unwrap_or(line.llc)),
            ("content.core", content.core.unwrap_or(line.core)),
            ("content.socket", content.socket.unwrap_or(line.socket)),
            ("content.remote", content.remote.unwrap_or(line.remote)),
        ],
    ];
    for row in rows {
        let mut below = 1;
        for (name, cycles) in row {
            if !(below..=CYCLES_MAX).contains(cycles) {
                let what = format!("{cycles}; expected {below} (what is nearer) to {CYCLES_MAX}");
                return Err(MachineError::field(name, what));
            }
            below = *cycles;
        }
    }
    if let Some(lines) = content.in_flight
        && !(1..=IN_FLIGHT_MAX).contains(&lines)
    {
        let what = format!("{lines}; expected 1 to {IN_FLIGHT_MAX} lines");
        return Err(MachineError::field("content.in_flight", what));
    }
    if let Some(gb_s) = content.gb_s
        && !(0.1..=GB_S_MAX).contains(&gb_s)
    {
        let what = format!("{gb_s}; expected 0.1 to {GB_S_MAX} gigabytes a second");
        return Err(MachineError::field("content.gb_s", what));
    }
    let alone = [
        ("line.serve", line.serve),
        ("line.locked", line.locked),
        ("work.alloc", work.alloc),
        ("work.free", work.free),
        ("work.update", work.update),
        ("work.add", work.add),
        ("work.mask", work.mask),
        ("work.cmpxchg", work.cmpxchg),
        ("work.page", work.page),
    ];
    match alone.into_iter().find(|(_, cycles)| !(1..=CYCLES_MAX).contains(cycles)) {
        Some((name, cycles)) => {
            let what = format!("{cycles}; expected 1 to {CYCLES_MAX} cycles");
            Err(MachineError::field(name, what))
        }
        None => Ok(()),
    }
}

fn distances(machine: &Machine) -> Result<(), MachineError> {
    let Some(rows) = &machine.distances else { return Ok(()) };
    let nodes = machine.nodes() as usize;
    if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
        let what = format!("expected {nodes} rows of {nodes} numbers");
        return Err(MachineError::field("distances", what));
    }
    for (from, row) in rows.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            if (from == to) != (*distance == 10) || *distance < 10 {
                let what = format!(
                    "{distance} from node {from} to {to}; expected 10 to itself, more to others"
                );
                return Err(MachineError::field("distances", what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::provenance::{Origin, Provenance};

    #[test]
    fn presets_can_be_and_say_where_each_figure_is_from() {
        let presets = Machine::presets();
        assert!(presets.len() >= 6);
        for machine in presets {
            check(&machine).unwrap();
            assert!(machine.sources.contains_key("name"), "{}: of which table?", machine.name);
            for figure in machine.figures() {
                let source = figure.source.map_or_else(String::new, |from| from.how().to_owned());
                assert!(source.len() >= 8, "{}: no source for {}", machine.name, figure.name);
            }
            let known = |figure: &str| machine.figures().iter().any(|known| known.name == figure);
            let tables = ["name", "cache", "line", "content", "work", "far"];
            for key in machine.sources.keys().flat_map(|key| key.split(',')) {
                let key = key.trim();
                assert!(known(key) || tables.contains(&key), "{}: no figure {key}", machine.name);
            }
        }
    }

    /// What a machine's file calls sourced without saying where it can be opened, and addresses of
    /// files that are not there.
    fn cannot_be_opened(machine: &Machine, root: &Path) -> Vec<String> {
        let closed = |(_, from): &(&String, &Provenance)| match from.address() {
            None => from.origin() == Origin::Sourced,
            Some(page) if page.contains("://") => false,
            Some(file) => !root.join(file).is_file(),
        };
        let name = |(figures, from): (&String, &Provenance)| format!("{figures}: {from}");
        machine.sources.iter().filter(closed).map(name).collect()
    }

    #[test]
    fn a_figure_of_a_preset_that_is_sourced_has_an_address() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if !root.join("results/predictions").exists() {
            eprintln!("SKIPPED: {} is not the project (a packaged crate?)", root.display());
            return;
        }
        for machine in Machine::presets() {
            assert_eq!(cannot_be_opened(&machine, &root), [""; 0], "{}", machine.name);
            let remembered = |from: &&Provenance| {
                from.origin() == Origin::Sourced && from.how().contains("from memory")
            };
            let recalled: Vec<_> = machine.sources.values().filter(remembered).collect();
            assert!(recalled.is_empty(), "{}: {recalled:?} are estimates", machine.name);
        }
        let text = include_str!("../../machines/haswell-2013-8.toml");
        let page = ", address = \"https://www.7-cpu.com/cpu/Haswell.html\"";
        let closed = Machine::parse(&text.replacen(page, "", 1)).unwrap();
        let closed = cannot_be_opened(&closed, &root);
        assert!(closed.len() == 1 && closed[0].contains("line.l1, line.l2: sourced"), "{closed:?}");
        let gone = text.replace("results/predictions/B1.csv", "results/predictions/no-such.csv");
        assert_eq!(cannot_be_opened(&Machine::parse(&gone).unwrap(), &root).len(), 3);
    }

    #[test]
    fn presets_have_the_cpus_and_nodes_of_their_tables() {
        let shapes: Vec<(u32, u32)> =
            Machine::presets().iter().map(|machine| (machine.cpus(), machine.nodes())).collect();
        assert_eq!(shapes[..6], [(8, 1), (24, 2), (88, 2), (256, 2), (128, 2), (224, 2)]);
        for machine in Machine::presets() {
            let cpus = machine.name.rsplit('-').next().unwrap().parse::<u32>();
            assert_eq!(cpus, Ok(machine.cpus()), "{} says its size", machine.name);
        }
    }

    #[test]
    fn what_no_host_has_room_to_simulate_is_refused() {
        let mut machine = Machine::named("turin-2024-384").unwrap();
        (machine.cache.l2_kib, machine.cache.llc_kib) = (CACHE_KIB_MAX, CACHE_KIB_MAX);
        let error = check(&machine).unwrap_err().to_string();
        assert!(error.contains("cache.l2_kib: 16777216 of 192 cores"), "{error}");
        let mut machine = Machine::named("rome-2019-256").unwrap();
        machine.memory_mib = MEMORY_MIB_MAX;
        let error = check(&machine).unwrap_err().to_string();
        assert!(error.contains("memory_mib: ") && error.contains("in all nodes"), "{error}");
    }

    #[test]
    fn a_machine_that_cannot_be_is_refused_with_its_line_and_what_was_expected() {
        let base = include_str!("../../machines/xeon-2007-8.toml");
        for (from, to, expected) in [
            ("sockets = 2", "sockets = 0", "sockets: 0; expected 1 to 4096"),
            ("sockets = 2", "sockets = 4000", "CPUs in all"),
            ("nodes = 1", "nodes = 1\noffline_cpus = 8", "offline_cpus: 8; there are 8 CPUs"),
            ("nodes = 1", "nodes = 3", "nodes: 3 for 2 sockets"),
            ("nodes = 1", "nodes = 65", "nodes: 65; expected at most 64"),
            ("llc_cores = 2", "llc_cores = 3", "cache.llc_cores: 3; expected a divisor"),
            ("threads_per_core = 1", "threads_per_core = \"x\"", "expected u32"),
            ("ghz = ", "megahertz = ", "unknown field `megahertz`, expected one of"),
            ("ghz = 2.33", "ghz = nan", "ghz: NaN is no clock rate"),
            ("memory_mib = 4096", "memory_mib = 3", "memory_mib: 3; expected 32"),
            ("l1_kib = 32", "l1_kib = 8192", "cache.l2_kib: 4096; expected 8192"),
            ("\nremote = 300", "\nremote = 2", "line.remote: 2; expected"),
            ("\nserve = 40", "\nserve = 0", "line.serve: 0; expected 1"),
            ("in_flight = 8", "in_flight = 0", "content.in_flight: 0; expected 1"),
            ("gb_s = 17.0", "gb_s = -1.0", "content.gb_s: -1; expected 0.1"),
            ("gb_s = 17.0", "remote = 9", "content.remote: 9; expected 120"),
            ("page = 150", "page = 99000000", "work.page: 99000000; expected 1"),
            ("name = \"xeon-2007-8\"", "name = \"a b\"", "name: 'a b'; expected"),
            ("nodes = 1", "nodes = 2\ndistances = [[10, 10], [20, 10]]", "distances: 10 from"),
            ("nodes = 1", "nodes = 2\ndistances = [[10]]", "expected 2 rows of 2"),
            ("address = \"crates/", "address = \"/crates/", "cannot be opened; expected a page"),
            ("[cache]", "[cache", "line "),
        ] {
            assert!(base.contains(from), "{from} is not in {base}");
            let text = base.replacen(from, to, 1);
            let error = Machine::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let changed = base[..base.find(from).unwrap()].lines().count();
            let line: usize = error["line ".len()..].split(':').next().unwrap().parse().unwrap();
            assert!(line.abs_diff(changed) <= 2, "{error}, but the change is at {changed}");
        }
    }

    #[test]
    fn cpus_are_numbered_as_linux_does() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        assert_eq!((machine.cpus(), machine.nodes()), (88, 2));
        assert_eq!((machine.core_of(0), machine.core_of(44)), (0, 0));
        let node = |cpu| machine.node_of_core(machine.core_of(cpu));
        assert_eq!([node(0), node(21), node(22), node(43), node(44), node(66)], [0, 0, 1, 1, 0, 1]);
        let (first, second) = (machine.socket_of_core(21), machine.socket_of_core(22));
        assert_eq!((first, second), (0, 1));
        let old = Machine::named("xeon-2007-8").unwrap();
        assert!((0..8).all(|core| old.node_of_core(core) == 0), "one memory for both sockets");
    }
}
