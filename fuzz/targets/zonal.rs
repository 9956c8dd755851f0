//! Any bytes as `trace.zonal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    zonal_fuzz::read(vec![zonal_trace::Part::new("trace.zonal", data.to_vec())]);
});
