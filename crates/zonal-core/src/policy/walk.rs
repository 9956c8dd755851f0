//! How zones are found: the order of zonelists (LB A.4, A.5), and what a walk over one does with a
//! zone that is below its watermark (LB D.3, G).

use core::fmt;

use crate::types::{NodeId, choice};

/// Zonelists (LB A.4, A.5).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ZonelistPolicy {
    /// How the first place among equally near nodes goes round.
    pub load: NodeLoad,
    /// Whether all zones of a node come before the next node.
    pub order: ZonelistOrder,
    /// The zonelist cache.
    pub cache: ZonelistCaching,
    /// Which full zones the zonelist cache records.
    pub cache_mark: CacheMark,
    /// What pages that are about to be written to are kept away from.
    pub dirty: DirtySpread,
    /// What a request does with nodes whose background reclaimer is at work.
    pub reclaiming: ReclaimingNodes,
    /// Nodes that only requests for them alone get memory of.
    pub private: PrivateNodes,
}

choice! {
    /// What the first walk of a request that may leave its node does with nodes whose background
    /// reclaimer is awake.
    pub enum ReclaimingNodes {
        /// It takes from them: up to 6.17.
        Used = "used",
        /// It passes them, and asks them if no other node has the block: merged in 6.18. Captures
        /// and recordings of 6.18 and later neither show nor contradict it: those of several nodes
        /// never reclaimed, those under reclaim have one node, where it does nothing.
        Passed = "passed",
    }
}

/// Nodes whose memory is on no zonelist but their own (RFC v4, February 2026): requests that may
/// use no other node get it, nobody else. Bit `n` for node `n`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrivateNodes(u64);

impl PrivateNodes {
    /// None.
    pub const NONE: PrivateNodes = PrivateNodes(0);

    /// Whether this node is one.
    pub const fn has(self, node: NodeId) -> bool {
        (node.0 as u32) < u64::BITS && self.0 >> node.0 & 1 == 1
    }

    pub(super) fn parse(text: &str) -> Option<PrivateNodes> {
        if text == "none" {
            return Some(PrivateNodes::NONE);
        }
        let nodes = text.split(',').try_fold(0, |nodes, part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let fits = first <= last && last < u64::BITS;
            fits.then(|| (first..=last).fold(nodes, |nodes, node| nodes | 1 << node))
        });
        nodes.map(PrivateNodes)
    }
}

/// As it is parsed: each node alone.
impl fmt::Display for PrivateNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == PrivateNodes::NONE {
            return f.write_str("none");
        }
        let separators = core::iter::once("").chain(core::iter::repeat(","));
        let mut nodes = (0..u64::BITS as u16).filter(|node| self.has(NodeId(*node)));
        separators.zip(&mut nodes).try_for_each(|(separator, node)| write!(f, "{separator}{node}"))
    }
}

choice! {
    /// What a request for a page of a file that is about to be written to (`__GFP_WRITE`) passes in
    /// its first walk (LB D.4 step 2). Linux 3.3 to 4.7 passed zones; no preset is of these.
    pub enum DirtySpread {
        /// Nothing: up to 3.2.
        Off = "off",
        /// Nodes with as much dirty as they may have: since 4.8.
        Node = "node",
    }
}

choice! {
    /// What a request does with zones that were found full lately (LB G.4 to G.6).
    pub enum ZonelistCaching {
        /// Since 4.4: it looks at every zone, every time.
        None = "none",
        /// 2.6.20 to 3.0: the cache comes into use after the first zone that failed, so that the
        /// first zone of the list is reclaimed on each request; and direct reclaim does not empty
        /// it.
        Original = "original" if "history",
        /// The first of the two fixes of 3.1 alone: in use before the first zone is reclaimed.
        FirstZone = "first_zone" if "history",
        /// The second fix alone: emptied when direct reclaim has freed pages.
        Reconsider = "reconsider" if "history",
        /// 3.1 to 4.3: both fixes.
        FirstZoneReconsider = "first_zone+reconsider" if "history",
    }
}

choice! {
    /// Which full zones the zonelist cache records (LB G.6).
    pub enum CacheMark {
        /// Up to 3.1: every full zone.
        Always = "always" if "history",
        /// Since 3.2: those found full by a walk that uses the cache.
        Active = "active",
    }
}

/// Node reclaim (LB G.1, G.2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NodeReclaimPolicy {
    /// The sysctl `zone_reclaim_mode` at the start.
    pub mode: NodeReclaimMode,
    /// Which zones are reclaimed rather than passed.
    pub distance: DistanceRule,
    /// The unit of reclaim.
    pub unit: ReclaimUnit,
    /// The sysctl `min_unmapped_ratio`: percent of the memory.
    pub min_unmapped_ratio: u32,
    /// The sysctl `min_slab_ratio`: percent of the memory.
    pub min_slab_ratio: u32,
}

/// Where `zone_reclaim_mode` comes from (LB G.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeReclaimMode {
    /// 1 on machines with a distance above this, else 0: up to 3.15. The limit was 20, since 3.0
    /// 30.
    Auto {
        /// The limit.
        above: u8,
    },
    /// A written value; 0 is off.
    Bits(u32),
}

