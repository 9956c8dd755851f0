//! The first pass over a trace: where the bundles of events are, and what is told of the machine.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use prost::Message;
use zonal_trace::{CPUS_MAX, MachineFiles};

use crate::error::Error;
use crate::packets::{Place, check_parts};
use crate::proto::{BundleHead, CLEARED, PacketHead, SystemInfo, TrackEvent};
use crate::{BYTES_KEY, FILE_KEY, VMSTAT_UPDATE};

/// Files that are made out of a trace where it has none of ours.
const META: &str = "meta.json";
const COMMS: &str = "comms";
/// Most events of a bundle: Perfetto's and ours hold some thousand.
const BUNDLE_EVENTS_MAX: usize = 1 << 20;
/// Most events, and bytes, of the largest bundles of all CPUs together: these are held at once.
const HELD_EVENTS_MAX: usize = 8 << 20;
const HELD_BYTES_MAX: u64 = 1 << 30;
/// Most bundles: the place of each is held.
const BUNDLES_MAX: u64 = 1 << 24;
/// Most bytes of all files of a machine.
const FILES_BYTES_MAX: usize = 256 << 20;
/// Files of the machine that are taken at most.
const FILES_MAX: usize = 4096;
/// Linux numbers threads below this, and gives a thread a name of 15 bytes.
const TIDS: i32 = 1 << 22;
const NAME_BYTES: usize = 15;

/// `FtraceClock`: no number is that of the time since boot.
const CLOCKS: [&str; 5] = ["boot", "unknown", "global", "local", "mono_raw"];
const UNKNOWN: usize = 1;
const LOCAL: usize = 3;

/// Where a bundle is.
pub(crate) struct Bundle {
    pub(crate) place: Place,
    /// The number of the statistics worker's symbol in its sequence, at that packet.
    pub(crate) vmstat: Option<u64>,
    /// Whether events are missing in front of it.
    pub(crate) is_lost: bool,
}

/// The bundles of a CPU.
#[derive(Default)]
pub(crate) struct Bundles {
    pub(crate) bundles: Vec<Bundle>,
    /// Whether events are missing behind the last one.
    pub(crate) is_lost: bool,
    /// Of its largest bundles.
    events: usize,
    bytes: u32,
}

/// What the first pass finds.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) cpus: BTreeMap<u32, Bundles>,
    bundles: u64,
    held_events: usize,
    held_bytes: u64,
    /// An index into [`CLOCKS`].
    clock: Option<usize>,
    /// By sequence.
    symbols: HashMap<u32, u64>,
    files: MachineFiles,
    files_bytes: usize,
    nr_files: usize,
    system: Option<SystemInfo>,
    comms: BTreeMap<i32, String>,
}

impl Found {
    /// Takes note of a packet. Returns packets that are compressed in it.
    pub(crate) fn see(
        &mut self,
        path: &Path,
        place: Place,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let wrong = |what| Error::packet(path, place.at, what);
        check_parts(bytes).map_err(wrong)?;
        let packet = PacketHead::decode(bytes)
            .map_err(|error| wrong(format!("no packet of a Perfetto trace: {error}")))?;
        let sequence = packet.trusted_packet_sequence_id.unwrap_or(0);
        let flags = packet.sequence_flags.unwrap_or(0);
        if flags & CLEARED != 0 || packet.incremental_state_cleared == Some(true) {
            self.symbols.remove(&sequence);
        }
        for symbol in packet.interned_data.into_iter().flat_map(|data| data.kernel_symbols) {
            if symbol.str.as_deref() == Some(VMSTAT_UPDATE) {
                self.symbols.insert(sequence, symbol.iid.unwrap_or(0));
            }
        }
        if let Some(bundle) = packet.ftrace_events {
            let vmstat = self.symbols.get(&sequence).copied();
            self.bundle(&bundle, place, vmstat)
                .map_err(|what| Error::packet(path, place.at, what))?;
        }
        for thread in packet.process_tree.into_iter().flat_map(|tree| tree.threads) {
            if let (Some(tid), Some(name)) = (thread.tid, thread.name)
                && (0..TIDS).contains(&tid)
            {
                let name = name.get(..NAME_BYTES).unwrap_or(&name);
                self.comms.insert(tid, String::from_utf8_lossy(name).replace('\n', " "));
            }
        }
        self.system = packet.system_info.or(self.system.take());
        if let Some(event) = packet.track_event {
            self.machine_file(event).map_err(|what| Error::packet(path, place.at, what))?;
        }
        Ok(packet.compressed_packets)
    }

