//! What reclaim cost in a recording, and what a setting saves of it.

use serde::Serialize;
use zonal_core::alloc::Sysctl;
use zonal_core::zone::watermark::LOWMEM_RATIO_DEFAULT;
use zonal_trace::{MachineDescription, MachineFiles, PolledState};

use super::cache::Cache;
use super::distances::{Distances, Rings};
use super::marks::{Kept, MarkSettings, Marks, own_min_free};
use super::waits::{Spent, Waits, percent};
use super::wakes::{AskedFor, Wakes};
use super::{HostTimes, MarksSaving, Share};
use crate::advise::Saving;
use crate::readings;
use crate::settings::Settings;
use crate::zones::page_rules;

/// Processor time to read a page of a file again, in ns: about, and at most. It depends on the
/// device, the file system and the size of the blocks.
pub(crate) const REREAD_NS: [f64; 2] = [1500.0, 4000.0];
/// A trace that covers less than this share of its recording's time is a part.
const WHOLE_SHARE: f64 = 0.75;
/// A smaller share of what was read again is not worth a word.
const TOLD_SHARE: f64 = 0.1;
/// A setting that is this many times the kernel's own choice is named as wrong.
const WRONG_TIMES: i64 = 2;

/// What reclaim took of one CPU in a recording. Measured, but for the price of reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReclaimCost {
    /// Background reclaim, in percent of a CPU.
    pub background_percent: f64,
    /// Background compaction, in percent of a CPU.
    pub compaction_percent: f64,
    /// Direct reclaim, in percent of one thread's time: it also waits.
    pub direct_percent: f64,
    /// Pages that were reclaimed.
    pub reclaimed_pages: u64,
    /// Pages of files that had been reclaimed and were read again.
    pub read_again_pages: u64,
    /// Of them, those that would have stayed but for the memory of the recorder's rings; `None`:
    /// the recording does not say how large these were.
    pub read_again_for_rings_pages: Option<u64>,
    /// All of it and reading these pages again, in percent of a CPU.
    pub percent_of_cpu: Saving,
    /// Time in which some task of the host waited for a disk, in percent of the recording's time;
    /// `None`: not in the recording.
    pub disk_wait_percent: Option<f64>,
    /// The same for memory: for reclaim, or for a page of a file that had been reclaimed, which is
    /// a wait for a disk, too.
    pub memory_wait_percent: Option<f64>,
    /// What the host read from its disks, in GiB.
    pub read_gib: Option<f64>,
    /// Whether it was for pages or for blocks; `None`: the recording has no request for it.
    pub asked_for: Option<AskedFor>,
}

/// What the kernel counted between two readings of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    reclaimed: u64,
    read_again: u64,
    background_ns: u64,
    compaction_ns: u64,
}

impl Counters {
    /// `None` where a recording does not have all of them.
    pub(crate) fn of(files: &MachineFiles) -> Option<Counters> {
        let more = |before: &str, after: &str, is_one: &dyn Fn(&str) -> bool| -> u64 {
            readings::sum(after, is_one).saturating_sub(readings::sum(before, is_one))
        };
        let both = |name| readings::before(files, name).zip(readings::after(files, name));
        let ((before, after), (threads, later)) = (both("vmstat")?, both("reclaimers")?);
        if threads.is_empty() || later.is_empty() {
            return None;
        }
        let of_vmstat = |names: [&str; 2]| more(&before, &after, &|name| names.contains(&name));
        let of_thread = |prefix: &str| more(&threads, &later, &|name| name.starts_with(prefix));
        Some(Counters {
            reclaimed: of_vmstat(["pgsteal_kswapd", "pgsteal_direct"]),
            // One counter until 5.9.
            read_again: of_vmstat(["workingset_refault_file", "workingset_refault"]),
            background_ns: of_thread("kswapd"),
            compaction_ns: of_thread("kcompactd"),
        })
    }
}

/// What a run of the load took where nobody recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTimes {
    /// Seconds from its start to its end.
    pub elapsed_s: f64,
    /// Where the CPUs' time went, without that of background reclaim.
    pub times: HostTimes,
}

