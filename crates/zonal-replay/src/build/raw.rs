//! The records of a rebuilt machine, to be written.
#![allow(unsafe_code)]

use zonal_core::alloc::Raw;

use super::{Rebuilt, Script};

impl<'a> Rebuilt<'a> {
    /// The allocator's records, to be written as the recording says.
    pub fn raw(&self) -> Raw<'_, 'a, Script> {
        // SAFETY: (1) there is no memory behind the pages, so nobody uses one; (2) one thread plays
        // all CPUs, and writes what a moment of a kernel was.
        unsafe { Raw::new(&self.allocator) }
    }
}
