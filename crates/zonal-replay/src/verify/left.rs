//! Whether runs as it is were as it is: what a run with a setting that gives files room leaves in
//! memory stays there when the setting is put back, until somebody wants the memory.

use super::interval::Interval;

/// Less than this, in GiB, says nothing of what a run reads.
const READ_MIN_GIB: f64 = 0.1;

/// Says so where runs as it is read less than half of what its recordings did.
pub(super) fn left_in_memory(recorded: Option<Interval>, now: Option<Interval>) -> Option<String> {
    let (recorded, now) = recorded.zip(now)?;
    let is_less = recorded.low >= READ_MIN_GIB && now.mid < recorded.low / 2.0;
    is_less.then(|| {
        format!(
            "runs as it is read {:.2} GiB and its recordings {:.2}: they found in memory what a \
             run with the setting had left there, and say nothing. Let each run begin as the \
             first one did: `--prepare 'sync; echo 1 > /proc/sys/vm/drop_caches'`, or a load that \
             drops its own files first (posix_fadvise, `dd if=FILE iflag=nocache count=0`)",
            now.mid, recorded.mid
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_no_more_was_left_by_another_run() {
        let of = |gib| Some(Interval { low: gib, mid: gib, high: gib });
        let told = left_in_memory(of(3.28), of(0.1)).unwrap();
        assert!(told.contains("read 0.10 GiB and its recordings 3.28"), "{told}");
        for (recorded, now) in [(of(3.28), of(3.0)), (of(0.05), of(0.0)), (None, of(0.0))] {
            assert_eq!(left_in_memory(recorded, now), None);
        }
        // Perhaps only one of the recordings read as much.
        let wide = Some(Interval { low: 0.1, mid: 1.6, high: 3.28 });
        assert_eq!(left_in_memory(wide, of(0.06)), None);
    }
}