/// Reclaim in a recording.
#[derive(Debug)]
pub(crate) struct Reclaim {
    cache: Cache,
    asked_for: Option<AskedFor>,
    counters: Counters,
    /// `None`: not in the recording.
    waits: Option<Waits>,
    marks: Marks,
    now: MarkSettings,
    own_min_free: Option<i64>,
    /// Pages that lowmem reserves keep from what fills memory: as it is, and by the kernel's own
    /// ratios.
    reserved: [u64; 2],
    /// `None`: not in the recording.
    rings: Option<Rings>,
    seconds: f64,
}

impl Reclaim {
    /// What a recording of so many seconds says; `None` where it does not say enough.
    pub(crate) fn new(
        (cache, wakes): (Cache, &Wakes),
        files: &MachineFiles,
        (machine, settings): (&MachineDescription, &Settings),
        polls: &[PolledState],
        (start_ns, seconds): (u64, f64),
    ) -> Option<Reclaim> {
        let now = MarkSettings {
            min_free_kbytes: settings.min_free_kbytes?,
            scale_factor: settings.value(Sysctl::WatermarkScaleFactor),
            boost_factor: settings.value(Sysctl::WatermarkBoostFactor),
            lowmem_ratios: settings.lowmem_ratios(),
        };
        let marks = Marks::new(machine, (polls, wakes), start_ns, now);
        let own_min_free = own_min_free(machine);
        let own_ratios = MarkSettings { lowmem_ratios: LOWMEM_RATIO_DEFAULT, ..now };
        let reserved = [now, own_ratios].map(|settings| Marks::reserved(machine, settings));
        let counters = Counters::of(files)?;
        let waits = Waits::of(files);
        let asked_for = wakes.asked(files, page_rules(machine));
        let since_ns = cache.since_ns.unwrap_or(u64::MAX);
        let [from, to] = [start_ns, since_ns.max(start_ns)]
            .map(|ns| polls.partition_point(|poll| poll.t_begin_ns < ns));
        let rings = machine.ring_kib.map(|kib| {
            let pages = kib / page_rules(machine).kbytes();
            let were_free = Marks::were_free(machine, &polls[from..to], now, pages);
            Rings { pages, were_free }
        });
        let found = Reclaim {
            cache,
            asked_for,
            counters,
            waits,
            marks,
            now,
            own_min_free,
            reserved,
            rings,
            seconds,
        };
        is_whole(machine, seconds).then_some(found)
    }

    /// What it cost.
    pub(crate) fn cost(&self) -> ReclaimCost {
        let Counters { reclaimed, read_again, background_ns, compaction_ns } = self.counters;
        let of = |ns: u64| round(self.percent(ns as f64));
        let spent = self.spent(None);
        let all = spent.percent(self.cpu_saved(Share::all(), &spent));
        ReclaimCost {
            background_percent: of(background_ns),
            compaction_percent: of(compaction_ns),
            direct_percent: of(self.cache.direct_ns),
            reclaimed_pages: reclaimed,
            read_again_pages: read_again,
            read_again_for_rings_pages: self.rings.map(|_| self.distances().for_rings() as u64),
            percent_of_cpu: Saving { low: of(background_ns), ..all },
            disk_wait_percent: self.disk_wait_percent(),
            memory_wait_percent: self.waits.map(|waits| self.waited(waits.memory_us)),
            read_gib: self.read_gib(),
            asked_for: self.asked_for.clone(),
        }
    }

    /// Time in which some task waited for a disk, in percent.
    pub(crate) fn disk_wait_percent(&self) -> Option<f64> {
        self.waits?;
        let [waited_us, _] = self.spent(None).waited_us;
        Some(self.waited(waited_us as u64))
    }

    /// The same as [`ReclaimCost::read_gib`].
    pub(crate) fn read_gib(&self) -> Option<f64> {
        self.waits.map(|waits| round(waits.read_kib as f64 / f64::from(1 << 20)))
    }

