//! Events that name no page: reclaim, compaction, watermarks, locks and cached files.
//!
//! | event | text form | numbers | the kernel's fields |
//! |--|--|--|--|
//! | `mm_vmscan_kswapd_wake` | `kswapd_wake` | node, order | `nid`, `order` |
//! | `mm_vmscan_kswapd_sleep` | `kswapd_sleep` | node | `nid` |
//! | `mm_vmscan_direct_reclaim_begin` | `reclaim_begin` | order, gfp | `order`, `gfp_flags` |
//! | `mm_vmscan_direct_reclaim_end` | `reclaim_end` | pages | `nr_reclaimed` |
//! | `mm_compaction_begin` | `compaction_begin` | zone start, sync | `zone_start`, `sync` |
//! | `mm_compaction_end` | `compaction_end` | the same, status | the same, `status` |
//! | `mm_setup_per_zone_wmarks` | `watermarks` | node, zone, min, low, high | `node_id`, … |
//! | `contention_begin` | `contention_begin` | lock, flags | `lock_addr`, `flags` |
//! | `contention_end` | `contention_end` | lock | `lock_addr` |
//! | `mm_filemap_add_to_page_cache` | `cache_add` | device, inode, index, order | `s_dev`, … |
//! | `mm_filemap_delete_from_page_cache` | `cache_remove` | the same | the same |
//!
//! Each is a list of numbers in every form but the kernel's own text: one table serves all readers
//! and writers.

use crate::error::{Fault, bad_field};
use crate::fields;
use crate::limits::PFN_LIMIT;

/// Most numbers of a notice.
pub(crate) const NUMBERS_MAX: usize = 5;

/// Kinds of zones, in the kernel's order: a zone is its place here.
pub const ZONE_KINDS: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// Results of a compaction, by the kernel's numbers.
const RESULTS: [&str; 9] = [
    "not_suitable_zone",
    "skipped",
    "deferred",
    "no_suitable_page",
    "continue",
    "complete",
    "partial_skipped",
    "contended",
    "success",
];

/// An event that names no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// `mm_vmscan_kswapd_wake`: background reclaim begins.
    KswapdWake {
        /// The node.
        node: u32,
        /// The order that is wanted.
        order: u8,
    },
    /// `mm_vmscan_kswapd_sleep`: background reclaim has nothing to do.
    KswapdSleep {
        /// The node.
        node: u32,
    },
    /// `mm_vmscan_direct_reclaim_begin`: an allocation reclaims by itself.
    ReclaimBegin {
        /// Its order.
        order: u8,
        /// Its flags, in the numbering of Linux 6.12.
        gfp: u32,
    },
    /// `mm_vmscan_direct_reclaim_end`.
    ReclaimEnd {
        /// Pages that it got.
        pages: u64,
    },
    /// `mm_compaction_begin`: pages of a zone are moved together.
    CompactionBegin {
        /// First frame of the zone.
        zone_start: u64,
        /// Whether it may wait.
        sync: bool,
    },
    /// `mm_compaction_end`.
    CompactionEnd {
        /// First frame of the zone.
        zone_start: u64,
        /// Whether it could wait.
        sync: bool,
        /// The kernel's number of the result: 8 is success.
        status: u8,
    },
    /// `mm_setup_per_zone_wmarks`: a zone got watermarks.
    Watermarks {
        /// The node.
        node: u32,
        /// The zone's kind, as its place in [`ZONE_KINDS`].
        zone: u8,
        /// Pages.
        min: u64,
        /// Pages.
        low: u64,
        /// Pages.
        high: u64,
    },
    /// `contention_begin`: a thread waits for a lock that is taken.
    ContentionBegin {
        /// The lock: its address, or a number that stands for it.
        lock: u64,
        /// Its kind, as the kernel's bits: [`Notice::SPIN`] and others.
        flags: u32,
    },
    /// `contention_end`: it has the lock, or gave up.
    ContentionEnd {
        /// The lock.
        lock: u64,
    },
    /// `mm_filemap_add_to_page_cache`: a page of a file is in memory from here on.
    CacheAdd(CachedPage),
    /// `mm_filemap_delete_from_page_cache`: it no longer is, by reclaim or because the file went.
    CacheRemove(CachedPage),
}

/// A page of a file, or so many in a row as make one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CachedPage {
    /// The file system's device, as the kernel numbers it.
    pub device: u32,
    /// The file.
    pub inode: u64,
    /// The first page's place in the file, in pages.
    pub index: u64,
    /// `1 << order` pages.
    pub order: u8,
}

