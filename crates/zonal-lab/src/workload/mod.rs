//! What the CPUs of a lab machine do.

mod page_bench;

pub use page_bench::PageBench;