    /// How much of what was read again the recorder's own rings account for, in words, where that
    /// is much.
    pub(crate) fn of_rings(&self) -> Option<String> {
        let (share, rings) = (self.share_of_rings(), self.rings.unwrap_or_default());
        (share >= TOLD_SHARE).then(|| {
            format!(
                "{:.0} % of what was read again had no room because of the recorder's own rings \
                 of {:.0} MiB, and would have stayed without: a smaller --buffer tells more",
                share * 100.0,
                rings.pages as f64 * self.marks.kbytes() / 1024.0
            )
        })
    }

    fn waited(&self, us: u64) -> f64 {
        round(percent(us, self.seconds))
    }

    /// What `sysctls` save of that. A setting under which more pages stay free saves nothing; what
    /// it costs is not modelled.
    pub(crate) fn saving(&self, sysctls: &[(Sysctl, i64)]) -> MarksSaving {
        self.saving_in(sysctls, 0, None)
    }

    /// The same, where the trace itself says of so many pages that they stay, of a run that took
    /// this where nobody recorded. Where the recorder's rings account for some of what is read
    /// again, the trace does not say which.
    pub(crate) fn saving_in(
        &self,
        sysctls: &[(Sysctl, i64)],
        stay: u64,
        run: Option<RunTimes>,
    ) -> MarksSaving {
        let then = self.now.with(sysctls);
        if then == self.now {
            return MarksSaving::default();
        }
        let fewer = self.fewer_kept(then);
        let share = self.distances().share_unrecorded(fewer);
        let stay = if self.share_of_rings() < TOLD_SHARE { stay } else { 0 };
        let share = share.knowing(stay as f64 / self.counters.reclaimed.max(1) as f64);
        let spent = self.spent(run);
        let of_cpu = spent.percent(self.cpu_saved(share, &spent));
        // What it costs to keep less than the kernel itself would is not modelled, and so no time
        // is promised for it.
        let is_sane = self.own_min_free.is_some_and(|own| then.keeps_enough(self.now, own));
        let of_time = self.waits.filter(|_| is_sane).map(|waits| {
            let samples = self.distances().samples(fewer.0);
            let part = self.part_of_read(share, &spent);
            let of_waits = spent.waits_saved(part, waits.share_read(), samples);
            // Where nobody measured it, nothing bounds it.
            let known = spent.system_us.map(|_| self.system_saved(share, &spent));
            let Saving { mid, high, .. } = known.unwrap_or_default();
            let lone = self.cache.readers.lone_share();
            let all = of_waits.plus(Saving { low: 0.0, mid: mid * lone, high });
            spent.percent(all).at_most(100.0)
        });
        MarksSaving { of_cpu, of_time: of_time.unwrap_or_default() }
    }

    /// What the recording took, or such a run.
    fn spent(&self, run: Option<RunTimes>) -> Spent {
        let lone = self.cache.readers.lone_share();
        let waits = self.waits.unwrap_or_default();
        let read_kib = waits.read_kib as f64;
        if let Some(RunTimes { elapsed_s, times }) = run {
            let read_kib = (read_kib - self.distances().for_rings() * self.marks.kbytes()).max(0.0);
            return Spent { read_kib, ..Spent::new(elapsed_s * 1e6, 0.0, Some(times), lone) };
        }
        let threads_ns = self.counters.background_ns + self.counters.compaction_ns;
        let times = waits.times.map(|times| times.without(threads_ns));
        let spent = Spent::new(self.seconds * 1e6, waits.disk_us as f64, times, lone);
        Spent { read_kib, ..spent }
    }

    /// Of all that was read, what is not where such a share of what was reclaimed stays.
    fn part_of_read(&self, share: Share, spent: &Spent) -> Saving {
        let read_kib = spent.read_kib;
        let kib = self.counters.reclaimed as f64 * self.marks.kbytes();
        let of = |share: f64| if read_kib > 0.0 { (share * kib / read_kib).min(1.0) } else { 0.0 };
        Saving { low: of(share.least), mid: of(share.mid), high: of(share.most) }
    }

    /// How many pages more have room under `sysctls`: none where fewer have.
    pub(crate) fn room(&self, sysctls: &[(Sysctl, i64)]) -> u64 {
        let (least, most) = self.fewer_kept(self.now.with(sysctls));
        ((least + most) / 2.0).max(0.0) as u64
    }

