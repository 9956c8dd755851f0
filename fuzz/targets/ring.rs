//! Any bytes as ring pages of two CPUs: the first byte of the input says how many pages are of the
//! first.
#![no_main]

use zonal_trace::Part;

const ALLOC: &str = "name: mm_page_alloc\nID: 653\nformat:\n\
    \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned long gfp_flags;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:int migratetype;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
const FREE: &str = "name: mm_page_free\nID: 655\nformat:\n\
    \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n\nprint fmt: \"\"\n";

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Byte 7 of a page is the highest of its time: a small number in every seed.
    let first = usize::from(data.get(7).copied().unwrap_or(0)) * 4096;
    let (own, other) = data.split_at(if first == 0 { data.len() } else { first.min(data.len()) });
    zonal_fuzz::read(vec![
        Part::new("formats/kmem:mm_page_alloc", ALLOC.as_bytes()),
        Part::new("formats/kmem:mm_page_free", FREE.as_bytes()),
        Part::new("cpu0.raw", own.to_vec()),
        Part::new("cpu1.raw", other.to_vec()),
    ]);
    // A format may be anything too.
    zonal_fuzz::read(vec![
        Part::new("formats/kmem:mm_page_alloc", data.to_vec()),
        Part::new("formats/header_page", data.to_vec()),
        Part::new("cpu0.raw", own.to_vec()),
    ]);
});
