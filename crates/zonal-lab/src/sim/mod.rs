//! Runs a workload on a virtual machine: the CPU whose clock is behind all others makes its next
//! call, on the unchanged core. Same machine, policy, workload and seed: same run, to the last
//! cycle.
//!
//! | module | holds |
//! |--|--|
//! | `spec` | what a run is made of; boots the machine |
//! | `lab` | the machine: what a program can do on it |
//! | `program` | the trait of programs |
//! | `turns` | whose turn it is |
//! | `play` | lets the CPUs make their steps |
//! | `outcome` | what a run came to |

mod lab;
mod outcome;
mod play;
mod program;
mod spec;
mod turns;

pub use crate::units::PAGE_LINES;
pub use lab::Lab;
pub use outcome::{Count, Load, Outcome};
pub use program::{Program, Turn};
pub(crate) use spec::Described;
pub use spec::{Spec, zones};