    /// How many pages fewer the marks keep with other settings, at least and at most.
    fn fewer_kept(&self, then: MarkSettings) -> (f64, f64) {
        Kept::fewer(self.marks.kept(self.now), self.marks.kept(then))
    }

    /// Pages that `sysctls` would keep, at least and at most: they are neither reclaimed nor read
    /// again.
    pub(crate) fn pages_kept(&self, sysctls: &[(Sysctl, i64)]) -> (f64, f64) {
        let then = self.now.with(sysctls);
        let Share { least, most, .. } = self.distances().share(self.fewer_kept(then));
        let reclaimed = self.counters.reclaimed as f64;
        (least * reclaimed, most * reclaimed)
    }

    /// A wrong setting, in words.
    pub(crate) fn wrong(&self) -> Option<String> {
        let now = self.now.min_free_kbytes;
        let own = self.own_min_free.map(|own| (own, now / own.max(1)));
        let own = own.filter(|(_, times)| *times >= WRONG_TIMES).map(|(own, times)| {
            format!(
                "vm.min_free_kbytes is {now}, {times} times what the kernel itself would choose \
                 ({own})"
            )
        });
        let [reserved, of_own] = self.reserved;
        let of_lowmem = (reserved / of_own.max(1) >= WRONG_TIMES as u64).then(|| {
            let mib = |pages: u64| self.marks.kbytes() * pages as f64 / 1024.0;
            format!(
                "vm.lowmem_reserve_ratio keeps {:.0} MiB of lower zones from what any zone could \
                 serve, the kernel's own {:.0}",
                mib(reserved),
                mib(of_own)
            )
        });
        let wrong: Vec<String> = own.into_iter().chain(of_lowmem).collect();
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    fn distances(&self) -> Distances<'_> {
        let Counters { reclaimed, read_again, .. } = self.counters;
        let rings = self.rings.unwrap_or_default();
        Distances { cache: &self.cache, reclaimed, read_again, rings }
    }

    /// Of what is read again, the share that the recorder's own rings account for.
    pub(crate) fn share_of_rings(&self) -> f64 {
        self.distances().for_rings() / self.counters.read_again.max(1) as f64
    }

    /// That share of what reclaim cost, with reading the pages again, in µs. It saves nothing at
    /// least: where fewer pages are free, large blocks for files are rarer, and reading in small
    /// ones costs more. `docs/howto/loads.md` has a load in which that took all of the saving.
    fn cpu_saved(&self, share: Share, spent: &Spent) -> Saving {
        let Counters { background_ns, compaction_ns, .. } = self.counters;
        let background_us = background_ns as f64 / 1e3;
        let both_us = background_us + compaction_ns as f64 / 1e3;
        let (mid, high) = (share.mid * background_us, share.most * both_us);
        self.system_saved(share, spent).plus(Saving { low: 0.0, mid, high })
    }

    /// The part of it that the load's own threads do.
    fn system_saved(&self, share: Share, spent: &Spent) -> Saving {
        let Counters { reclaimed, read_again, .. } = self.counters;
        let direct_us = (self.cache.direct_ns + self.cache.readers.compacted_ns()) as f64 / 1e3;
        let all = read_again.min(reclaimed) as f64;
        let reread = |share: f64, ns: f64| (share * reclaimed as f64).min(all) * ns / 1e3;
        let (mid, high) = (share.mid * direct_us, share.most * direct_us);
        let direct = Saving { low: 0.0, mid, high };
        let [about_ns, most_ns] = REREAD_NS;
        let priced = Saving {
            low: 0.0,
            mid: mid + reread(share.mid, about_ns),
            high: high + reread(share.most, most_ns),
        };
        spent.system_saved(self.part_of_read(share, spent), direct, priced)
    }

    fn percent(&self, ns: f64) -> f64 {
        ns / 1e7 / self.seconds
    }
}

