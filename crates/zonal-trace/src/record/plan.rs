//! What a recording touches: known before anything is touched, and the same list is then applied.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::host;
use super::machine::Roots;
use super::options::{COLD, FRACTION_LARGE, RecordOptions};
use super::tracefs::Tracefs;
use crate::tracefs::{CACHE_EVENTS, LOCK_EVENTS, MORE_EVENTS, PAGE_EVENTS, WORKER_EVENT};

/// Events of pages that come once for each page that is used, however the lists serve it.
const USE_EVENTS: [&str; 2] = ["kmem:mm_page_alloc", "kmem:mm_page_free"];
/// Largest size of a ring that is chosen without being asked for.
const RING_BYTES_MAX: u64 = 256 << 20;
const RING_BYTES_MIN: u64 = 4 << 20;

/// What a recording would touch on this host. Its text is for people: one line for each thing.
#[derive(Debug, Clone)]
pub struct Touched {
    /// Why this host cannot be recorded as it is, if that is known beforehand.
    pub refused: Option<String>,
    /// The directory that is locked while the recording lasts.
    pub lock: PathBuf,
    /// Who has the lock now.
    pub held_by: Option<String>,
    /// Where the changes are written down.
    pub state: PathBuf,
    /// What a recorder left that was killed: undone first.
    pub left: Vec<String>,
    /// The sysctl that is changed for a moment.
    pub sysctl: Option<SysctlTouched>,
    /// The trace instance that is made, and removed at the end.
    pub instance: PathBuf,
    /// Files of the instance, and what is written to them.
    pub settings: Vec<(String, String)>,
    /// Bytes of each CPU's ring, and CPUs.
    pub rings: (u64, u64),
}

/// A sysctl that is changed for a moment.
#[derive(Debug, Clone)]
pub struct SysctlTouched {
    /// Its file.
    pub path: PathBuf,
    /// Its value, which comes back; `None`: it cannot be read.
    pub now: Option<String>,
    /// Its value meanwhile.
    pub meanwhile: String,
}

impl Touched {
    /// What a recording with these options would touch. Nothing is changed.
    pub fn by(roots: &Roots, options: &RecordOptions) -> Touched {
        let tracefs = match &roots.tracefs {
            Some(root) => Tracefs::at(root),
            // Without the right to look, this is still where it would be.
            None => Tracefs::find().unwrap_or_else(|(path, _)| Tracefs::at(&path)),
        };
        let look = host::look(&tracefs, roots);
        let path = roots.high_fraction();
        let sysctl = (options.cold && roots.can_empty_lists()).then(|| SysctlTouched {
            now: fs::read_to_string(&path).ok().map(|text| text.trim().to_owned()),
            path,
            meanwhile: FRACTION_LARGE.to_owned(),
        });
        let settings = Settings::of(&tracefs, roots, options);
        let mut all = settings.all;
        all.push((format!("{}/filter", workers()), settings.workers));
        all.push((format!("{}/enable", workers()), "1".to_owned()));
        Touched {
            refused: tracefs.check().err().map(|error| error.to_string()),
            lock: look.lock,
            held_by: look.held_by.clone(),
            state: look.state,
            // What a recorder that is at work has changed is its own to undo.
            left: if look.held_by.is_some() { Vec::new() } else { look.left },
            sysctl,
            instance: tracefs.instance().path,
            settings: all,
            rings: settings.rings,
        }
    }
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.refused {
            writeln!(f, "not as this host is: {why}")?;
        }
        writeln!(f, "lock   {}, while the recording lasts", self.lock.display())?;
        if let Some(holder) = &self.held_by {
            writeln!(f, "       now held by another recorder: {holder}")?;
        }
        let state = self.state.display();
        writeln!(f, "list   {state}/recorder and {state}/changes, removed at the end")?;
        for left in &self.left {
            writeln!(f, "undo   left by a recorder that was killed: {left}")?;
        }
        match &self.sysctl {
            Some(SysctlTouched { path, now, meanwhile }) => {
                let (path, seconds) = (path.display(), COLD.as_secs());
                let now = now.as_deref().unwrap_or("a value that cannot be read");
                writeln!(f, "sysctl {path}: {now} -> {meanwhile} for {seconds} s, then {now}")?;
                let factor = "watermark_scale_factor";
                writeln!(f, "       and {factor} as it is, if a zone is boosted then")?;
            }
            None => writeln!(f, "sysctl none")?,
        }
        writeln!(f, "make   {}, removed at the end", self.instance.display())?;
        for (name, value) in &self.settings {
            writeln!(f, "       {name} = {value}")?;
        }
        let (bytes, cpus) = self.rings;
        writeln!(f, "memory {cpus} rings of {} MiB", bytes >> 20)
    }
}

/// What is written to files of the instance.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// Files below the instance and their values, in this order.
    pub all: Vec<(String, String)>,
    /// The filter that keeps the statistics workers alone, by the name of their function.
    pub workers: String,
    /// Whether waits for locks are recorded.
    pub locks: bool,
    /// Bytes of each CPU's ring, and CPUs.
    pub rings: (u64, u64),
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl Settings {
    /// The settings of a recording.
    pub(super) fn of(tracefs: &Tracefs, roots: &Roots, options: &RecordOptions) -> Settings {
        let cpus = u64::from(roots.cpus().unwrap_or(1));
        let usual = roots.available_bytes().unwrap_or(0) / 8 / cpus;
        let bytes = options.ring_bytes.unwrap_or(usual.clamp(RING_BYTES_MIN, RING_BYTES_MAX));
        let mut settings = Settings { rings: (bytes, cpus), ..Settings::default() };
        let mut set = |name: &str, value: &str| {
            settings.all.push((name.to_owned(), value.to_owned()));
        };
        set("tracing_on", "0");
        set("trace_clock", "mono");
        set("options/overwrite", "0");
        set("buffer_size_kb", &(bytes >> 10).max(4).to_string());
        let root = &tracefs.root;
        let has = |name: &str| event_path(root, name).is_dir();
        let pages = PAGE_EVENTS.iter().filter(|name| options.uses || !USE_EVENTS.contains(name));
        for name in pages.chain(MORE_EVENTS.iter().filter(|name| has(name))) {
            set(&format!("events/{}/enable", name.replace(':', "/")), "1");
        }
        let locks = LOCK_EVENTS.iter().filter(|(name, _)| options.locks && has(name));
        // Filtered or not, each page of a file that comes or goes costs; what reclaimed pages are
        // read again tells is asked by the trial of a setting, which needs the uses.
        let cache = CACHE_EVENTS.iter().filter(|(name, _)| options.uses && has(name));
        for (name, filter) in locks.chain(cache) {
            let event = format!("events/{}", name.replace(':', "/"));
            set(&format!("{event}/filter"), filter);
            set(&format!("{event}/enable"), "1");
        }
        settings.locks = options.locks && LOCK_EVENTS.iter().all(|(name, _)| has(name));
        settings.workers = "function.function == vmstat_update".to_owned();
        let missing = MORE_EVENTS.iter().filter(|name| !has(name));
        settings.notes.push(format!("rings of {} MiB for each of {cpus} CPUs", bytes >> 20));
        settings.notes.extend(missing.map(|name| format!("this kernel has no event {name}")));
        settings
    }
}

/// The directory of the statistics workers' event, below an instance.
pub(super) fn workers() -> String {
    format!("events/{}", WORKER_EVENT.replace(':', "/"))
}

/// The directory of an event.
pub(super) fn event_path(root: &Path, name: &str) -> PathBuf {
    root.join("events").join(name.replace(':', "/"))
}
