//! How long a host waited for its disks and for memory, and how much of that a setting saves.
//!
//! ```text
//!  saved = waited for disks * pages that would have stayed / pages that were read
//! ```
//! Waiting is measured; that it is in proportion to what is read is assumed. So the lower end takes
//! what was written for as slow as what was read, and both ends allow for a page that is waited for
//! shorter or longer than the others.

use zonal_text::vmstat;
use zonal_trace::MachineFiles;

use super::Share;
use crate::advise::{PRICE_FACTOR, Saving};
use crate::readings;

/// What the kernel counted between two readings of its files. Of all tasks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time in which some task waited for a disk, in µs.
    pub disk_us: u64,
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
            memory_us: more("pressure-memory", &some_us)?,
            read_kib: more("vmstat", &|text| vmstat::parse(text).ok()?.value("pgpgin"))?,
            written_kib: more("vmstat", &|text| vmstat::parse(text).ok()?.value("pgpgout"))?,
        })
    }

    /// What is saved where such a share of what was reclaimed stays, in percent of `seconds`.
    /// `samples`: how many pages the least share was found by.
    pub fn saving(&self, share: Share, reclaimed_kib: f64, seconds: f64, samples: usize) -> Saving {
        let waited = percent(self.disk_us, seconds);
        let read = self.read_kib as f64;
        let all = read + self.written_kib as f64;
        let of = |share: f64, kib: f64| match kib > 0.0 {
            true => (share * reclaimed_kib / kib).min(1.0) * waited,
            false => 0.0,
        };
        // Two standard errors of a count.
        let sure = (1.0 - 2.0 / (samples.max(1) as f64).sqrt()).max(0.0);
        let round = |percent: f64| (percent * 1e4).round() / 1e4;
        Saving {
            low: round(of(share.least, all) * sure / PRICE_FACTOR),
            mid: round(of((share.least + share.most) / 2.0, read)),
            high: round((of(share.most, read) * PRICE_FACTOR).min(waited)),
        }
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
        let expected = Waits { disk_us: 3000, memory_us: 0, read_kib: 300, written_kib: 20 };
        assert_eq!(waits, expected);
        assert_eq!(Waits::of(&MachineFiles::default()), None);
        for bad in ["", "full avg10=0.00 total=5\n", "some avg10=0.00\n", "some total=x\n"] {
            assert_eq!(Waits::of(&files([&line(1000), bad], vmstat)), None, "{bad:?}");
        }
        let before = Waits::of(&files([&line(4000), &line(1000)], vmstat)).unwrap();
        assert_eq!(before.disk_us, 0, "a kernel does not count backwards");
        assert_eq!(Waits::of(&files([&line(1), &line(2)], ["x 1\n", "x 2\n"])), None);
    }

    #[test]
    fn waiting_is_saved_in_proportion_to_what_is_not_read() {
        // Six of ten seconds waited, for 1000 pages; 500 of 1000 reclaimed pages would have stayed.
        let waits = Waits { disk_us: 6_000_000, read_kib: 4000, ..Waits::default() };
        let half = Share { least: 0.5, most: 0.5 };
        let many = 1_000_000;
        let saving = waits.saving(half, 4000.0, 10.0, many);
        assert_eq!((saving.mid, saving.high), (30.0, 45.0));
        assert!((saving.low - 30.0 / 1.5).abs() < 0.1, "{saving:?}");
        // Perhaps the waits were for what was written.
        let written = Waits { written_kib: 12_000, ..waits };
        let told = written.saving(half, 4000.0, 10.0, many);
        assert!(told.low < 5.01 && told.mid == 30.0, "{told:?}");
        // More than all of the waiting is never saved, and few samples promise nothing.
        let all = waits.saving(Share { least: 1.0, most: 1.0 }, 36_000.0, 10.0, 4);
        assert_eq!((all.low, all.mid, all.high), (0.0, 60.0, 60.0));
        assert_eq!(waits.saving(Share::default(), 4000.0, 10.0, many), Saving::default());
        let nothing_read = Waits { disk_us: 6_000_000, ..Waits::default() };
        assert_eq!(nothing_read.saving(half, 4000.0, 10.0, many), Saving::default());
        assert_eq!(percent(20_000_000, 10.0), 100.0);
    }
}
