//! The loops. Each is written once, generic over the subject and the probe (PROBE-1, PROBE-2).
//!
//! A caller of [`run`] and of what is around it has called `thread_init` of the subject on the
//! thread, and the cell is one that [`Local`](crate::Local) has let through: **LOOP-1**, which is
//! what makes [`Subject::alloc`] sound to call.
//!
//! Nothing here reads a clock. A loop returns how many of its allocations were refused, so that a
//! run in which a subject ran dry is reported and not mistaken for a fast one.
//!
//! "Touched" loops write one word in every page of every block. The word's offset is spread over
//! the page's 64 cache lines by the page number: words at offset 0 of all pages would fall into one
//! L1 set and cost 3-4 times as much, which measures the cache and not the allocator.

use crate::cell::{Bench, Cell};
use crate::shuffle::Shuffle;
use crate::stream::{self, Ring};
use crate::subject::{Probe, Subject};
use crate::words::{split_mix, touch};

/// Slots of `mix`: an operation frees the block in its slot, or allocates one into it.
const MIX_SLOTS: usize = 1024;
/// Slots that every second operation picks from: short lifetimes beside long ones.
const MIX_HOT_SLOTS: u64 = 64;
/// Steps of the precomputed program; a power of two, the loop wraps around.
const MIX_STEPS: usize = 8192;

/// State of one worker; made before the clock starts (FAIR-4).
pub(crate) struct Scratch {
    buffer: Vec<*mut u8>,
    slots: Vec<*mut u8>,
    slot_orders: Vec<u8>,
    program: Vec<MixStep>,
    held: Vec<*mut u8>,
}

#[derive(Clone, Copy)]
struct MixStep {
    slot: u16,
    order: u8,
}

impl Scratch {
    /// Buffers for `cell` and worker `index`; the program of `mix` follows from `seed`.
    pub(crate) fn new(cell: &Cell, index: usize, seed: u64) -> Scratch {
        let null = std::ptr::null_mut;
        let mix = cell.bench == Bench::Mix;
        Scratch {
            buffer: vec![null(); 4096],
            slots: vec![null(); if mix { MIX_SLOTS } else { 0 }],
            slot_orders: vec![0; if mix { MIX_SLOTS } else { 0 }],
            program: if mix { mix_program(seed ^ index as u64) } else { Vec::new() },
            held: Vec::with_capacity(64),
        }
    }

    /// Takes up to `count` blocks and keeps them until `release` (FAIR-5).
    pub(crate) fn hold<S: Subject>(&mut self, subject: &S, order: u32, count: u32) {
        for _ in 0..count {
            // SAFETY: (1) and (2) LOOP-1.
            let block = unsafe { crate::subject::call_alloc(subject, order) };
            if !block.is_null() {
                self.held.push(block);
            }
        }
    }

    /// Frees what `hold` took and what `mix` left in its slots.
    pub(crate) fn release<S: Subject>(&mut self, subject: &S, order: u32) {
        for block in self.held.drain(..) {
            // SAFETY: (1) `hold` allocated it with the same order. (2) `drain` gives it once.
            unsafe { crate::subject::call_free(subject, block, order) };
        }
    }
}

/// State that the workers of one burst share.
pub(crate) struct Shared {
    pub(crate) ring: Ring,
    pub(crate) shuffle: Shuffle,
}

impl Shared {
    /// For as many threads.
    pub(crate) fn new(threads: usize) -> Shared {
        Shared { ring: Ring::new(), shuffle: Shuffle::new(threads) }
    }
}

/// Runs worker `index`'s part of `iterations` of `cell`; returns the refused allocations.
pub(crate) fn run<S: Subject, P: Probe<S>>(
    subject: &S,
    probe: &mut P,
    cell: &Cell,
    index: usize,
    iterations: u64,
    (scratch, shared): (&mut Scratch, &Shared),
) -> u64 {
    if cell.touched {
        run_as::<S, P, true>(subject, probe, cell, index, iterations, (scratch, shared))
    } else {
        run_as::<S, P, false>(subject, probe, cell, index, iterations, (scratch, shared))
    }
}

fn run_as<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    cell: &Cell,
    index: usize,
    iterations: u64,
    (scratch, shared): (&mut Scratch, &Shared),
) -> u64 {
    let order = cell.order;
    let buffer = &mut scratch.buffer[..];
    match cell.bench {
        Bench::Pair => pair::<S, P, TOUCH>(subject, probe, order, iterations),
        Bench::Batch8 => {
            singles::<S, P, TOUCH>(subject, probe, order, iterations, &mut buffer[..8])
        }
        Bench::Batch32 | Bench::Shuffled => {
            singles::<S, P, TOUCH>(subject, probe, order, iterations, &mut buffer[..32])
        }
        Bench::Singles => singles::<S, P, TOUCH>(subject, probe, order, iterations, buffer),
        Bench::Bulk => bulk::<S, P, TOUCH>(subject, probe, order, iterations, buffer),
        Bench::Mix => mix::<S, P, TOUCH>(subject, probe, iterations, scratch),
        Bench::Room | Bench::Edge | Bench::Ranges | Bench::Prefault | Bench::Owned => {
            unreachable!("no plan has a cell of {}", cell.bench)
        }
        Bench::Stream if index == 0 => {
            stream::produce::<S, P, TOUCH>(subject, probe, order, iterations, &shared.ring)
        }
        Bench::Stream => {
            stream::consume::<S, P, TOUCH>(subject, probe, order, iterations, &shared.ring)
        }
    }
}

