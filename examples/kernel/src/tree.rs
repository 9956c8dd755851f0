//! What a device tree says of memory, processors and distances.

use core::ops::Range;

use fdt::Fdt;
use fdt::node::FdtNode;
use zonal_core::types::NodeId;
use zonal_kernel::zones;

use crate::boot::{BootError, Cpu, Firmware};

fn number(node: FdtNode<'_, '_>, name: &str) -> Option<u32> {
    node.property(name)?.as_usize().map(|value| value as u32)
}

fn numa_node(node: FdtNode<'_, '_>) -> Option<u32> {
    number(node, "numa-node-id")
}

fn is_kind(node: &FdtNode<'_, '_>, kind: &str) -> bool {
    node.property("device_type").and_then(|name| name.as_str()) == Some(kind)
}

/// The device tree at this address.
///
/// # Safety
/// A device tree lies there, and stays.
pub unsafe fn at(at: usize) -> Result<Fdt<'static>, BootError> {
    // SAFETY: (1) the caller's promise; (2) the tree says how long it is.
    let tree = unsafe { Fdt::from_ptr(at as *const u8) };
    tree.map_err(|_| BootError::Firmware("the device tree cannot be read"))
}

/// The addresses of a node.
fn ranges(node: FdtNode<'_, '_>) -> impl Iterator<Item = Range<u64>> {
    let regions = node.reg().into_iter().flatten();
    regions.map(|region| bytes(region.starting_address, region.size.unwrap_or(0)))
}

fn bytes(start: *const u8, size: usize) -> Range<u64> {
    start as u64..(start as u64).saturating_add(size as u64)
}

/// What the firmware keeps, for itself and for devices.
fn kept(tree: &Fdt<'static>) -> impl Iterator<Item = Range<u64>> {
    let block = tree.memory_reservations().map(|kept| bytes(kept.address(), kept.size()));
    let nodes = tree.find_node("/reserved-memory");
    block.chain(nodes.into_iter().flat_map(|nodes| nodes.children()).flat_map(ranges))
}

/// What the tree at `at` says; `reserved` is kept away, and `boot` is what the hardware calls the
/// processor that runs.
pub fn read(
    tree: &Fdt<'static>,
    at: usize,
    reserved: &[Range<u64>],
    boot: u64,
) -> Result<Firmware, BootError> {
    let mut found = Firmware::new();
    found.early.reserve(at as u64..(at + tree.total_size()) as u64)?;
    for range in reserved {
        found.early.reserve(range.clone())?;
    }
    for range in kept(tree) {
        found.early.reserve(range)?;
    }
    let memory = || tree.all_nodes().filter(|node| is_kind(node, "memory"));
    let cpus = || tree.all_nodes().filter(|node| is_kind(node, "cpu"));
    found.set_domains(memory().chain(cpus()).filter_map(numa_node))?;
    for node in memory() {
        let near = numa_node(node).and_then(|domain| zones::node_of(found.domains(), domain));
        for range in ranges(node) {
            found.early.add(range, near.unwrap_or(NodeId(0)))?;
        }
    }
    // The processor that booted comes first.
    for is_first in [true, false] {
        for node in cpus() {
            let Some(hardware) = number(node, "reg") else { continue };
            if (u64::from(hardware) == boot) == is_first {
                let domain = numa_node(node);
                found.add_cpu(Cpu { hardware: hardware.into(), domain, is_there: true })?;
            }
        }
    }
    let map = tree.find_node("/distance-map");
    let matrix = map.and_then(|map| map.property("distance-matrix")).map_or(&[][..], |p| p.value);
    found.set_distances(|from, to| {
        // A matrix may name one direction only.
        let of = |from, to| {
            let mut entries =
                matrix.chunks_exact(12).map(|entry| [0, 4, 8].map(|at| word(entry, at)));
            entries.find(|entry| entry[..2] == [from, to]).map(|entry| entry[2] as u8)
        };
        of(from, to).or_else(|| of(to, from))
    })?;
    found.set_command_text(tree.chosen().bootargs().unwrap_or(""));
    Ok(found)
}

/// The number at this place of a property.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.iter().skip(at).take(4).fold(0, |all, byte| all << 8 | u32::from(*byte))
}
