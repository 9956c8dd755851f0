//! Any bytes as a stream of text of either form, and as a description of a machine.
#![no_main]

use zonal_trace::Part;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    zonal_fuzz::read(vec![Part::new("trace.txt", data.to_vec())]);
    let lines = [b"# time_ns\n", data].concat();
    zonal_fuzz::read(vec![Part::new("events.txt", lines)]);
    let stream = &b"# time_ns\n1 0 1 free 1 0\n"[..];
    for name in ["meta.json", "zoneinfo.pre", "buddyinfo.pre", "pagetypeinfo.pre"] {
        zonal_fuzz::read(vec![Part::new(name, data.to_vec()), Part::new("events.txt", stream)]);
    }
});
