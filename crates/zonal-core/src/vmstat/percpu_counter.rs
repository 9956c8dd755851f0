//! The generic counter of a kernel: one sum under a lock, one local share per CPU, and a batch that
//! says when a share goes to the sum (LB F.8). For memory committed, blocks of a file system, or
//! other counts of a platform.
//!
//! It differs from the counters of zones: a share that *reaches* the batch is folded, there is no
//! overstep, and the exact sum can be asked for.
//!
//! - **PERCPU-1** `count + sum of shares` is what was added, whenever no addition is under way
//! - **PERCPU-2** `|share| < batch` between additions, while the batch stands

use crate::sync::{AtomicI64, Lock, Ordering::Relaxed, Wait};
use crate::types::CpuId;
use core::cmp::Ordering;

/// Smallest default batch (LB F.8).
const BATCH_MIN: i64 = 32;

/// A counter over caller-owned shares, one per CPU.
#[derive(Debug)]
pub struct PercpuCounter<'a> {
    /// Held while shares move to the sum, so that no two do at once and a sum sees each once.
    folding: Lock<()>,
    count: AtomicI64,
    batch: AtomicI64,
    shares: &'a [AtomicI64],
}

/// The default batch for a number of online CPUs (LB F.8).
pub const fn batch(cpus: usize) -> i64 {
    let twice = 2 * cpus as i64;
    if twice > BATCH_MIN { twice } else { BATCH_MIN }
}

/// The batch of the counter of committed memory (LB F.8): a share of the memory, so that machines
/// with many CPUs seldom take the lock, and a smaller one where the limit is enforced strictly.
pub const fn committed_batch(present_cpus: usize, ram_pages: u64, strict: bool) -> i64 {
    let cpus = if present_cpus == 0 { 1 } else { present_cpus as u64 };
    let part = ram_pages / cpus / if strict { 256 } else { 4 };
    let part = if part > i32::MAX as u64 { i32::MAX as i64 } else { part as i64 };
    let default = batch(present_cpus);
    if part > default { part } else { default }
}

