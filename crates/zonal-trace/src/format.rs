//! Forms that a stream of events can have.

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceFormat {
    /// One line of columns per event, times in nanoseconds.
    Compact,
    /// What `/sys/kernel/tracing/trace`, `trace-cmd report` or `perf script` print.
    Ftrace,
    /// Pages of the kernel's trace rings in files of their own, with format files.
    Ring,
    /// `trace.dat` of trace-cmd, version 6 or 7.
    TraceDat,
    /// `perf.data` with raw samples.
    PerfData,
    /// Our own compact form, with the machine inside.
    Zonal,
}
