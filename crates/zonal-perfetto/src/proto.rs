//! The messages of a Perfetto trace that are read and written here, with the numbers of the
//! published definitions (`perfetto_trace.proto`). Readers skip all other fields.
//!
//! Texts of others are bytes here: the name of a thread is cut where the kernel's 15 bytes end, in
//! the middle of a character too.
//!
//! `cargo xtask perfetto` decodes what [`write`](crate::write) made by the definitions themselves,
//! and reads what they encoded.

use prost::{Message, Oneof};

/// What a `TracePacket` says about its sequence: earlier interned data no longer counts.
pub(crate) const CLEARED: u32 = 1;
/// What it says when its data refers to interned data.
pub(crate) const NEEDS_STATE: u32 = 2;
/// `TrackEvent.Type`.
pub(crate) const INSTANT: i32 = 3;
/// `TrackEvent.Type`.
pub(crate) const COUNTER: i32 = 4;
/// `CounterDescriptor.Unit`.
pub(crate) const UNIT_TIME_NS: i32 = 1;
/// `CounterDescriptor.Unit`.
pub(crate) const UNIT_COUNT: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(bool, optional, tag = "41")]
    pub(crate) incremental_state_cleared: Option<bool>,
    #[prost(message, optional, tag = "1")]
    pub(crate) ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    pub(crate) process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "45")]
    pub(crate) system_info: Option<SystemInfo>,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub(crate) compressed_packets: Option<Vec<u8>>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// The same packet without the events of its bundle, for the first pass.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PacketHead {
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    #[prost(bool, optional, tag = "41")]
    pub(crate) incremental_state_cleared: Option<bool>,
    #[prost(message, optional, tag = "1")]
    pub(crate) ftrace_events: Option<BundleHead>,
    #[prost(message, optional, tag = "2")]
    pub(crate) process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "45")]
    pub(crate) system_info: Option<SystemInfo>,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub(crate) compressed_packets: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BundleHead {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event: Vec<Counted>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) lost_events: Option<bool>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) ftrace_clock: Option<i32>,
}

/// An event that is only counted: a list of them takes no memory.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Counted {}

/// A packet with nothing but its bundle, for the second pass.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BundlePacket {
    #[prost(message, optional, tag = "1")]
    pub(crate) ftrace_events: Option<FtraceEventBundle>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event: Vec<FtraceEvent>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) lost_events: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pid: Option<u32>,
    #[prost(
        oneof = "Ftrace",
        tags = "3, 46, 47, 48, 49, 58, 99, 103, 239, 307, 308, 309, 310, 311, 312, 327"
    )]
    pub(crate) event: Option<Ftrace>,
}

/// The events of the kernel that zonal knows.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Ftrace {
    #[prost(message, tag = "3")]
    Print(Print),
    #[prost(message, tag = "46")]
    ReclaimBegin(ReclaimBegin),
    #[prost(message, tag = "47")]
    ReclaimEnd(ReclaimEnd),
    #[prost(message, tag = "48")]
    KswapdWake(KswapdWake),
    #[prost(message, tag = "49")]
    KswapdSleep(KswapdSleep),
    #[prost(message, tag = "58")]
    WorkStart(WorkStart),
    #[prost(message, tag = "99")]
    CompactionBegin(Compaction),
    #[prost(message, tag = "103")]
    CompactionEnd(Compaction),
    #[prost(message, tag = "239")]
    Fork(Fork),
    #[prost(message, tag = "307")]
    Alloc(Alloc),
    #[prost(message, tag = "308")]
    Extfrag(Extfrag),
    #[prost(message, tag = "309")]
    ZoneLocked(Moved),
    #[prost(message, tag = "310")]
    Free(Free),
    #[prost(message, tag = "311")]
    FreeBatched(FreeBatched),
    #[prost(message, tag = "312")]
    PcpuDrain(Moved),
    /// A [`Generic`], encoded: one of a few bytes may have millions of fields.
    #[prost(bytes = "vec", tag = "327")]
    Generic(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Print {
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) buf: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReclaimBegin {
    #[prost(int32, optional, tag = "1")]
    pub(crate) order: Option<i32>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) gfp_flags: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReclaimEnd {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) nr_reclaimed: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KswapdWake {
    #[prost(int32, optional, tag = "1")]
    pub(crate) nid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) order: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KswapdSleep {
    #[prost(int32, optional, tag = "1")]
    pub(crate) nid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WorkStart {
    /// The address, or the number of an interned kernel symbol.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) function: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compaction {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) zone_start: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    pub(crate) sync: Option<u32>,
    /// Of `mm_compaction_end` alone.
    #[prost(int32, optional, tag = "6")]
    pub(crate) status: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Fork {
    #[prost(int32, optional, tag = "4")]
    pub(crate) child_pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Alloc {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) gfp_flags: Option<u32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) migratetype: Option<i32>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) order: Option<u32>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) pfn: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Extfrag {
    #[prost(int32, optional, tag = "1")]
    pub(crate) alloc_migratetype: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) alloc_order: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) fallback_migratetype: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) fallback_order: Option<i32>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) change_ownership: Option<i32>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) pfn: Option<u64>,
}

/// `mm_page_alloc_zone_locked` and `mm_page_pcpu_drain`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Moved {
    #[prost(int32, optional, tag = "1")]
    pub(crate) migratetype: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) order: Option<u32>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) pfn: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Free {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) order: Option<u32>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) pfn: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FreeBatched {
    #[prost(uint64, optional, tag = "3")]
    pub(crate) pfn: Option<u64>,
}

/// An event for which Perfetto has no message, such as `contention_begin`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Generic {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) event_name: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) field: Vec<GenericField>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GenericField {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) name: Option<Vec<u8>>,
    #[prost(oneof = "GenericValue", tags = "3, 4, 5")]
    pub(crate) value: Option<GenericValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum GenericValue {
    #[prost(bytes = "vec", tag = "3")]
    Str(Vec<u8>),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(uint64, tag = "5")]
    Uint(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "26")]
    pub(crate) kernel_symbols: Vec<InternedString>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) str: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessTree {
    #[prost(message, repeated, tag = "2")]
    pub(crate) threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub(crate) tid: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) name: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) utsname: Option<Utsname>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Utsname {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) sysname: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) version: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) release: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) machine: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    #[prost(int32, optional, tag = "3")]
    pub(crate) unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "23")]
    pub(crate) name: Option<Vec<u8>>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(crate) string_value: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "10")]
    pub(crate) name: Option<Vec<u8>>,
}
