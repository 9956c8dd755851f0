//! Recordings that are built into the program, so that it is useful before the first recording.
//!
//! They lie in `samples/` of this crate and are embedded as they are, compressed.

use crate::error::TraceError;
use crate::recording::Recording;
use crate::source::Part;

/// Embeds the file `$file` of the sample `$sample`.
macro_rules! part {
    ($sample:literal, $file:literal) => {
        Part::new($file, &include_bytes!(concat!("../samples/", $sample, "/", $file))[..])
    };
}

/// A build of zlib 1.2.13 (`configure`, `make -j4`, `make distclean`) on a machine of 2 CPUs and
/// one node under Linux 6.18: 520,208 events in 15 seconds, with per-CPU lists that start cold.
///
/// # Errors
/// None on a program that was built whole: the bytes are those of the source tree.
pub fn zlib_make_j4() -> Result<Recording, TraceError> {
    let parts = vec![
        part!("zlib-make-j4", "events.txt.zst"),
        part!("zlib-make-j4", "meta.json"),
        part!("zlib-make-j4", "zoneinfo.pre"),
        part!("zlib-make-j4", "pagetypeinfo.pre"),
        part!("zlib-make-j4", "buddyinfo.pre"),
    ];
    Recording::from_parts("zlib-make-j4", parts)
}