/// Whether events cover the time that the kernel's counters are of. Of a part, whose events were
/// dropped or cut off, counters of the whole say nothing.
fn is_whole(machine: &MachineDescription, seconds: f64) -> bool {
    let of_load = |(begin, end): (u64, u64)| end.saturating_sub(begin) as f64 / 1e9;
    let covers = |(begin, end)| seconds >= of_load((begin, end)) * WHOLE_SHARE;
    seconds > 0.0
        && machine.events_dropped.unwrap_or(0) == 0
        && machine.workload_ns.is_some_and(covers)
}

fn round(percent: f64) -> f64 {
    (percent * 1e4).round() / 1e4
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::cache::tests::{of, passes};
    use super::super::marks::tests::{NOW, machine, sample};
    use super::*;
    use zonal_core::types::ZoneKind;

    /// Ten seconds in which background reclaim took 2 s, of passes over a file of 100 samples of
    /// which 70 fit.
    pub(crate) fn reclaim(now: MarkSettings, refaults: u64) -> Reclaim {
        let machine = machine();
        let cache = of(&passes(3, 100, 70));
        let counters = Counters {
            // A sample is 10,000 pages.
            reclaimed: cache.reclaimed * 10_000,
            read_again: refaults * 10_000,
            background_ns: 2_000_000_000,
            compaction_ns: 0,
        };
        let marks = Marks::new(&machine, (&[sample(&machine, 0, 0)], &Wakes::default()), 0, now);
        let own_min_free = own_min_free(&machine);
        let reserved = [now, NOW].map(|settings| Marks::reserved(&machine, settings));
        // Half of the time is waited for the disk: each of the 300 samples is read once.
        let read_kib = 300 * 10_000 * 4;
        let waits = Some(Waits { disk_us: 5_000_000, read_kib, ..Waits::default() });
        Reclaim {
            cache,
            asked_for: None,
            counters,
            waits,
            marks,
            now,
            own_min_free,
            reserved,
            rings: None,
            seconds: 10.0,
        }
    }

    const LESS: [(Sysctl, i64); 1] = [(Sysctl::MinFreeKbytes, 67_584)];

    #[test]
    fn a_reserve_that_keeps_a_working_set_out_is_found() {
        // 12 GiB are kept free, and 300,000 pages more would have been enough.
        let found = reclaim(NOW, 200);
        let MarksSaving { of_cpu: Saving { low, mid, high }, of_time } = found.saving(&LESS);
        let share = 200.0 / 230.0;
        let reread = |ns: f64| 2_000_000.0 * ns / 1e8;
        assert!((mid - (share * 20.0 + reread(REREAD_NS[0]))).abs() < 0.01, "{mid}");
        assert!((high - (share * 20.0 + reread(REREAD_NS[1]))).abs() < 0.01, "{high}");
        assert!(low == 0.0 && mid < high);
        let cost = found.cost();
        assert_eq!((cost.background_percent, cost.percent_of_cpu.low), (20.0, 20.0));
        assert!(high <= cost.percent_of_cpu.high, "no more than all of it");
        // 200 of the 300 that were read.
        assert_eq!((cost.disk_wait_percent, cost.read_gib), (Some(50.0), Some(11.4441)));
        let expected = 50.0 * 200.0 / 300.0;
        assert!((of_time.mid - expected).abs() < 0.01, "{of_time:?}");
        assert!(of_time.low > 0.5 * expected && of_time.low < of_time.mid, "{of_time:?}");
        assert!((of_time.high - 50.0).abs() < 0.01, "{of_time:?}");
        let wrong = found.wrong().unwrap();
        assert!(wrong.contains("186 times what the kernel itself would choose (67584)"), "{wrong}");
    }

    #[test]
    fn what_a_run_waited_and_did_in_the_kernel_is_its_own_and_the_trace_says_what_stays() {
        // Nine of ten seconds are waited for the disk, 0.6 are in the kernel.
        let times = HostTimes { disk_us: 9_000_000, system_us: 600_000 };
        let run = Some(RunTimes { elapsed_s: 10.0, times });
        let found = reclaim(NOW, 200);
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.01, "{found}");
        let MarksSaving { of_cpu, of_time } = found.saving_in(&LESS, 0, run);
        // Of 300 samples 200 are not read; of what the kernel did for them, the middle.
        near(of_time.mid, 60.0 + 4.0 / 2.0);
        near(of_cpu.mid, 20.0 * 200.0 / 230.0 + 4.0 / 2.0);
        near(of_cpu.high, 20.0 * 200.0 / 230.0 + 6.0);
        assert!(of_time.low > 30.0 && of_time.high < 100.0, "{of_time:?}");
        // The trace says that half of them stay.
        let half = found.saving_in(&LESS, 1_000_000, run).of_time;
        near(half.mid, 30.0 + 2.0 / 2.0);
        assert!(half.low < of_time.low && half.high == of_time.high, "{half:?}");
        // A recording has its own times, with those of background reclaim in them.
        let mut recorded = reclaim(NOW, 200);
        let own = HostTimes { system_us: 2_600_000, ..times };
        recorded.waits = recorded.waits.map(|waits| Waits { times: Some(own), ..waits });
        assert_eq!(recorded.saving(&LESS).of_time, of_time);
        assert_eq!(recorded.disk_wait_percent(), Some(90.0));
        assert!(found.saving(&LESS).of_time.mid < 34.0, "waits alone, by a mean over the CPUs");
    }

    #[test]
    fn what_only_the_recorders_rings_kept_out_is_nothing_that_a_setting_saves() {
        // Each page came back after 300,000 others.
        let rings = |pages| Rings { pages, were_free: false };
        let with = |pages| Reclaim { rings: Some(rings(pages)), ..reclaim(NOW, 200) };
        let (without, small, large) = (reclaim(NOW, 200), with(299_999), with(300_000));
        assert_eq!((without.of_rings(), small.of_rings()), (None, None));
        assert_eq!(small.saving(&LESS), without.saving(&LESS));
        assert_eq!(small.cost().read_again_for_rings_pages, Some(0));
        assert_eq!(without.cost().read_again_for_rings_pages, None);
        let told = large.of_rings().unwrap();
        assert!(told.starts_with("100 % of") && told.contains("own rings of 1172 MiB"), "{told}");
        assert_eq!(large.cost().read_again_for_rings_pages, Some(2_000_000));
        let MarksSaving { of_cpu, of_time } = large.saving(&LESS);
        assert_eq!((of_cpu.low, of_cpu.mid, of_time.low, of_time.mid), (0.0, 0.0, 0.0, 0.0));
        assert_eq!(of_time.high, without.saving(&LESS).of_time.high, "if distances are wrong");
        // What the recorded host does is another matter.
        assert_eq!(large.pages_kept(&LESS), without.pages_kept(&LESS));
        // The trace is of the recorded host, too.
        assert_eq!(large.saving_in(&LESS, 500_000, None).of_time.mid, 0.0);
    }

    #[test]
    fn a_reserve_that_would_not_hold_what_comes_back_saves_nothing() {
        // 80 MiB less: each page comes back after 1200 MiB of others.
        let now = MarkSettings { min_free_kbytes: 135_168, ..NOW };
        let found = reclaim(now, 200);
        assert_eq!(found.saving(&LESS), MarksSaving::default());
        assert_eq!(reclaim(NOW, 200).saving(&[]), MarksSaving::default());
        let more = [(Sysctl::MinFreeKbytes, 2 * NOW.min_free_kbytes)];
        assert_eq!(reclaim(NOW, 200).saving(&more), MarksSaving::default());
        assert_eq!(reclaim(NOW, 200).pages_kept(&more), (0.0, 0.0));
        assert_eq!(reclaim(NOW, 200).pages_kept(&LESS), (2_000_000.0, 2_000_000.0));
        let now = MarkSettings { min_free_kbytes: 67_584, ..NOW };
        assert_eq!(reclaim(now, 200).wrong(), None);
    }

    #[test]
    fn a_zone_that_a_reserve_keeps_from_files_is_found() {
        // DMA32 is kept from what fits into the zone Normal; 300,000 pages more would be enough.
        let own = MarkSettings { min_free_kbytes: 67_584, ..NOW };
        let found = reclaim(MarkSettings { lowmem_ratios: [256, 1, 32, 0, 0], ..own }, 200);
        let back = [(Sysctl::LowmemReserveRatio(ZoneKind::Dma32), 256)];
        let MarksSaving { of_time, .. } = found.saving(&back);
        assert!(of_time.low > 10.0 && of_time.mid > 30.0, "{of_time:?}");
        assert_eq!(found.pages_kept(&back), (2_000_000.0, 2_000_000.0));
        let wrong = found.wrong().unwrap();
        assert!(wrong.contains("keeps 3034 MiB") && wrong.contains("own 97"), "{wrong}");
        // Nothing reserved is no wrong, and to have less than the kernel's own promises no time.
        let nothing = [(Sysctl::LowmemReserveRatio(ZoneKind::Dma32), 0)];
        assert_eq!(found.saving(&nothing).of_time, Saving::default());
        let more = [(Sysctl::LowmemReserveRatio(ZoneKind::Dma32), 1)];
        assert_eq!(reclaim(own, 200).saving(&more), MarksSaving::default());
    }

    #[test]
    fn what_never_comes_back_is_not_saved_and_what_left_before_is_not_sure() {
        let mut stream = reclaim(NOW, 0);
        stream.cache.back.clear();
        assert_eq!(stream.saving(&LESS), MarksSaving::default());
        // Pages came back that had left before the recording: perhaps all, perhaps none.
        let mut unknown = reclaim(NOW, 115);
        unknown.cache.back.clear();
        let MarksSaving { of_cpu: Saving { low, high, .. }, of_time } = unknown.saving(&LESS);
        assert_eq!((low, of_time.low), (0.0, 0.0));
        assert!(high >= 10.0 && of_time.high > 0.0, "{high} {of_time:?}");
    }

    #[test]
    fn no_time_is_promised_for_less_than_the_kernel_itself_would_keep() {
        let less = [(Sysctl::MinFreeKbytes, 33_792)];
        let found = reclaim(NOW, 200);
        assert_eq!(found.saving(&less).of_time, Saving::default());
        assert!(found.saving(&less).of_cpu.high > 0.0);
        let without = Reclaim { waits: None, ..reclaim(NOW, 200) };
        assert_eq!(without.saving(&LESS).of_time, Saving::default(), "nothing was measured");
        let cost = without.cost();
        assert_eq!(
            (cost.disk_wait_percent, cost.memory_wait_percent, cost.read_gib),
            (None, None, None)
        );
    }

    #[test]
    fn of_a_part_of_a_recording_the_counters_of_the_whole_say_nothing() {
        let second = 1_000_000_000;
        let whole = MachineDescription {
            workload_ns: Some((5 * second, 15 * second)),
            events_dropped: Some(0),
            ..machine()
        };
        assert!(is_whole(&whole, 10.0) && is_whole(&whole, 9.8));
        assert!(!is_whole(&whole, 3.0), "cut off");
        let dropped = MachineDescription { events_dropped: Some(7), ..whole.clone() };
        assert!(!is_whole(&dropped, 10.0));
        let begun_later = MachineDescription { workload_ns: None, ..whole };
        assert!(!is_whole(&begun_later, 10.0));
        assert!(!is_whole(&dropped, 0.0));
    }

    #[test]
    fn counters_are_differences_and_a_recording_without_them_says_nothing() {
        let mut files = MachineFiles::default();
        assert_eq!(Counters::of(&files), None);
        let mut set = |name: &str, text: &str| files.set(name, text.as_bytes().to_vec());
        set("vmstat.pre", "pgsteal_kswapd 5\npgsteal_direct 1\nworkingset_refault_file 2\n");
        set("vmstat.post", "pgsteal_kswapd 9\npgsteal_direct 2\nworkingset_refault_file 4\n");
        set("reclaimers.pre", "kcompactd0 7\nkswapd0 10\nkswapd1 100\n");
        set("reclaimers.post", "kcompactd0 8\nkswapd0 30\nkswapd1 x\n");
        let counters = Counters::of(&files).unwrap();
        let expected = Counters { reclaimed: 5, read_again: 2, background_ns: 0, compaction_ns: 1 };
        assert_eq!(counters, expected, "a thread that is gone takes nothing back");
    }
}
