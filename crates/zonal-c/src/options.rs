//! A pool described in a struct that can grow.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use zonal::reclaim::Answer;
use zonal::{
    Backing, Builder, CpuMap, FailAlloc, MemoryRange, Misuse, NodeBinding, OnMisuse, Policy, Pool,
    ZoneKind, ZoneSize,
};

use crate::callbacks::{Called, Data};
use crate::error::Failure;
use crate::input::{Sized32, array, choice, read_struct, string, zero};

/// Memory is faulted in at once, by one thread.
pub const ZONAL_PREFAULT: u32 = 1;
/// Memory is faulted in at once, by a thread on each CPU of each node.
pub const ZONAL_PREFAULT_PARALLEL: u32 = 2;
/// Freed pages are filled with a pattern, which is looked for when they are handed out. Slow.
pub const ZONAL_POISON: u32 = 4;
/// No restartable sequences: a lock per CPU.
pub const ZONAL_NO_RSEQ: u32 = 8;
/// No threads that reclaim in the background.
pub const ZONAL_NO_BACKGROUND: u32 = 16;
/// No refresh thread: call zonal_refresh.
pub const ZONAL_NO_REFRESH: u32 = 32;
/// Memory comes online while the pool is used already, by a thread per node.
pub const ZONAL_DEFERRED: u32 = 64;
/// Misuse that no call can report ends the process, after a message.
pub const ZONAL_ABORT_ON_MISUSE: u32 = 128;

const FLAGS_KNOWN: u32 = 255;

/// Base pages, or the system's default.
pub const ZONAL_BACKING_BASE: u32 = 0;
/// Transparent huge pages where the kernel can.
pub const ZONAL_BACKING_TRANSPARENT: u32 = 1;
/// Reserved pages of 2 MiB, or transparent ones, with a notice.
pub const ZONAL_BACKING_HUGE_2M: u32 = 2;

/// The kernel prefers the node, but may use another.
pub const ZONAL_BIND_ADVISORY: u32 = 0;
/// Memory is not bound to nodes.
pub const ZONAL_BIND_NONE: u32 = 1;
/// The node or nothing: a pool that cannot be bound is not made.
pub const ZONAL_BIND_STRICT: u32 = 2;

/// A zone of a pool that is to have others than one Normal zone per node.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_zone_size {
    /// Node.
    pub node: u32,
    /// 0 DMA, 1 DMA32, 2 Normal, 3 Movable, 4 Device.
    pub kind: u32,
    /// Bytes, a multiple of 4096.
    pub bytes: u64,
}

/// A stretch of memory that the program brings. The first begins at a multiple of 4 MiB, each
/// other where the one before it ends; nodes ascend.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_memory {
    /// First byte.
    pub start: *mut c_void,
    /// Bytes, a multiple of 4096.
    pub bytes: u64,
    /// The node that the bytes are on, by position.
    pub node: u32,
    /// Zero.
    pub reserved: u32,
}

/// Called when nobody uses brought memory any more: the program may unmap it. Also called where
/// zonal_pool_create fails, unless it could not read the options: null, or of a wrong size.
pub type zonal_release_fn = Option<unsafe extern "C-unwind" fn(data: *mut c_void)>;
/// Called when pages cannot be freed and no call can report it.
pub type zonal_misuse_fn =
    Option<unsafe extern "C-unwind" fn(data: *mut c_void, start: *mut c_void, text: *const c_char)>;
/// Called by a request that would not give up, when everything was reclaimed: frees memory by any
/// means. Not zero: the request is tried again. 0: it is refused.
pub type zonal_out_of_memory_fn =
    Option<unsafe extern "C-unwind" fn(data: *mut c_void, order: u32, gfp: u32, node: i32) -> i32>;
/// Called each time that another stretch of memory is faulted in, one call at a time.
pub type zonal_prefault_fn =
    Option<unsafe extern "C-unwind" fn(data: *mut c_void, done: u64, total: u64)>;

