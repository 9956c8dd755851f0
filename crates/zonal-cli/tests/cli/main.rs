//! The program `zonal`, run as people run it. One binary, so that its tests share the build and the
//! processors.

mod advise;
mod conform;
mod fidelity;
mod interrupts;
mod lab;
mod lab_jobs;
mod lab_machines;
mod lab_sweeps;
mod node_exporter;
mod others;
mod outputs;
mod policy;
mod pressure;
mod program;
mod record;
mod replay;
mod selections;
mod shell;
mod state;
mod timeline;
mod trace;
mod two_nodes;
mod verify;
