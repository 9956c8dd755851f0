//! The updates themselves, for x86-64 with glibc. Each CPU has an area: its counter at +0, its lock
//! at +64. RSEQ-1 to RSEQ-4 of `subjects/rseq_asm.rs` hold; the commit is the store to the counter.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::region::Region;
use crate::subjects::rseq_asm::{CPU_STRIDE, enter, exit, possible_cpus, registered_offset};

/// The threshold that both quad-core processors of 2007 had.
const THRESHOLD: i64 = 32;
/// A fold takes half of it more along.
const OVERSTEP: i64 = THRESHOLD / 2;
/// Where a CPU's lock lies in its area.
const LOCK_AT: usize = 64;

/// A counter per CPU, and the shared one.
pub(super) struct Counters {
    base: *mut u8,
    offset: isize,
    shared: AtomicI64,
    areas: Region,
}

impl Counters {
    /// Zeroed counters.
    ///
    /// # Errors
    /// Why there are no restartable sequences here.
    pub(super) fn new() -> Result<Counters, String> {
        let offset = registered_offset()?;
        let areas = Region::new(possible_cpus()? * CPU_STRIDE).map_err(|e| e.to_string())?;
        Ok(Counters { base: areas.start(), offset, shared: AtomicI64::new(0), areas })
    }

    /// Cycles of a number of calls of a function in one variant.
    pub(super) fn round(&self, way: usize, function: usize, calls: u32) -> u64 {
        match (way, function) {
            (_, 2) => self.time(calls, |c| c.add_guarded(1)),
            (0, 0) => self.time(calls, Counters::locked),
            (0, _) => self.time(calls, Counters::plain),
            (1, 0) => self.time(calls, Counters::cmpxchg_guarded),
            (1, _) => self.time(calls, Counters::cmpxchg),
            (_, 0) => self.time(calls, |c| {
                c.add_guarded(1);
                c.fold_after_add();
            }),
            _ => self.time(calls, |c| {
                c.add(-1);
                c.fold_after_add();
            }),
        }
    }

    fn time(&self, calls: u32, call: impl Fn(&Counters)) -> u64 {
        self.counter().store(0, Ordering::Relaxed);
        // SAFETY: every x86-64 processor has the instruction.
        let start = unsafe { _rdtsc() };
        for _ in 0..calls {
            call(black_box(self));
        }
        // SAFETY: the same.
        let end = unsafe { _rdtsc() };
        end.saturating_sub(start)
    }

    /// Where this CPU's area begins. A hint outside of a section.
    #[inline(always)]
    fn area(&self) -> usize {
        let cpu: u32;
        // SAFETY: `cpu_id` of this thread's rseq area, which glibc has registered (`new`).
        unsafe {
            asm!("mov {c:e}, fs:[{o}+4]", c = out(reg) cpu, o = in(reg) self.offset,
                options(nostack, readonly, preserves_flags));
        }
        let at = cpu as usize * CPU_STRIDE;
        debug_assert!(at < self.areas.bytes());
        at
    }

    #[inline(always)]
    fn counter(&self) -> &AtomicI64 {
        // SAFETY: (1) aligned, zeroed, inside the region, which has an area for every possible CPU
        // and lives as long as `self`. (2) all accesses are atomic or single instructions.
        unsafe { AtomicI64::from_ptr(self.base.wrapping_add(self.area()).cast()) }
    }

    #[inline(always)]
    fn lock(&self) -> &AtomicU32 {
        // SAFETY: as in `counter`; the lock is 64 bytes behind it.
        unsafe { AtomicU32::from_ptr(self.base.wrapping_add(self.area() + LOCK_AT).cast()) }
    }

    /// Load, add, compare, store, by a caller that keeps others out. Relaxed: a counter.
    #[inline(always)]
    fn plain(&self) {
        self.step(self.counter(), -1);
    }