/// What a pool is to be. Begin with zonal_options_init, which sets the size and zeroes the rest:
/// zero is the default of each field. Only the memory is asked for: one of bytes, zones and memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_options {
    /// sizeof(zonal_options).
    pub size: u32,
    /// ZONAL_PREFAULT and so on.
    pub flags: u32,
    /// Bytes of the pool, rounded up so that each node gets whole 4 MiB blocks.
    pub bytes: u64,
    /// Bytes that may be in use at once. 0: all.
    pub budget: u64,
    /// ZONAL_BACKING_*.
    pub backing: u32,
    /// ZONAL_BIND_*.
    pub binding: u32,
    /// Pretends that the machine has this many nodes, 1 to 256. 0: as it is.
    pub fake_nodes: u32,
    /// With fake_nodes. 0: the first CPUs to the first node. 1: CPU n to node n modulo the nodes.
    pub fake_cpus: u32,
    /// Zones in place of bytes, ascending by node, then kind; zones_len of them.
    pub zones: *const zonal_zone_size,
    /// Number of zones.
    pub zones_len: size_t,
    /// Memory that the program brings, in place of bytes and zones; memory_len ranges (C-6).
    pub memory: *const zonal_memory,
    /// Number of ranges.
    pub memory_len: size_t,
    /// Called when brought memory may be unmapped. Never where another pool still has a part of it.
    pub release: zonal_release_fn,
    /// For release.
    pub release_data: *mut c_void,
    /// Name of a policy ("zonal", "linux-6.18"), with changed values behind it:
    /// "linux-6.18,watermark.boost_factor=0". Null: "zonal".
    pub policy: *const c_char,
    /// Milliseconds between two runs of the refresh thread. 0: 1000.
    pub refresh_ms: u64,
    /// Bytes a second that the refresh thread returns to the operating system. 0: none.
    pub trim_rate: u64,
    /// Called about misuse that no call can report. Null: a line on stderr.
    pub misuse: zonal_misuse_fn,
    /// For misuse.
    pub misuse_data: *mut c_void,
    /// Called when a request finds nothing.
    pub out_of_memory: zonal_out_of_memory_fn,
    /// For out_of_memory.
    pub out_of_memory_data: *mut c_void,
    /// Called with the progress of prefault.
    pub prefaulted: zonal_prefault_fn,
    /// For prefaulted.
    pub prefaulted_data: *mut c_void,
    /// Each request of this number fails on purpose, for tests; zonal_fail_alloc changes it later.
    /// 0: the pool has no such requests, and all of its speed. UINT64_MAX: none yet.
    pub fail_every: u64,
}

/// `size_t` in the header.
pub(crate) type size_t = usize;

// SAFETY: (1) numbers, raw pointers and optional functions.
unsafe impl Sized32 for zonal_options {
    const NAME: &'static str = "zonal_options";
    const FIRST: usize = 168;
}

const _: () = assert!(size_of::<zonal_options>() >= <zonal_options as Sized32>::FIRST);

