//! A text of any kind.

use std::fmt;

use zonal::text::{Layout, State};
use zonal_core::types::NodeId;
use zonal_text::{buddyinfo, meminfo, pagetypeinfo, vmstat, zoneinfo};

/// Which text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// `/proc/zoneinfo`.
    Zoneinfo,
    /// `/proc/buddyinfo`.
    Buddyinfo,
    /// `/proc/pagetypeinfo`.
    Pagetypeinfo,
    /// `/proc/vmstat`, or `vmstat` of a node.
    Vmstat,
    /// `numastat` of each node.
    Numastat,
    /// `meminfo` of each node.
    Meminfo,
}

/// A text, read or made.
#[derive(Debug)]
pub enum Document {
    /// `/proc/zoneinfo`.
    Zoneinfo(zoneinfo::Document),
    /// `/proc/buddyinfo`.
    Buddyinfo(buddyinfo::Document),
    /// `/proc/pagetypeinfo`.
    Pagetypeinfo(pagetypeinfo::Document),
    /// Names and values: of the machine, or of one node.
    Counters(vmstat::Document),
    /// Names and values of several nodes, in a table as the program `numastat` prints it.
    CountersByNode(Vec<(NodeId, vmstat::Document)>),
    /// Amounts of memory, node by node.
    Amounts(Vec<meminfo::Document>),
}

/// Columns of a name, and of each node, in the table of counters by node.
const COLUMN: usize = 16;

impl Text {
    /// The name of the text, and of the command.
    pub fn name(self) -> &'static str {
        match self {
            Text::Zoneinfo => "zoneinfo",
            Text::Buddyinfo => "buddyinfo",
            Text::Pagetypeinfo => "pagetypeinfo",
            Text::Vmstat => "vmstat",
            Text::Numastat => "numastat",
            Text::Meminfo => "meminfo",
        }
    }
}

impl Document {
    /// Reads a text.
    ///
    /// # Errors
    /// Names the line that does not belong to this text.
    pub fn parse(text: Text, bytes: &str) -> Result<Document, zonal_text::Error> {
        Ok(match text {
            Text::Zoneinfo => Document::Zoneinfo(bytes.parse()?),
            Text::Buddyinfo => Document::Buddyinfo(bytes.parse()?),
            Text::Pagetypeinfo => Document::Pagetypeinfo(bytes.parse()?),
            Text::Vmstat | Text::Numastat => Document::Counters(bytes.parse()?),
            Text::Meminfo => Document::Amounts(vec![bytes.parse()?]),
        })
    }

    /// The text of a state; of one node only, if there is one per node and `node` says which.
    pub fn of(text: Text, state: &State, node: Option<NodeId>, layout: Layout) -> Document {
        match (text, node) {
            (Text::Zoneinfo, _) => Document::Zoneinfo(state.zoneinfo(layout)),
            (Text::Buddyinfo, _) => Document::Buddyinfo(state.buddyinfo()),
            (Text::Pagetypeinfo, _) => Document::Pagetypeinfo(state.pagetypeinfo()),
            (Text::Vmstat, None) => Document::Counters(state.vmstat(layout)),
            (Text::Vmstat, Some(node)) => Document::Counters(state.node_vmstat(node, layout)),
            (Text::Numastat, Some(node)) => Document::Counters(state.numastat(node)),
            (Text::Numastat, None) => Document::CountersByNode(
                state.nodes().map(|node| (node, state.numastat(node))).collect(),
            ),
            (Text::Meminfo, Some(node)) => {
                Document::Amounts(vec![state.node_meminfo(node, layout)])
            }
            (Text::Meminfo, None) => Document::Amounts(
                state.nodes().map(|node| state.node_meminfo(node, layout)).collect(),
            ),
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Document::Zoneinfo(document) => document.fmt(f),
            Document::Buddyinfo(document) => document.fmt(f),
            Document::Pagetypeinfo(document) => document.fmt(f),
            Document::Counters(document) => document.fmt(f),
            Document::CountersByNode(nodes) => table(f, nodes),
            Document::Amounts(nodes) => nodes.iter().try_for_each(|node| node.fmt(f)),
        }
    }
}

fn table(f: &mut fmt::Formatter<'_>, nodes: &[(NodeId, vmstat::Document)]) -> fmt::Result {
    write!(f, "{:COLUMN$}", "")?;
    for (node, _) in nodes {
        write!(f, "{:>COLUMN$}", format!("node{}", node.0))?;
    }
    writeln!(f)?;
    let names = nodes.first().map_or(&[][..], |(_, first)| &first.stats);
    for (row, name) in names.iter().enumerate() {
        write!(f, "{:<COLUMN$}", name.name)?;
        for (_, counters) in nodes {
            write!(f, "{:>COLUMN$}", counters.stats[row].value)?;
        }
        writeln!(f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_text::Stat;

    #[test]
    fn counters_of_nodes_stand_side_by_side() {
        let counters = |value| {
            let stats = vec![Stat::new("numa_hit", value), Stat::new("local_node", 2)];
            vmstat::Document { stats }
        };
        let nodes = vec![(NodeId(0), counters(17)), (NodeId(1), counters(5_000_000))];
        assert_eq!(
            Document::CountersByNode(nodes).to_string(),
            "                           node0           node1
numa_hit                      17         5000000
local_node                     2               2
"
        );
    }
}
