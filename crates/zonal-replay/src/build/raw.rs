//! The records of a rebuilt machine, to be written.
#![allow(unsafe_code)]

use zonal_core::alloc::Raw;
use zonal_core::frame::Frames;

use super::{Rebuilt, Script};

impl<'a> Rebuilt<'a> {
    /// The allocator's records, to be written as the recording says.
    pub fn raw(&self) -> Raw<'_, 'a, Script> {
        // SAFETY: (1) there is no memory behind the pages, so nobody uses one; (2) one thread plays
        // all CPUs, and writes what a moment of a kernel was.
        unsafe { Raw::new(&self.allocator) }
    }

    /// The frames of a zone, to be written.
    pub fn frames(&self, zone: usize) -> Frames<'a> {
        self.allocator.zones()[zone].frames(self.raw().words(), self.raw().blocks())
    }
}
