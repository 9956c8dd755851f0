//! What the kernel of this host takes to move a page between a zone and a per-CPU list.
//!
//! Pages of a file in memory are written and cut off again, over and over, in turns with lists that
//! keep all of them and with lists so small that nearly all go to the zone and come back. The
//! difference between the two, in processor time of the threads themselves, is what the way to the
//! zone and back costs. It is measured on one CPU, and on several at once, where pages and the
//! words that describe them come from another CPU's caches.
//!
//! `vm.percpu_pagelist_high_fraction` is changed for some seconds; the recorder's guard puts it
//! back, whatever happens.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use zonal::CpuId;
use zonal::sys::affinity::{Pinned, allowed_cpus};
use zonal_text::zoneinfo;
use zonal_trace::record::Guard;

use super::prices::{MoveNs, Moves};
use crate::record;

/// The setting below `/proc/sys`.
const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
const ZONEINFO: &str = "/proc/zoneinfo";
/// Lists of an eighth of each zone, divided by its CPUs: the largest there are.
const LARGE: &str = "8";
/// Only the least size is left: four batches (LB E.4).
const SMALL: &str = "1000000";
/// Turns; each has both settings, in an order of its own.
const TURNS: usize = 40;
/// Counted from both ends, these turns hold the median in 98.3 % of measurements, by the binomial
/// distribution.
const RANK: usize = 13;
/// Rounds of a half turn that count, behind those in which lists fill or shrink.
const ROUNDS: usize = 8;
const SKIPPED: usize = 3;
/// CPUs that are measured at once, at most.
const CPUS_MAX: usize = 8;
/// Pages of a round, at most and at least: small beside memory, many beside a small list.
const PAGES: std::ops::RangeInclusive<u64> = 1024..=4096;

/// Measures this host. The inner error is why it cannot be measured: rights, a kernel without the
/// setting, another recorder, lists that are too small, or a host that is too busy.
///
/// # Errors
/// What could not be put back.
pub fn measure(progress: &mut dyn FnMut(u64, u64)) -> anyhow::Result<anyhow::Result<Moves>> {
    let mut guard = match record::take_guard(Duration::ZERO, &AtomicUsize::new(0)) {
        Ok(guard) => guard,
        Err(error) => return Ok(Err(error)),
    };
    let measured = with_guard(&mut guard, progress);
    record::put_back(guard)?;
    Ok(measured)
}

fn with_guard(guard: &mut Guard, progress: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Moves> {
    let mut cpus = allowed_cpus()?;
    cpus.truncate(CPUS_MAX);
    let several = cpus.len() > 1;
    let all = TURNS as u64 * if several { 2 } else { 1 };
    let mut done = 0;
    let mut tick = || {
        done += 1;
        progress(done, all);
    };
    let alone = turns(guard, &cpus[..1], &mut tick)?;
    let MoveNs { mid, low, high } = alone;
    ensure!(
        alone.is_clear(),
        "a block took {mid:.1} ns ({low:.1} to {high:.1}): this host is too busy to tell"
    );
    let mut together = None;
    if several {
        let of_several = turns(guard, &cpus, &mut tick)?;
        together = of_several.is_clear().then_some((cpus.len(), of_several));
    }
    Ok(Moves { alone, together })
}

/// Median and interval of what a block takes.
fn turns(guard: &mut Guard, cpus: &[CpuId], tick: &mut dyn FnMut()) -> anyhow::Result<MoveNs> {
    let path = Path::new(FRACTION);
    let few = [Worker::new(cpus[0], *PAGES.start())?];
    let list = |guard: &mut Guard, fraction: &str| -> anyhow::Result<(u64, u64)> {
        guard.set(path, fraction)?;
        // A list takes a new size when it is used.
        let size = rounds(&few).and_then(|_| list_size(cpus[0]));
        guard.restore()?;
        size
    };
    let (large, batch) = list(guard, LARGE)?;
    let (small, _) = list(guard, SMALL)?;
    let pages = (*PAGES.end()).min(large.saturating_sub(batch));
    ensure!(
        pages >= *PAGES.start() && pages >= 2 * small,
        "the per-CPU lists of this host hold {large} pages at most and {small} at least: too few \
         to tell what goes to the zone"
    );
    // What a small list keeps from one round to the next stays: half a batch less than is allowed.
    let moved = 2 * (pages - small.saturating_sub(batch / 2));
    let workers = cpus.iter().map(|cpu| Worker::new(*cpu, pages));
    let workers = workers.collect::<anyhow::Result<Vec<Worker>>>()?;
    let mut differences = Vec::new();
    for turn in 0..TURNS {
        let mut round_ns = [0.0; 2];
        // Neither is always first: a host that becomes slower would be taken for a price.
        for half in [turn % 2, 1 - turn % 2] {
            guard.set(path, [LARGE, SMALL][half])?;
            round_ns[half] = rounds(&workers)?;
            guard.restore()?;
        }
        differences.push((round_ns[1] - round_ns[0]) / moved as f64);
        tick();
    }
    Ok(median(differences))
}

/// Writes and frees pages, on one CPU.
struct Worker {
    cpu: CpuId,
    file: File,
    content: Vec<u8>,
}

impl Worker {
    fn new(cpu: CpuId, pages: u64) -> anyhow::Result<Worker> {
        let file = File::from(memfd_create("zonal-moves", MemfdFlags::CLOEXEC)?);
        Ok(Worker { cpu, file, content: vec![0; pages as usize * rustix::param::page_size()] })
    }
}

/// The round at a quarter of all rounds of all CPUs, the shortest first, in ns of a CPU's processor
/// time: an interrupt, or a host that takes the CPU away, makes a round longer and none shorter.
fn rounds(workers: &[Worker]) -> anyhow::Result<f64> {
    let begin = Barrier::new(workers.len());
    let run = |worker: &Worker| -> anyhow::Result<Vec<f64>> {
        let pinned = Pinned::to(worker.cpu);
        begin.wait();
        let _pinned = pinned?;
        let mut times = Vec::new();
        for round in 0..SKIPPED + ROUNDS {
            let before = processor_ns();
            worker.file.write_all_at(&worker.content, 0)?;
            worker.file.set_len(0)?;
            if round >= SKIPPED {
                times.push(processor_ns() - before);
            }
        }
        Ok(times)
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let threads: Vec<_> = workers.iter().map(|worker| scope.spawn(|| run(worker))).collect();
        for thread in threads {
            match thread.join() {
                Ok(times) => all.extend(times?),
                Err(_) => bail!("a measuring thread panicked"),
            }
        }
        Ok(())
    })?;
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 4).copied().context("no round was measured")
}

