//! Any bytes as `trace.dat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    zonal_fuzz::read(vec![zonal_trace::Part::new("trace.dat", data.to_vec())]);
});
