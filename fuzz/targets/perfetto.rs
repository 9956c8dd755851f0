//! Any bytes as a Perfetto trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| zonal_fuzz::read_perfetto(data));
