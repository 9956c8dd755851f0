//! Allocation flags by name and by number.
//!
//! The numbering is that of Linux 6.12 (LB-D.1). Two things can differ from it in a recording:
//!
//! - **Numbers.** Kernel 6.18, which wrote the compact recordings, numbers bits 0 to 23 as 6.12
//!   does: its own tracepoint format prints `0x140dca` as
//!   `GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP`, and so does this table. Bits from 24 on move
//!   with the kernel's configuration (KASAN, lockdep, slab extensions) and steer nothing but
//!   debugging, and bit 9 was `__GFP_ATOMIC` once, which 6.12 no longer has. So
//!   [`normalise`] keeps [`PORTABLE`] and drops the rest.
//! - **Names.** A text trace prints the longest composites first, then what is left over, then bits
//!   without a name as `0x…`; `none` if nothing is set. The table has the names of
//!   kernels 6.1 to 6.18. `GFP_NOWAIT` includes `__GFP_NOWARN` as in 6.12; older kernels'
//!   did not, which changes no page's place.

use crate::error::{Fault, bad_field};
use crate::fields::hexadecimal;

const DMA: u32 = 1 << 0;
const HIGHMEM: u32 = 1 << 1;
const DMA32: u32 = 1 << 2;
const MOVABLE: u32 = 1 << 3;
const RECLAIMABLE: u32 = 1 << 4;
const HIGH: u32 = 1 << 5;
const IO: u32 = 1 << 6;
const FS: u32 = 1 << 7;
const ZERO: u32 = 1 << 8;
const DIRECT_RECLAIM: u32 = 1 << 10;
const KSWAPD_RECLAIM: u32 = 1 << 11;
const WRITE: u32 = 1 << 12;
const NOWARN: u32 = 1 << 13;
const RETRY_MAYFAIL: u32 = 1 << 14;
const NOFAIL: u32 = 1 << 15;
const NORETRY: u32 = 1 << 16;
const MEMALLOC: u32 = 1 << 17;
const COMP: u32 = 1 << 18;
const NOMEMALLOC: u32 = 1 << 19;
const HARDWALL: u32 = 1 << 20;
const THISNODE: u32 = 1 << 21;
const ACCOUNT: u32 = 1 << 22;
const ZEROTAGS: u32 = 1 << 23;

const RECLAIM: u32 = DIRECT_RECLAIM | KSWAPD_RECLAIM;
const KERNEL: u32 = RECLAIM | IO | FS;
const USER: u32 = KERNEL | HARDWALL;
const HIGHUSER: u32 = USER | HIGHMEM;
const HIGHUSER_MOVABLE: u32 = HIGHUSER | MOVABLE;
const TRANSHUGE_LIGHT: u32 = (HIGHUSER_MOVABLE | COMP | NOMEMALLOC | NOWARN) & !RECLAIM;

/// The flags that mean the same in every kernel this crate reads: bits 0 to 23 without bit 9.
pub const PORTABLE: u32 = 0x00ff_fdff;

/// Flags that exist in some kernels only and that no placement depends on.
const DROPPED: u32 = 0;