/// A builder as the options say.
///
/// # Safety
/// 1. C-2, C-4, C-5 and C-6 for the options and what they point to.
pub(crate) unsafe fn builder(options: *const zonal_options) -> Result<Builder, Failure> {
    // SAFETY: (1) C-2.
    let options = unsafe { read_struct(options) }?;
    // SAFETY: (1) C-2, C-6.
    let builder = unsafe { with_memory(on_release(Pool::builder(), &options), &options) }?;
    one_memory(&options)?;
    if options.flags & !FLAGS_KNOWN != 0 {
        let unknown = options.flags & !FLAGS_KNOWN;
        return Err(Failure::argument(format!("flags: {unknown:#x} is no flag of this library")));
    }
    let is = |flag: u32| options.flags & flag != 0;
    let mut builder = builder
        .size(bytes(options.bytes, "bytes")?)
        .backing(choice(
            options.backing,
            &[Backing::Base, Backing::Transparent, Backing::Huge2M],
            "backing",
        )?)
        .binding(choice(
            options.binding,
            &[NodeBinding::Advisory, NodeBinding::None, NodeBinding::Strict],
            "binding",
        )?)
        .prefault(is(ZONAL_PREFAULT))
        .poison(is(ZONAL_POISON))
        .rseq(!is(ZONAL_NO_RSEQ))
        .background_reclaim(!is(ZONAL_NO_BACKGROUND))
        .deferred(is(ZONAL_DEFERRED))
        .trim_rate(bytes(options.trim_rate, "trim_rate")?);
    if is(ZONAL_PREFAULT_PARALLEL) {
        builder = builder.prefault_parallel();
    }
    if options.budget != 0 {
        builder = builder.budget(bytes(options.budget, "budget")?);
    }
    let round_robin = choice(options.fake_cpus, &[false, true], "fake_cpus")?;
    if options.fake_nodes != 0 {
        let cpus = if round_robin { CpuMap::RoundRobin } else { CpuMap::Contiguous };
        let nodes = options.fake_nodes.min(u32::from(u16::MAX)) as u16;
        builder = builder.fake_nodes(nodes, cpus);
    }
    let interval = match options.refresh_ms {
        0 => 1000,
        milliseconds => milliseconds,
    };
    let runs = !is(ZONAL_NO_REFRESH);
    builder = builder.refresh_every(runs.then(|| Duration::from_millis(interval)));
    if options.fail_every != 0 {
        let every = match options.fail_every {
            u64::MAX => FailAlloc::never(),
            every => FailAlloc::every(every),
        };
        builder = builder.fail_alloc(every);
    }
    // SAFETY: (1) C-4.
    if let Some(policy) = unsafe { string(options.policy, "policy") }? {
        builder = builder.policy(read_policy(policy)?);
    }
    // SAFETY: (1) C-2.
    let zones = unsafe { array(options.zones, options.zones_len, "zones") }?;
    if !zones.is_empty() {
        let zones: Result<Vec<ZoneSize>, Failure> = zones.iter().map(zone).collect();
        builder = builder.zones(&zones?);
    }
    Ok(with_callbacks(builder, &options, is(ZONAL_ABORT_ON_MISUSE)))
}

/// What a pool's memory is stands in one field: another one would be passed over without a word.
fn one_memory(options: &zonal_options) -> Result<(), Failure> {
    let given = [
        (options.bytes != 0, "bytes"),
        (options.zones_len != 0, "zones"),
        (options.memory_len != 0, "memory"),
    ];
    let mut given = given.iter().filter(|(is_given, _)| *is_given).map(|(_, name)| *name);
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => Err(Failure::argument(format!(
            "{one} and {other}: the memory of a pool is given once, by bytes, zones or memory"
        ))),
        _ => Ok(()),
    }
}

fn zone(zone: &zonal_zone_size) -> Result<ZoneSize, Failure> {
    Ok(ZoneSize {
        node: node_position(zone.node)?,
        kind: choice(zone.kind, &ZoneKind::ALL, "kind of a zone")?,
        bytes: bytes(zone.bytes, "bytes of a zone")?,
    })
}

fn node_position(node: u32) -> Result<u16, Failure> {
    u16::try_from(node).map_err(|_| Failure::argument(format!("node {node}: expected 0 to 65535")))
}

fn bytes(bytes: u64, what: &str) -> Result<usize, Failure> {
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= isize::MAX as usize);
    fits.ok_or_else(|| {
        Failure::argument(format!("{what}: {bytes} bytes are more than an address space has"))
    })
}

