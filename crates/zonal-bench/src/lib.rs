//! # The bench harness: every subject runs exactly the same loops
//!
//! `zonal bench` and the program in `bench/` (which adds the C and C++ peers) both use this
//! crate, so that a row of one is comparable with a row of the other.
//!
//! ```text
//!   Subject (an allocator: alloc, free)          your type; see `subjects` for seven of them
//!      | one real call per operation              subject.rs   Direct / Timed / Checked probes
//!   loops (pair, 32+32, 4096, bulk, mix), stream  loops.rs     stream.rs
//!      | on pinned, persistent workers            crew.rs
//!   Runner = Local<S> | Remote (a child process)  runner.rs    remote.rs
//!      | interleaved rounds, medians              plan.rs      run.rs
//!      | without those of a busy machine     rounds.rs    usage.rs
//!   edge: zonal alone, two pools in turn          edge.rs
//!   ranges, prefault, owned: zonal alone, two ways      turns.rs, and a file for each
//!   stalls: the longest calls by name             stalls.rs
//!   Report { rows } -> text table, JSON, CSV      row.rs       table.rs
//!      | beside an earlier run               earlier.rs   compare.rs
//! ```
//!
//! # What makes the comparison fair, by number
//! - **FAIR-1** one allocation or free is one real, direct call, for everyone. The loops are
//!   monomorphised over the subject, so there is no virtual call; a Rust subject is reached through
//!   an `#[inline(never)]` function, and a subject with [`Subject::FOREIGN`] (a C function, which
//!   the compiler cannot inline) is called straight from the loop. Without this the Rust subjects
//!   would be compiled *into* the loop and win by the price of a call that their peers pay.
//! - **FAIR-2** block sizes are run-time values: nothing is specialised for one order.
//! - **FAIR-3** a round of a cell runs every subject once before the next round starts, in an order
//!   that rotates, and a row is the median over the rounds: a change of clock speed or a noisy
//!   neighbour meets all subjects alike.
//! - **FAIR-4** the buffers that hold page pointers, the operation list of `mix` and the worker
//!   threads exist before the clock starts, and the clock is read once per burst of thousands.
//! - **FAIR-5** every round starts with a few blocks taken and held outside the timed part, their
//!   number varying by round, so that no subject lives through a whole run with one lucky or
//!   unlucky page or cache-line offset (4K aliasing moves a pair from 3 to 26 ns for some pages).
//! - **FAIR-6** the process always has more than one thread, as the programs that need an
//!   allocator have. (glibc's malloc is about twice as fast while a process has one thread.)
//! - **FAIR-7** the same loops run once more with every block checked (alignment, overlap with any
//!   other held block, contents kept) and hashed. The hash covers what was asked and answered, not
//!   addresses, so it is one value for all subjects; a subject that differs is not measured.
//! - **FAIR-8** rounds whose threads had fewer CPUs than they should have (`usage.rs`) are
//!   discarded and counted, for everyone alike. Those of `room`, `edge`, `ranges`, `prefault` and
//!   `owned` are not judged.
//!
//! # Units
//! `ns_per_op` is the time of one allocation *and* its free (a page for `stream`), except in `mix`,
//! where it is one step (an allocation or a free), and in `prefault`, where it is a page in memory.
//! With at most as many threads as CPUs it is the
//! mean over threads of each thread's own time; oversubscribed it is CPU time:
//! `wall * cpus / operations`. Latencies are those of single allocation calls, measured in a pass
//! of their own with the timer's cost subtracted. `cpu_ns_per_op` is the CPU time
//! of all threads divided by all their operations.
//!
//! # What it does not do
//! It has no pass or fail thresholds (speed is never a timed test), and it does not tune the
//! machine: frequency governors, SMT and huge page settings are reported, not changed.

mod alone;
mod cell;
mod check;
mod compare;
mod comparison;
pub mod counters;
mod cpus;
mod crew;
mod earlier;
pub mod edge;
mod error;
mod latency;
mod loops;
mod machine;
pub mod owned;
mod plan;
pub mod prefault;
#[cfg(feature = "pressure")]
pub mod pressure;
pub mod ranges;
mod region;
mod remote;
mod rounds;
mod row;
mod run;
mod runner;
mod shuffle;
#[cfg(feature = "stalls")]
pub mod stalls;
mod stream;
mod subject;
pub mod subjects;
pub mod table;
mod turns;
mod usage;
mod words;

pub use alone::measure_alone;
pub use cell::{Bench, Cell};
pub use comparison::{Change, Comparison};
pub use cpus::Cpus;
pub use crew::Crew;
pub use earlier::{CompareError, Earlier};
pub use error::BenchError;
pub use machine::Machine;
pub use plan::{Options, plan};
pub use region::Region;
pub use remote::{Remote, serve, serve_subject};
pub use row::{Report, Row, SCHEMA_VERSION, Skip};
pub use run::{Step, run};
pub use runner::{Burst, Latency, Local, Runner};
pub use subject::{ORDER_MAX, PAGE, Sizing, Subject, Waiting, block_bytes};

/// Name of the subject that every other one is compared with: `ratio_to_limit` is a row's
/// `ns_per_op` divided by this subject's in the same cell.
pub const LIMIT: &str = "rseq-bare";
