//! The start info of PVH, and as much of ACPI as a page allocator wants.

use core::ptr::NonNull;

use acpi::madt::{Madt, MadtEntry};
use acpi::sdt::{SdtHeader, Signature};
use acpi::{AcpiHandler, AcpiTable, AcpiTables, PhysicalMapping};
use zonal_core::types::NodeId;
use zonal_kernel::zones;

use crate::boot::{BootError, Cpu, Firmware};

/// All physical memory is mapped at its own address.
#[derive(Clone)]
struct Identity;

impl AcpiHandler for Identity {
    unsafe fn map_physical_region<T>(&self, at: usize, size: usize) -> PhysicalMapping<Self, T> {
        let pointer = NonNull::new(at as *mut T).unwrap_or(NonNull::dangling());
        // SAFETY: (1) mapped by the boot's page tables; (2) the caller says that a `T` is there.
        unsafe { PhysicalMapping::new(at, pointer, size, size, Identity) }
    }
    fn unmap_physical_region<T>(_region: &PhysicalMapping<Self, T>) {}
}

/// A table whose entries are read here, byte by byte.
macro_rules! raw_table {
    ($name:ident, $signature:expr) => {
        #[repr(C, packed)]
        struct $name(SdtHeader);
        // SAFETY: (1) the header is all of it.
        unsafe impl AcpiTable for $name {
            const SIGNATURE: Signature = $signature;
            fn header(&self) -> &SdtHeader {
                &self.0
            }
        }
    };
}
raw_table!(Srat, Signature::SRAT);
raw_table!(Slit, Signature::SLIT);

fn bytes<T: AcpiTable>(table: &PhysicalMapping<Identity, T>) -> &[u8] {
    // SAFETY: (1) the mapping has that many bytes.
    unsafe {
        core::slice::from_raw_parts(table.virtual_start().as_ptr().cast(), table.region_length())
    }
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let bytes = bytes.get(at..at + width).unwrap_or_default();
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The entries of a table behind its head: type and bytes.
fn entries(table: &[u8], head: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let mut left = table.get(head..).unwrap_or_default();
    core::iter::from_fn(move || {
        let (kind, length) = (*left.first()?, usize::from(*left.get(1)?));
        let entry = left.get(..length).filter(|entry| entry.len() >= 2)?;
        left = &left[length..];
        Some((kind, entry))
    })
}

/// An entry of the SRAT that is in force.
enum Near {
    Cpu { apic: u64, domain: u32 },
    Memory { start: u64, end: u64, domain: u32, may_come: bool },
}

fn affinities(srat: &[u8]) -> impl Iterator<Item = Near> {
    entries(srat, 48).filter_map(|(kind, entry)| {
        let field = |at, width| number(entry, at, width);
        Some(match kind {
            0 if field(4, 4) & 1 != 0 => {
                let domain = field(2, 1) | field(9, 3) << 8;
                Near::Cpu { apic: field(3, 1), domain: domain as u32 }
            }
            1 if field(28, 4) & 1 != 0 && field(16, 8) > 0 => {
                let (start, bytes, domain) = (field(8, 8), field(16, 8), field(2, 4) as u32);
                let may_come = field(28, 4) & 2 != 0;
                Near::Memory { start, end: start.saturating_add(bytes), domain, may_come }
            }
            2 if field(12, 4) & 1 != 0 => {
                Near::Cpu { apic: field(8, 4), domain: field(4, 4) as u32 }
            }
            _ => return None,
        })
    })
}

/// Reads what the firmware says; `info` is the address of `hvm_start_info`.
pub fn find(info: usize) -> Result<Firmware, BootError> {
    let mut found = Firmware::new();
    // SAFETY: (1) PVH hands over this address; (2) its fields are plain numbers.
    let field = |at: usize| unsafe { ((info + at) as *const u64).read_unaligned() };
    let (command, rsdp, map, count) = (field(24), field(32), field(40), field(48) as u32);
    for entry in 0..count as usize {
        let at = map as usize + entry * 24;
        // SAFETY: (1) the start info says that there are so many entries of 24 bytes.
        let [start, size, kind] = unsafe { (at as *const [u64; 3]).read_unaligned() };
        if kind as u32 == 1 {
            found.early.add(start..start.saturating_add(size), NodeId(0))?;
        }
    }
    found.set_command(command as usize);
    // The first MiB: the trampoline, firmware's data.
    found.early.reserve(0..0x10_0000)?;
    // SAFETY: (1) the start info has the address of the RSDP.
    let tables = unsafe { AcpiTables::from_rsdp(Identity, rsdp as usize) };
    let tables = tables.map_err(|_| BootError::Firmware("the ACPI tables cannot be read"))?;
    let madt = tables.find_table::<Madt>();
    let madt = madt.map_err(|_| BootError::Firmware("ACPI has no MADT"))?;
    for entry in madt.get().entries() {
        if let MadtEntry::LocalApic(apic) = entry {
            // Bit 0: there now; bit 1: may come.
            let flags = apic.flags;
            if flags & 3 != 0 {
                let (hardware, is_there) = (u64::from(apic.apic_id), flags & 1 != 0);
                found.add_cpu(Cpu { hardware, domain: None, is_there })?;
            }
        }
    }
    let srat = tables.find_table::<Srat>().ok();
    let srat = srat.as_ref().map_or(&[][..], bytes);
    found.set_domains(affinities(srat).map(|near| match near {
        Near::Cpu { domain, .. } | Near::Memory { domain, .. } => domain,
    }))?;
    for near in affinities(srat) {
        match near {
            Near::Cpu { apic, domain } => found.set_cpu_domain(apic, domain),
            Near::Memory { start, end, domain, may_come } => {
                let node = zones::node_of(found.domains(), domain).unwrap_or_default();
                found.early.set_node(start..end, node)?;
                if may_come {
                    found.later = Some((start..end, node));
                }
            }
        }
    }
    let slit = tables.find_table::<Slit>().ok();
    let slit = slit.as_ref().map_or(&[][..], bytes);
    let rows = number(slit, 36, 8);
    found.set_distances(|from, to| {
        let inside = u64::from(from) < rows && u64::from(to) < rows;
        let at = 44 + u64::from(from) * rows + u64::from(to);
        inside.then(|| slit.get(at as usize).copied()).flatten()
    })?;
    Ok(found)
}
