//! How near the model comes to the kernel, bin by bin of 100 ms, for each zone and CPU.
//!
//! | file | does |
//! |--|--|
//! | `kernel` | what the kernel moved, and what its lists held, at the end of each bin |
//! | `page` | an HTML page with plots that needs nothing else to be shown |

pub(crate) mod kernel;
pub mod page;

use serde::Serialize;
use zonal_trace::PolledState;

use crate::moves::Moves;
use crate::program::Program;
use crate::run::timeline::{Sample, Timeline};
use crate::zones::ZoneMap;

/// Model and kernel over time.
#[derive(Debug, Serialize)]
pub struct Fidelity {
    /// Width of a bin, in ns of the trace.
    pub bin_ns: u64,
    /// Number of bins.
    pub bins: usize,
    /// Samples of `/proc/zoneinfo` in the trace.
    pub polls: usize,
    /// By zone and CPU, where either side moved anything.
    pub places: Vec<Series>,
}

/// One store over time.
#[derive(Debug, Serialize)]
pub struct Series {
    /// The zone, in words.
    pub zone: String,
    /// The CPU.
    pub cpu: u32,
    /// Base pages from the buddy, in each bin.
    pub refill_pages: Pair,
    /// Zone lock holds that took.
    pub refill_holds: Pair,
    /// Base pages to the buddy.
    pub drain_pages: Pair,
    /// Zone lock holds that took.
    pub drain_holds: Pair,
    /// Pages on the lists at the end of each bin; `null` where nothing was polled yet.
    pub count: Pair,
    /// The mark at which the lists are drained.
    pub high: Pair,
}

/// Both sides, bin by bin.
#[derive(Debug, Default, Serialize)]
pub struct Pair {
    /// The model.
    pub model: Vec<Option<u64>>,
    /// The kernel.
    pub kernel: Vec<Option<u64>>,
    /// The mean difference of a bin, without its sign; `null` where no bin has both sides.
    pub mean_difference: Option<f64>,
    /// The kernel's mean.
    pub kernel_mean: Option<f64>,
}

impl Pair {
    fn new(model: Vec<Option<u64>>, kernel: Vec<Option<u64>>) -> Pair {
        let both = || model.iter().zip(&kernel).filter_map(|(m, k)| Some(((*m)?, (*k)?)));
        let bins = both().count() as f64;
        let mean = |sum: u64| (bins > 0.0).then(|| (sum as f64 / bins * 1000.0).round() / 1000.0);
        Pair {
            mean_difference: mean(both().map(|(m, k)| m.abs_diff(k)).sum()),
            kernel_mean: mean(both().map(|(_, k)| k).sum()),
            model,
            kernel,
        }
    }
}

impl Fidelity {
    /// Holds a model's timeline to the kernel's.
    pub(crate) fn new(
        program: &Program,
        map: &ZoneMap,
        model: &Timeline,
        kernel: &Timeline,
        polls: &[PolledState],
    ) -> Fidelity {
        let (start, end) = (program.start_ns, program.span_ns.1);
        let in_trace = |poll: &&PolledState| poll.t_begin_ns >= start && poll.t_end_ns <= end;
        let mut places = Vec::new();
        for (index, zone) in map.zones().iter().enumerate() {
            for cpu in 0..program.cpus {
                let ours: Vec<Sample> = model.of(index, cpu).collect();
                let theirs: Vec<Sample> = kernel.of(index, cpu).collect();
                let moved = |sample: &Sample| sample.moves != Moves::default();
                if !ours.iter().chain(&theirs).any(moved) {
                    continue;
                }
                let name = format!("node {}, {}", zone.node, zone.kind);
                places.push(Series::new(name, cpu, &ours, &theirs));
            }
        }
        debug_assert_eq!(model.len(), kernel.len());
        let polls = polls.iter().filter(in_trace).count();
        Fidelity { bin_ns: model.bin_ns(), bins: model.len(), polls, places }
    }
}

impl Series {
    fn new(zone: String, cpu: u32, model: &[Sample], kernel: &[Sample]) -> Series {
        let pair = |value: fn(&Sample) -> Option<u64>| {
            let side = |samples: &[Sample]| samples.iter().map(value).collect();
            Pair::new(side(model), side(kernel))
        };
        Series {
            zone,
            cpu,
            refill_pages: pair(|sample| Some(sample.moves.refill_pages)),
            refill_holds: pair(|sample| Some(sample.moves.refill_holds)),
            drain_pages: pair(|sample| Some(sample.moves.drain_pages)),
            drain_holds: pair(|sample| Some(sample.moves.drain_holds)),
            count: pair(|sample| sample.count),
            high: pair(|sample| sample.high),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bins_with_both_sides_count() {
        let pair = Pair::new(vec![Some(5), Some(1), Some(9)], vec![None, Some(4), Some(8)]);
        assert_eq!((pair.mean_difference, pair.kernel_mean), (Some(2.0), Some(6.0)));
        let none = Pair::new(vec![Some(5)], vec![None]);
        assert_eq!((none.mean_difference, none.kernel_mean), (None, None));
    }
}
