//! From firmware's tables to an allocator that serves.

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;

use zonal_core::alloc::{OnlineError, new_over_fresh};
use zonal_core::early::{Early, EarlyError, Want};
use zonal_core::machine::{Layout, Machine, MachineError, ZoneSpec};
use zonal_core::policy::Policy;
use zonal_core::types::{NodeId, Order};
use zonal_kernel::zones::{self, FirmwareError, NO_ZONE};
use zonal_kernel::{hotplug, text};

use crate::out::Serial;
use crate::{arch, image, kernel, say};

pub const MAX_CPUS: usize = 16;
pub const MAX_NODES: usize = 8;
/// Kinds of zones that a node can have.
const KINDS: usize = 3;

/// A CPU as firmware describes it.
#[derive(Clone, Copy)]
pub struct Cpu {
    /// What the hardware calls it.
    pub hardware: u64,
    pub domain: Option<u32>,
    /// It is there at boot; others may come.
    pub is_there: bool,
}

/// What firmware says.
pub struct Firmware {
    pub early: Early<64>,
    cpus: [Cpu; MAX_CPUS],
    cpu_count: usize,
    domains: [u32; MAX_NODES],
    nodes: usize,
    distances: [u8; MAX_NODES * MAX_NODES],
    command: Command,
    /// Where DIMMs may come, and their node.
    pub later: Option<(Range<u64>, NodeId)>,
}

/// Why the kernel cannot boot.
#[derive(Debug)]
pub enum BootError {
    Firmware(&'static str),
    Zones(FirmwareError),
    Early(EarlyError),
    Machine(MachineError),
    Online(OnlineError),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootError::Firmware(what) => f.write_str(what),
            BootError::Zones(error) => error.fmt(f),
            BootError::Early(error) => error.fmt(f),
            BootError::Machine(error) => error.fmt(f),
            BootError::Online(error) => error.fmt(f),
        }
    }
}

macro_rules! from {
    ($($error:ident => $variant:ident),*) => {
        $(impl From<$error> for BootError {
            fn from(error: $error) -> BootError {
                BootError::$variant(error)
            }
        })*
    };
}
from!(FirmwareError => Zones, EarlyError => Early, MachineError => Machine, OnlineError => Online);

impl Firmware {
    pub fn new() -> Firmware {
        let cpu = Cpu { hardware: 0, domain: None, is_there: false };
        Firmware {
            early: Early::new(),
            cpus: [cpu; MAX_CPUS],
            cpu_count: 0,
            domains: [0; MAX_NODES],
            nodes: 1,
            distances: [10; MAX_NODES * MAX_NODES],
            command: Command(""),
            later: None,
        }
    }

