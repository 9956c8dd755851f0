//! All figures of this machine, timed in turns.

use std::fs;
use std::time::{Duration, Instant};

use zonal::sys::affinity::{AffinityError, Pinned};

use super::effort::{CalibrateError, Effort};
use super::probe::{self, Chain, Lines};
use super::series::{Series, Timed};
use super::shape::{Cpu, Shape};

/// Places of a figure: buffers, or parts of one large buffer.
const PLACES: usize = 16;
/// Lines that two CPUs exchange in each round, none of them twice: what one takes depends on where
/// it is, and on when: a hypervisor moves CPUs, and from one second to the next a line takes 36, 60
/// or 210 ns. The least of a line that comes again would be one of these by chance.
const LINES_OF_ROUND: usize = 4;
/// Seed of the orders in which buffers are walked.
const SEED: u64 = 1;
/// Largest buffer for the latency of memory.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The same with [`Effort::Quick`].
const MEMORY_BYTES_QUICK: u64 = 64 << 20;
/// Exchanges in which a pair of CPUs did not come together, before it is given up.
const APART_MAX: u32 = 2;

/// Figures in ns, with their spread; none where this machine has no such distance or it could not
/// be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    /// A cycle of the clock under load.
    pub cycle: Timed,
    /// In L1.
    pub l1: Timed,
    /// In L2.
    pub l2: Timed,
    /// In the last cache, if it is another one than L2.
    pub llc: Option<Timed>,
    /// In memory of the own node.
    pub dram: Timed,
    /// Bytes of the buffer that it was measured in.
    pub memory_bytes: u64,
    /// In memory of another node.
    pub dram_remote: Option<Timed>,
    /// From a core of the same last cache.
    pub core: Option<Timed>,
    /// From another last cache of the socket.
    pub socket: Option<Timed>,
    /// From another socket.
    pub remote: Option<Timed>,
    /// A locked addition.
    pub locked: Timed,
}

/// Buffers for one figure: one for each place, or one large one of which each round walks on.
struct Buffers {
    chains: Vec<Chain>,
    /// Whether a cache holds them, and is filled before each slice.
    cached: bool,
    series: Series,
}

/// Two CPUs, and what was timed between them.
struct Pair {
    other: Option<zonal::CpuId>,
    apart: u32,
    series: Series,
}

impl Effort {
    fn rounds(self) -> usize {
        match self {
            Effort::Full => 5 * PLACES,
            Effort::Quick => PLACES,
        }
    }

    /// Time for a figure in each round, at least.
    fn slice(self) -> Duration {
        match self {
            Effort::Full => Duration::from_millis(10),
            Effort::Quick => Duration::from_millis(4),
        }
    }

    /// After so long no round begins, if each place was timed: large buffers take their time, and
    /// on a busy machine two CPUs wait for each other.
    fn limit(self) -> Duration {
        match self {
            Effort::Full => Duration::from_secs(10),
            Effort::Quick => Duration::from_secs(2),
        }
    }
}

