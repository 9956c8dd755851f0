//! What a request says: the `gfp` flags of the caller, and the flags the allocator itself carries
//! through its scan of the zones.
//!
//! The bits are those of Linux 6.12 (LB D.1, D.2), so that a recorded trace and a live request
//! speak the same numbers. [`NAMES`] is the only place where a name meets a bit: printing, parsing
//! and the documentation of outputs all read it.
//!
//! This module decides nothing about memory; it only decodes the bits.

use core::fmt::{self, Write};
use core::ops::{BitOr, BitOrAssign};

use crate::types::{Migratetype, NR_ZONE_KINDS, ZoneKind};

/// Flags of a request (LB D.1). Unknown bits are kept, and printed as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gfp(u32);

/// Flags of one scan of the zones (LB D.2): which mark applies and which reserves may be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AllocFlags(u32);

/// A set of zone kinds, such as those a machine has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZoneKinds(u8);

/// A flag name that is in no row of [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GfpParseError<'a> {
    /// The text between two bars that was not understood.
    pub name: &'a str,
    /// Byte offset of `name` in the text parsed.
    pub offset: usize,
}

/// The name of each flag and of each composite, in the order 6.12 prints them: the first row whose
/// bits are all present is printed and its bits are taken away, then the next. Rows at the end
/// repeat bits of earlier rows under the names other releases print, so they are only ever parsed.
pub const NAMES: &[(&str, Gfp)] = &[
    ("GFP_TRANSHUGE", Gfp::TRANSHUGE),
    ("GFP_TRANSHUGE_LIGHT", Gfp::TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", Gfp::HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", Gfp::HIGHUSER),
    ("GFP_USER", Gfp::USER),
    ("GFP_KERNEL_ACCOUNT", Gfp::KERNEL_ACCOUNT),
    ("GFP_KERNEL", Gfp::KERNEL),
    ("GFP_NOFS", Gfp::NOFS),
    ("GFP_ATOMIC", Gfp::ATOMIC),
    ("GFP_NOIO", Gfp::NOIO),
    ("GFP_NOWAIT", Gfp::NOWAIT),
    ("GFP_DMA", Gfp::DMA),
    ("__GFP_HIGHMEM", Gfp::HIGHMEM),
    ("GFP_DMA32", Gfp::DMA32),
    ("__GFP_HIGH", Gfp::HIGH),
    ("__GFP_IO", Gfp::IO),
    ("__GFP_FS", Gfp::FS),
    ("__GFP_NOWARN", Gfp::NOWARN),
    ("__GFP_RETRY_MAYFAIL", Gfp::RETRY_MAYFAIL),
    ("__GFP_NOFAIL", Gfp::NOFAIL),
    ("__GFP_NORETRY", Gfp::NORETRY),
    ("__GFP_COMP", Gfp::COMP),
    ("__GFP_ZERO", Gfp::ZERO),
    ("__GFP_NOMEMALLOC", Gfp::NOMEMALLOC),
    ("__GFP_MEMALLOC", Gfp::MEMALLOC),
    ("__GFP_HARDWALL", Gfp::HARDWALL),
    ("__GFP_THISNODE", Gfp::THISNODE),
    ("__GFP_RECLAIMABLE", Gfp::RECLAIMABLE),
    ("__GFP_MOVABLE", Gfp::MOVABLE),
    ("__GFP_ACCOUNT", Gfp::ACCOUNT),
    ("__GFP_WRITE", Gfp::WRITE),
    ("__GFP_RECLAIM", Gfp::RECLAIM),
    ("__GFP_DIRECT_RECLAIM", Gfp::DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", Gfp::KSWAPD_RECLAIM),
    ("__GFP_ZEROTAGS", Gfp::ZEROTAGS),
    ("__GFP_NO_OBJ_EXT", Gfp::NO_OBJ_EXT),
    ("__GFP_COLD", Gfp::COLD),
    ("__GFP_DMA", Gfp::DMA),
    ("__GFP_DMA32", Gfp::DMA32),
];

impl Gfp {
    /// No flag: take it from [`ZoneKind::Normal`] or below, without waiting or waking anyone.
    pub const NONE: Gfp = Gfp(0);
    /// Only memory for ISA devices.
    pub const DMA: Gfp = Gfp(1 << 0);
    /// High memory allowed; on 64-bit machines it matters only together with [`Gfp::MOVABLE`].
    pub const HIGHMEM: Gfp = Gfp(1 << 1);
    /// Only memory below 4 GiB.
    pub const DMA32: Gfp = Gfp(1 << 2);
    /// The page can be migrated.
    pub const MOVABLE: Gfp = Gfp(1 << 3);
    /// The page can be dropped under pressure.
    pub const RECLAIMABLE: Gfp = Gfp(1 << 4);
    /// May use part of the reserve below the watermark.
    pub const HIGH: Gfp = Gfp(1 << 5);
    /// Reclaim may start I/O; compaction is allowed.
    pub const IO: Gfp = Gfp(1 << 6);
    /// Reclaim may call into filesystems.
    pub const FS: Gfp = Gfp(1 << 7);
    /// Zero the pages.
    pub const ZERO: Gfp = Gfp(1 << 8);
    /// May block and reclaim.
    pub const DIRECT_RECLAIM: Gfp = Gfp(1 << 10);
    /// May wake the background reclaimer.
    pub const KSWAPD_RECLAIM: Gfp = Gfp(1 << 11);
    /// For a page-cache write: spread dirty pages over nodes.
    pub const WRITE: Gfp = Gfp(1 << 12);
    /// No message on failure.
    pub const NOWARN: Gfp = Gfp(1 << 13);
    /// Try hard, but fail rather than kill.
    pub const RETRY_MAYFAIL: Gfp = Gfp(1 << 14);
    /// Never fail.
    pub const NOFAIL: Gfp = Gfp(1 << 15);
    /// One attempt at reclaim and compaction.
    pub const NORETRY: Gfp = Gfp(1 << 16);
    /// Ignore the watermarks.
    pub const MEMALLOC: Gfp = Gfp(1 << 17);
    /// Make a compound page.
    pub const COMP: Gfp = Gfp(1 << 18);
    /// No reserves, even if other bits allow them.
    pub const NOMEMALLOC: Gfp = Gfp(1 << 19);
    /// Enforce the cpuset strictly.
    pub const HARDWALL: Gfp = Gfp(1 << 20);
    /// Only from the given node.
    pub const THISNODE: Gfp = Gfp(1 << 21);
    /// Charge to a memory cgroup.
    pub const ACCOUNT: Gfp = Gfp(1 << 22);
    /// Clear memory tags too.
    pub const ZEROTAGS: Gfp = Gfp(1 << 23);
    /// No extension object. Bits from 24 up depend on how a kernel was built; this is the place
    /// in the kernels recorded under `shared/traces`, built without KASAN and lockdep.
    pub const NO_OBJ_EXT: Gfp = Gfp(1 << 24);

    /// The page need not be in a cache: a hint for policies with cold lists (LB E.11). Kernels that
    /// had it numbered all flags otherwise; this bit is free in those that are recorded.
    pub const COLD: Gfp = Gfp(1 << 30);

    /// Both kinds of reclaim.
    pub const RECLAIM: Gfp = Gfp::DIRECT_RECLAIM.union(Gfp::KSWAPD_RECLAIM);
    /// Cannot wait, may use part of the reserve.
    pub const ATOMIC: Gfp = Gfp::HIGH.union(Gfp::KSWAPD_RECLAIM);
    /// Cannot wait, fails silently.
    pub const NOWAIT: Gfp = Gfp::KSWAPD_RECLAIM.union(Gfp::NOWARN);
    /// May reclaim, without starting I/O.
    pub const NOIO: Gfp = Gfp::RECLAIM;
    /// May reclaim, without calling into filesystems.
    pub const NOFS: Gfp = Gfp::RECLAIM.union(Gfp::IO);
    /// The usual request of kernel code.
    pub const KERNEL: Gfp = Gfp::NOFS.union(Gfp::FS);
    /// [`Gfp::KERNEL`], charged to a memory cgroup.
    pub const KERNEL_ACCOUNT: Gfp = Gfp::KERNEL.union(Gfp::ACCOUNT);
    /// For a user, directly reachable by the kernel.
    pub const USER: Gfp = Gfp::KERNEL.union(Gfp::HARDWALL);
    /// For a user, not movable.
    pub const HIGHUSER: Gfp = Gfp::USER.union(Gfp::HIGHMEM);
    /// For a user, movable.
    pub const HIGHUSER_MOVABLE: Gfp = Gfp::HIGHUSER.union(Gfp::MOVABLE);
    /// A huge page for a user, without reclaim.
    pub const TRANSHUGE_LIGHT: Gfp = Gfp::HIGHUSER_MOVABLE
        .union(Gfp::COMP)
        .union(Gfp::NOMEMALLOC)
        .union(Gfp::NOWARN)
        .without(Gfp::RECLAIM);
    /// A huge page for a user, with direct reclaim.
    pub const TRANSHUGE: Gfp = Gfp::TRANSHUGE_LIGHT.union(Gfp::DIRECT_RECLAIM);

    /// Flags with these bits; a recorded number keeps bits unknown here.
    #[inline]
    pub const fn from_bits(bits: u32) -> Gfp {
        Gfp(bits)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags of `self` and those of `other`.
    #[inline]
    pub const fn union(self, other: Gfp) -> Gfp {
        Gfp(self.0 | other.0)
    }

    /// The flags of `self` that are not in `other`.
    #[inline]
    pub const fn without(self, other: Gfp) -> Gfp {
        Gfp(self.0 & !other.0)
    }

    /// Whether every flag of `other` is set.
    #[inline]
    pub const fn contains(self, other: Gfp) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Gfp) -> bool {
        self.0 & other.0 != 0
    }

    /// The highest zone kind the request may use (LB A.6), `None` where the four zone bits are a
    /// combination that means nothing. `exists` holds the kinds the machine was built with: where
    /// DMA or DMA32 is not among them its requests go to Normal. The result is a cap on the walk
    /// and the index of the lowmem reserve, so Movable is returned even with no movable memory.
    #[inline]
    pub const fn highest_zone(self, exists: ZoneKinds) -> Option<ZoneKind> {
        let wanted = WANTED[self.0 as usize & 0xf];
        match wanted {
            Some(low @ (ZoneKind::Dma | ZoneKind::Dma32)) if !exists.contains(low) => {
                Some(ZoneKind::Normal)
            }
            _ => wanted,
        }
    }

    /// The lists the request is served from (LB B.1), `None` where it claims to be both movable and
    /// reclaimable. With mobility `grouping` off every page counts as unmovable.
    #[inline]
    pub const fn migratetype(self, grouping: bool) -> Option<Migratetype> {
        match (self.contains(Gfp::MOVABLE), self.contains(Gfp::RECLAIMABLE)) {
            (true, true) => None,
            _ if !grouping => Some(Migratetype::Unmovable),
            (true, false) => Some(Migratetype::Movable),
            (false, true) => Some(Migratetype::Reclaimable),
            (false, false) => Some(Migratetype::Unmovable),
        }
    }

    /// Reads what a kernel prints after `gfp_flags=`: names of [`NAMES`] and numbers in hexadecimal
    /// (`0x…`) with `|` between them, or `none`.
    ///
    /// # Errors
    /// The first part that is neither, and where it starts.
    pub fn parse(text: &str) -> Result<Gfp, GfpParseError<'_>> {
        let mut flags = Gfp::NONE;
        let mut offset = 0;
        for part in text.split('|') {
            let name = part.trim();
            let lead = part.len() - part.trim_start().len();
            let error = GfpParseError { name, offset: offset + lead };
            flags |= Gfp::parse_one(name).ok_or(error)?;
            offset += part.len() + 1;
        }
        Ok(flags)
    }

    fn parse_one(name: &str) -> Option<Gfp> {
        if name == "none" {
            return Some(Gfp::NONE);
        }
        if let Some(digits) = name.strip_prefix("0x") {
            // `from_str_radix` also takes a sign, which no kernel prints.
            let digits = Some(digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            return u32::from_str_radix(digits, 16).ok().map(Gfp);
        }
        NAMES.iter().find(|row| row.0 == name).map(|row| row.1)
    }
}

impl AllocFlags {
    /// The low two bits hold the index of the watermark to test against.
    pub const WMARK_MASK: u32 = 3;
    /// Test against the min watermark.
    pub const WMARK_MIN: AllocFlags = AllocFlags(0);
    /// Test against the low watermark.
    pub const WMARK_LOW: AllocFlags = AllocFlags(1);
    /// Test against the high watermark.
    pub const WMARK_HIGH: AllocFlags = AllocFlags(2);
    /// Ignore watermarks.
    pub const NO_WATERMARKS: AllocFlags = AllocFlags(0x4);
    /// The rights of a task that is being killed for memory.
    pub const OOM: AllocFlags = AllocFlags(0x8);
    /// Cannot block. Called `HARDER` up to 6.3.
    pub const NON_BLOCK: AllocFlags = AllocFlags(0x10);
    /// May use part of the reserve. Called `HIGH` up to 6.3.
    pub const MIN_RESERVE: AllocFlags = AllocFlags(0x20);
    /// Respect the cpuset.
    pub const CPUSET: AllocFlags = AllocFlags(0x40);
    /// May use pages set aside for contiguous allocations.
    pub const CMA: AllocFlags = AllocFlags(0x80);
    /// Rather another zone of the node than a pageblock of another type.
    pub const NOFRAGMENT: AllocFlags = AllocFlags(0x100);
    /// May use and grow the high-order atomic reserve.
    pub const HIGHATOMIC: AllocFlags = AllocFlags(0x200);
    /// Never wait for a lock (6.15+).
    pub const TRYLOCK: AllocFlags = AllocFlags(0x400);
    /// May wake the background reclaimer.
    pub const KSWAPD: AllocFlags = AllocFlags(0x800);
    /// Rather another node than one with much to be written. Linux has it beside these flags
    /// (`spread_dirty_pages`).
    pub const SPREAD_DIRTY: AllocFlags = AllocFlags(0x1000);
    /// Nodes whose background reclaimer is awake are passed.
    pub const PASS_RECLAIMING: AllocFlags = AllocFlags(0x2000);
    /// Every flag that gives a right to some reserve.
    pub const RESERVES: AllocFlags = AllocFlags(
        AllocFlags::NON_BLOCK.0
            | AllocFlags::MIN_RESERVE.0
            | AllocFlags::HIGHATOMIC.0
            | AllocFlags::OOM.0,
    );

    /// Flags with these bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> AllocFlags {
        AllocFlags(bits)
    }

    /// The bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags of `self` that are not in `other`.
    #[inline]
    pub const fn without(self, other: AllocFlags) -> AllocFlags {
        AllocFlags(self.0 & !other.0)
    }

    /// Whether every flag of `other` is set. The mark is an index, not a flag: see
    /// [`AllocFlags::WMARK_MASK`].
    #[inline]
    pub const fn contains(self, other: AllocFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn intersects(self, other: AllocFlags) -> bool {
        self.0 & other.0 != 0
    }
}

// The kernel copies these two between the words without a shift (LB D.1), and so may we.
const _: () = assert!(Gfp::HIGH.0 == AllocFlags::MIN_RESERVE.0);
const _: () = assert!(Gfp::KSWAPD_RECLAIM.0 == AllocFlags::KSWAPD.0);
const _: () = assert!(NR_ZONE_KINDS <= u8::BITS as usize);

/// The zone kind that the four zone bits of a request name (LB A.6).
const WANTED: [Option<ZoneKind>; 16] = {
    let mut wanted = [None; 16];
    wanted[0] = Some(ZoneKind::Normal);
    wanted[1] = Some(ZoneKind::Dma);
    wanted[2] = Some(ZoneKind::Normal);
    wanted[4] = Some(ZoneKind::Dma32);
    wanted[8] = Some(ZoneKind::Normal);
    wanted[9] = Some(ZoneKind::Dma);
    wanted[10] = Some(ZoneKind::Movable);
    wanted[12] = Some(ZoneKind::Dma32);
    wanted
};

impl ZoneKinds {
    /// No kind.
    pub const NONE: ZoneKinds = ZoneKinds(0);
    /// Every kind: x86-64.
    pub const ALL: ZoneKinds = ZoneKinds((1 << NR_ZONE_KINDS) - 1);

    /// The set with `kind` added.
    #[inline]
    pub const fn with(self, kind: ZoneKind) -> ZoneKinds {
        ZoneKinds(self.0 | 1 << kind as u8)
    }

    /// Whether `kind` is in the set.
    #[inline]
    pub const fn contains(self, kind: ZoneKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

impl FromIterator<ZoneKind> for ZoneKinds {
    fn from_iter<I: IntoIterator<Item = ZoneKind>>(kinds: I) -> ZoneKinds {
        kinds.into_iter().fold(ZoneKinds::NONE, ZoneKinds::with)
    }
}

impl BitOr for Gfp {
    type Output = Gfp;
    #[inline]
    fn bitor(self, other: Gfp) -> Gfp {
        self.union(other)
    }
}
impl BitOrAssign for Gfp {
    #[inline]
    fn bitor_assign(&mut self, other: Gfp) {
        *self = self.union(other);
    }
}
impl BitOr for AllocFlags {
    type Output = AllocFlags;
    #[inline]
    fn bitor(self, other: AllocFlags) -> AllocFlags {
        AllocFlags(self.0 | other.0)
    }
}
impl BitOrAssign for AllocFlags {
    #[inline]
    fn bitor_assign(&mut self, other: AllocFlags) {
        self.0 |= other.0;
    }
}

/// The form of a 6.12 trace: `GFP_KERNEL|__GFP_ZERO`, bits without a name as one number, `none`.
impl fmt::Display for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let mut left = *self;
        let mut bar = "";
        for &(name, flags) in NAMES {
            if left.contains(flags) {
                f.write_str(bar)?;
                f.write_str(name)?;
                left = left.without(flags);
                bar = "|";
            }
        }
        if left.0 != 0 {
            f.write_str(bar)?;
            write!(f, "{:#x}", left.0)?;
        }
        Ok(())
    }
}
impl fmt::Debug for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for AllocFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FLAGS: &[(&str, AllocFlags)] = &[
            ("NO_WATERMARKS", AllocFlags::NO_WATERMARKS),
            ("OOM", AllocFlags::OOM),
            ("NON_BLOCK", AllocFlags::NON_BLOCK),
            ("MIN_RESERVE", AllocFlags::MIN_RESERVE),
            ("CPUSET", AllocFlags::CPUSET),
            ("CMA", AllocFlags::CMA),
            ("NOFRAGMENT", AllocFlags::NOFRAGMENT),
            ("HIGHATOMIC", AllocFlags::HIGHATOMIC),
            ("TRYLOCK", AllocFlags::TRYLOCK),
            ("KSWAPD", AllocFlags::KSWAPD),
        ];
        let watermarks = ["WMARK_MIN", "WMARK_LOW", "WMARK_HIGH", "WMARK_3"];
        f.write_str(watermarks[(self.0 & AllocFlags::WMARK_MASK) as usize])?;
        for &(name, _) in FLAGS.iter().filter(|row| self.contains(row.1)) {
            f.write_char('|')?;
            f.write_str(name)?;
        }
        Ok(())
    }
}
impl fmt::Debug for ZoneKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(ZoneKind::ALL.iter().filter(|k| self.contains(**k))).finish()
    }
}
impl fmt::Display for GfpParseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {}: `{}` is no gfp flag; expected names such as GFP_KERNEL or __GFP_ZERO, \
             or 0x and digits, with | between them",
            self.offset, self.name
        )
    }
}
impl core::error::Error for GfpParseError<'_> {}

#[cfg(test)]
mod tests;
