//! What the model makes of one request, zone by zone, at the moment it comes.

use serde::Serialize;
use zonal_core::alloc::Request;
use zonal_core::alloc::explain::Note;

use crate::build::Rebuilt;
use crate::program::Op;

/// One explained request.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Which allocation of the trace, from 1.
    pub number: u64,
    /// When it was recorded, in seconds of the trace's clock.
    pub seconds: f64,
    /// The CPU that asks.
    pub cpu: u32,
    /// Order of the block asked for.
    pub order: u32,
    /// Flags of the request.
    pub gfp: String,
    /// The steps, in the order they happen.
    pub steps: Vec<String>,
    /// How it ends.
    pub outcome: String,
    /// Whether it is certain to end so.
    pub certain: bool,
}

/// Explains the request of `op`, which comes next on its CPU.
pub fn explain(rebuilt: &Rebuilt<'_>, number: u64, op: &Op, request: &Request) -> Explained {
    let mut steps = Vec::new();
    let explained =
        rebuilt.allocator.explain(request, &mut |note: Note| steps.push(note.to_string()));
    Explained {
        number,
        seconds: op.time_ns as f64 / 1e9,
        cpu: op.cpu.into(),
        order: request.order.get(),
        gfp: format!("{:?}", request.gfp),
        steps,
        outcome: explained.to_string(),
        certain: explained.certain,
    }
}
