//! A machine from sysfs and timed figures. Each figure says how it was got.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::machine::{LineCosts, Machine, MachineError};
use crate::mechanism::Mechanisms;
use crate::provenance::Provenance;
use zonal::sys::machine::Machine as Host;

use super::rounds::Latencies;
use super::series::Timed;
use super::shape::Shape;

/// The machine that stands in for what only a kernel could measure.
const KERNEL_FIGURES_FROM: &str = "broadwell-2017-88";
/// From one fetch of a line to the next, in ns; the same on every preset.
const SERVE_NS: f64 = 10.0;

/// Part of a memory access above which the last cache was of no use while it was measured.
const NEARER_THAN_MEMORY: f64 = 0.8;

/// Timed figures.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Clock and latencies.
    pub latencies: Latencies,
    /// Processor and kernel.
    pub host: Host,
    /// Whether caches and CPUs are those that a hypervisor shows.
    pub in_virtual_machine: bool,
    /// When.
    pub at: SystemTime,
}

/// Figures under way: the costs, and where each is from.
struct Costs {
    ghz: f64,
    when: String,
    sources: BTreeMap<String, Provenance>,
}

/// The machine, checked as one of a file is.
///
/// # Errors
/// A machine that cannot be, such as one with more CPUs than the lab has room for.
pub fn machine(shape: &Shape, measured: Measured) -> Result<Machine, MachineError> {
    let Measured { latencies, host, .. } = &measured;
    let clock = latencies.cycle.map(|ns| 1.0 / ns);
    let (ghz, when) = (clock.ns, format!("{}, Linux {}", date(measured.at), host.kernel_release));
    let mut costs = Costs { ghz, when: when.clone(), sources: BTreeMap::new() };
    let line = costs.line(shape, latencies);
    let mut sources = costs.sources;
    let mut say = |figures: &str, how: Provenance| sources.insert(figures.to_owned(), how);
    let as_shown = if measured.in_virtual_machine { ", as the hypervisor shows it" } else { "" };
    let told = Provenance::timed(format!("/sys/devices/system{as_shown}, {when}"));
    let mut shaped = vec!["sockets", "cores_per_socket", "threads_per_core", "nodes"];
    shaped.extend(["memory_mib", "distances"]);
    shaped.extend(["cache.l1_kib", "cache.l2_kib", "cache.llc_kib", "cache.llc_cores"]);
    let unsaid = "sysfs does not say; taken as false";
    say("cache.llc_victims", Provenance::stand_in(unsaid.into()));
    for (figure, note) in &shape.notes {
        shaped.retain(|name| name != figure);
        say(figure, Provenance::stand_in(note.clone()));
    }
    if shape.distances.is_empty() {
        shaped.retain(|name| *name != "distances");
    }
    say(&shaped.join(", "), told);
    let by = format!("{}{when}", measured_on(&host.cpu_model));
    say("name", Provenance::timed(by));
    let Timed { ns: mid, low, high } = clock;
    let multiplied = format!(
        "dependent multiplications of known length, {mid:.3} ({low:.3} to {high:.3}), {when}"
    );
    say("ghz", Provenance::timed(multiplied));
    let base = Machine::named(KERNEL_FIGURES_FROM)?;
    let kernel = format!("code of a kernel; taken from {KERNEL_FIGURES_FROM}");
    say("work", Provenance::stand_in(kernel));
    let machine = Machine {
        name: "this".into(),
        about: format!("measured {when}: {}", host.cpu_model),
        sockets: shape.sockets,
        nodes: shape.nodes,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        offline_cpus: 0,
        interleaved_nodes: 1,
        ghz: (ghz * 100.0).round() / 100.0,
        // The measured frequency is the one it runs at.
        boost_ghz: None,
        memory_mib: shape.memory_mib,
        low_memory_mib: None,
        distances: (!shape.distances.is_empty()).then(|| shape.distances.clone()),
        cache: shape.cache,
        line,
        content: None,
        far: None,
        work: base.work,
        disk: None,
        sources,
        without: Mechanisms::default(),
    };
    Machine::parse(&machine.to_toml())
}

/// How the source of the name of a machine begins that was measured on such a processor.
pub fn measured_on(cpu_model: &str) -> String {
    format!("measured by `zonal lab calibrate`: {cpu_model}, ")
}

/// The text of the file.
pub fn text(machine: &Machine) -> String {
    let source = machine.sources.get("name").map_or("", Provenance::how);
    format!(
        "# {source}\n# Measured, not published: costs are cycles of `ghz`.\n\n{}",
        machine.to_toml()
    )
}