impl CachedPage {
    fn numbers(self) -> [u64; NUMBERS_MAX] {
        [self.device.into(), self.inode, self.index, self.order.into(), 0]
    }

    fn of([device, inode, index, order, _]: [u64; NUMBERS_MAX]) -> Result<CachedPage, Fault> {
        let device =
            u32::try_from(device).map_err(|_| wrong("device", "a number of 32 bits", device))?;
        Ok(CachedPage { device, inode, index, order: fields::check_order(order)? })
    }
}

/// What readers and writers need of each kind.
pub(crate) struct Row {
    /// In lines of the compact form.
    pub(crate) name: &'static str,
    /// The kernel's name.
    pub(crate) kernel: &'static str,
    /// The kernel's fields, in the order of the numbers.
    pub(crate) fields: &'static [&'static str],
    /// The names of the same in the kernel's text.
    keys: &'static [&'static str],
}

/// By tag.
pub(crate) const ROWS: [Row; 11] = [
    Row {
        name: "kswapd_wake",
        kernel: "mm_vmscan_kswapd_wake",
        fields: &["nid", "order"],
        keys: &["nid", "order"],
    },
    Row {
        name: "kswapd_sleep",
        kernel: "mm_vmscan_kswapd_sleep",
        fields: &["nid"],
        keys: &["nid"],
    },
    Row {
        name: "reclaim_begin",
        kernel: "mm_vmscan_direct_reclaim_begin",
        fields: &["order", "gfp_flags"],
        keys: &["order", "gfp_flags"],
    },
    Row {
        name: "reclaim_end",
        kernel: "mm_vmscan_direct_reclaim_end",
        fields: &["nr_reclaimed"],
        keys: &["nr_reclaimed"],
    },
    Row {
        name: "compaction_begin",
        kernel: "mm_compaction_begin",
        fields: &["zone_start", "sync"],
        keys: &["zone_start", "mode"],
    },
    Row {
        name: "compaction_end",
        kernel: "mm_compaction_end",
        fields: &["zone_start", "sync", "status"],
        keys: &["zone_start", "mode", "status"],
    },
    Row {
        name: "watermarks",
        kernel: "mm_setup_per_zone_wmarks",
        fields: &["node_id", "name", "watermark_min", "watermark_low", "watermark_high"],
        keys: &["node_id", "name", "min", "low", "high"],
    },
    Row {
        name: "contention_begin",
        kernel: "contention_begin",
        fields: &["lock_addr", "flags"],
        keys: &[LOCK, "(flags"],
    },
    Row { name: "contention_end", kernel: "contention_end", fields: &["lock_addr"], keys: &[LOCK] },
    Row {
        name: "cache_add",
        kernel: "mm_filemap_add_to_page_cache",
        fields: CACHED,
        keys: CACHED_KEYS,
    },
    Row {
        name: "cache_remove",
        kernel: "mm_filemap_delete_from_page_cache",
        fields: CACHED,
        keys: CACHED_KEYS,
    },
];

const CACHED: &[&str] = &["s_dev", "i_ino", "index", LARGE];
/// In the order of the kernel's text.
const CACHED_KEYS: &[&str] = &[DEVICE, INODE, OFFSET, LARGE];
/// A device and a file have their names before a space, not before `=`.
const DEVICE: &str = "dev";
const INODE: &str = "ino";
/// In bytes.
const OFFSET: &str = "ofs";
/// Older kernels, whose caches have single pages alone, do not say it.
const LARGE: &str = "order";
/// The kernel counts offsets in pages of this many bits, and prints bytes.
const PAGE_SHIFT: u32 = 12;
/// Bits of a device's number that are the minor one.
const MINOR_BITS: u32 = 20;

impl Row {
    /// Whether a kernel may leave out a field, which is then 0.
    pub(crate) fn may_lack(&self, field: &str) -> bool {
        field == LARGE && self.fields == CACHED
    }
}

/// The address of a lock has no name in the kernel's text: it is the first word.
const LOCK: &str = "lock_addr";

/// Kinds of locks, by the kernel's bits from the lowest on.
const LOCK_KINDS: [&str; 6] = ["SPIN", "READ", "WRITE", "RT", "PERCPU", "MUTEX"];

impl Notice {
    /// The flags of a spinlock that is no reader-writer lock, such as a zone's.
    pub const SPIN: u32 = 1;