/// Processor time of this thread, in ns.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The median of the turns, and the values that stand [`RANK`] from both ends.
fn median(mut values: Vec<f64>) -> MoveNs {
    values.sort_unstable_by(f64::total_cmp);
    let at = |rank: usize| values.get(rank).copied().unwrap_or(f64::NAN);
    let (count, middle) = (values.len(), values.len() / 2);
    let mid = at(middle.saturating_sub(1 - count % 2)).midpoint(at(middle));
    let low = (RANK - 1).min(middle);
    MoveNs { mid, low: at(low), high: at(count.saturating_sub(1 + low)) }
}

/// The size and the batch of a CPU's largest list.
fn list_size(cpu: CpuId) -> anyhow::Result<(u64, u64)> {
    let text = fs::read_to_string(ZONEINFO).context(ZONEINFO)?;
    let document = zoneinfo::parse(&text).context(ZONEINFO)?;
    let lists = document.zones.iter().flat_map(|zone| zone.pagesets.iter().flatten());
    let own = lists.map(|list| list.values()).filter(|list| list.cpu == cpu.0);
    let sizes = own.map(|list| (list.high_max.unwrap_or(list.high), list.batch));
    sizes.max().with_context(|| format!("{ZONEINFO} has no list of CPU {}", cpu.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_the_thirteenth_from_both_ends() {
        let of = median((1..=TURNS).rev().map(|turn| turn as f64).collect());
        assert_eq!(of, MoveNs { mid: 20.5, low: 13.0, high: 28.0 });
        assert_eq!(median(vec![3.0, 1.0, 2.0]).mid, 2.0);
        assert!(median(Vec::new()).mid.is_nan());
        // By the binomial distribution: twelve or fewer of forty on one side of the median.
        let ways = |of: u32, times: u32| {
            (0..times).fold(1.0, |ways, at| ways * f64::from(of - at) / f64::from(at + 1))
        };
        let less: f64 = (0..RANK as u32).map(|count| ways(TURNS as u32, count)).sum();
        let within = 1.0 - 2.0 * less / 2.0_f64.powi(TURNS as i32);
        assert!((0.98..0.99).contains(&within), "{within}");
    }

    #[test]
    fn what_may_be_nothing_is_not_clear() {
        assert!(MoveNs { mid: 80.0, low: 60.0, high: 90.0 }.is_clear());
        assert!(!MoveNs { mid: 80.0, low: -10.0, high: 190.0 }.is_clear());
        assert!(!MoveNs { mid: 80.0, low: 20.0, high: 190.0 }.is_clear(), "too wide");
    }
}
