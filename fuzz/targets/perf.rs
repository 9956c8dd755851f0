//! Any bytes as `perf.data`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    zonal_fuzz::read(vec![zonal_trace::Part::new("perf.data", data.to_vec())]);
});
