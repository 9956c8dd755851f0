//! Every program up to a length on the smallest machines there are: 8 pages, 2 CPUs, 2 nodes.

use std::vec::Vec;

use super::platform::{Shape, distances, zone};
use super::programs::{GFPS, Op, Twin};
use crate::gfp::Gfp;
use crate::policy::{Grouping, MinFreeRule, Policy, WatermarkPolicy};
use crate::types::{NodeId, ZoneKind};

fn alloc(cpu: u32, order: u32, gfp: Gfp) -> Op {
    let gfp = GFPS.iter().position(|g| *g == gfp).expect("one of those that programs use");
    Op::Alloc { cpu, order, gfp, node: None, times: 1 }
}

/// The oldest block goes back from one CPU, the newest from another.
fn free(cpu: u32, which: usize) -> Op {
    Op::Free { cpu, which, times: 1 }
}

/// What can be done. Two CPUs, so that one CPU frees what another allocated.
fn every_op() -> Vec<Op> {
    let this_node = Gfp::KERNEL.union(Gfp::THISNODE);
    std::vec![
        alloc(0, 0, Gfp::KERNEL),
        alloc(1, 0, this_node),
        alloc(0, 1, Gfp::KERNEL),
        alloc(1, 2, Gfp::HIGHUSER_MOVABLE),
        free(0, 0),
        free(1, 0),
        Op::FastFree { cpu: 0, which: 0, times: 1 },
        Op::Fast { cpu: 0, order: 0, times: 1 },
        Op::Bulk { cpu: 1, pages: 3, gfp: 0 },
        Op::FreeBulk { cpu: 1, order: 0, at_most: 8 },
        Op::Drain { zone: 0, cpu: 1 },
        Op::DrainAll,
        Op::Refresh { cpu: 1, times: 1 },
        Op::Misuse { cpu: 0, which: 0, how: 2 },
    ]
}

/// Runs every program of exactly `length` operations; shorter ones are the beginnings of others.
/// Returns how many there were.
pub fn run_all(shape: &Shape, policy: Policy, ops: &[Op], length: u32) -> usize {
    let programs = ops.len().pow(length);
    for program in 0..programs {
        shape.scoped(policy, 0, |pool| {
            let mut twin = Twin::new(pool, shape);
            let mut rest = program;
            for nth in 1..=length {
                twin.apply(&ops[rest % ops.len()]);
                rest /= ops.len();
                // A program that ends here was compared when its other endings were all zeros.
                if rest == 0 || nth == length {
                    twin.model.compare(pool);
                }
            }
        });
    }
    programs
}

/// No reserve at all: the last page can be had.
fn bare(policy: Policy, grouping: Grouping) -> Policy {
    let watermark = WatermarkPolicy { min_free: MinFreeRule::Kbytes(0), ..policy.watermark };
    Policy { watermark, mobility_grouping: grouping, ..policy }
}

#[test]
fn every_short_program_on_two_nodes_of_four_pages_is_right() {
    let shape = Shape::uniform(2, 4, 1);
    let ran = run_all(&shape, bare(Policy::ZONAL, Grouping::Off), &every_op(), 4);
    assert_eq!(ran, 38_416);
}

#[test]
fn every_short_program_is_right_with_types_and_zones_that_touch_in_the_middle_of_a_block() {
    let zones = std::vec![
        zone(0, ZoneKind::Dma, 510, 1),
        zone(0, ZoneKind::Normal, 511, 3),
        zone(0, ZoneKind::Movable, 514, 1),
        zone(1, ZoneKind::Normal, 515, 3),
    ];
    let cpus = std::vec![NodeId(0), NodeId(1)];
    let shape =
        Shape { distances: distances(2), zones, cpus, cache_slice_bytes: 0, caches: Vec::new() };
    run_all(&shape, bare(Policy::LINUX_6_18, Grouping::On), &every_op(), 3);
}

/// Fewer kinds of operations, and therefore longer programs.
#[test]
fn every_longer_program_of_allocations_and_frees_is_right() {
    let shape = Shape::uniform(2, 4, 1);
    let ops = [
        alloc(0, 0, Gfp::KERNEL),
        alloc(1, 1, Gfp::KERNEL),
        alloc(1, 2, Gfp::KERNEL),
        free(0, 0),
        free(1, usize::MAX),
    ];
    run_all(&shape, bare(Policy::LINUX_6_18, Grouping::Off), &ops, 7);
}
