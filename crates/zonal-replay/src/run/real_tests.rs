//! Programs on memory that tests can break.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Mutex;

use zonal_trace::{Event, EventKind, MachineDescription};

use super::*;
use crate::progress::unwatched;
use crate::read::{ReadOptions, compile};
use crate::zones::ZoneMap;

const PFN: u64 = 0x1000;

/// Memory of the system's, which may hand out every page twice, or break.
#[derive(Default)]
struct Fake {
    twice: bool,
    dies: bool,
    refuses: bool,
    again: Mutex<Option<usize>>,
}

fn layout(order: Order) -> Layout {
    Layout::from_size_align(order.bytes(), order.bytes()).unwrap()
}

// SAFETY: (1) the system's memory, blocks aligned to their size; with `twice` it breaks this on
// purpose, on one thread.
unsafe impl Memory for Fake {
    fn alloc(&self, order: Order, _gfp: Gfp) -> Result<NonNull<u8>, String> {
        assert!(!self.dies, "this memory breaks on purpose");
        if self.refuses {
            return Err("no".to_owned());
        }
        let mut again = self.again.lock().unwrap();
        if let Some(address) = again.take() {
            return Ok(NonNull::new(address as *mut u8).unwrap());
        }
        // SAFETY: (1) blocks are not empty.
        let block = NonNull::new(unsafe { alloc(layout(order)) }).unwrap();
        if self.twice {
            *again = Some(block.as_ptr() as usize);
        }
        Ok(block)
    }

    unsafe fn free(&self, start: NonNull<u8>, order: Order) -> Result<(), String> {
        if !self.twice {
            // SAFETY: (1) from `alloc` with the same order.
            unsafe { dealloc(start.as_ptr(), layout(order)) };
        }
        Ok(())
    }
}

/// A program of (CPU, event), a microsecond apart.
fn program(kinds: impl IntoIterator<Item = (u32, EventKind)>) -> Program {
    let machine = MachineDescription { cpus: Some(3), ..MachineDescription::default() };
    let events = (0..).zip(kinds);
    let events =
        events.map(|(time, (cpu, kind))| Ok(Event { time_ns: time * 1000, cpu, pid: 0, kind }));
    compile(&machine, &ZoneMap::default(), events, ReadOptions::default(), &mut unwatched).unwrap()
}

fn take(pfn: u64, order: u8) -> EventKind {
    EventKind::Alloc { pfn: Some(pfn), order, migratetype: 1, gfp: 0 }
}

fn give(pfn: u64, order: u8) -> EventKind {
    EventKind::Free { pfn, order }
}

fn run(program: &Program, memory: &Fake) -> Outcome {
    let stage = Stage::new(program, memory, &[]);
    let mut outcome = stage.run(false, &mut unwatched).unwrap();
    stage.finish(&mut outcome);
    outcome
}

/// Two CPUs that free each other's blocks, for longer than the window, and a third that waits.
fn crossing() -> Program {
    let rounds = (0..AHEAD_MAX).flat_map(|round| {
        let (a, b) = (PFN + (round % 64) * 16, PFN + 0x8000 + (round % 64) * 16);
        [(0, take(a, 1)), (1, take(b, 0)), (1, give(a, 1)), (0, give(b, 0))]
    });
    program(rounds.chain([(2, take(PFN, 3)), (0, give(PFN, 3))]))
}

#[test]
fn blocks_cross_cpus_and_every_page_is_checked() {
    let outcome = run(&crossing(), &Fake::default());
    assert_eq!(outcome.faults, [""; 0]);
    assert_eq!((outcome.allocs, outcome.frees), (2 * AHEAD_MAX + 1, 2 * AHEAD_MAX + 1));
    assert_eq!(outcome.pages_checked, 3 * AHEAD_MAX + 8);
    assert_eq!(outcome.threads, 3);
}

#[test]
fn a_page_handed_out_twice_is_found() {
    let events = [take(PFN, 0), take(PFN + 1, 0), give(PFN, 0)].map(|kind| (0, kind));
    let outcome = run(&program(events), &Fake { twice: true, ..Fake::default() });
    assert!(outcome.faults[0].contains("page 0 of block 0"), "{:?}", outcome.faults);
}

#[test]
fn a_refused_block_is_not_freed_by_another_cpu() {
    let program = program([(0, take(PFN, 0)), (1, give(PFN, 0)), (1, give(PFN + 9, 0))]);
    let outcome = run(&program, &Fake { refuses: true, ..Fake::default() });
    assert_eq!((outcome.failed, outcome.skipped_frees, outcome.frees), (1, 2, 0));
    assert_eq!(outcome.first_failure.as_deref(), Some("no"));
    assert_eq!(outcome.faults, [""; 0]);
}

#[test]
fn a_thread_that_dies_does_not_leave_the_others_waiting() {
    let program = program([(0, take(PFN, 0)), (1, give(PFN, 0))]);
    let outcome = run(&program, &Fake { dies: true, ..Fake::default() });
    assert_eq!(outcome.faults.len(), 1);
}

#[test]
fn the_recordings_pace_can_be_kept() {
    let machine = MachineDescription { cpus: Some(1), ..MachineDescription::default() };
    let at = |time_ns, kind| Ok(Event { time_ns, cpu: 0, pid: 0, kind });
    let events = [at(0, take(PFN, 0)), at(20_000_000, give(PFN, 0))].into_iter();
    let program =
        compile(&machine, &ZoneMap::default(), events, ReadOptions::default(), &mut unwatched)
            .unwrap();
    let memory = Fake::default();
    let paced = Stage::new(&program, &memory, &[]).run(true, &mut unwatched).unwrap();
    assert!(paced.seconds >= 0.02, "{} s", paced.seconds);
}

#[test]
fn a_caller_that_has_seen_enough_stops_the_run() {
    let memory = Fake::default();
    let mut calls = 0;
    let mut watch = |_: Progress| {
        calls += 1;
        ControlFlow::Break(())
    };
    let program = crossing();
    let stage = Stage::new(&program, &memory, &[]);
    assert!(matches!(stage.run(false, &mut watch), Err(ReplayError::Stopped)));
    assert_eq!(calls, 1, "a stopped run tells nothing more");
    stage.finish(&mut Outcome::default());
}