    /// The kernel's name of the event.
    pub fn kernel_name(&self) -> &'static str {
        ROWS[usize::from(self.tag())].kernel
    }

    /// The same event in a copy of the machine whose nodes and frames lie this much higher.
    #[must_use]
    pub fn moved(mut self, nodes: u32, frames: u64) -> Notice {
        match &mut self {
            Notice::KswapdWake { node, .. }
            | Notice::KswapdSleep { node }
            | Notice::Watermarks { node, .. } => *node = node.saturating_add(nodes),
            Notice::CompactionBegin { zone_start, .. }
            | Notice::CompactionEnd { zone_start, .. } => *zone_start += frames,
            // Above all addresses of the machine that was copied.
            Notice::ContentionBegin { lock, .. } | Notice::ContentionEnd { lock } => {
                *lock = lock.wrapping_add(u64::from(nodes) << 48);
            }
            // Another machine has files of its own.
            Notice::CacheAdd(page) | Notice::CacheRemove(page) => {
                page.device = page.device.wrapping_add(nodes << MINOR_BITS);
            }
            Notice::ReclaimBegin { .. } | Notice::ReclaimEnd { .. } => {}
        }
        self
    }

    /// Its place in the table of kinds.
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Notice::KswapdWake { .. } => 0,
            Notice::KswapdSleep { .. } => 1,
            Notice::ReclaimBegin { .. } => 2,
            Notice::ReclaimEnd { .. } => 3,
            Notice::CompactionBegin { .. } => 4,
            Notice::CompactionEnd { .. } => 5,
            Notice::Watermarks { .. } => 6,
            Notice::ContentionBegin { .. } => 7,
            Notice::ContentionEnd { .. } => 8,
            Notice::CacheAdd(_) => 9,
            Notice::CacheRemove(_) => 10,
        }
    }

    /// The order that it names; 0 without one.
    pub(crate) fn order(&self) -> u8 {
        match *self {
            Notice::KswapdWake { order, .. } | Notice::ReclaimBegin { order, .. } => order,
            Notice::CacheAdd(page) | Notice::CacheRemove(page) => page.order,
            _ => 0,
        }
    }

    /// Its numbers; what follows those of its kind is 0.
    pub(crate) fn numbers(&self) -> [u64; NUMBERS_MAX] {
        match *self {
            Notice::KswapdWake { node, order } => [node.into(), order.into(), 0, 0, 0],
            Notice::KswapdSleep { node } => [node.into(), 0, 0, 0, 0],
            Notice::ReclaimBegin { order, gfp } => [order.into(), gfp.into(), 0, 0, 0],
            Notice::ReclaimEnd { pages } => [pages, 0, 0, 0, 0],
            Notice::CompactionBegin { zone_start, sync } => [zone_start, sync.into(), 0, 0, 0],
            Notice::CompactionEnd { zone_start, sync, status } => {
                [zone_start, sync.into(), status.into(), 0, 0]
            }
            Notice::Watermarks { node, zone, min, low, high } => {
                [node.into(), zone.into(), min, low, high]
            }
            Notice::ContentionBegin { lock, flags } => [lock, flags.into(), 0, 0, 0],
            Notice::ContentionEnd { lock } => [lock, 0, 0, 0, 0],
            Notice::CacheAdd(page) | Notice::CacheRemove(page) => page.numbers(),
        }
    }

    /// The notice with this tag and these numbers, if they can be.
    pub(crate) fn of(tag: u8, numbers: [u64; NUMBERS_MAX]) -> Result<Notice, Fault> {
        let [first, second, ..] = numbers;
        let node = || {
            let node = u32::try_from(first).ok().filter(|node| *node < zonal_text::NODES_MAX);
            node.ok_or_else(|| wrong("node", "a number below 1024", first))
        };
        let flag = |number| match number {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(wrong("sync", "0 or 1", other)),
        };
        let byte = |name, number: u64| {
            u8::try_from(number).map_err(|_| wrong(name, "a number below 256", number))
        };
        let frame = || match first < PFN_LIMIT {
            true => Ok(first),
            false => Err(wrong("page frame number", "a number below 2^52", first)),
        };
        Ok(match tag {
            0 => Notice::KswapdWake { node: node()?, order: fields::check_order(second)? },
            1 => Notice::KswapdSleep { node: node()? },
            2 => Notice::ReclaimBegin {
                order: fields::check_order(first)?,
                gfp: u32::try_from(second)
                    .map_err(|_| wrong("gfp flags", "a number of 32 bits", second))?,
            },
            3 => Notice::ReclaimEnd { pages: first },
            4 => Notice::CompactionBegin { zone_start: frame()?, sync: flag(second)? },
            5 => Notice::CompactionEnd {
                zone_start: frame()?,
                sync: flag(second)?,
                status: byte("status", numbers[2])?,
            },
            6 if second >= ZONE_KINDS.len() as u64 => {
                return Err(wrong("zone", "a number below 6", second));
            }
            6 => Notice::Watermarks {
                node: node()?,
                zone: byte("zone", second)?,
                min: numbers[2],
                low: numbers[3],
                high: numbers[4],
            },
            7 => Notice::ContentionBegin {
                lock: first,
                flags: u32::try_from(second)
                    .map_err(|_| wrong("flags", "a number of 32 bits", second))?,
            },
            8 => Notice::ContentionEnd { lock: first },
            9 => Notice::CacheAdd(CachedPage::of(numbers)?),
            10 => Notice::CacheRemove(CachedPage::of(numbers)?),
            other => return Err(wrong("kind of a notice", "a number below 11", other.into())),
        })
    }

    /// The tag of a kernel's event.
    pub(crate) fn tag_of(kernel: &[u8]) -> Option<u8> {
        ROWS.iter().position(|row| row.kernel.as_bytes() == kernel).map(|tag| tag as u8)
    }

    /// Reads the kernel's text of an event: `name=value` separated by spaces.
    pub(crate) fn parse(tag: u8, text: &[u8]) -> Result<Notice, Fault> {
        let row = &ROWS[usize::from(tag)];
        let mut numbers = [0; NUMBERS_MAX];
        for (key, number) in row.keys.iter().zip(&mut numbers) {
            let mut words = text.split(|byte| matches!(byte, b' ' | b',' | b')'));
            if *key == LOCK {
                *number = value_of(key, words.next().unwrap_or_default())?;
                continue;
            }
            let value = match *key {
                DEVICE | INODE => words.find(|word| *word == key.as_bytes()).and(words.next()),
                _ => words.find_map(|word| {
                    word.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
                }),
            };
            if value.is_none() && row.may_lack(key) {
                continue;
            }
            let value = value.ok_or_else(|| {
                let expected = row.keys.len();
                let found = text.split(|byte| *byte == b'=').count().saturating_sub(1);
                let (event, missing) = (row.kernel, *key);
                Box::new(crate::TraceErrorKind::TooFewFields { event, missing, expected, found })
            })?;
            *number = value_of(key, value)?;
        }
        Notice::of(tag, numbers)
    }
}

