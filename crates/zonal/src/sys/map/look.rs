//! Whether a range that others mapped can be used, as the kernel tells.

use std::ops::Range;

use super::{is_backed, is_mapped};
use crate::sys::os::page_size;

/// What is wrong with a part of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing is mapped there.
    NotMapped,
    /// It is mapped without the right to read or to write.
    NoAccess,
    /// An access would be SIGBUS.
    NotBacked,
}

/// The first flaw of `range`, whole pages. Each mapping in it is looked at once, at both of its
/// ends; both ends of the range only, and no rights, where there is no `/proc`.
pub fn flaw(range: Range<usize>) -> Option<Flaw> {
    // That of the process is empty once the main thread is gone, and others go on. Emulators of a
    // process answer for it alone.
    let read = |path| std::fs::read(path).ok().filter(|maps| !maps.is_empty());
    match read("/proc/self/maps").or_else(|| read("/proc/thread-self/maps")) {
        Some(maps) => flaw_in(&String::from_utf8_lossy(&maps), range, is_backed),
        None => flaw_at(range.start).or_else(|| flaw_at(range.end - page_size())),
    }
}

fn flaw_at(page: usize) -> Option<Flaw> {
    match (is_mapped(page), is_backed(page)) {
        (true, true) => None,
        (true, false) => Some(Flaw::NotBacked),
        (false, _) => Some(Flaw::NotMapped),
    }
}

/// As [`flaw`], of a list of mappings in ascending order.
fn flaw_in(maps: &str, range: Range<usize>, is_backed: impl Fn(usize) -> bool) -> Option<Flaw> {
    let mut at = range.start;
    for (mapped, rights) in maps.lines().filter_map(mapping) {
        if mapped.end <= at {
            continue;
        }
        if at >= range.end || mapped.start > at {
            break;
        }
        if !rights.starts_with("rw") {
            return Some(Flaw::NoAccess);
        }
        let end = mapped.end.min(range.end);
        if !is_backed(at) || !is_backed(end - page_size()) {
            return Some(Flaw::NotBacked);
        }
        at = end;
    }
    (at < range.end).then_some(Flaw::NotMapped)
}

/// A line's addresses and rights.
fn mapping(line: &str) -> Option<(Range<usize>, &str)> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?..number(end)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 \n\
3000-5000 rw-s 00000000 00:01 7 /memfd:a file (deleted)\n\
5000-6000 r--p 00000000 00:00 0\n\
8000-9000 rw-p 00000000 00:00 0\n\
9000-a000 ---p 00000000 00:00 0\n";

    #[test]
    fn the_first_flaw_of_a_range_is_found_wherever_it_is() {
        let cut = |page: usize| !(0x4000..0x5000).contains(&page);
        for (range, all, file) in [
            (0x1000..0x3000, None, None),
            (0x2000..0x4000, None, None),
            (0x1000..0x5000, None, Some(Flaw::NotBacked)),
            (0x4000..0x5000, None, Some(Flaw::NotBacked)),
            (0x5000..0x6000, Some(Flaw::NoAccess), Some(Flaw::NoAccess)),
            (0x2000..0x6000, Some(Flaw::NoAccess), Some(Flaw::NotBacked)),
            (0x6000..0x7000, Some(Flaw::NotMapped), Some(Flaw::NotMapped)),
            (0x7000..0x9000, Some(Flaw::NotMapped), Some(Flaw::NotMapped)),
            (0x8000..0xa000, Some(Flaw::NoAccess), Some(Flaw::NoAccess)),
            (0xb000..0xc000, Some(Flaw::NotMapped), Some(Flaw::NotMapped)),
            (0x0000..0x2000, Some(Flaw::NotMapped), Some(Flaw::NotMapped)),
        ] {
            assert_eq!(flaw_in(MAPS, range.clone(), |_| true), all, "{range:x?}");
            assert_eq!(flaw_in(MAPS, range.clone(), cut), file, "{range:x?}, cut");
        }
        assert_eq!(flaw_in("", 0x1000..0x2000, |_| true), Some(Flaw::NotMapped));
        assert_eq!(
            flaw_in("no line\n1000 rw-p\nx-y rw-p", 0x1000..0x2000, cut),
            Some(Flaw::NotMapped)
        );
    }
}
