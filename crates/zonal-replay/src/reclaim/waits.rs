//! How long a host waited for its disks and for memory, and how much of that a setting saves.
//!
//! ```text
//!  saved = waited for disks * pages that would have stayed / pages that were read
//!        + what its threads did in the kernel to reclaim and to read these pages
//! ```
//! Both are measured; that they are in proportion to what is read is assumed. So the lower end
//! takes what was written for as slow as what was read, and nothing of the second line, and both
//! ends allow for a page that is waited for shorter or longer than the others. What the second line
//! saves is processor time; it is elapsed time as far as one thread at a time reads (`readers`), as
//! waiting is.

use zonal_text::vmstat;
use zonal_trace::MachineFiles;

use super::times::HostTimes;
use crate::advise::{PRICE_FACTOR, Saving};
use crate::readings;

/// What the kernel counted between two readings of its files. Of all tasks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time in which some task waited for a disk, in µs: a mean over the CPUs.
    pub disk_us: u64,
    /// Where the CPUs' time went; `None`: not in the recording.
    pub times: Option<HostTimes>,
    /// Time in which some task waited for memory, in µs: for reclaim, or for a page of a file that
    /// had been reclaimed, which is a wait for a disk, too.
    pub memory_us: u64,
    /// KiB read from disks.
    pub read_kib: u64,
    /// KiB written to disks.
    pub written_kib: u64,
}

impl Waits {
    /// `None` where a recording does not have all of them.
    pub fn of(files: &MachineFiles) -> Option<Waits> {
        let more = |name: &str, of: &dyn Fn(&str) -> Option<u64>| {
            let (before, after) = (readings::before(files, name)?, readings::after(files, name)?);
            Some(of(&after)?.saturating_sub(of(&before)?))
        };
        Some(Waits {
            disk_us: more("pressure-io", &some_us)?,
            times: times(files),
            memory_us: more("pressure-memory", &some_us)?,
            read_kib: more("vmstat", &|text| vmstat::parse(text).ok()?.value("pgpgin"))?,
            written_kib: more("vmstat", &|text| vmstat::parse(text).ok()?.value("pgpgout"))?,
        })
    }

    /// Of all that was read and written, the share that was read.
    pub fn share_read(&self) -> f64 {
        let all = self.read_kib as f64 + self.written_kib as f64;
        if all > 0.0 { self.read_kib as f64 / all } else { 1.0 }
    }
}

fn times(files: &MachineFiles) -> Option<HostTimes> {
    let (before, after) = (readings::before(files, "stat")?, readings::after(files, "stat")?);
    Some(HostTimes::parse(&after)?.since(HostTimes::parse(&before)?))
}

/// What a run took, recorded or not, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    /// From its start to its end.
    pub elapsed_us: f64,
    /// Of it, waited for disks; and at most.
    pub waited_us: [f64; 2],
    /// Processor time in the kernel, but for background reclaim; `None`: not known.
    pub system_us: Option<f64>,
    /// KiB read from disks.
    pub read_kib: f64,
}

impl Spent {
    /// A run in which some task waited for a disk for `pressure_us`, by the kernel's mean over the
    /// CPUs. Of what CPUs waited, the share `lone` is elapsed time.
    pub fn new(elapsed_us: f64, pressure_us: f64, times: Option<HostTimes>, lone: f64) -> Spent {
        let of_cpus = times.map_or(0.0, |times| times.disk_us as f64);
        let waited_us = [of_cpus * lone, of_cpus].map(|us| us.max(pressure_us).min(elapsed_us));
        let system_us = times.map(|times| times.system_us as f64);
        Spent { elapsed_us, waited_us, system_us, read_kib: 0.0 }
    }

    /// What is saved of the waits where such a part of what is read is not. `share_read`: of what
    /// was read and written. `samples`: how many pages the least part was found by.
    pub fn waits_saved(&self, part: Saving, share_read: f64, samples: usize) -> Saving {
        let [waited, most] = self.waited_us;
        // Two standard errors of a count.
        let sure = (1.0 - 2.0 / (samples.max(1) as f64).sqrt()).max(0.0);
        Saving {
            low: part.low.min(1.0) * share_read * sure / PRICE_FACTOR * waited,
            mid: part.mid.min(1.0) * waited,
            high: (part.high * PRICE_FACTOR).min(1.0) * most,
        }
    }

    /// What is saved of processor time in the kernel: `direct`, which reclaims and is measured, and
    /// `priced`, that with a price for each page that is read again. No more than in proportion to
    /// what is read, and how much of that nothing tells: copying pages to programs stays.
    pub fn system_saved(&self, part: Saving, direct: Saving, priced: Saving) -> Saving {
        let Some(system) = self.system_us else { return priced };
        let of = |part: f64, direct: f64| (part.min(1.0) * system).max(direct.min(system));
        let between = f64::midpoint(direct.mid.min(system), of(part.mid, direct.mid));
        Saving {
            low: 0.0,
            mid: priced.mid.min(between),
            high: priced.high.min(of(part.high * PRICE_FACTOR, direct.high)),
        }
    }

    /// So many µs in percent of the run.
    pub fn percent(&self, Saving { low, mid, high }: Saving) -> Saving {
        let of = |us: f64| (us * 1e6 / self.elapsed_us.max(1.0)).round() / 1e4;
        Saving { low: of(low), mid: of(mid), high: of(high) }
    }
}

