//! What a recording shows, in one pass over its events.

use std::collections::{BTreeMap, HashMap};

use zonal_core::gfp::Gfp;
use zonal_trace::{Event, EventKind, Notice, PolledState, Recording};

use crate::error::ReplayError;
use crate::progress::{Phase, Progress, Watch};

/// Bins of the time.
pub(super) const BINS: usize = 200;
/// Events between two calls of the [`Watch`].
const TICK_EVENTS: u64 = 1 << 16;
/// What takes the place of a thread in interrupts.
const IDLE: &str = "idle task (interrupts)";
/// Blocks in use whose birth is remembered; more are not told how long they live.
const BORN_MAX: usize = 1 << 24;
/// Lifetimes by powers of ten, from below a microsecond up.
pub(super) const LIVES: usize = 10;

/// What happened in one bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    pub allocated: u64,
    pub freed: u64,
    pub refilled: u64,
    pub drained: u64,
    /// From buddies to users, past the lists.
    pub direct: u64,
    pub waits: u64,
}

/// What a recording shows.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub(super) start_ns: u64,
    pub(super) span_ns: u64,
    pub(super) bins: Vec<Bin>,
    /// Allocations by order.
    pub(super) orders: BTreeMap<u8, u64>,
    /// Pages by thread.
    pub(super) threads: HashMap<i32, u64>,
    /// Names of threads, as far as the recording has them.
    pub(super) names: HashMap<i32, String>,
    /// Bytes of a page.
    pub(super) page_bytes: u32,
    /// Pages by flags of the request.
    pub(super) flags: HashMap<u32, u64>,
    /// Blocks by how long they were in use: power of ten of the nanoseconds, from 1000 on.
    pub(super) lives: [u64; LIVES],
    /// Blocks that were still in use at the end, of those that are followed.
    pub(super) kept: u64,
    /// Blocks that are not followed: [`BORN_MAX`] were in use.
    pub(super) untold: u64,
    pub(super) polls: Vec<PolledState>,
    pub(super) events: u64,
}

impl Overview {
    /// Reads a recording twice: for its length, and for what happened in each part of it.
    ///
    /// # Errors
    /// Bad input, with its place, or [`ReplayError::Stopped`].
    pub fn of(recording: &Recording, watch: &mut Watch<'_>) -> Result<Overview, ReplayError> {
        let files = recording.machine_files()?;
        let mut overview = Overview {
            polls: recording.polls()?,
            names: files.thread_names().into_iter().collect(),
            page_bytes: recording.description().page_size,
            ..Overview::default()
        };
        overview.bins = vec![Bin::default(); BINS];
        let (mut first, mut last) = (None, 0);
        overview.each(recording, watch, |_, event| {
            first.get_or_insert(event.time_ns);
            last = event.time_ns;
        })?;
        overview.start_ns = first.unwrap_or(0);
        overview.span_ns = last.saturating_sub(overview.start_ns).max(1);
        let mut born: HashMap<u64, u64> = HashMap::new();
        overview.each(recording, watch, |overview, event| overview.take(event, &mut born))?;
        overview.kept = born.len() as u64;
        Ok(overview)
    }

    fn each(
        &mut self,
        recording: &Recording,
        watch: &mut Watch<'_>,
        mut take: impl FnMut(&mut Overview, &Event),
    ) -> Result<(), ReplayError> {
        let of = recording.description().events;
        self.events = 0;
        for event in recording.events() {
            if self.events.is_multiple_of(TICK_EVENTS)
                && watch(Progress { phase: Phase::Reading, done: self.events, of }).is_break()
            {
                return Err(ReplayError::Stopped);
            }
            self.events += 1;
            take(self, &event?);
        }
        Ok(())
    }

