//! The version that rows have.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::LabError;
use crate::machine::Machine;
use crate::recipe::Recipe;
use crate::units::hex;

/// Version of the program that rows are made by: that of the package, and behind the `+` what a
/// few small runs gave. Two builds that simulate otherwise differ there, and so do two processors
/// that compute otherwise.
///
/// # Panics
/// Never: the small runs are of presets, and a test makes them.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Sha256::new();
        for (machine, policy, workload) in [
            ("xeon-2007-8", "zonal", "burst:hold=16"),
            ("xeon-2007-8", "linux-6.18", "churn"),
            ("broadwell-2017-88@4", "linux-5.4", "handoff"),
        ] {
            let mut recipe = Recipe::new(machine, policy, workload);
            (recipe.warm_us, recipe.run_us) = (5, 20);
            let plan = recipe.plan(&|name| Ok(Machine::named(name)?));
            let figures = plan.and_then(|plan| plan.run()).expect("presets run");
            hash.update(&figures.hash);
            figures.each().for_each(|(figure, value)| {
                hash.update(figure.name);
                hash.update(value.to_bits().to_le_bytes());
            });
        }
        format!("{}+{}", env!("CARGO_PKG_VERSION"), &hex(&hash.finalize())[..8])
    })
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
