//! Reads recordings as fast as it can, and prints what they hold.
//!
//! ```text
//! cargo run --release -p zonal-trace --example count -- DIRECTORY…
//! ```

use std::time::Instant;

use zonal_trace::{EventKind, Recording, TraceError, samples};

fn main() -> Result<(), TraceError> {
    let mut recordings = Vec::new();
    for path in std::env::args_os().skip(1) {
        recordings.push(Recording::open(path)?);
    }
    if recordings.is_empty() {
        recordings.push(samples::zlib_make_j4()?);
    }
    for recording in &recordings {
        count(recording)?;
    }
    Ok(())
}

fn count(recording: &Recording) -> Result<(), TraceError> {
    let start = Instant::now();
    let (mut events, mut allocs, mut frees) = (0_u64, 0_u64, 0_u64);
    for event in recording.events() {
        events += 1;
        match event?.kind {
            EventKind::Alloc { .. } => allocs += 1,
            EventKind::Free { .. } => frees += 1,
            _ => {}
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}: {:?}, {events} events, {allocs} allocs, {frees} frees, {:.2} million events/s",
        recording.description().name,
        recording.format(),
        events as f64 / seconds / 1e6
    );
    Ok(())
}
