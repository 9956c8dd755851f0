//! The version that rows have.

use crate::LabError;

/// Version of the program that rows are made by: that of the package, and behind the `+` the
/// identity of its build, a hash of the sources, locked dependencies and compiler that decide a
/// figure (`build/identity.rs`). The same sources have the same one on every host and in the
/// program and the package of Python alike; any change of a source makes another one, whether or
/// not it changes a figure.
pub fn version() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), "+", env!("ZONAL_BUILD"))
}

/// Refuses the version of another program.
pub(super) fn check_version(found: &str) -> Result<(), LabError> {
    match found == version() {
        true => Ok(()),
        false => Err(LabError::Plan(format!(
            "a row of zonal {found}; this is zonal {}, and figures of two versions do not belong \
             into one set: expected the same program everywhere, or another file",
            version()
        ))),
    }
}
