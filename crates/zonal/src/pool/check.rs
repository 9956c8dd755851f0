//! Options that cannot be, found before anything is taken from the system. Each error names the
//! value and what is possible.

use std::time::Duration;

use zonal_core::machine::Layout;
use zonal_core::policy::set::SetError;
use zonal_core::types::PAGE_SIZE;

use super::builder::{BuildError, Builder};
use super::plan::Plan;
use crate::sys::machine::memory_bytes;

/// Most bytes of a pool.
const BYTES_MAX: usize = 1 << 44;

impl Builder {
    /// What needs no look at the machine.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.check_memory()?;
        self.check_sizes()?;
        self.check_policy()?;
        let conflict = |reason| Err(BuildError::Options(reason));
        if self.deferred && self.poison {
            return conflict("deferred and poison exclude each other");
        }
        if self.deferred && self.budget.is_some() {
            return conflict("deferred and a budget exclude each other");
        }
        if self.deferred && self.parallel {
            return conflict("deferred and prefault_parallel exclude each other");
        }
        if self.refresh.is_none() && self.observe.is_some() {
            return conflict("observe needs the refresh thread; expected refresh_every(Some(_))");
        }
        if self.refresh == Some(Duration::ZERO) {
            return conflict("a refresh interval of 0 s; expected more than 0, or None for none");
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), BuildError> {
        let empty = |bytes: usize| bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE);
        if let Some(zone) = self.zones.iter().position(|zone| empty(zone.bytes)) {
            return Err(BuildError::Zone { zone, bytes: self.zones[zone].bytes });
        }
        let bytes = match self.zones.as_slice() {
            [] => self.bytes,
            zones => zones.iter().map(|zone| zone.bytes).fold(0, usize::saturating_add),
        };
        let wrong = |expected| Err(BuildError::Size { bytes, expected });
        match bytes {
            0 => wrong("expected at least one page; call size() or zones()"),
            1..=BYTES_MAX => Ok(()),
            _ => wrong("expected at most 16 TiB"),
        }
    }

    /// Each value of the policy must be one that its key accepts, however it was written.
    fn check_policy(&self) -> Result<(), BuildError> {
        self.policy.check().map_err(|conflict| BuildError::Policy(conflict.reason))?;
        for assignment in self.policy.settings() {
            let (setting, value) = (assignment.setting, assignment.value().to_string());
            let mut same = self.policy;
            if let Err(SetError::Refused { key, .. }) = same.set(setting.key, &value) {
                let expected = setting.accepted().to_string();
                return Err(BuildError::Setting { key, value: value.clone(), expected });
            }
        }
        Ok(())
    }

    /// What depends on the machine.
    pub(super) fn check_plan(&self, plan: &Plan) -> Result<(), BuildError> {
        Layout::of(&plan.borrowed(), &self.policy)?;
        let bytes = plan.pages * PAGE_SIZE as u64;
        // Prefaulted by threads in the background, a pool goes on with what there is.
        let filled = [("prefault", self.prefault && !self.deferred), ("poison", self.poison)];
        let Some((what, _)) = filled.into_iter().find(|(_, fills)| *fills) else { return Ok(()) };
        match memory_bytes() {
            memory if bytes > memory => Err(BuildError::Memory { what, bytes, memory }),
            _ => Ok(()),
        }
    }
}
