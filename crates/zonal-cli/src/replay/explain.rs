//! `zonal replay --explain N`: what the model makes of one request, zone by zone, at the moment it
//! comes.

use serde::Serialize;
use zonal_core::alloc::Request;
use zonal_core::alloc::explain::Note;

use super::machine::Rebuilt;
use super::program::Op;

/// One explained request.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Which allocation of the trace, from 1.
    number: u64,
    /// When it was recorded, in seconds of the trace's clock.
    seconds: f64,
    cpu: u32,
    order: u32,
    gfp: String,
    /// The steps, in the order they happen.
    steps: Vec<String>,
    /// How it ends.
    outcome: String,
    /// Whether it is certain to end so.
    certain: bool,
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

impl Explained {
    /// For people.
    pub fn text(&self) -> String {
        let Explained { number, seconds, cpu, order, gfp, steps, outcome, .. } = self;
        let steps: String = steps.iter().map(|step| format!("  {step}\n")).collect();
        format!(
            "request {number} at {seconds:.6} s on CPU {cpu}: order {order}, {gfp}\n{steps}  => \
             {outcome}\n\n"
        )
    }
}
