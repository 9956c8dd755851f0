//! Restartable sections: the table by which an interrupt's entry starts one over.
//!
//! A section is a run of instructions whose last one commits, such as a pop of a page from the
//! running CPU's pcp. Whatever interrupts it must not return into its middle, but to its restart
//! address. So the entry of *every* interrupt, also of one that can switch threads, looks the
//! interrupted address up before any handler runs:
//!
//! ```
//! use zonal_kernel::sections::{Section, restart};
//!
//! // Written by the assembly of the sections into a part of the image of its own.
//! let table = [Section { start: 0x1000, bytes: 0x20, restart: 0x1000 }];
//! assert_eq!(restart(&table, 0x1008), 0x1000); // in the middle: begins again
//! assert_eq!(restart(&table, 0x1000), 0x1000); // nothing was done yet
//! assert_eq!(restart(&table, 0x1020), 0x1020); // committed: goes on
//! ```
//!
//! On x86-64 [`fast`] has sections: pops and pushes in front of the core. Their rows are in the
//! input section `.zonal_sections`, three words each; the kernel's linker script keeps them
//! (`KEEP(*(.zonal_sections))`) between two symbols, and a kernel's own rows may stand there too.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
pub mod fast;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod own;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86_64;

use core::fmt;

/// One section. Three words, as assembly writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Section {
    /// Address of its first instruction.
    pub start: usize,
    /// Bytes from there to the end of the instruction that commits.
    pub bytes: usize,
    /// Where it goes on if it was interrupted.
    pub restart: usize,
}

impl Section {
    /// Whether an interrupt that returns to `at` came inside.
    #[inline]
    pub const fn contains(&self, at: usize) -> bool {
        at.wrapping_sub(self.start) < self.bytes
    }
}

/// The address to return to, for an interrupt that came when the next instruction was `at`.
#[inline]
pub fn restart(table: &[Section], at: usize) -> usize {
    table.iter().find(|section| section.contains(at)).map_or(at, |section| section.restart)
}

/// Why a table cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SectionError {
    /// The section at this position has no instructions, or ends behind the last address.
    Size(usize),
    /// The section at this position shares an address with another.
    Overlap(usize, usize),
    /// The restart address of the section at this position lies inside a section, behind its start:
    /// an interrupt there would start over something half done. Position, and which it lies in.
    Inside(usize, usize),
}

impl fmt::Display for SectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SectionError::Size(at) => write!(
                f,
                "section {at} has no instructions or ends behind the last address; its second \
                 word is its length in bytes"
            ),
            SectionError::Overlap(at, other) => {
                write!(f, "sections {at} and {other} share an address; give each its own")
            }
            SectionError::Inside(at, other) => write!(
                f,
                "section {at} restarts in the middle of section {other}; let it restart at a \
                 start, or outside of all sections"
            ),
        }
    }
}

impl core::error::Error for SectionError {}

/// Checks a table, once at boot.
///
/// # Errors
/// [`SectionError`] names the section.
pub fn check(table: &[Section]) -> Result<(), SectionError> {
    for (at, section) in table.iter().enumerate() {
        if section.bytes == 0 || section.start.checked_add(section.bytes).is_none() {
            return Err(SectionError::Size(at));
        }
        for (other, before) in table[..at].iter().enumerate() {
            if section.contains(before.start) || before.contains(section.start) {
                return Err(SectionError::Overlap(at, other));
            }
        }
    }
    for (at, section) in table.iter().enumerate() {
        let inside =
            |other: &Section| other.contains(section.restart) && section.restart != other.start;
        if let Some(other) = table.iter().position(inside) {
            return Err(SectionError::Inside(at, other));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(start: usize, bytes: usize, restart: usize) -> Section {
        Section { start, bytes, restart }
    }

    #[test]
    fn only_what_is_inside_starts_over() {
        let table = [section(100, 10, 100), section(200, 4, 300)];
        for (at, to) in
            [(99, 99), (100, 100), (109, 100), (110, 110), (200, 300), (203, 300), (204, 204)]
        {
            assert_eq!(restart(&table, at), to, "{at}");
        }
        assert_eq!(restart(&[], 7), 7);
    }

    #[test]
    fn a_table_that_cannot_be_is_refused() {
        assert_eq!(check(&[section(100, 10, 100), section(200, 4, 300)]), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[section(100, 0, 100)]), Err(SectionError::Size(0)));
        assert_eq!(check(&[section(usize::MAX, 2, 1)]), Err(SectionError::Size(0)));
        let overlap = [section(100, 10, 100), section(109, 1, 109)];
        assert_eq!(check(&overlap), Err(SectionError::Overlap(1, 0)));
        let inside = [section(100, 10, 100), section(200, 4, 105)];
        assert_eq!(check(&inside), Err(SectionError::Inside(1, 0)));
    }
}
