//! Options that cannot be, found before anything is taken from the system. Each error names the
//! value and what is possible.

use std::time::Duration;

use zonal_core::machine::Layout;
use zonal_core::policy::set::SetError;
use zonal_core::types::PAGE_SIZE;

use super::builder::{Backing, BuildError, Builder, Notice};
use super::plan::Plan;
use crate::sys::cgroup::CgroupFiles;
use crate::sys::machine::Room;

/// Most bytes of a pool.
const BYTES_MAX: u64 = 1 << 44;

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
        match bytes as u64 {
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
        self.check_filled(plan.pages * PAGE_SIZE as u64, &CgroupFiles::default())
    }

    /// What is filled before the pool is used must be there.
    fn check_filled(&self, bytes: u64, files: &CgroupFiles) -> Result<(), BuildError> {
        // Prefaulted by threads in the background, a pool goes on with what there is.
        let filled = [("prefault", self.prefault && !self.deferred), ("poison", self.poison)];
        let Some((what, _)) = filled.into_iter().find(|(_, fills)| *fills) else { return Ok(()) };
        let Room { bytes: memory, owner } = self.room(files);
        match bytes > memory {
            true => Err(BuildError::Memory { what, bytes, memory, owner }),
            false => Ok(()),
        }
    }

    /// What the pool's memory comes out of. Control groups do not count reserved huge pages as
    /// memory, nor a device's; of memory that is brought nobody says what it is.
    fn room(&self, files: &CgroupFiles) -> Room {
        match self.brought.is_some() || self.backing == Backing::Huge2M {
            true => Room::of_machine(),
            false => Room::of_process(files),
        }
    }

    /// Says so where the system would end the process before all of the pool is in use.
    pub(super) fn too_large(&self, given: usize, files: &CgroupFiles) -> Option<Notice> {
        let bytes = self.budget.map_or(given, |budget| budget.min(given));
        let Room { bytes: memory, owner } = self.room(files);
        (self.brought.is_none() && bytes as u64 > memory).then(|| {
            Notice(format!(
                "{bytes} bytes of the pool may be in use, and {owner} has {memory}: the system \
                 may end the process when more is written to; make the pool smaller, or give it a \
                 budget"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a process that may have so many bytes.
    fn limited(bytes: u64) -> (tempfile::TempDir, CgroupFiles) {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        std::fs::write(at("memory.max"), bytes.to_string()).unwrap();
        std::fs::write(at("memory.swap.max"), "0").unwrap();
        std::fs::write(at("membership"), "0::/\n").unwrap();
        let mount = format!("1 1 0:1 / {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        std::fs::write(at("mounts"), mount).unwrap();
        let files = CgroupFiles { membership: at("membership"), mounts: at("mounts") };
        (tree, files)
    }

    #[test]
    fn a_pool_that_its_control_group_has_no_room_for_says_so() {
        let (_tree, files) = limited(48 << 20);
        let pool = || Builder::new().size(64 << 20);
        let told = |builder: &Builder| builder.too_large(64 << 20, &files).map(|one| one.0);
        let text = told(&pool()).expect("a notice");
        assert!(text.contains("67108864 bytes") && text.contains("50331648"), "{text}");
        assert!(text.contains("memory.max"), "{text}");
        for fits in [pool().budget(40 << 20), pool().backing(Backing::Huge2M)] {
            assert_eq!(told(&fits), None);
        }
        assert!(told(&pool().budget(56 << 20)).is_some_and(|text| text.contains("58720256")));
        let (_tree, files) = limited(64 << 20);
        assert_eq!(pool().too_large(64 << 20, &files), None);
    }

    #[test]
    fn a_pool_is_not_filled_beyond_what_its_control_group_allows() {
        let (_tree, files) = limited(48 << 20);
        let refused =
            |builder: &Builder| builder.check_filled(64 << 20, &files).map_err(|e| e.to_string());
        let pool = || Builder::new().size(64 << 20);
        let error = refused(&pool().prefault(true)).unwrap_err();
        assert!(error.starts_with("prefault would fill 67108864 bytes"), "{error}");
        assert!(error.contains("memory.max) has 50331648; make the pool smaller"), "{error}");
        assert!(refused(&pool().poison(true)).is_err());
        for goes_on in [
            pool(),
            pool().prefault(true).deferred(true),
            pool().prefault(true).backing(Backing::Huge2M),
        ] {
            assert_eq!(refused(&goes_on), Ok(()));
        }
    }
}