    fn take(&mut self, event: &Event, born: &mut HashMap<u64, u64>) {
        let from = event.time_ns.saturating_sub(self.start_ns);
        let at = (u128::from(from) * BINS as u128 / u128::from(self.span_ns)) as usize;
        let bin = &mut self.bins[at.min(BINS - 1)];
        let pages = |order: u8| 1_u64 << order.min(63);
        match event.kind {
            EventKind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                bin.allocated += pages(order);
                *self.orders.entry(order).or_default() += 1;
                *self.threads.entry(event.pid).or_default() += pages(order);
                *self.flags.entry(gfp).or_default() += pages(order);
                if born.len() < BORN_MAX {
                    born.insert(pfn, event.time_ns);
                } else {
                    self.untold += 1;
                }
            }
            EventKind::Free { pfn, order } => {
                bin.freed += pages(order);
                if let Some(time_ns) = born.remove(&pfn) {
                    let ns = event.time_ns.saturating_sub(time_ns).max(1);
                    let power = (ns.ilog10() as usize).saturating_sub(2).min(LIVES - 1);
                    self.lives[power] += 1;
                }
            }
            EventKind::ZoneLocked { order, percpu_refill: true, .. } => {
                bin.refilled += pages(order)
            }
            EventKind::ZoneLocked { order, .. } => bin.direct += pages(order),
            EventKind::PcpuDrain { order, .. } => bin.drained += pages(order),
            EventKind::Notice(Notice::ContentionBegin { flags: Notice::SPIN, .. }) => {
                bin.waits += 1;
            }
            _ => {}
        }
    }

    /// Width of a bin, in seconds.
    pub(super) fn bin_s(&self) -> f64 {
        self.span_ns as f64 / 1e9 / BINS as f64
    }

    /// The most of a table, the rest as one row.
    pub(super) fn top<K: Copy + Ord>(
        table: &HashMap<K, u64>,
        most: usize,
        name: impl Fn(K) -> String,
    ) -> Vec<(String, u64)> {
        let mut rows: Vec<(K, u64)> = table.iter().map(|(key, count)| (*key, *count)).collect();
        rows.sort_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
        let rest: u64 = rows.iter().skip(most).map(|(_, count)| count).sum();
        let others = rows.len().saturating_sub(most);
        let named = rows.into_iter().take(most).map(|(key, count)| (name(key), count));
        named.chain((rest > 0).then(|| (format!("{others} others"), rest))).collect()
    }

    /// What a thread is called: by its name, if the recording has it.
    pub(super) fn called(&self, pid: i32) -> String {
        match (pid, self.names.get(&pid)) {
            (0, _) => IDLE.to_owned(),
            (pid, Some(name)) => format!("{name}, thread {pid}"),
            (pid, None) => format!("thread {pid}"),
        }
    }

    /// Pages by command: all threads of a name together. `None`: no name is recorded.
    pub(super) fn commands(&self, most: usize) -> Option<Vec<(String, u64)>> {
        let mut commands: HashMap<&str, u64> = HashMap::new();
        let mut unnamed = 0;
        for (pid, pages) in &self.threads {
            let name = match pid {
                0 => Some(IDLE),
                pid => self.names.get(pid).map(String::as_str),
            };
            match name {
                Some(name) => *commands.entry(name).or_default() += pages,
                None => unnamed += pages,
            }
        }
        let is_named = self.threads.keys().any(|pid| self.names.contains_key(pid));
        let mut rows = Overview::top(&commands, most, str::to_owned);
        rows.extend((unnamed > 0).then(|| ("threads without a recorded name".to_owned(), unnamed)));
        is_named.then_some(rows)
    }

    /// Flags of a request in words.
    pub(super) fn words(gfp: u32) -> String {
        Gfp::from_bits(gfp).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_trace::{Stats, samples};

    #[test]
    fn what_is_gathered_is_what_is_counted() {
        let recording = samples::zlib_make_j4().unwrap();
        let stats = Stats::read(&recording, &mut |_| {}).unwrap();
        let seen = Overview::of(&recording, &mut crate::unwatched).unwrap();
        assert_eq!(seen.events, stats.events);
        let sum = |of: fn(&Bin) -> u64| seen.bins.iter().map(of).sum::<u64>();
        assert_eq!(sum(|bin| bin.allocated), stats.alloc_pages);
        assert_eq!(seen.threads.values().sum::<u64>(), stats.alloc_pages);
        assert_eq!(seen.flags.values().sum::<u64>(), stats.alloc_pages);
        assert_eq!(seen.orders, stats.allocs_by_order);
        let ended: u64 = seen.lives.iter().sum();
        assert!(ended > 0 && ended + seen.kept <= stats.allocs_by_order.values().sum());
        assert_eq!(seen.span_ns, stats.last_ns - stats.first_ns);
    }

    #[test]
    fn a_table_keeps_its_most_and_the_rest_is_one_row() {
        let table = HashMap::from([(1, 5), (2, 9), (3, 5), (4, 1)]);
        let rows = Overview::top(&table, 2, |key: i32| key.to_string());
        let told: Vec<_> = rows.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(told, [("2", 9), ("1", 5), ("2 others", 6)]);
        assert_eq!(Overview::top(&table, 9, |key| key.to_string()).len(), 4);
    }

    #[test]
    fn threads_are_called_by_their_recorded_names() {
        let mut seen = Overview {
            threads: HashMap::from([(0, 1), (7, 5), (8, 4), (9, 2)]),
            ..Overview::default()
        };
        assert_eq!(seen.commands(9), None);
        assert_eq!(seen.called(7), "thread 7");
        let mut files = zonal_trace::MachineFiles::default();
        files.set("comms", b"7 cc1 <x>\n8 cc1 <x>\nbad\nx y\n".to_vec());
        seen.names = files.thread_names().into_iter().collect();
        assert_eq!(seen.called(7), "cc1 <x>, thread 7");
        let rows = seen.commands(9).unwrap();
        let told: Vec<_> = rows.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let idle = ("idle task (interrupts)", 1);
        assert_eq!(told, [("cc1 <x>", 9), idle, ("threads without a recorded name", 2)]);
    }

    #[test]
    fn a_stopped_pass_says_so() {
        let recording = samples::zlib_make_j4().unwrap();
        let mut stop = |_: Progress| std::ops::ControlFlow::Break(());
        assert!(matches!(Overview::of(&recording, &mut stop), Err(ReplayError::Stopped)));
    }
}
