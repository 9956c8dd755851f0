//! One sample of `/proc/zoneinfo`.

use zonal_text::zoneinfo::Pageset;

use crate::fields;

/// Free pages, watermarks and lists as one read of `/proc/zoneinfo` during the trace told them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolledState {
    /// When the read began.
    pub t_begin_ns: u64,
    /// When it ended: the state is of some time between.
    pub t_end_ns: u64,
    /// The populated zones, in the order of [`zones`](crate::MachineDescription::zones) of the
    /// machine.
    pub zones: Vec<PolledZone>,
}

/// A zone in a [`PolledState`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolledZone {
    /// The node.
    pub node: u32,
    /// The zone's kind.
    pub kind: String,
    /// Pages on the free lists.
    pub free: u64,
    /// Watermark.
    pub min: u64,
    /// Watermark.
    pub low: u64,
    /// Watermark.
    pub high: u64,
    /// Pages by which a boost lifts the watermarks for now; `None`: no recorder before wrote it.
    pub boost: Option<u64>,
    /// Pages that the allocator has.
    pub managed: u64,
    /// The per-CPU lists.
    pub pagesets: Vec<Pageset>,
}

/// Node and kind of `Normal` or `1/Normal`.
pub(crate) fn zone_of(name: &str) -> Option<(u32, &str)> {
    match name.split_once('/') {
        Some((node, kind)) => Some((u32::try_from(fields::decimal(node.as_bytes())?).ok()?, kind)),
        None => Some((0, name)),
    }
}