    /// Takes note of a bundle. One without an event may still tell that some are missing.
    fn bundle(
        &mut self,
        head: &BundleHead,
        place: Place,
        vmstat: Option<u64>,
    ) -> Result<(), String> {
        let (number, events) = (head.cpu.unwrap_or(0), head.event.len());
        if number >= CPUS_MAX {
            return Err(format!("cpu: {number}; expected below {CPUS_MAX}"));
        }
        if events > BUNDLE_EVENTS_MAX {
            return Err(format!(
                "a bundle of {events} events; expected {BUNDLE_EVENTS_MAX} at most"
            ));
        }
        if events == 0 {
            // In front of the first bundle nothing is known to be missing.
            if let Some(cpu) = self.cpus.get_mut(&number) {
                cpu.is_lost |= head.lost_events == Some(true);
            }
            return Ok(());
        }
        self.clock_of(head.ftrace_clock)?;
        let cpu = self.cpus.entry(number).or_default();
        self.held_events += events.saturating_sub(cpu.events);
        self.held_bytes += u64::from(place.bytes.saturating_sub(cpu.bytes));
        (cpu.events, cpu.bytes) = (cpu.events.max(events), cpu.bytes.max(place.bytes));
        self.bundles += 1;
        if self.held_events > HELD_EVENTS_MAX || self.held_bytes > HELD_BYTES_MAX {
            return Err(format!(
                "the largest bundles of all CPUs have {} events in {} bytes; expected \
                 {HELD_EVENTS_MAX} events and {HELD_BYTES_MAX} bytes at most",
                self.held_events, self.held_bytes
            ));
        }
        if self.bundles > BUNDLES_MAX {
            let what = format!("more than {BUNDLES_MAX} bundles of events");
            return Err(format!("{what}; record for a shorter time"));
        }
        let is_lost = std::mem::take(&mut cpu.is_lost) || head.lost_events == Some(true);
        cpu.bundles.push(Bundle { place, vmstat, is_lost });
        Ok(())
    }

    fn clock_of(&mut self, number: Option<i32>) -> Result<(), String> {
        let number = usize::try_from(number.unwrap_or(0)).ok();
        let clock = number.filter(|number| *number < CLOCKS.len()).unwrap_or(UNKNOWN);
        let before = *self.clock.get_or_insert(clock);
        let name = CLOCKS[clock];
        if clock == LOCAL {
            return Err(format!(
                "times of the clock {name}, which differs from CPU to CPU; \
                 expected the one since boot"
            ));
        }
        if before != clock {
            return Err(format!(
                "times of the clock {name}, those before of {}; expected one clock",
                CLOCKS[before]
            ));
        }
        Ok(())
    }

    /// The clock of the events, where it is not the usual one.
    pub(crate) fn clock_name(&self) -> Option<&'static str> {
        self.clock.filter(|clock| *clock > 0).map(|clock| CLOCKS[clock])
    }

    /// A file of the machine, if the event holds one. Names of other kinds are passed over: names
    /// become files when a trace is unpacked.
    fn machine_file(&mut self, event: TrackEvent) -> Result<(), String> {
        let plain = |name: &&str| {
            !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
        };
        for annotation in event.debug_annotations {
            let (Some(key), Some(text)) = (annotation.name, annotation.string_value) else {
                continue;
            };
            let Ok(key) = std::str::from_utf8(&key) else { continue };
            if !key.starts_with(FILE_KEY) && !key.starts_with(BYTES_KEY) {
                continue;
            }
            self.files_bytes += text.len();
            self.nr_files += 1;
            if self.files_bytes > FILES_BYTES_MAX || self.nr_files > FILES_MAX {
                let most = FILES_BYTES_MAX >> 20;
                return Err(format!(
                    "{key}: more than {FILES_MAX} files of the machine, or {most} MiB of them"
                ));
            }
            if let Some(name) = key.strip_prefix(FILE_KEY).filter(plain) {
                self.files.set(name, text);
            } else if let Some(name) = key.strip_prefix(BYTES_KEY).filter(plain)
                && let Ok(text) = std::str::from_utf8(&text)
                && let Ok(bytes) = text.chars().map(u8::try_from).collect()
            {
                self.files.set(name, bytes);
            }
        }
        Ok(())
    }

    /// Whether the trace was a recording, which may be one of moves alone, or of nothing.
    pub(crate) fn is_recording(&self) -> bool {
        self.files.get(META).is_some()
    }

    /// The files of the machine: ours, or what other traces tell.
    pub(crate) fn machine_files(&self) -> MachineFiles {
        let mut files = self.files.clone();
        if files.get(COMMS).is_none() && !self.comms.is_empty() {
            let lines = self.comms.iter().map(|(tid, name)| format!("{tid} {name}\n"));
            files.set(COMMS, lines.collect::<String>().into_bytes());
        }
        if files.get(META).is_none() {
            let uname = self.system.as_ref().and_then(|system| system.utsname.as_ref());
            let part = |part: &Option<Vec<u8>>| {
                let part = part.as_deref().unwrap_or(b"-");
                String::from_utf8_lossy(part).into_owned()
            };
            let uname = uname.map(|name| {
                let words = [&name.sysname, &None, &name.release, &name.version, &name.machine];
                words.map(part).join(" ").replace(['"', '\\', '\n'], " ")
            });
            let uname = uname.map_or_else(String::new, |uname| format!(", \"uname\": \"{uname}\""));
            let cpus = self.cpus.keys().next_back().map_or(1, |cpu| cpu + 1);
            let clock = CLOCKS[self.clock.unwrap_or(0)];
            let meta = format!("{{\"clock\": \"{clock}\", \"cpus\": {cpus}{uname}}}\n");
            files.set(META, meta.into_bytes());
        }
        files
    }
}
