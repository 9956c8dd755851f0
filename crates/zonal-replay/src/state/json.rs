//! A text as JSON.
//!
//! Every object has `schema_version`, `text` (which text), `of` (the file or the recording) and
//! `policy` (null for a file). Names of counters are those of the text, in its order.

use serde::{Serialize, Serializer};
use zonal_core::types::NodeId;
use zonal_text::zoneinfo::{PagesetInfo, ZoneInfo};
use zonal_text::{Stat, buddyinfo, meminfo, pagetypeinfo, vmstat};

use super::document::{Document, Text};

/// Counts changes that break readers.
const SCHEMA_VERSION: u32 = 1;

/// Where a text is from.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// The file, or the name of the recording.
    pub of: String,
    /// The policy of the replay.
    pub policy: Option<&'static str>,
}

/// The whole object.
#[derive(Serialize)]
struct Shown<'a> {
    schema_version: u32,
    text: &'static str,
    #[serde(flatten)]
    origin: &'a Origin,
    #[serde(flatten)]
    content: Content<'a>,
}

/// What differs from text to text.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Zoneinfo { layout: &'static str, zones: Vec<Zone<'a>> },
    Buddyinfo { zones: Vec<Blocks<'a>> },
    Pagetypeinfo { nodes: Vec<Types<'a>> },
    Counters { counters: Stats<'a> },
    CountersByNode { nodes: Vec<NodeCounters<'a>> },
    Amounts { nodes: Vec<Amounts<'a>> },
}

/// Names and values as an object, in order.
struct Stats<'a>(&'a [Stat]);

impl Serialize for Stats<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|stat| (&stat.name, stat.value)))
    }
}

#[derive(Serialize)]
struct Zone<'a> {
    node: u32,
    zone: &'a str,
    populated: bool,
    node_stats: Option<Stats<'a>>,
    pages: Stats<'a>,
    protection: &'a [i64],
    items: Stats<'a>,
    pagesets: Vec<Pageset<'a>>,
    tail: Stats<'a>,
}

#[derive(Serialize)]
struct Pageset<'a> {
    cpu: u32,
    #[serde(flatten)]
    fields: Stats<'a>,
    stat_threshold: Option<u64>,
}

#[derive(Serialize)]
struct Blocks<'a> {
    node: u32,
    zone: &'a str,
    free_blocks: &'a [u64],
}

#[derive(Serialize)]
struct Types<'a> {
    pageblock_order: u64,
    pages_per_block: u64,
    migratetypes: &'a [String],
    free: Vec<FreeRow<'a>>,
    blocks: Vec<BlocksRow<'a>>,
    mixed_blocks: Option<Vec<BlocksRow<'a>>>,
}

#[derive(Serialize)]
struct FreeRow<'a> {
    node: u32,
    zone: &'a str,
    migratetype: &'a str,
    free_blocks: Vec<u64>,
    /// Orders with at least as many blocks as printed.
    capped: Vec<usize>,
}

#[derive(Serialize)]
struct BlocksRow<'a> {
    node: u32,
    zone: &'a str,
    blocks: &'a [u64],
}

#[derive(Serialize)]
struct NodeCounters<'a> {
    node: u16,
    counters: Stats<'a>,
}

#[derive(Serialize)]
struct Amounts<'a> {
    node: Option<u32>,
    kib: Named<'a>,
    huge_pages: Named<'a>,
}

/// Amounts of one unit.
struct Named<'a> {
    amounts: &'a [meminfo::Amount],
    in_kib: bool,
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let amounts = self.amounts.iter().filter(|amount| amount.in_kib == self.in_kib);
        serializer.collect_map(amounts.map(|amount| (&amount.name, amount.value)))
    }
}

/// A text as it is serialised.
pub fn json<'a>(text: Text, document: &'a Document, origin: &'a Origin) -> impl Serialize + 'a {
    let content = match document {
        Document::Zoneinfo(document) => Content::Zoneinfo {
            layout: document.layout.release(),
            zones: document.zones.iter().map(zone).collect(),
        },
        Document::Buddyinfo(document) => {
            Content::Buddyinfo { zones: document.zones.iter().map(blocks).collect() }
        }
        Document::Pagetypeinfo(document) => {
            Content::Pagetypeinfo { nodes: document.nodes.iter().map(types).collect() }
        }
        Document::Counters(document) => Content::Counters { counters: Stats(&document.stats) },
        Document::CountersByNode(nodes) => {
            Content::CountersByNode { nodes: nodes.iter().map(node_counters).collect() }
        }
        Document::Amounts(nodes) => Content::Amounts { nodes: nodes.iter().map(amounts).collect() },
    };
    Shown { schema_version: SCHEMA_VERSION, text: text.name(), origin, content }
}

fn zone(info: &ZoneInfo) -> Zone<'_> {
    Zone {
        node: info.node,
        zone: &info.name,
        populated: info.is_populated(),
        node_stats: info.node_stats.as_deref().map(Stats),
        pages: Stats(&info.pages),
        protection: &info.protection,
        items: Stats(&info.items),
        pagesets: info.pagesets.iter().flatten().map(pageset).collect(),
        tail: Stats(&info.tail),
    }
}

fn pageset(info: &PagesetInfo) -> Pageset<'_> {
    Pageset { cpu: info.cpu, fields: Stats(&info.fields), stat_threshold: info.stat_threshold }
}

fn blocks(info: &buddyinfo::BuddyInfo) -> Blocks<'_> {
    Blocks { node: info.node, zone: &info.zone, free_blocks: &info.free_blocks }
}

fn types(info: &pagetypeinfo::PageTypeInfo) -> Types<'_> {
    Types {
        pageblock_order: info.pageblock_order,
        pages_per_block: info.pages_per_block,
        migratetypes: &info.migratetypes,
        free: info.free.iter().map(free_row).collect(),
        blocks: info.blocks.iter().map(blocks_row).collect(),
        mixed_blocks: info.mixed_blocks.as_ref().map(|rows| rows.iter().map(blocks_row).collect()),
    }
}

fn free_row(row: &pagetypeinfo::FreeRow) -> FreeRow<'_> {
    FreeRow {
        node: row.node,
        zone: &row.zone,
        migratetype: &row.migratetype,
        free_blocks: row.counts.iter().map(|count| count.blocks).collect(),
        capped: (0..row.counts.len()).filter(|order| row.counts[*order].capped).collect(),
    }
}

fn blocks_row(row: &pagetypeinfo::BlocksRow) -> BlocksRow<'_> {
    BlocksRow { node: row.node, zone: &row.zone, blocks: &row.counts }
}

fn node_counters((node, counters): &(NodeId, vmstat::Document)) -> NodeCounters<'_> {
    NodeCounters { node: node.0, counters: Stats(&counters.stats) }
}

fn amounts(document: &meminfo::Document) -> Amounts<'_> {
    let named = |in_kib| Named { amounts: &document.amounts, in_kib };
    Amounts { node: document.node, kib: named(true), huge_pages: named(false) }
}
