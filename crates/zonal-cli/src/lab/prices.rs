//! What moving a block costs on this host: stored by `zonal lab calibrate`, kept in recordings.
//!
//! The file says which processor and which kernel it is of: an image of a machine may start on
//! another one, and a kernel may be replaced.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use zonal::sys::machine::Machine as Host;
use zonal_lab::calibrate;
use zonal_lab::machine::Machine;
use zonal_replay::advise::HoldCost;
use zonal_trace::HoldPrices;

use super::places;
use crate::output;

const SCHEMA_VERSION: u32 = 1;

/// What a block moved costs, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveNs {
    /// The median of the turns.
    pub mid: f64,
    /// An interval that holds the median in 98 of 100 such measurements.
    pub low: f64,
    /// Its other end.
    pub high: f64,
}

/// Both measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// By one CPU.
    pub alone: MoveNs,
    /// By several at once; `None`: there is one, or the host was too busy.
    pub together: Option<(usize, MoveNs)>,
}

impl MoveNs {
    /// Whether the interval is narrow enough for a price: within a factor of 1.5 of the middle.
    pub fn is_clear(&self) -> bool {
        let MoveNs { mid, low, high } = *self;
        low > 0.0 && mid <= 1.5 * low && high <= 1.5 * mid
    }
}

impl Moves {
    /// What stands for a load that is not known: between one of one CPU and one of several, in ns.
    pub fn block_ns(&self) -> f64 {
        let of_several = self.together.map_or(self.alone.mid, |(_, of_several)| of_several.mid);
        self.alone.mid.midpoint(of_several)
    }
}

impl std::fmt::Display for MoveNs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MoveNs { mid, low, high } = self;
        write!(f, "{mid:.1} ns ({low:.1} to {high:.1})")
    }
}

impl std::fmt::Display for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a block between a zone and a list takes {} on one CPU", self.alone)?;
        let Some((cpus, together)) = &self.together else { return Ok(()) };
        write!(f, ", {together} on {cpus} at once")
    }
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    schema_version: u32,
    processor: String,
    kernel_release: String,
    /// What was measured.
    moves: Moves,
    /// What recordings keep of it.
    prices: HoldPrices,
}

/// Whose prices those of a file are.
#[derive(Clone, Debug, PartialEq)]
enum Whose {
    Ours,
    /// Of this processor under another kernel, in words: other costs of the machine still hold.
    OtherKernel(String),
    /// Of another processor, in words.
    OtherMachine(String),
}

impl Stored {
    /// What was measured on this host, whose other costs are those of `machine`.
    pub fn new(machine: &Machine, moves: Moves) -> Stored {
        let host = Host::read();
        let cost = HoldCost {
            page_ns: moves.block_ns(),
            is_block_measured: true,
            ..HoldCost::of_machine(machine, source(machine))
        };
        Stored {
            schema_version: SCHEMA_VERSION,
            processor: host.cpu_model,
            kernel_release: host.kernel_release,
            moves,
            prices: cost.to_prices(),
        }
    }

    /// Stores it for recordings that are made later.
    ///
    /// # Errors
    /// If there is no place, or it cannot be written.
    pub fn store(&self) -> anyhow::Result<PathBuf> {
        let file = places::prices_file().context("there is no place to store it")?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        output::Target::new(&file)?.write(&text)?;
        Ok(file)
    }

    /// Reads the text of a file.
    fn parse(text: &str) -> anyhow::Result<Stored> {
        let stored: Stored = serde_json::from_str(text)?;
        let version = stored.schema_version;
        ensure!(version == SCHEMA_VERSION, "schema_version is {version}, {SCHEMA_VERSION} is read");
        Ok(stored)
    }

    fn whose(&self, host: &Host) -> Whose {
        let Stored { processor, kernel_release, .. } = self;
        if *processor != host.cpu_model {
            return Whose::OtherMachine(format!("{processor}, and this is {}", host.cpu_model));
        }
        if *kernel_release != host.kernel_release {
            let this = &host.kernel_release;
            return Whose::OtherKernel(format!("Linux {kernel_release}, and this is {this}"));
        }
        Whose::Ours
    }
}

fn source(machine: &Machine) -> String {
    format!("`zonal lab calibrate`: {}", machine.about)
}

/// The prices of this host, as far as `zonal lab calibrate` measured them. What is left out is said
/// on stderr.
pub fn of_this_host() -> Option<HoldPrices> {
    let again = "`zonal lab calibrate`, as root, measures them";
    let left_out = |of: &dyn std::fmt::Display| {
        output::note(&format!("the prices of this host are left out: {of}"));
    };
    if let Some(file) = places::prices_file().filter(|file| file.is_file()) {
        let read = fs::read_to_string(&file).map_err(anyhow::Error::from);
        let shown = file.display();
        match read.and_then(|text| Stored::parse(&text)) {
            Ok(stored) => match stored.whose(&Host::read()) {
                Whose::Ours => return Some(stored.prices),
                Whose::OtherKernel(of) => left_out(&format!("{shown} is of {of}: {again}")),
                Whose::OtherMachine(of) => {
                    left_out(&format!("{shown} is of {of}: {again}"));
                    // What lies beside it came along.
                    return None;
                }
            },
            Err(error) => left_out(&format!("{shown}: {error}: {again}")),
        }
    }
    let file = places::measured_file().filter(|file| file.is_file())?;
    match Machine::load(&file) {
        Ok(machine) if !calibrate::is_of(&machine, &Host::read().cpu_model) => {
            let shown = file.display();
            left_out(&format!("{shown} was not measured on this processor: {again}"));
            None
        }
        Ok(machine) => Some(HoldCost::of_machine(&machine, source(&machine)).to_prices()),
        Err(error) => {
            left_out(&error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let of = |mid: f64| MoveNs { mid, low: mid - 1.0, high: mid + 1.0 };
        let moves = Moves { alone: of(50.0), together: Some((2, of(70.0))) };
        Stored::new(&Machine::named("broadwell-2017-88").unwrap(), moves)
    }

    #[test]
    fn what_is_stored_is_read_and_has_the_measured_price_of_a_block() {
        let stored = stored();
        assert_eq!((stored.prices.block_ps, stored.prices.is_block_measured), (60_000, true));
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(Stored::parse(&text).unwrap(), stored);
        let later = text.replace("\"schema_version\":1", "\"schema_version\":2");
        assert!(Stored::parse(&later).unwrap_err().to_string().contains("schema_version is 2"));
        assert!(Stored::parse("{}").is_err());
    }

    #[test]
    fn prices_are_of_one_processor_and_one_kernel() {
        let (stored, host) = (stored(), Host::read());
        assert_eq!(stored.whose(&host), Whose::Ours);
        let newer = Host { kernel_release: "99.1".to_owned(), ..host.clone() };
        let Whose::OtherKernel(said) = stored.whose(&newer) else { panic!("it is another kernel") };
        assert!(said.contains(&host.kernel_release) && said.contains("99.1"), "{said}");
        let moved = Host { cpu_model: "Another CPU".to_owned(), ..host };
        let Whose::OtherMachine(said) = stored.whose(&moved) else { panic!("it is another one") };
        assert!(said.contains("Another CPU"), "{said}");
    }
}
