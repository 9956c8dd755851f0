//! The native part of Python's package `zonal`. `python/zonal` wraps it: it makes typed objects out
//! of the JSON that these functions return, which is that of the program's `--json`.
//!
//! | module | holds |
//! |--|--|
//! | `fault` | exceptions, with file and line |
//! | `long` | long calls: no GIL, Ctrl-C, progress |
//! | `recording`, `columns`, `stream` | recordings, and their events by Arrow's C interfaces |
//! | `replay` | replays, advice, judged captures |
//! | `parquet` | recordings as Parquet files |
//! | `sweep` | rows of sweeps: texts, the row of a text, the file |
//! | `tape` | runs of the lab as recordings |
//! | `policy`, `lab` | policies, and the simulator |
//! | `pool`, `pages`, `buffer`, `dlpack` | pools, and their pages as buffers and tensors |

mod buffer;
mod columns;
mod dlpack;
mod fault;
mod lab;
mod long;
mod pages;
mod parquet;
mod policy;
mod pool;
mod recording;
mod replay;
mod stream;
mod sweep;
mod tape;

use pyo3::prelude::*;

/// The native part of `zonal`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::buffer::{Buffer, Lease, Made, Tensor};
    #[pymodule_export]
    use super::lab::{
        Machine, lab_compare, lab_lists, lab_once, lab_run, lab_sweep, machine_from_json,
        machine_host, machine_load, machine_named, machine_names, machine_sized, machine_split,
    };
    #[pymodule_export]
    use super::parquet::{from_parquet, to_parquet};
    #[pymodule_export]
    use super::policy::{policy_names, policy_values};
    #[pymodule_export]
    use super::pool::{Pool, Registration};
    #[pymodule_export]
    use super::recording::{Batch, Batches, Events, Recording};
    #[pymodule_export]
    use super::replay::{advise, conform, replay};
    #[pymodule_export]
    use super::sweep::{RowTexts, Rows, rows_columns, rows_join, rows_make, rows_version};
    #[pymodule_export]
    use super::tape::lab_record;
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("WARM_US", zonal_lab::run::WARM_US)?;
        module.add("RUN_US", zonal_lab::run::RUN_US)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::stream::remember_main(module.py())
    }
}