impl Costs {
    fn line(&mut self, shape: &Shape, latencies: &Latencies) -> LineCosts {
        let Latencies { l1, l2, llc, dram, dram_remote, core, socket, remote, .. } = *latencies;
        let in_buffer = format!("a walk through {} MiB", latencies.memory_bytes >> 20);
        let in_doubt = latencies.memory_bytes < shape.cache.llc_kib * 2048;
        let memory = match in_doubt {
            true => format!("{in_buffer}, of which the last cache may hold a part"),
            false => in_buffer,
        };
        let alone = |what: &str| match shape.cpus.len() {
            1 => "one CPU".to_owned(),
            _ => format!("no usable pair of CPUs in {what}"),
        };
        let l1 = self.known("line.l1", l1, 1, "walks through half of L1");
        let l2 = self.known("line.l2", l2, l1, "walks through buffers between L1 and L2");
        let walk = match llc.is_some_and(|llc| llc.ns > NEARER_THAN_MEMORY * dram.ns) {
            true => {
                "a walk through a buffer larger than L2 (as long as memory: others use the cache)"
            }
            false => "a walk through a buffer larger than L2",
        };
        let llc = self.cycles("line.llc", llc, l2, walk, "L2 is the last cache", "line.l2");
        let pair = "a line passed to and fro between two CPUs";
        let same = alone("one last cache");
        let core = self.cycles("line.core", core, llc, pair, &same, "line.llc");
        let caches = alone("two last caches of a socket");
        let socket = self.cycles("line.socket", socket, core, pair, &caches, "line.core");
        let sockets = alone("two sockets");
        let remote = self.cycles("line.remote", remote, socket, pair, &sockets, "line.socket");
        let dram = self.known("line.dram", dram, l2, &memory);
        let nodes = alone("two nodes");
        let dram_remote =
            self.cycles("line.dram_remote", dram_remote, dram, &memory, &nodes, "line.dram");
        let locked = self.known("line.locked", latencies.locked, 1, "locked additions in a row");
        let serve = (SERVE_NS * self.ghz).round().max(1.0) as u64;
        let how = format!("taken as {SERVE_NS} ns, as on every preset");
        self.sources.insert("line.serve".into(), Provenance::stand_in(how));
        LineCosts { l1, l2, llc, core, socket, remote, dram, dram_remote, serve, locked }
    }

    /// A measured figure; a nearer place never takes longer.
    fn known(&mut self, figure: &str, timed: Timed, at_least: u64, how: &str) -> u64 {
        let cycles = (timed.ns * self.ghz).round().max(1.0) as u64;
        let raised = match cycles < at_least {
            true => format!(" ({cycles}, raised to what is nearer)"),
            false => String::new(),
        };
        let how = format!("{how}, {timed}{raised}, {}", self.when);
        self.sources.insert(figure.into(), Provenance::timed(how));
        cycles.max(at_least)
    }

    /// The same, or what stands in for it where it could not.
    fn cycles(
        &mut self,
        figure: &str,
        timed: Option<Timed>,
        at_least: u64,
        how: &str,
        why_not: &str,
        instead: &str,
    ) -> u64 {
        match timed {
            Some(timed) => self.known(figure, timed, at_least, how),
            None => {
                let how = format!("{why_not}; taken as {instead}");
                self.sources.insert(figure.into(), Provenance::stand_in(how));
                at_least
            }
        }
    }
}

/// A date as `2026-01-31`, in UTC. (Days to civil date after H. Hinnant, chrono-compatible
/// low-level date algorithms.)
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let days = (seconds / 86_400) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Caches;
    use crate::provenance::Origin;

    fn shape() -> Shape {
        Shape {
            sockets: 1,
            cores_per_socket: 1,
            threads_per_core: 1,
            nodes: 1,
            memory_mib: 1000,
            distances: vec![vec![10]],
            cache: Caches {
                l1_kib: 32,
                l2_kib: 1024,
                llc_kib: 8192,
                llc_cores: 1,
                llc_victims: false,
            },
            cpus: Vec::new(),
            notes: vec![("cache.l2_kib", "sysfs does not say; taken as 1024".into())],
        }
    }

    fn measured() -> Measured {
        let timed = |ns: f64| Timed { ns, low: 0.9 * ns, high: 1.2 * ns };
        let latencies = Latencies {
            cycle: timed(0.5),
            l1: timed(2.0),
            l2: timed(1.0),
            llc: None,
            dram: timed(80.0),
            memory_bytes: 8 << 20,
            dram_remote: None,
            core: None,
            socket: Some(timed(90.0)),
            remote: None,
            locked: timed(9.0),
        };
        let at = UNIX_EPOCH + Duration::from_secs(1_709_164_800);
        let host = Host { cpu_model: "A processor".into(), ..Host::read() };
        Measured { latencies, host, in_virtual_machine: true, at }
    }

    #[test]
    fn every_figure_says_whether_it_was_measured() {
        let machine = machine(&shape(), measured()).unwrap();
        for figure in machine.figures() {
            let source = figure.source.unwrap_or_else(|| panic!("{}: no source", figure.name));
            let timed = source.origin() == Origin::Measured;
            assert!(timed || source.how().contains("taken"), "{}: {source}", figure.name);
        }
        let shown = |how: &Provenance| how.how().contains("as the hypervisor shows it");
        assert!(machine.sources.values().any(shown));
        let line = &machine.line;
        assert_eq!((line.l1, line.l2, line.llc, line.core), (4, 4, 4, 4), "never nearer");
        assert_eq!((line.socket, line.remote), (180, 180));
        assert_eq!((line.dram, line.dram_remote, line.locked, line.serve), (160, 160, 18, 20));
        assert!(machine.sources["line.l2"].how().contains("raised"), "{:?}", machine.sources);
        assert!(
            machine.sources["line.dram"].how().contains("may hold a part"),
            "{:?}",
            machine.sources
        );
        let spread = machine.sources["line.dram"].how().contains("80.0 ns (72.0 to 96.0)");
        assert!(spread, "{:?}", machine.sources);
        assert!(machine.sources["ghz"].how().contains("2.000 (1.667 to 2.222)"));
        assert!(crate::calibrate::is_of(&machine, "A processor"));
        assert!(!crate::calibrate::is_of(&machine, "A processor of another kind"));
        assert!(!crate::calibrate::is_of(&Machine::named("broadwell-2017-88").unwrap(), ""));
        assert!(machine.about.contains("2024-02-29"), "{}", machine.about);
        assert_eq!(Machine::parse(&text(&machine)).unwrap(), machine);
    }

    #[test]
    fn dates_are_civil() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400));
        assert_eq!([day(0), day(59), day(11_016)], ["1970-01-01", "1970-03-01", "2000-02-29"]);
        assert_eq!([day(11_017), day(20_819)], ["2000-03-01", "2027-01-01"]);
    }
}