    /// The same with the CPU's lock around it.
    #[inline(always)]
    fn locked(&self) {
        let (lock, counter) = (self.lock(), self.counter());
        // Acquire: pairs with the Release below, of the last holder.
        while lock.swap(1, Ordering::Acquire) != 0 {
            spin_loop();
        }
        self.step(counter, 1);
        // Release: pairs with the Acquire above.
        lock.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn step(&self, counter: &AtomicI64, step: i64) {
        let mut value = counter.load(Ordering::Relaxed) + step;
        if value.abs() > THRESHOLD {
            self.shared.fetch_add(value + step * OVERSTEP, Ordering::Relaxed);
            value = -step * OVERSTEP;
        }
        counter.store(value, Ordering::Relaxed);
    }

    /// A loop around an unlocked compare-and-exchange, by a caller that keeps others out.
    #[inline(always)]
    fn cmpxchg(&self) {
        let counter = self.counter();
        loop {
            let old = counter.load(Ordering::Relaxed);
            let folds = old - 1 < -THRESHOLD;
            let new = if folds { OVERSTEP } else { old - 1 };
            let seen: i64;
            // SAFETY: `counter` is valid for the instruction; see `counter`.
            unsafe {
                asm!("cmpxchg [{p}], {new}", p = in(reg) counter.as_ptr(), new = in(reg) new,
                    inout("rax") old => seen, options(nostack));
            }
            if seen == old {
                if folds {
                    self.shared.fetch_add(old - 1 - OVERSTEP, Ordering::Relaxed);
                }
                return;
            }
        }
    }

    /// The same with its CPU and its commit in one section.
    #[inline(always)]
    fn cmpxchg_guarded(&self) {
        let old: i64;
        // SAFETY: (1) rseq is registered (`new`). (2) the area of every CPU is in the region; the
        // section follows RSEQ-1 to RSEQ-4. Flags are clobbered, as asm! assumes.
        unsafe {
            asm!(
                enter!(),
                "mov rax, [{t}]",
                "lea {v}, [rax+1]",
                "cmp {v}, {threshold}",
                "cmovg {v}, {rest}",
                "cmpxchg [{t}], {v}",
                exit!(""),
                o = in(reg) self.offset,
                t = out(reg) _,
                v = out(reg) _,
                rest = in(reg) -OVERSTEP,
                base = in(reg) self.base,
                stride = const CPU_STRIDE,
                threshold = const THRESHOLD,
                out("rax") old,
                options(nostack),
            );
        }
        // No other thread writes in between: the exchange cannot have failed inside the sequence.
        if old + 1 > THRESHOLD {
            self.shared.fetch_add(old + 1 + OVERSTEP, Ordering::Relaxed);
        }
    }

    /// One addition in memory, by a caller that keeps others out.
    #[inline(always)]
    fn add(&self, step: i64) {
        // SAFETY: `counter` is valid for the instruction; see `counter`.
        unsafe {
            asm!("add qword ptr [{p}], {s}", p = in(reg) self.counter().as_ptr(), s = in(reg) step,
                options(nostack));
        }
    }

    /// One addition to the counter of the running CPU: the commit of a sequence.
    #[inline(always)]
    fn add_guarded(&self, step: i64) {
        // SAFETY: as in `cmpxchg_guarded`.
        unsafe {
            asm!(
                enter!(),
                "add qword ptr [{t}], {step}",
                exit!(""),
                o = in(reg) self.offset,
                t = out(reg) _,
                step = in(reg) step,
                base = in(reg) self.base,
                stride = const CPU_STRIDE,
                options(nostack),
            );
        }
    }

    /// What follows an addition: the compare, and the fold in a section.
    #[inline(always)]
    fn fold_after_add(&self) {
        let value = self.counter().load(Ordering::Relaxed);
        if value.abs() > THRESHOLD {
            let taken = value + value.signum() * OVERSTEP;
            self.add_guarded(-taken);
            self.shared.fetch_add(taken, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_counting_loses_a_count() {
        let Ok(counters) = Counters::new() else { return };
        let cpus = crate::Cpus::of_process();
        crate::cpus::restrict_thread(&[cpus.pin(0)]);
        for (way, function, each) in
            [(0, 0, 1), (0, 1, -1), (1, 0, 1), (1, 1, -1), (2, 0, 1), (2, 1, -1), (2, 2, 1)]
        {
            counters.shared.store(0, Ordering::Relaxed);
            counters.round(way, function, 1000);
            let counter = counters.counter().load(Ordering::Relaxed);
            let sum = counters.shared.load(Ordering::Relaxed) + counter;
            assert_eq!(sum, each * 1000, "way {way}, function {function}");
        }
        crate::cpus::restrict_thread(cpus.all());
    }
}