/// Times all figures, on the first of `usable`. `progress` hears of each round done, and of how
/// many there are.
///
/// # Errors
/// A CPU that may not be used, or no memory on another node.
pub fn latencies(
    shape: &Shape,
    usable: &[&Cpu],
    effort: Effort,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Latencies, CalibrateError> {
    let begun = Instant::now();
    let (first, cache) = (usable[0], &shape.cache);
    let memory_bytes = memory_bytes(shape, effort, available_bytes());
    let mut l1 = Buffers::of_places(cache.l1_kib * 512);
    // Far from L1, and so far below L2 that its pages seldom fall into the same sets.
    let mut l2 = Buffers::of_places((cache.l1_kib * cache.l2_kib).isqrt() * 1024);
    let llc_kib = (cache.l2_kib * 4).min(cache.l2_kib.midpoint(cache.llc_kib));
    let has_llc = cache.llc_kib > cache.l2_kib;
    let mut llc = has_llc.then(|| Buffers::one(llc_kib * 1024, true));
    let mut dram = Buffers::one(memory_bytes, false);
    let far = usable.iter().find(|cpu| cpu.node != first.node);
    let mut dram_remote = far.map(|cpu| Buffers::on_node_of(cpu, memory_bytes)).transpose()?;
    let mut core = Pair::of(usable, |cpu| cpu.core != first.core && cpu.llc == first.llc);
    let mut socket = Pair::of(usable, |cpu| cpu.llc != first.llc && cpu.socket == first.socket);
    let mut remote = Pair::of(usable, |cpu| cpu.socket != first.socket);
    let (mut cycle, mut locked) = (Series::default(), Series::default());
    let (slice, rounds) = (effort.slice(), effort.rounds());
    let lines = Lines::new(rounds * LINES_OF_ROUND);
    for round in 0..rounds {
        if round >= PLACES && begun.elapsed() > effort.limit() {
            break;
        }
        let place = round % PLACES;
        probe::cycle_ns(slice, &mut |ns| cycle.add(place, ns));
        for buffers in [&mut l1, &mut l2].into_iter().chain(&mut llc) {
            buffers.time(place, slice);
        }
        probe::locked_ns(slice, lines.of(place), &mut |ns| locked.add(place, ns));
        for buffers in [&mut dram].into_iter().chain(&mut dram_remote) {
            buffers.time(place, slice);
        }
        for pair in [&mut core, &mut socket, &mut remote] {
            pair.time(round, slice, first, &lines)?;
        }
        progress(round as u64 + 1, rounds as u64);
    }
    let timed = |series: &Series| series.timed().ok_or(CalibrateError::NothingTimed);
    Ok(Latencies {
        cycle: timed(&cycle)?,
        l1: timed(&l1.series)?,
        l2: timed(&l2.series)?,
        llc: llc.and_then(|buffers| buffers.series.timed()),
        dram: timed(&dram.series)?,
        memory_bytes,
        dram_remote: dram_remote.and_then(|buffers| buffers.series.timed()),
        core: core.series.timed(),
        socket: socket.series.timed(),
        remote: remote.series.timed(),
        locked: timed(&locked)?,
    })
}

/// Bytes that could be had without swapping, as Linux says; `None`: elsewhere.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Four times the last cache, as far as there is room and time: at most an eighth of a node, and of
/// what could be had, since there may be two such buffers.
fn memory_bytes(shape: &Shape, effort: Effort, available: Option<u64>) -> u64 {
    let most = match effort {
        Effort::Quick => MEMORY_BYTES_QUICK,
        Effort::Full => MEMORY_BYTES_MAX,
    };
    let most = most.min(shape.memory_mib << 17).min(available.map_or(u64::MAX, |all| all / 8));
    (shape.cache.llc_kib * 4096).clamp(4 << 20, most.max(4 << 20))
}

impl Buffers {
    fn of_places(bytes: u64) -> Buffers {
        let chain = |place| Chain::new(bytes as usize, SEED + place as u64);
        let chains = (0..PLACES).map(chain).collect();
        Buffers { chains, cached: true, series: Series::default() }
    }

    fn one(bytes: u64, cached: bool) -> Buffers {
        let chains = vec![Chain::new(bytes as usize, SEED)];
        Buffers { chains, cached, series: Series::default() }
    }

    /// Memory that a CPU of another node touched first.
    fn on_node_of(owner: &Cpu, bytes: u64) -> Result<Buffers, CalibrateError> {
        let owner = owner.id;
        let build = move || {
            let _pinned = Pinned::to(owner)?;
            Ok::<Buffers, AffinityError>(Buffers::one(bytes, false))
        };
        let built = std::thread::spawn(build).join();
        Ok(built.map_err(|_| CalibrateError::NoMemory(bytes))??)
    }

    fn time(&mut self, place: usize, slice: Duration) {
        let Buffers { chains, cached, series } = self;
        let own = place % chains.len();
        if *cached {
            chains[own].warm();
        }
        chains[own].step_ns(slice, &mut |ns| series.add(place, ns));
    }
}

impl Pair {
    fn of(usable: &[&Cpu], fits: impl Fn(&Cpu) -> bool) -> Pair {
        let other = usable.iter().find(|cpu| fits(cpu)).map(|cpu| cpu.id);
        Pair { other, apart: 0, series: Series::default() }
    }

    fn time(
        &mut self,
        round: usize,
        slice: Duration,
        first: &Cpu,
        lines: &Lines,
    ) -> Result<(), AffinityError> {
        for place in round * LINES_OF_ROUND..(round + 1) * LINES_OF_ROUND {
            let Some(other) = self.other.filter(|_| self.apart < APART_MAX) else { return Ok(()) };
            let (series, mut parts) = (&mut self.series, 0);
            let cpus = (first.id, other);
            probe::transfer_ns(slice / LINES_OF_ROUND as u32, cpus, lines.of(place), &mut |ns| {
                parts += 1;
                series.add(place, ns);
            })?;
            self.apart += u32::from(parts == 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Caches;

    #[test]
    fn a_buffer_leaves_room_on_small_and_on_busy_machines() {
        let (l1_kib, l2_kib, llc_cores, llc_victims) = (32, 1024, 1, false);
        let shape = |llc_mib: u64, memory_mib| Shape {
            sockets: 1,
            cores_per_socket: 1,
            threads_per_core: 1,
            nodes: 1,
            memory_mib,
            distances: Vec::new(),
            cache: Caches { l1_kib, l2_kib, llc_kib: llc_mib << 10, llc_cores, llc_victims },
            cpus: Vec::new(),
            notes: Vec::new(),
        };
        let mib = |llc_mib, memory_mib, available_mib: Option<u64>| {
            let available = available_mib.map(|mib| mib << 20);
            memory_bytes(&shape(llc_mib, memory_mib), Effort::Full, available) >> 20
        };
        assert_eq!(mib(32, 65536, None), 128, "four times the last cache");
        assert_eq!(mib(1024, 65536, None), 1024);
        assert_eq!(mib(1024, 4096, None), 512, "an eighth of the node");
        assert_eq!(mib(1024, 4096, Some(800)), 100, "an eighth of what is free");
        assert_eq!(mib(32, 16, Some(1)), 4, "no less, or it were no memory");
        assert_eq!(available_bytes().is_some(), cfg!(target_os = "linux"));
        assert!(available_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