fn pair<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    order: u32,
    iterations: u64,
) -> u64 {
    let mut refused = 0;
    for _ in 0..iterations {
        // SAFETY: (1) and (2) LOOP-1.
        let block = unsafe { probe.alloc(subject, order) };
        if block.is_null() {
            refused += 1;
            continue;
        }
        if TOUCH {
            touch(block, order);
        }
        // SAFETY: (1) allocated above with this order. (2) freed once, here (PROBE-2).
        unsafe { probe.free(subject, block, order) };
    }
    refused
}

fn singles<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    order: u32,
    iterations: u64,
    buffer: &mut [*mut u8],
) -> u64 {
    let mut refused = 0;
    for _ in 0..iterations {
        for place in buffer.iter_mut() {
            // SAFETY: (1) and (2) LOOP-1.
            *place = unsafe { probe.alloc(subject, order) };
            if TOUCH && !place.is_null() {
                touch(*place, order);
            }
        }
        for &block in buffer.iter() {
            if block.is_null() {
                refused += 1;
                continue;
            }
            // SAFETY: (1) allocated above with this order. (2) each place is visited once and
            // overwritten before the next visit (PROBE-2).
            unsafe { probe.free(subject, block, order) };
        }
    }
    refused
}

fn bulk<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    order: u32,
    iterations: u64,
    buffer: &mut [*mut u8],
) -> u64 {
    let mut refused = 0;
    for _ in 0..iterations {
        let mut filled = 0;
        while filled < buffer.len() {
            // SAFETY: (1) to (3) LOOP-1.
            let got = unsafe { probe.alloc_bulk(subject, order, &mut buffer[filled..]) };
            if got == 0 {
                break;
            }
            filled += got;
        }
        refused += (buffer.len() - filled) as u64;
        if TOUCH {
            buffer[..filled].iter().for_each(|&block| touch(block, order));
        }
        // SAFETY: (1) the first `filled` places were filled above with this order. (2) they are
        // freed once, here, and overwritten before the next time (PROBE-2).
        unsafe { probe.free_bulk(subject, &buffer[..filled], order) };
    }
    refused
}

fn mix<S: Subject, P: Probe<S>, const TOUCH: bool>(
    subject: &S,
    probe: &mut P,
    iterations: u64,
    scratch: &mut Scratch,
) -> u64 {
    let (slots, orders) = (&mut scratch.slots[..MIX_SLOTS], &mut scratch.slot_orders[..MIX_SLOTS]);
    let program = &scratch.program[..MIX_STEPS];
    let mut refused = 0;
    for i in 0..iterations as usize {
        let step = program[i % MIX_STEPS];
        let slot = step.slot as usize % MIX_SLOTS;
        let block = slots[slot];
        if block.is_null() {
            // SAFETY: (1) orders of the program are small (`mix_program`); (2) LOOP-1.
            let block = unsafe { probe.alloc(subject, u32::from(step.order)) };
            slots[slot] = block;
            orders[slot] = step.order;
            refused += u64::from(block.is_null());
            if TOUCH && !block.is_null() {
                touch(block, u32::from(step.order));
            }
        } else {
            slots[slot] = std::ptr::null_mut();
            // SAFETY: (1) allocated with the order kept beside it. (2) its slot was cleared.
            unsafe { probe.free(subject, block, u32::from(orders[slot])) };
        }
    }
    refused
}

/// Frees what `mix` still holds; not part of the timed loop.
pub(crate) fn finish_mix<S: Subject, P: Probe<S>>(
    subject: &S,
    probe: &mut P,
    scratch: &mut Scratch,
) {
    for (slot, &order) in scratch.slots.iter_mut().zip(&scratch.slot_orders) {
        if !slot.is_null() {
            let block = std::mem::replace(slot, std::ptr::null_mut());
            // SAFETY: (1) allocated with the order kept beside it. (2) its slot was cleared.
            unsafe { probe.free(subject, block, u32::from(order)) };
        }
    }
}

/// Orders as a server of pages sees them: three in four single pages, then ever rarer blocks.
fn mix_program(seed: u64) -> Vec<MixStep> {
    let mut state = seed;
    let step = |_| {
        let draw = split_mix(&mut state);
        let slots = if draw & 1 == 0 { MIX_HOT_SLOTS } else { MIX_SLOTS as u64 };
        let order = match (draw >> 40) % 100 {
            0..75 => 0,
            75..85 => 1,
            85..91 => 2,
            91..96 => 3,
            _ => 4,
        };
        MixStep { slot: ((draw >> 8) % slots) as u16, order }
    };
    (0..MIX_STEPS).map(step).collect()
}