/// Time in µs as a percentage of `seconds`, at most all of them: the kernel's files are read a
/// little before and after.
pub fn percent(us: u64, seconds: f64) -> f64 {
    (us as f64 / 1e4 / seconds).min(100.0)
}

/// The total of the line `some` of a file of `/proc/pressure`.
fn some_us(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(io: [&str; 2], vmstat: [&str; 2]) -> MachineFiles {
        let mut files = MachineFiles::default();
        for (at, ending) in ["pre", "post"].into_iter().enumerate() {
            let mut set = |name: &str, text: &str| {
                files.set(&format!("{name}.{ending}"), text.as_bytes().to_vec());
            };
            set("pressure-io", io[at]);
            set("pressure-memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
            set("vmstat", vmstat[at]);
        }
        files
    }

    fn line(total: u64) -> String {
        format!(
            "some avg10=0.10 avg60=0.00 avg300=0.00 total={total}\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"
        )
    }

    #[test]
    fn waits_are_differences_and_a_recording_without_them_says_nothing() {
        let vmstat = ["pgpgin 100\npgpgout 5\n", "pgpgin 400\npgpgout 25\n"];
        let waits = Waits::of(&files([&line(1000), &line(4000)], vmstat)).unwrap();
        let expected =
            Waits { disk_us: 3000, times: None, memory_us: 0, read_kib: 300, written_kib: 20 };
        assert_eq!(waits, expected);
        assert_eq!(Waits::of(&MachineFiles::default()), None);
        for bad in ["", "full avg10=0.00 total=5\n", "some avg10=0.00\n", "some total=x\n"] {
            assert_eq!(Waits::of(&files([&line(1000), bad], vmstat)), None, "{bad:?}");
        }
        let before = Waits::of(&files([&line(4000), &line(1000)], vmstat)).unwrap();
        assert_eq!(before.disk_us, 0, "a kernel does not count backwards");
        assert_eq!(Waits::of(&files([&line(1), &line(2)], ["x 1\n", "x 2\n"])), None);
    }

    const SECOND: f64 = 1e6;

    fn part(mid: f64) -> Saving {
        Saving { low: mid, mid, high: mid }
    }

    #[test]
    fn waiting_is_saved_in_proportion_to_what_is_not_read() {
        // Six of ten seconds waited; half of what was read would have stayed.
        let spent = Spent::new(10.0 * SECOND, 6.0 * SECOND, None, 1.0);
        let many = 1_000_000;
        let saved = |half, share_read, samples| {
            spent.percent(spent.waits_saved(part(half), share_read, samples))
        };
        let Saving { low, mid, high } = saved(0.5, 1.0, many);
        assert_eq!((mid, high), (30.0, 45.0));
        assert!((low - 30.0 / 1.5).abs() < 0.1, "{low}");
        // Perhaps the waits were for what was written.
        let waits = Waits { read_kib: 4000, written_kib: 12_000, ..Waits::default() };
        let told = saved(0.5, waits.share_read(), many);
        assert!(told.low < 5.01 && told.mid == 30.0, "{told:?}");
        // More than all of the waiting is never saved, and few samples promise nothing.
        let all = saved(9.0, 1.0, 4);
        assert_eq!((all.low, all.mid, all.high), (0.0, 60.0, 60.0));
        assert_eq!(saved(0.0, 1.0, many), Saving::default());
        assert_eq!(Waits::default().share_read(), 1.0);
        assert_eq!(percent(20_000_000, 10.0), 100.0);
    }

    #[test]
    fn a_reader_waits_longer_than_the_mean_over_the_cpus_says() {
        // One CPU reclaims for three seconds; the reader on the other waits for eight.
        let times = HostTimes { disk_us: 8_000_000, system_us: 2_000_000 };
        let of = |lone| Spent::new(10.0 * SECOND, 6.0 * SECOND, Some(times), lone).waited_us;
        assert_eq!(of(1.0), [8.0 * SECOND; 2]);
        // Two that wait at once: together eight, each for some six of them by the kernel's mean.
        assert_eq!(of(0.5), [6.0 * SECOND, 8.0 * SECOND]);
        // 17 of 10 seconds are two readers, too.
        let times = HostTimes { disk_us: 17_000_000, ..times };
        let two = Spent::new(10.0 * SECOND, 6.0 * SECOND, Some(times), 0.5);
        assert_eq!(two.waited_us, [8.5 * SECOND, 10.0 * SECOND]);
    }

    #[test]
    fn no_more_is_saved_in_the_kernel_than_was_spent_there() {
        let times = HostTimes { disk_us: 0, system_us: 2_000_000 };
        let spent = Spent::new(10.0 * SECOND, 0.0, Some(times), 1.0);
        let (direct, priced) = (part(0.2 * SECOND), part(5.0 * SECOND));
        let saved = spent.system_saved(part(0.5), direct, priced);
        // Between direct reclaim and half of the two seconds; at most three quarters of them.
        let expected = Saving { low: 0.0, mid: 0.6 * SECOND, high: 1.5 * SECOND };
        assert_eq!(saved, expected);
        // Direct reclaim that waits is not all processor time.
        let long = spent.system_saved(part(0.5), part(4.0 * SECOND), priced);
        assert_eq!((long.mid, long.high), (2.0 * SECOND, 2.0 * SECOND));
        // Few pages cost little, whatever else the kernel did.
        assert_eq!(spent.system_saved(part(0.5), part(0.0), part(9.0)).high, 9.0);
        let unknown = Spent { system_us: None, ..spent };
        assert_eq!(unknown.system_saved(part(0.5), direct, priced), priced);
    }
}
