//! Benches that `zonal` alone runs, behind the cells of all subjects.

use std::sync::Arc;

use crate::crew::Crew;
use crate::plan::Options;
use crate::row::Report;
use crate::{edge, owned, prefault, ranges};

/// Measures those that the options ask for, and appends their rows.
pub fn measure_alone(options: &Options, crew: &Arc<Crew>, report: &mut Report) {
    edge::measure(options, crew, report);
    ranges::measure(options, crew, report);
    prefault::measure(options, crew, report);
    owned::measure(options, crew, report);
}
