//! Kernels that differ from every policy in what they do under the zone lock, in when they refresh
//! their statistics, or in how many zones a node has: changes that were proposed, as switches.
//!
//! Written as words between commas: `chosen-before,zones=4`.

use std::fmt;
use std::str::FromStr;

use crate::LabError;
use crate::cost::lock::BLOCK_LINES;
use crate::machine::Machine;
use crate::mechanism::{Mechanism, Mechanisms};
use crate::provenance::{Provenance, given};

given! {
    /// Parts of what moving a block takes: its choice, its check, and its place in the buddy.
    pub PARTS_OF_A_BLOCK: u64 = 3,
        Provenance::estimated("choosing, checking and merging a block are about as long");
    /// One of so many buddies that are looked at is free, and merged with.
    pub LOOKS_A_MERGE: u64 = 2,
        Provenance::estimated(
            "where as many blocks are freed as taken, each block is merged once on average, and \
             looks at two buddies",
        );
}

/// When the CPUs refresh their statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refresh {
    /// Each at a time of its own, by chance.
    #[default]
    Scattered,
    /// All in the same moment.
    Aligned,
    /// Spread evenly over the interval.
    Staggered,
}

/// What differs. The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Blocks that are freed in bulk are chosen before the zone lock is taken.
    pub chosen_before: bool,
    /// And the structures of their buddies are fetched before it, for reading: those of half of
    /// them, which are merged with, must still be taken from others' caches.
    pub prefetched: bool,
    /// Single pages are not merged when they are freed, and are taken as they are.
    pub singles_apart: bool,
    /// Lines that come for a block in a hold, in percent of `cost::lock::BLOCK_LINES`; 0: all.
    pub block_lines: u32,
    /// When the CPUs refresh their statistics.
    pub refresh: Refresh,
    /// Zones of a type that a node has; 0 and 1: one. CPUs prefer theirs, by their number.
    pub zones: u32,
    /// Mechanisms of the model that are switched off.
    pub without: Mechanisms,
}

const EXPECTED: &str = "expected chosen-before, prefetched, singles-apart, refresh-aligned, \
                        refresh-staggered, block-lines=1 to 1000 (percent), zones=2 to 8 or \
                        no-NAME of a mechanism (`zonal lab ablation --list`), with commas between \
                        them";

impl Variant {
    /// Cycles until the lines of a block have come; `line`: until one has.
    pub fn lines_of_block(&self, line: u64) -> u64 {
        let percent = if self.block_lines == 0 { 100 } else { self.block_lines };
        BLOCK_LINES * line * u64::from(percent) / 100
    }

    /// The machine as it is with that many zones: a node for each.
    ///
    /// # Errors
    /// A machine that cannot be divided so.
    pub fn machine(&self, machine: Machine) -> Result<Machine, LabError> {
        if self.zones <= 1 {
            return Ok(Machine { without: self.without, ..machine });
        }
        let mut divided = machine;
        divided.nodes *= self.zones;
        divided.interleaved_nodes = self.zones;
        divided.memory_mib /= u64::from(self.zones);
        divided.distances = None;
        // The memory of a node delivers what it did, to all of its zones.
        if let Some(content) = &mut divided.content {
            content.gb_s = content.gb_s.map(|gb_s| gb_s / f64::from(self.zones));
        }
        Ok(Machine { without: self.without, ..Machine::parse(&divided.to_toml())? })
    }
}

impl FromStr for Variant {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Variant, LabError> {
        let mut variant = Variant::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word {
                "chosen-before" => variant.chosen_before = true,
                "prefetched" => (variant.chosen_before, variant.prefetched) = (true, true),
                "singles-apart" => variant.singles_apart = true,
                "refresh-aligned" => variant.refresh = Refresh::Aligned,
                "refresh-staggered" => variant.refresh = Refresh::Staggered,
                _ => {
                    let wrong = || LabError::Plan(format!("variant: '{word}'; {EXPECTED}"));
                    if let Some(off) = word.strip_prefix("no-").and_then(Mechanism::named) {
                        variant.without = variant.without.and(off);
                        continue;
                    }
                    let (name, number) = word.split_once('=').ok_or_else(wrong)?;
                    let number: u32 = number.parse().map_err(|_| wrong())?;
                    match name {
                        "zones" if (2..=8).contains(&number) => variant.zones = number,
                        "block-lines" if (1..=1000).contains(&number) => {
                            variant.block_lines = number;
                        }
                        _ => return Err(wrong()),
                    }
                }
            }
        }
        Ok(variant)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zones = format!("zones={}", self.zones);
        let lines = format!("block-lines={}", self.block_lines);
        let without = self.without.to_string();
        let words = [
            (self.chosen_before && !self.prefetched, "chosen-before"),
            (self.prefetched, "prefetched"),
            (self.singles_apart, "singles-apart"),
            (self.refresh == Refresh::Aligned, "refresh-aligned"),
            (self.refresh == Refresh::Staggered, "refresh-staggered"),
            (self.block_lines > 0, &lines),
            (self.zones > 1, &zones),
            (!without.is_empty(), &without),
        ];
        let said: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
        f.write_str(&said.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_read_as_it_is_printed_and_nonsense_is_refused_with_what_there_is() {
        for text in [
            "",
            "chosen-before",
            "prefetched,zones=4",
            "singles-apart,block-lines=150",
            "no-hand-over",
        ] {
            assert_eq!(text.parse::<Variant>().unwrap().to_string(), text);
        }
        for text in ["nonsense", "no-gravity", "zones=1", "zones=99", "zones=x"] {
            let error = text.parse::<Variant>().unwrap_err().to_string();
            assert!(error.contains("expected chosen-before"), "{text}: {error}");
        }
    }

    #[test]
    fn zones_of_a_node_share_its_memory_and_its_cpus() {
        let machine = Machine::named("sapphire-2023-224").unwrap();
        let variant: Variant = "zones=4".parse().unwrap();
        let divided = variant.machine(machine.clone()).unwrap();
        assert_eq!((divided.nodes(), divided.cpus()), (8, 224));
        assert_eq!(divided.memory_mib * 4, machine.memory_mib);
        let odd = Machine::named("xeon-2007-8@1").unwrap();
        assert!(variant.machine(odd).is_err());
    }
}
