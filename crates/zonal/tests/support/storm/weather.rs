//! What blows over the workers of a storm: threads that move, drains, trims, settings that change.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use zonal::{CpuId, PAGE_SIZE, Sysctl, ZoneKind};

use super::super::{Rng, cpus, move_thread};
use super::Site;

impl Site<'_> {
    pub(super) fn move_everybody(&self) -> u64 {
        let cpus = cpus();
        let mut rng = Rng::new(77);
        let mut moves = 0;
        while !self.stop.load(Relaxed) {
            let threads = self.threads.lock().unwrap().clone();
            for thread in threads {
                let one = [cpus[rng.below(cpus.len())]];
                let where_to = if rng.below(8) == 0 { cpus } else { &one[..] };
                moves += u64::from(move_thread(thread, where_to));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        moves
    }

    pub(super) fn drain(&self) {
        while !self.stop.load(Relaxed) {
            self.drained.fetch_add(self.pool.drain_all(), Relaxed);
            self.drains.fetch_add(1, Relaxed);
            for cpu in 0..self.pool.view().cpus() {
                self.pool.refresh(CpuId(cpu as u32));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn trim(&self) -> u64 {
        while !self.stop.load(Relaxed) {
            match self.pool.trim(usize::MAX) {
                // There a pool gives nothing back before it ends.
                Err(_) if cfg!(any(zonal_portable, not(target_os = "linux"))) => {}
                trimmed => _ = trimmed.unwrap(),
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        self.pool.trimmed_bytes()
    }

    /// The budget and the sysctls change, within what a pool takes; at the end both are as they
    /// were. Returns the changes that were accepted.
    pub(super) fn change_settings(&self) -> u64 {
        let mut rng = Rng::new(self.plan.seed << 32 | 55);
        let mut changed = 0;
        while !self.stop.load(Relaxed) {
            let accepted = match rng.below(6) {
                0 => {
                    let pages = self.pool.bytes() / PAGE_SIZE;
                    let bytes = (pages / 2 + rng.below(pages / 2)) * PAGE_SIZE;
                    self.pool.set_budget(bytes).is_ok()
                }
                1 => self.set(Sysctl::WatermarkScaleFactor, 1 + rng.below(1000)),
                2 => self.set(Sysctl::WatermarkBoostFactor, rng.below(30_000)),
                3 => self.set(Sysctl::HighFraction, [0, 8, 50][rng.below(3)]),
                4 => self.set(Sysctl::LowmemReserveRatio(ZoneKind::Normal), rng.below(64)),
                _ => self.set(Sysctl::NumaStat, rng.below(2)),
            };
            changed += u64::from(accepted);
            std::thread::sleep(Duration::from_micros(500));
        }
        let restored =
            self.pool.set_budget(self.pool.bytes()).is_ok() && self.set(Sysctl::NumaStat, 1);
        assert!(restored, "the settings of before are accepted");
        changed
    }

    fn set(&self, sysctl: Sysctl, value: usize) -> bool {
        self.pool.set(sysctl, value as i64).is_ok()
    }
}