impl<'a> PercpuCounter<'a> {
    /// A counter of `count` whose shares are all zero.
    pub fn new(shares: &'a [AtomicI64], count: i64) -> PercpuCounter<'a> {
        let batch = AtomicI64::new(batch(shares.len()));
        PercpuCounter { folding: Lock::default(), count: AtomicI64::new(count), batch, shares }
    }

    /// The batch in force.
    pub fn batch(&self) -> i64 {
        self.batch.load(Relaxed)
    }

    /// Another batch; at least 1.
    pub fn set_batch(&self, batch: i64) {
        self.batch.store(batch.max(1), Relaxed);
    }

    /// Adds `amount` on `cpu`.
    ///
    /// # Panics
    /// If there is no share for the CPU.
    pub fn add<W: Wait>(&self, wait: &W, cpu: CpuId, amount: i64) {
        let share = &self.shares[cpu.0 as usize];
        let batch = self.batch();
        let stays = |old: i64| (old + amount).abs() < batch;
        // Relaxed: single values; nothing else depends on them.
        let kept = share.fetch_update(Relaxed, Relaxed, |old| stays(old).then_some(old + amount));
        if kept.is_err() {
            let _folding = self.folding.lock(wait);
            self.count.fetch_add(share.swap(0, Relaxed) + amount, Relaxed);
        }
    }

    /// The sum without the shares; off by less than the batch for each CPU.
    pub fn read(&self) -> i64 {
        self.count.load(Relaxed)
    }

    /// The same, 0 if it is below.
    pub fn read_positive(&self) -> i64 {
        self.read().max(0)
    }

    /// The sum with all shares.
    pub fn sum<W: Wait>(&self, wait: &W) -> i64 {
        let _folding = self.folding.lock(wait);
        self.sum_locked()
    }

    fn sum_locked(&self) -> i64 {
        self.read() + self.shares.iter().map(|share| share.load(Relaxed)).sum::<i64>()
    }

    /// How far the sum may be from [`read`](Self::read).
    fn unknown(&self) -> i64 {
        self.batch() * self.shares.len() as i64
    }

    /// Compares with `value`, adding up the shares only where they could decide.
    pub fn compare<W: Wait>(&self, wait: &W, value: i64) -> Ordering {
        let count = self.read();
        if (count - value).abs() > self.unknown() {
            return count.cmp(&value);
        }
        self.sum(wait).cmp(&value)
    }

    /// Adds `amount` on `cpu` if the sum then does not cross `limit`: does not exceed it going up,
    /// does not fall below it going down. Returns whether it was added.
    ///
    /// # Panics
    /// If there is no share for the CPU.
    pub fn limited_add<W: Wait>(&self, wait: &W, cpu: CpuId, limit: i64, amount: i64) -> bool {
        if amount == 0 {
            return true;
        }
        // Going down is going up with all signs changed.
        let sign = amount.signum();
        let (limit, step) = (limit * sign, amount.abs());
        let share = &self.shares[cpu.0 as usize];
        let (batch, unknown) = (self.batch(), self.unknown());
        if self.read() * sign + unknown + step <= limit {
            let stays = |old: i64| ((old + amount).abs() < batch).then_some(old + amount);
            if share.fetch_update(Relaxed, Relaxed, stays).is_ok() {
                return true;
            }
        }
        let _folding = self.folding.lock(wait);
        let after = self.read() * sign + step;
        let within = if after > limit.saturating_add(unknown) {
            false
        } else if after <= limit.saturating_sub(unknown) {
            true
        } else {
            self.sum_locked() * sign + step <= limit
        };
        if within {
            self.count.fetch_add(share.swap(0, Relaxed) + amount, Relaxed);
        }
        within
    }

    /// A CPU is gone: its share goes to the sum. `online` CPUs are left for the default batch.
    ///
    /// # Panics
    /// If there is no share for the CPU.
    pub fn cpu_dead<W: Wait>(&self, wait: &W, cpu: CpuId, online: usize) {
        {
            let _folding = self.folding.lock(wait);
            let share = self.shares[cpu.0 as usize].swap(0, Relaxed);
            self.count.fetch_add(share, Relaxed);
        }
        self.set_batch(batch(online));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::sync::Spin;

    fn shares(cpus: usize) -> Vec<AtomicI64> {
        (0..cpus).map(|_| AtomicI64::new(0)).collect()
    }

    #[test]
    fn batches_are_those_of_lb_f_8() {
        assert_eq!([1, 16, 17, 64].map(batch), [32, 32, 34, 128]);
        // 64 GiB, 8 CPUs: a quarter of each CPU's part, or 1/256 of it.
        assert_eq!(committed_batch(8, 1 << 24, false), 1 << 19);
        assert_eq!(committed_batch(8, 1 << 24, true), 1 << 13);
        assert_eq!(committed_batch(64, 1 << 10, true), 128);
        assert_eq!(committed_batch(1, u64::MAX, false), i64::from(i32::MAX));
    }

    #[test]
    fn a_share_that_reaches_the_batch_is_folded() {
        let shares = shares(2);
        let counter = PercpuCounter::new(&shares, 0);
        (0..31).for_each(|_| counter.add(&Spin, CpuId(0), 1));
        assert_eq!((counter.read(), counter.sum(&Spin)), (0, 31));
        counter.add(&Spin, CpuId(0), 1);
        assert_eq!((counter.read(), counter.sum(&Spin)), (32, 32));
        counter.add(&Spin, CpuId(1), -500);
        assert_eq!((counter.read(), counter.read_positive()), (-468, 0));
    }

    #[test]
    fn a_dead_cpus_share_is_kept() {
        let shares = shares(40);
        let counter = PercpuCounter::new(&shares, 5);
        counter.add(&Spin, CpuId(39), 7);
        assert_eq!((counter.read(), counter.batch()), (5, 80));
        counter.cpu_dead(&Spin, CpuId(39), 39);
        assert_eq!((counter.read(), counter.batch()), (12, 78));
    }

    proptest! {
        #[test]
        fn sums_comparisons_and_limits_are_exact(
            cpus in 1usize..5,
            start in -300i64..300,
            steps in prop::collection::vec(
                (0usize..5, -90i64..90, -200i64..200, any::<bool>()),
                0..80,
            ),
        ) {
            let shares = shares(cpus);
            let counter = PercpuCounter::new(&shares, start);
            let mut sum = start;
            for (cpu, amount, limit, limited) in steps {
                let cpu = CpuId((cpu % cpus) as u32);
                if limited {
                    let fits = match amount {
                        0 => true,
                        1.. => sum + amount <= limit,
                        _ => sum + amount >= limit,
                    };
                    prop_assert_eq!(counter.limited_add(&Spin, cpu, limit, amount), fits);
                    sum += if fits { amount } else { 0 };
                } else {
                    counter.add(&Spin, cpu, amount);
                    sum += amount;
                }
                prop_assert_eq!(counter.sum(&Spin), sum); // PERCPU-1
                let batch = counter.batch();
                prop_assert!(shares.iter().all(|share| share.load(Relaxed).abs() < batch));
                prop_assert!((counter.read() - sum).abs() < batch * cpus as i64);
                prop_assert_eq!(counter.compare(&Spin, limit), sum.cmp(&limit));
            }
        }
    }
}