/// The number that a value of the kernel's text is.
fn value_of(key: &'static str, value: &[u8]) -> Result<u64, Fault> {
    let named = |names: &[&str]| names.iter().position(|name| name.as_bytes() == value);
    let number = match key {
        "gfp_flags" => return crate::gfp::parse_names(value).map(u64::from),
        "mode" => named(&["async", "sync"]).map(|place| place as u64),
        "status" => named(&RESULTS).map(|place| place as u64),
        "name" => named(&ZONE_KINDS).map(|place| place as u64),
        LOCK => fields::hexadecimal(value.strip_prefix(b"0x").unwrap_or(value)),
        "(flags" => lock_kinds(value),
        DEVICE => device(value),
        INODE => fields::hexadecimal(value),
        OFFSET => fields::decimal(value).map(|bytes| bytes >> PAGE_SHIFT),
        _ => match value.strip_prefix(b"0x") {
            Some(digits) => fields::hexadecimal(digits),
            None => fields::decimal(value),
        },
    };
    number.ok_or_else(|| bad_field(key, "a value as the kernel prints it", value))
}

/// The bits of a lock's kind, whose names are separated by `|`.
fn lock_kinds(names: &[u8]) -> Option<u64> {
    let bit = |name: &[u8]| {
        let place = LOCK_KINDS.iter().position(|known| known.as_bytes() == name)?;
        Some(1 << place)
    };
    let mut bits = 0;
    for name in names.split(|byte| *byte == b'|').filter(|name| !name.is_empty()) {
        bits |= bit(name)?;
    }
    Some(bits)
}