/// How far from the request's preferred node a zone may be to be reclaimed (LB G.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DistanceRule {
    /// At any distance: up to 3.5.
    None,
    /// Nearer than this: 30 in 3.16 to 5.x.
    Below(u8),
    /// Limit of the distance: 30 in 3.6 to 3.15; today the machine's value, 30 or, on some, 32.
    AtMost(u8),
}

choice! {
    /// The unit of reclaim (LB G.1).
    pub enum ReclaimUnit {
        /// A zone: up to 4.7.
        Zone = "zone" if "history",
        /// A node: since 4.8.
        Node = "node",
    }
}

choice! {
    /// Whether a request's first walk keeps migratetypes apart (LB D.3 step 3).
    pub enum NoFragment {
        /// Never: up to 4.20.
        Off = "off",
        /// Where the preferred node has a DMA32 zone to fall back to: since 5.0.
        Dma32 = "dma32",
        /// Always: `vm.defrag_mode` (6.15).
        Always = "always",
    }
}

choice! {
    /// How the first place among equally near nodes goes round (LB A.5).
    pub enum NodeLoad {
        /// Up to 5.15: the load of a node put first becomes the number of places left in the list.
        /// Lists of machines that are not symmetric pile up on some nodes.
        Countdown = "countdown" if "history",
        /// Since 5.16: a node put first gets one more.
        Accumulated = "accumulated",
    }
}

choice! {
    /// The order of the zones of one list (LB A.4).
    pub enum ZonelistOrder {
        /// All zones of a node, then the next node's.
        Node = "node",
        /// 2.6.24 to 4.13, by request: all nodes' zones of the highest kind, then of the next one.
        /// Low zones last longer, and more pages come from far away.
        Zone = "zone" if "history",
    }
}

#[cfg(feature = "history")]
impl ZonelistCaching {
    /// Whether direct reclaim that freed pages empties the cache (LB G.6, patch B).
    pub const fn reconsiders(self) -> bool {
        matches!(self, ZonelistCaching::Reconsider | ZonelistCaching::FirstZoneReconsider)
    }
}

impl NodeReclaimMode {
    /// The mode as it prints: `auto:N`, or bits up to `bits_max`.
    pub fn parse(text: &str, bits_max: u32) -> Option<NodeReclaimMode> {
        match text.strip_prefix("auto:") {
            Some(above) => Some(NodeReclaimMode::Auto { above: parse_distance(above)? }),
            None => {
                let bits = text.parse().ok().filter(|bits| *bits <= bits_max)?;
                Some(NodeReclaimMode::Bits(bits))
            }
        }
    }
}

impl fmt::Display for NodeReclaimMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeReclaimMode::Auto { above } => write!(f, "auto:{above}"),
            NodeReclaimMode::Bits(bits) => write!(f, "{bits}"),
        }
    }
}

impl DistanceRule {
    /// The rule as it prints: `none`, `<N` or `<=N`.
    pub fn parse(text: &str) -> Option<DistanceRule> {
        if text == "none" {
            return Some(DistanceRule::None);
        }
        let limit = text.strip_prefix('<')?;
        match limit.strip_prefix('=') {
            Some(limit) => parse_distance(limit).map(DistanceRule::AtMost),
            None => parse_distance(limit).map(DistanceRule::Below),
        }
    }

    /// Whether a zone at this distance from the preferred node is reclaimed.
    pub const fn allows(self, distance: u8) -> bool {
        match self {
            DistanceRule::None => true,
            DistanceRule::Below(limit) => distance < limit,
            DistanceRule::AtMost(limit) => distance <= limit,
        }
    }
}

impl fmt::Display for DistanceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DistanceRule::None => f.write_str("none"),
            DistanceRule::Below(limit) => write!(f, "<{limit}"),
            DistanceRule::AtMost(limit) => write!(f, "<={limit}"),
        }
    }
}

/// A distance between nodes: a node is at 10 from itself (LB A.3).
fn parse_distance(text: &str) -> Option<u8> {
    text.parse().ok().filter(|distance| *distance >= 10)
}

impl ZonelistPolicy {
    /// As Linux had it from 5.16 to 6.17.
    pub const LINUX: ZonelistPolicy = ZonelistPolicy {
        load: NodeLoad::Accumulated,
        order: ZonelistOrder::Node,
        cache: ZonelistCaching::None,
        cache_mark: CacheMark::Active,
        dirty: DirtySpread::Node,
        reclaiming: ReclaimingNodes::Used,
        private: PrivateNodes::NONE,
    };
}

impl NodeReclaimPolicy {
    /// As Linux 6.12 has it: off, by nodes, up to `RECLAIM_DISTANCE`.
    pub const LINUX: NodeReclaimPolicy = NodeReclaimPolicy {
        mode: NodeReclaimMode::Bits(0),
        distance: DistanceRule::AtMost(30),
        unit: ReclaimUnit::Node,
        min_unmapped_ratio: 1,
        min_slab_ratio: 5,
    };
}
