//! `vmstat-update-cost` (2007): cycles of one counter update, in the three variants that were
//! compared then.
//!
//! The cmpxchg figures of 2007 measured a version with a sign bug (LB F.5): after its first fold
//! nearly every update writes the shared counters. The core's variant has that bug, and the cost
//! follows from it; beside it stands the loop as it was meant.
//!
//! Four costs were set by four of the nine published cells. What the others come to is made of
//! these four, so none is a prediction: the table shows that the variants are counted as described.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use sha2::{Digest, Sha256};
use zonal_core::platform::{Instruction, Platform, Step};
use zonal_core::types::{ZoneId, ZoneKind};
use zonal_core::vmstat::threshold::normal;
use zonal_core::vmstat::update::{Change, Form, Place, change};
use zonal_core::vmstat::variant::Update;

use super::published::Published;
use super::table::{Cell, Experiment, Options, Progress, Table};
use crate::LabError;
use crate::machine::Machine;
use crate::platform::VirtualPlatform;
use crate::provenance::{Provenance, given};
use crate::sim::zones;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    about: "2007: cycles of one counter update, by variant, on a quiet machine",
    target_percent: 15.0,
    sizes: false,
    run,
};

given! {
    /// Calls of each function.
    CALLS: u64 = 10_000,
        Provenance::estimated("so many that folds have their part");
}

const NAME: &str = "vmstat-update-cost";
const MACHINE: &str = "xeon-2007-8";
const TABLE: &str = include_str!("../../published/2007-vmstat-update-cost.csv");
const INC: &str = "inc_zone_page_state";
const DEC: &str = "__dec_zone_page_state";
const EVENT: &str = "count_vm_event";
/// Published rows, and what else the core can do, by the name of their row.
const ROWS: [(&str, Update); 5] = [
    ("irq-disable (base)", Update::Irq),
    ("cmpxchg_local", Update::CmpxchgPostedUnsigned),
    ("local_inc", Update::LocalIncIntended),
    ("cmpxchg_local as intended", Update::CmpxchgSigned),
    ("this_cpu_cmpxchg (2.6.38)", Update::ThisCpuCmpxchg),
];

fn run(options: &Options, progress: Progress<'_>) -> Result<Table, LabError> {
    let published = Published::parse(TABLE);
    let machine = options.machine(MACHINE)?;
    let doubled = machine.costs_doubled_but_fitted();
    let mut cells = Vec::new();
    let mut hash = Sha256::new();
    for (done, (row, how)) in ROWS.into_iter().enumerate() {
        for column in [INC, DEC, EVENT] {
            let cycles = cycles_per_call(&machine, how, column);
            hash.update(cycles.to_le_bytes());
            let moves = cycles_per_call(&doubled, how, column) - cycles;
            cells.push(Cell {
                moves: Some(moves),
                ..Cell::new(row, column, published.figure(row, column), cycles)
            });
        }
        progress(done as u64 + 1, ROWS.len() as u64);
    }
    let ran = (machine.name.as_str(), options);
    Ok(Table {
        cells,
        notes: vec![
            "one CPU calls 10,000 times and no other runs; nothing here is random, so every \
             seed gives the same figures"
                .into(),
            "fitted: also a cell that moves as one that set a figure does, to half a cycle, where \
             every cost of the machine that was not fitted is doubled"
                .into(),
            "the last two rows were never published".into(),
        ],
        ..EXPERIMENT.table(ran, published.source, hash)
    })
}

fn cycles_per_call(machine: &Machine, how: Update, function: &str) -> f64 {
    let zones = zones(machine);
    let platform = VirtualPlatform::new(machine, zones.len());
    let largest = zones.iter().enumerate().filter(|(_, zone)| zone.kind <= ZoneKind::Normal);
    let (id, zone) = largest.max_by_key(|(_, zone)| zone.present).expect("a machine has memory");
    let threshold = i64::from(normal(zone.present, machine.cpus()));
    let (diff, shared) = (AtomicI64::new(0), AtomicI64::new(0));
    let place = Place::items(ZoneId(id as u16));
    for _ in 0..CALLS {
        match function {
            INC => {
                let form = (how, Form::Guarded);
                change(&platform, place, form, Change::Inc, (&diff, threshold), &shared);
            }
            DEC => {
                let form = (how, Form::Raw);
                change(&platform, place, form, Change::Dec, (&diff, threshold), &shared);
            }
            _ => {
                diff.fetch_add(1, Relaxed);
                let step = Step::Update { zone: place.zone, by: Instruction::Add, times: 1 };
                platform.cost(step);
            }
        }
    }
    platform.clock() as f64 / CALLS as f64
}