/// The kernel's number of a device that is printed as `major:minor`.
fn device(value: &[u8]) -> Option<u64> {
    let colon = value.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (fields::decimal(&value[..colon])?, fields::decimal(&value[colon + 1..])?);
    let is_minor = minor < 1 << MINOR_BITS;
    is_minor.then_some(major.checked_shl(MINOR_BITS)? | minor)
}

/// The number of a zone's kind.
pub(crate) fn zone_number(name: &[u8]) -> Result<u64, Fault> {
    value_of("name", name)
}

#[cold]
fn wrong(field: &'static str, expected: &'static str, found: u64) -> Fault {
    bad_field(field, expected, found.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_of_a_kernel_is_read() {
        for (kernel, text, expected) in [
            ("mm_vmscan_kswapd_wake", "nid=1 order=3", Notice::KswapdWake { node: 1, order: 3 }),
            ("mm_vmscan_kswapd_sleep", "nid=0", Notice::KswapdSleep { node: 0 }),
            (
                "mm_vmscan_direct_reclaim_begin",
                "order=2 gfp_flags=__GFP_HIGH|__GFP_IO",
                Notice::ReclaimBegin { order: 2, gfp: 0x60 },
            ),
            ("mm_vmscan_direct_reclaim_end", "nr_reclaimed=52", Notice::ReclaimEnd { pages: 52 }),
            (
                "mm_compaction_begin",
                "zone_start=0x1000 migrate_pfn=0x1 free_pfn=0x2 zone_end=0x3, mode=sync",
                Notice::CompactionBegin { zone_start: 0x1000, sync: true },
            ),
            (
                "mm_compaction_end",
                "zone_start=0x1000 migrate_pfn=0x1 free_pfn=0x2 zone_end=0x3, mode=async \
                 status=success",
                Notice::CompactionEnd { zone_start: 0x1000, sync: false, status: 8 },
            ),
            (
                "mm_setup_per_zone_wmarks",
                "node_id=1 zone name=Normal watermark min=13 low=16 high=19 promo=22",
                Notice::Watermarks { node: 1, zone: 2, min: 13, low: 16, high: 19 },
            ),
            (
                "contention_begin",
                "00000000a1b2c3d4 (flags=SPIN|MUTEX)",
                Notice::ContentionBegin { lock: 0xa1b2_c3d4, flags: 33 },
            ),
            (
                "contention_end",
                "00000000a1b2c3d4 (ret=0)",
                Notice::ContentionEnd { lock: 0xa1b2_c3d4 },
            ),
            (
                "mm_filemap_add_to_page_cache",
                "dev 254:3 ino 9b0013 pfn=0x1c415c ofs=262144 order=2",
                Notice::CacheAdd(CachedPage {
                    device: (254 << 20) + 3,
                    inode: 0x9b_0013,
                    index: 64,
                    order: 2,
                }),
            ),
            (
                "mm_filemap_delete_from_page_cache",
                "dev 8:1 ino 7 pfn=0x1c415c ofs=0",
                Notice::CacheRemove(CachedPage {
                    device: (8 << 20) + 1,
                    inode: 7,
                    index: 0,
                    order: 0,
                }),
            ),
        ] {
            let tag = Notice::tag_of(kernel.as_bytes()).unwrap();
            let notice = Notice::parse(tag, text.as_bytes()).unwrap();
            assert_eq!(notice, expected);
            assert_eq!(notice.kernel_name(), kernel);
            assert_eq!(Notice::of(tag, notice.numbers()).unwrap(), expected);
        }
    }

    #[test]
    fn each_mistake_has_its_message() {
        for (tag, text, part) in [
            (0, "nid=1", "`order` is missing"),
            (0, "nid=x order=1", "bad nid"),
            (0, "nid=0 order=14", "order out of range"),
            (0, "nid=70000 order=1", "a number below 1024"),
            (5, "zone_start=0x1 mode=sync status=odd", "bad status"),
            (6, "node_id=0 name=Odd min=1 low=1 high=1", "bad name"),
            (7, "odd (flags=SPIN)", "bad lock_addr"),
            (7, "12 (flags=ODD)", "bad (flags"),
            (7, "12", "is missing"),
            (8, "", "bad lock_addr"),
            (9, "dev 8 ino 7 pfn=0x1 ofs=0 order=0", "bad dev"),
            (9, "dev 8:1 pfn=0x1 ofs=0 order=0", "`ino` is missing"),
            (10, "dev 8:1 ino 7 pfn=0x1 ofs=0 order=14", "order out of range"),
        ] {
            let message = Notice::parse(tag, text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