/// Every name a kernel prints, in byte order, for a binary search.
const NAMES: &[(&[u8], u32)] = &[
    (b"GFP_ATOMIC", HIGH | KSWAPD_RECLAIM),
    (b"GFP_DMA", DMA),
    (b"GFP_DMA32", DMA32),
    (b"GFP_HIGHUSER", HIGHUSER),
    (b"GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    (b"GFP_KERNEL", KERNEL),
    (b"GFP_KERNEL_ACCOUNT", KERNEL | ACCOUNT),
    (b"GFP_NOFS", RECLAIM | IO),
    (b"GFP_NOIO", RECLAIM),
    (b"GFP_NOWAIT", KSWAPD_RECLAIM | NOWARN),
    (b"GFP_TRANSHUGE", TRANSHUGE_LIGHT | DIRECT_RECLAIM),
    (b"GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    (b"GFP_USER", USER),
    (b"__GFP_ACCOUNT", ACCOUNT),
    (b"__GFP_ATOMIC", DROPPED),
    (b"__GFP_COMP", COMP),
    (b"__GFP_DIRECT_RECLAIM", DIRECT_RECLAIM),
    (b"__GFP_DMA", DMA),
    (b"__GFP_DMA32", DMA32),
    (b"__GFP_FS", FS),
    (b"__GFP_HARDWALL", HARDWALL),
    (b"__GFP_HIGH", HIGH),
    (b"__GFP_HIGHMEM", HIGHMEM),
    (b"__GFP_IO", IO),
    (b"__GFP_KSWAPD_RECLAIM", KSWAPD_RECLAIM),
    (b"__GFP_MEMALLOC", MEMALLOC),
    (b"__GFP_MOVABLE", MOVABLE),
    (b"__GFP_NOFAIL", NOFAIL),
    (b"__GFP_NOLOCKDEP", DROPPED),
    (b"__GFP_NOMEMALLOC", NOMEMALLOC),
    (b"__GFP_NORETRY", NORETRY),
    (b"__GFP_NOWARN", NOWARN),
    (b"__GFP_NO_OBJ_EXT", DROPPED),
    (b"__GFP_RECLAIM", RECLAIM),
    (b"__GFP_RECLAIMABLE", RECLAIMABLE),
    (b"__GFP_RETRY_MAYFAIL", RETRY_MAYFAIL),
    (b"__GFP_SKIP_KASAN", DROPPED),
    (b"__GFP_SKIP_KASAN_POISON", DROPPED),
    (b"__GFP_SKIP_KASAN_UNPOISON", DROPPED),
    (b"__GFP_SKIP_ZERO", DROPPED),
    (b"__GFP_THISNODE", THISNODE),
    (b"__GFP_WRITE", WRITE),
    (b"__GFP_ZERO", ZERO),
    (b"__GFP_ZEROTAGS", ZEROTAGS),
    (b"none", 0),
];

/// The flags of a recorded number, in the numbering of Linux 6.12.
///
/// `None` if the number has more than 32 bits, which no kernel has.
pub fn normalise(recorded: u64) -> Option<u32> {
    u32::try_from(recorded).ok().map(|bits| bits & PORTABLE)
}

/// The flags of one name, such as `GFP_KERNEL` or `__GFP_ZERO`.
pub fn from_name(name: &str) -> Option<u32> {
    lookup(name.as_bytes())
}

fn lookup(name: &[u8]) -> Option<u32> {
    let at = NAMES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(NAMES[at].1)
}

/// Flags as a number: hexadecimal, without a prefix.
pub(crate) fn parse_number(bytes: &[u8]) -> Result<u32, Fault> {
    hexadecimal(bytes)
        .and_then(normalise)
        .ok_or_else(|| bad_field("gfp flags", "a hexadecimal number of 32 bits", bytes))
}

/// Flags as the kernel prints them: names and left-over bits, joined by `|`.
pub(crate) fn parse_names(bytes: &[u8]) -> Result<u32, Fault> {
    const EXPECTED: &str = "names such as GFP_KERNEL|__GFP_ZERO";
    let mut flags = 0;
    for name in bytes.split(|&byte| byte == b'|') {
        flags |= match name.strip_prefix(b"0x") {
            Some(digits) => hexadecimal(digits).and_then(normalise),
            None => lookup(name),
        }
        .ok_or_else(|| bad_field("gfp flags", EXPECTED, name))?;
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> u32 {
        parse_names(text.as_bytes()).unwrap()
    }

    #[test]
    fn table_is_in_order() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn numbers_of_6_18_mean_what_its_names_say() {
        // Pairs from `stats.txt` of the 6.18 recordings.
        assert_eq!(names("GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP"), 0x14_0dca);
        assert_eq!(names("GFP_HIGHUSER_MOVABLE|__GFP_COMP"), 0x14_0cca);
        assert_eq!(names("GFP_KERNEL_ACCOUNT|__GFP_ZERO|__GFP_COMP"), 0x44_0dc0);
        assert_eq!(names("GFP_NOWAIT"), 0x2800);
        assert_eq!(names("GFP_HIGHUSER_MOVABLE|__GFP_WRITE|__GFP_COMP"), 0x14_1cca);
        assert_eq!(names("GFP_HIGHUSER|__GFP_ACCOUNT"), 0x50_0cc2);
        assert_eq!(names("GFP_TRANSHUGE_LIGHT|__GFP_THISNODE"), 0x3c_20ca);
        assert_eq!(names("GFP_TRANSHUGE"), 0x1c_24ca);
        assert_eq!(names("none"), 0);
    }

    #[test]
    fn bits_that_move_between_kernels_are_dropped() {
        assert_eq!(normalise(0x0100_0a20), Some(0x820));
        assert_eq!(normalise(1 << 32), None);
        assert_eq!(names("GFP_KERNEL|__GFP_NO_OBJ_EXT|0x2000000"), KERNEL);
        assert_eq!(PORTABLE & (1 << 9 | 1 << 24), 0);
    }

    #[test]
    fn unknown_names_are_refused() {
        for bad in ["", "GFP_", "GFP_KERNEL|", "gfp_kernel", "0xg", "GFP_KERNEL ", "0x"] {
            assert!(parse_names(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