/// "linux-6.18,watermark.boost_factor=0".
fn read_policy(text: &str) -> Result<Policy, Failure> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let refused = |error: String| Failure::argument(format!("policy: {error}"));
    let mut policy = Policy::preset(name).map_err(|error| refused(error.to_string()))?;
    for part in parts {
        let Some((key, value)) = part.split_once('=') else {
            return Err(refused(format!("'{part}': expected KEY=VALUE behind the name")));
        };
        policy.set(key.trim(), value.trim()).map_err(|error| refused(error.to_string()))?;
    }
    Ok(policy)
}

fn with_callbacks(mut builder: Builder, options: &zonal_options, abort: bool) -> Builder {
    if let Some(misuse) = options.misuse {
        let data = Data::new(options.misuse_data);
        let call = move |what: &Misuse| {
            let text = std::ffi::CString::new(what.to_string()).unwrap_or_default();
            let _called = Called::enter();
            // SAFETY: (1) C-5; (2) the text lives until the call returns.
            unsafe { misuse(data.get(), what.start.as_ptr().cast(), text.as_ptr()) };
        };
        builder = builder.on_misuse(OnMisuse::Call(std::sync::Arc::new(call)));
    } else if abort {
        builder = builder.on_misuse(OnMisuse::Abort);
    }
    if let Some(ask) = options.out_of_memory {
        let data = Data::new(options.out_of_memory_data);
        builder = builder.on_out_of_memory(move |request| {
            let (order, gfp, node) = (request.order, request.gfp, request.node);
            let _called = Called::enter();
            // SAFETY: (1) C-5.
            let again = unsafe { ask(data.get(), order.get(), gfp.bits(), i32::from(node.0)) };
            if again != 0 { Answer::Retry } else { Answer::Refuse }
        });
    }
    if let Some(prefaulted) = options.prefaulted {
        let data = Data::new(options.prefaulted_data);
        builder = builder.on_prefault(move |progress| {
            let _called = Called::enter();
            // SAFETY: (1) C-5.
            unsafe { prefaulted(data.get(), progress.done as u64, progress.total as u64) };
        });
    }
    builder
}

/// Before all that can be refused, so that brought memory is let go of then, too; and so is
/// [`with_memory`], so that memory of another pool is not.
fn on_release(builder: Builder, options: &zonal_options) -> Builder {
    let Some(release) = options.release.filter(|_| options.memory_len > 0) else {
        return builder;
    };
    let data = Data::new(options.release_data);
    builder.on_release(move || {
        let _called = Called::enter();
        // SAFETY: (1) C-5.
        unsafe { release(data.get()) };
    })
}

/// # Safety
/// 1. C-2 and C-6 for the memory.
unsafe fn with_memory(builder: Builder, options: &zonal_options) -> Result<Builder, Failure> {
    // SAFETY: (1) C-2.
    let memory = unsafe { array(options.memory, options.memory_len, "memory") }?;
    if memory.is_empty() {
        return Ok(builder);
    }
    let mut ranges = Vec::with_capacity(memory.len());
    let mut wrong = Ok(());
    for (index, range) in memory.iter().enumerate() {
        let Some(start) = NonNull::new(range.start.cast::<u8>()) else {
            wrong = wrong.and(Err(Failure::argument(format!("memory {index}: null"))));
            continue;
        };
        let node = node_position(range.node);
        let bytes = bytes(range.bytes, "bytes of memory");
        // The builder is told of all ranges, wrong or not: what another pool has is not released.
        ranges.push(MemoryRange {
            node: *node.as_ref().unwrap_or(&0),
            start,
            bytes: *bytes.as_ref().unwrap_or(&usize::MAX),
        });
        let reserved = zero(range.reserved, &format!("memory {index}"));
        let rest = || reserved.and(node.map(drop)).and(bytes.map(drop));
        wrong = wrong.and_then(|()| rest());
    }
    // SAFETY: (1) to (4) C-6.
    let builder = unsafe { builder.memory(&ranges) };
    wrong.map(|()| builder)
}
