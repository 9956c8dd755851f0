//! When the sizes of the per-CPU lists are computed (LB E.4, E.11).

use crate::types::choice;

choice! {
    /// When the sizes of the per-CPU lists are computed. Each value adds to the one before it. A
    /// write to `percpu_pagelist_high_fraction` always does.
    #[derive(PartialOrd, Ord)]
    pub enum Recompute {
        /// When the lists are made, from the memory online then: up to 5.4, except its last weeks.
        /// Where most memory comes online later, lists stay as small as its first section asks.
        Creation = "creation" if "history",
        /// And when deferred memory has come online: the fix of 2019.
        DeferredInit = "deferred-init" if "history",
        /// And with the watermarks: since 5.14.
        Watermarks = "watermarks",
        /// And when a CPU comes or goes.
        Cpus = "cpus",
    }
}