    pub fn add_cpu(&mut self, cpu: Cpu) -> Result<(), BootError> {
        let room = self.cpus.get_mut(self.cpu_count);
        *room.ok_or(BootError::Firmware("more CPUs than this kernel has room for"))? = cpu;
        self.cpu_count += 1;
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    pub fn set_cpu_domain(&mut self, hardware: u64, domain: u32) {
        let mut cpus = self.cpus[..self.cpu_count].iter_mut();
        if let Some(cpu) = cpus.find(|cpu| cpu.hardware == hardware) {
            cpu.domain = Some(domain);
        }
    }

    pub fn set_domains(&mut self, all: impl Iterator<Item = u32>) -> Result<(), BootError> {
        self.nodes = zones::nodes(all, &mut self.domains)?;
        Ok(())
    }

    pub fn domains(&self) -> &[u32] {
        &self.domains[..self.nodes]
    }

    pub fn set_distances(
        &mut self,
        known: impl Fn(u32, u32) -> Option<u8>,
    ) -> Result<(), BootError> {
        zones::distances(&self.domains[..self.nodes], known, &mut self.distances)?;
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    /// The command line, at this address; it ends with a zero.
    pub fn set_command(&mut self, at: usize) {
        if at == 0 {
            return;
        }
        // SAFETY: (1) the boot protocol says that a string is there, and it stays: it lies in
        // memory that is reserved.
        let text = unsafe { core::ffi::CStr::from_ptr(at as *const core::ffi::c_char) };
        self.command = Command(text.to_str().unwrap_or(""));
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn set_command_text(&mut self, text: &'static str) {
        self.command = Command(text);
    }
}

/// The command line: words, and words with a value.
#[derive(Clone, Copy)]
pub struct Command(&'static str);

impl Command {
    pub fn has(&self, word: &str) -> bool {
        self.0.split_ascii_whitespace().any(|other| other == word)
    }

    pub fn value(&self, name: &str) -> Option<&'static str> {
        let mut words = self.0.split_ascii_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.value(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
}

/// What the boot leaves behind.
pub struct Boot {
    pub early: Early<64>,
    pub command: Command,
    pub machine: Machine<'static>,
    /// Pages that were handed over.
    pub online: u64,
    there: [bool; MAX_CPUS],
}

/// Memory from `early`, for ever, with these values.
fn keep<T: Copy>(early: &mut Early<64>, values: &[T]) -> Result<&'static [T], EarlyError> {
    let want = Want { align: 64, ..Want::bytes(size_of_val(values) as u64) };
    let at = early.take(&want)? as *mut T;
    // SAFETY: (1) `take` gives each byte once, mapped at its own address, and it is never given
    // back; (2) aligned to 64.
    unsafe {
        at.copy_from_nonoverlapping(values.as_ptr(), values.len());
        Ok(core::slice::from_raw_parts(at, values.len()))
    }
}

/// The policy of the command line.
fn policy(command: Command) -> Result<Policy, BootError> {
    let name = command.value("policy").unwrap_or(Policy::KERNEL.name);
    let mut policies = Policy::PRESETS.iter().chain([&Policy::KERNEL]);
    let found = policies.find(|policy| policy.name == name);
    found.copied().ok_or(BootError::Firmware("policy= names no policy that this kernel has"))
}

/// Boots as far as an allocator that serves, on the first CPU alone.
pub fn run(info: usize) -> Result<Boot, BootError> {
    let Firmware { mut early, cpus, cpu_count, domains, nodes, distances, command, later } =
        arch::find_firmware(info)?;
    early.reserve(image::bytes())?;
    let mut found = [NO_ZONE; KINDS * MAX_NODES];
    let zones = zones::find(early.memory(), arch::LIMITS, &mut found)?;
    if let Some((bytes, node)) = &later {
        make_room(&mut found[..zones.zones], bytes, *node);
    }
    let mut cpu_nodes = [NodeId(0); MAX_CPUS];
    let mut there = [false; MAX_CPUS];
    for (id, cpu) in cpus[..cpu_count].iter().enumerate() {
        let node = cpu.domain.and_then(|domain| zones::node_of(&domains[..nodes], domain));
        (cpu_nodes[id], there[id]) = (node.unwrap_or_default(), cpu.is_there);
        arch::name_cpu(id as u32, cpu.hardware);
    }
    // What the allocator refers to for ever.
    let zones: &[ZoneSpec] = keep(&mut early, &found[..zones.zones])?;
    let machine = Machine {
        distances: keep(&mut early, &distances_of(&distances, nodes)[..nodes * nodes])?,
        zones,
        cpus: keep(&mut early, &cpu_nodes[..cpu_count])?,
        cache_slice_bytes: 0,
        caches: &[],
    };
    let policy = policy(command)?;
    let layout = Layout::of(&machine, &policy)?;
    let bytes = layout.carve_bytes();
    let at = early.take(&Want::bytes(bytes as u64))?;
    // SAFETY: (1) as in `keep`; (2) any bytes will do.
    let memory = unsafe { core::slice::from_raw_parts_mut(at as *mut MaybeUninit<u8>, bytes) };
    let start = arch::now();
    let metadata = layout.carve(memory)?;
    // SAFETY: (1) `carve` leaves every record in its default state.
    let allocator = unsafe { new_over_fresh(&machine, policy, metadata, kernel::platform()) }?;
    let made = arch::now();
    let handed = match command.has("deferred") {
        true => early.hand_over_deferred(&allocator)?,
        false => early.hand_over(&allocator)?,
    };
    allocator.setup();
    let end = arch::now();
    say!(
        "boot: {} pages online, {} in no zone, metadata {} KiB for {} MiB spanned; ticks: records \
         {}, online and setup {}",
        handed.online,
        handed.outside,
        bytes >> 10,
        layout.words >> 8,
        made - start,
        end - made
    );
    kernel::set_core(allocator);
    // CPUs that are described and not there.
    for cpu in 1..cpu_count as u32 {
        if !there[cpu as usize]
            && let Err(error) = hotplug::dead(kernel::core(), cpu)
        {
            say!("CPU {cpu}: {error}");
        }
    }
    if let Err(error) = hotplug::starts(kernel::core()) {
        say!("CPU 0: {error}");
    }
    #[cfg(by_sections)]
    crate::fast::start();
    arch::unmask_all();
    Ok(Boot { early, command, machine, online: handed.online, there })
}

/// A zone of the node spans memory that may come behind it, so that there are words for its pages.
fn make_room(zones: &mut [ZoneSpec], bytes: &Range<u64>, node: NodeId) {
    let (start, end) = (bytes.start >> 12, bytes.end >> 12);
    // The last one: nothing lies between it and what comes.
    match zones.last_mut() {
        Some(zone) if zone.node == node && zone.start_pfn + zone.spanned <= start => {
            zone.spanned = end - zone.start_pfn;
        }
        _ => say!("no zone has room for memory at {:#x}", bytes.start),
    }
}

/// The table has rows of as many nodes as there are: it was filled that way.
fn distances_of(table: &[u8; MAX_NODES * MAX_NODES], nodes: usize) -> &[u8] {
    &table[..nodes * nodes]
}

/// Starts a CPU on a stack of its own, and waits until it runs. `false`: it does not come.
pub fn start_cpu(cpu: u32) -> bool {
    let order = Order::new(4).expect("64 KiB");
    let Ok(stack) = kernel::alloc(order, Default::default()) else { return false };
    arch::start_cpu(cpu, ((stack.0 << 12) + (order.pages() << 12)) as usize);
    let start = arch::now();
    while !kernel::has_arrived(cpu) {
        core::hint::spin_loop();
        if arch::now() - start > 20_000_000_000 {
            return false;
        }
    }
    true
}

impl Boot {
    /// Starts the CPUs that are there.
    pub fn start_cpus(&self) {
        for cpu in 1..self.machine.cpus.len() as u32 {
            if self.there[cpu as usize] {
                if !start_cpu(cpu) {
                    say!("CPU {cpu} does not come");
                } else if let Err(error) = hotplug::online(kernel::core(), cpu) {
                    say!("CPU {cpu}: {error}");
                }
            }
        }
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: u32) -> usize {
        usize::from(self.machine.cpus[cpu as usize].0)
    }

    /// What the machine is like.
    pub fn print(&self) {
        let core = kernel::core();
        say!(
            "machine: {} nodes, {} CPUs, {} running, policy {}",
            self.machine.nodes(),
            self.machine.cpus.len(),
            kernel::running().count(),
            core.policy().name
        );
        for zone in self.machine.zones {
            say!(
                "zone: node {} {} start {} spanned {} present {}",
                zone.node.0,
                zone.kind,
                zone.start_pfn,
                zone.spanned,
                zone.present
            );
        }
        for (memory, node) in self.early.memory() {
            say!("memory: {:#x} {:#x} node {}", memory.start, memory.end, node.0);
        }
        for (node, row) in self.machine.distances.chunks(self.machine.nodes()).enumerate() {
            say!("distance: node {node} {row:?}");
        }
        for (cpu, node) in self.machine.cpus.iter().enumerate() {
            say!("cpu: {cpu} node {} up {}", node.0, kernel::has_arrived(cpu as u32));
        }
    }

    /// The texts, between marks.
    pub fn print_texts(&self) {
        let core = kernel::core();
        let layout = text::Layout::Linux6_14;
        let is_up = |cpu| kernel::has_arrived(cpu);
        say!("BEGIN zoneinfo");
        let _ = text::zoneinfo(&mut Serial, core, layout, is_up);
        say!("END zoneinfo\nBEGIN buddyinfo");
        let _ = text::buddyinfo(&mut Serial, core);
        say!("END buddyinfo\nBEGIN pagetypeinfo");
        let _ = text::pagetypeinfo(&mut Serial, core);
        say!("END pagetypeinfo\nBEGIN vmstat");
        let _ = text::vmstat(&mut Serial, core, layout);
        say!("END vmstat");
        say!("min_free_kbytes: {}", core.stats().min_free_kbytes());
    }
}
