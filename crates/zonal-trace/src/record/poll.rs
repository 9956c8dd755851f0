//! `/proc/zoneinfo`, polled without disturbing the recording.
//!
//! The poller allocates nothing while it runs: the text goes into a buffer that was made and
//! touched before, and the few numbers that are kept go into another. When that one is full it
//! stops, and says so. Each sample is lines of `zpoll.txt`:
//!
//! ```text
//! 2559957935264 2559957983596 Z Normal free=2325999 boost=0 min=14147 low=18144 high=22141 …
//! 2559957935264 2559957983596 P Normal 0 count=12075 high=130240 batch=63 high_min=9072 …
//! └ read begins ┘ └ ends ────┘   └ zone; `1/Normal` on node 1
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Room for a file that grows while it is polled.
const SPARE_BYTES: usize = 1 << 16;

/// Now, on the clock `mono` of traces.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads the file and keeps the numbers. [`sample`](Self::sample) allocates nothing.
#[derive(Debug)]
pub struct Sampler {
    file: File,
    text: Box<[u8]>,
    out: Box<[u8]>,
    used: usize,
    /// The samples.
    pub counts: PollCounts,
}

/// The samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Samples that were kept.
    pub samples: u64,
    /// Samples for which there was no room.
    pub no_room: u64,
    /// Reads that failed, or were longer than the buffer.
    pub failed: u64,
}

impl Sampler {
    /// A sampler of `path` that keeps up to `bytes` of lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn new(path: &Path, bytes: usize) -> io::Result<Sampler> {
        let now = std::fs::read(path)?.len();
        // Ones, not zeros: zeroed memory is not there before it is touched.
        let text = vec![1; 2 * now + SPARE_BYTES].into_boxed_slice();
        let out = vec![1; bytes].into_boxed_slice();
        let counts = PollCounts::default();
        Ok(Sampler { file: File::open(path)?, text, out, used: 0, counts })
    }

    /// Reads once. Returns when the read began and ended.
    pub fn sample(&mut self) -> (u64, u64) {
        let begin = now_ns();
        let length = self.read();
        let end = now_ns();
        match length {
            Some(length) => {
                let mut left = &mut self.out[self.used..];
                let room = left.len();
                match keep(&self.text[..length], (begin, end), &mut left) {
                    Ok(()) => {
                        self.used += room - left.len();
                        self.counts.samples += 1;
                    }
                    Err(_) => self.counts.no_room += 1,
                }
            }
            None => self.counts.failed += 1,
        }
        (begin, end)
    }

    /// The length of the text, if all of it was read.
    fn read(&mut self) -> Option<usize> {
        let mut length = 0;
        loop {
            match self.file.read_at(&mut self.text[length..], length as u64) {
                Ok(0) => return (length > 0 && length < self.text.len()).then_some(length),
                Ok(bytes) => length += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    /// The lines that were kept.
    pub fn lines(&self) -> &[u8] {
        &self.out[..self.used]
    }
}

/// Numbers of a zone or a list, by the names that `/proc/zoneinfo` gives them.
#[derive(Clone, Copy)]
struct Numbers<const N: usize>([Option<u64>; N]);

impl<const N: usize> Default for Numbers<N> {
    fn default() -> Numbers<N> {
        Numbers([None; N])
    }
}

impl<const N: usize> Numbers<N> {
    fn set(&mut self, names: [&[u8]; N], name: &[u8], value: &[u8]) {
        let Some(at) = names.iter().position(|known| *known == name) else { return };
        // The first one counts: later ones belong to another part.
        if self.0[at].is_none() {
            self.0[at] = crate::fields::decimal(value);
        }
    }

    fn write(&self, names: [&[u8]; N], out: &mut &mut [u8]) -> io::Result<()> {
        for (name, value) in names.iter().zip(self.0) {
            if let Some(value) = value {
                out.write_all(b" ")?;
                out.write_all(name)?;
                write!(out, "={value}")?;
            }
        }
        out.write_all(b"\n")
    }
}

const ZONE: [&[u8]; 6] = [b"free", b"boost", b"min", b"low", b"high", b"managed"];
const LIST: [&[u8]; 5] = [b"count", b"high", b"batch", b"high_min", b"high_max"];

/// Writes the lines of one text. Fails when there is no room; allocates nothing.
fn keep(text: &[u8], times: (u64, u64), out: &mut &mut [u8]) -> io::Result<()> {
    let mut zone: (u64, &[u8]) = (0, b"");
    let mut marks = Numbers::default();
    let mut list: Option<(u64, Numbers<5>)> = None;
    let mut in_lists = false;
    let head = |out: &mut &mut [u8], kind: char, zone: (u64, &[u8])| {
        write!(out, "{} {} {kind} ", times.0, times.1)?;
        if zone.0 > 0 {
            write!(out, "{}/", zone.0)?;
        }
        out.write_all(zone.1)
    };
    let end = |out: &mut &mut [u8], zone, list: &mut Option<(u64, Numbers<5>)>| {
        let Some((cpu, numbers)) = list.take() else { return Ok(()) };
        head(out, 'P', zone)?;
        write!(out, " {cpu}")?;
        numbers.write(LIST, out)
    };
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|w| !w.is_empty());
        let Some(first) = words.next() else { continue };
        match first {
            b"Node" => {
                end(out, zone, &mut list)?;
                let node = words.next().and_then(|word| word.strip_suffix(b","));
                let node = node.and_then(crate::fields::decimal).unwrap_or(0);
                zone = (node, words.nth(1).unwrap_or_default());
                (marks, in_lists) = (Numbers::default(), false);
            }
            b"pagesets" => {
                head(out, 'Z', zone)?;
                marks.write(ZONE, out)?;
                in_lists = true;
            }
            b"cpu:" if in_lists => {
                end(out, zone, &mut list)?;
                let cpu = words.next().and_then(crate::fields::decimal).unwrap_or(0);
                list = Some((cpu, Numbers::default()));
            }
            b"pages" => {
                let (name, value) = (words.next(), words.next());
                marks.set(ZONE, name.unwrap_or_default(), value.unwrap_or_default());
            }
            name => {
                let value = words.next().unwrap_or_default();
                match &mut list {
                    Some((_, numbers)) => {
                        let name = name.strip_suffix(b":").unwrap_or(name);
                        numbers.set(LIST, name, value);
                    }
                    None => marks.set(ZONE, name, value),
                }
            }
        }
    }
    end(out, zone, &mut list)
}

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub(crate) struct Poller {
    stop: Arc<AtomicBool>,
    /// The earliest time at which a sample counts as one of the start.
    wanted: Arc<AtomicU64>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<Sampler>>,
}

impl Poller {
    /// Starts polling every `period`.
    pub(crate) fn start(mut sampler: Sampler, period: Duration) -> io::Result<Poller> {
        // Take a sample before recording, so that its page faults are over.
        sampler.sample();
        (sampler.used, sampler.counts) = (0, PollCounts::default());
        let stop = Arc::new(AtomicBool::new(false));
        let wanted = Arc::new(AtomicU64::new(u64::MAX));
        let (stopped, latest) = (Arc::clone(&stop), Arc::clone(&wanted));
        let thread = thread::Builder::new().name("zonal-poll".to_owned()).spawn(move || {
            // Relaxed: the flags carry no data, and the join orders the rest.
            while !stopped.load(Ordering::Relaxed) {
                let (begin, _) = sampler.sample();
                if begin >= latest.load(Ordering::Relaxed) {
                    latest.store(u64::MAX, Ordering::Relaxed);
                }
                // Who wants a sample or the end wakes it: the period may be long.
                thread::park_timeout(period);
            }
            sampler.sample();
            sampler
        })?;
        Ok(Poller { stop, wanted, thread: Some(thread) })
    }

    /// Waits for a sample that begins after now.
    pub(crate) fn wait_for_sample(&self) {
        self.wanted.store(now_ns(), Ordering::Relaxed);
        self.wake();
        let runs = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while self.wanted.load(Ordering::Relaxed) != u64::MAX && runs() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Samples once more and ends.
    pub(crate) fn finish(&mut self) -> io::Result<Sampler> {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.ok_or_else(|| io::Error::other("the poller ended early"))
    }

    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Node 0, zone      DMA\n  per-node stats\n      nr_free 7\n\
        \x20 pages free     5\n        boost    2\n        min      1\n\
        \x20       low      2\n        high     3\n\
        \x20       managed  9\n        cma      0\n        protection: (0, 1)\n\
        \x20     nr_free_pages 5\n  pagesets\n    cpu: 0\n              count:    4\n\
        \x20             high:     6\n              batch:    1\n\
        \x20             high_min: 8\n              high_max: 240\n  vm stats threshold: 4\n\
        \x20   cpu: 1\n              count:    0\n              high:     6\n\
        \x20             batch:    1\n  vm stats threshold: 4\n  node_unreclaimable:  0\n\
        \x20 start_pfn:           1\nNode 1, zone   Normal\n  pages free     0\n\
        \x20       min      0\n";

    #[test]
    fn lines_are_those_of_recordings() {
        let mut room = [0; 1000];
        let mut left = &mut room[..];
        keep(TEXT.as_bytes(), (10, 12), &mut left).unwrap();
        let used = 1000 - left.len();
        let text = std::str::from_utf8(&room[..used]).unwrap();
        assert_eq!(
            text,
            "10 12 Z DMA free=5 boost=2 min=1 low=2 high=3 managed=9\n\
             10 12 P DMA 0 count=4 high=6 batch=1 high_min=8 high_max=240\n\
             10 12 P DMA 1 count=0 high=6 batch=1\n"
        );
    }

    #[test]
    fn a_sample_without_room_leaves_the_others_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zoneinfo");
        std::fs::write(&path, TEXT).unwrap();
        let mut sampler = Sampler::new(&path, 450).unwrap();
        for _ in 0..5 {
            sampler.sample();
        }
        assert!(sampler.counts.samples >= 1, "{:?}", sampler.counts);
        assert!(sampler.counts.no_room >= 1, "{:?}", sampler.counts);
        assert_eq!(sampler.lines().last(), Some(&b'\n'));
        let lines = sampler.lines().split(|byte| *byte == b'\n').count() as u64;
        assert_eq!(lines, 3 * sampler.counts.samples + 1);
    }

    #[test]
    fn a_long_period_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zoneinfo");
        std::fs::write(&path, TEXT).unwrap();
        let sampler = Sampler::new(&path, 1 << 20).unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        let mut poller = Poller::start(sampler, day).unwrap();
        poller.wait_for_sample();
        let sampler = poller.finish().unwrap();
        // The one that was waited for, and the last one.
        assert!(sampler.counts.samples >= 2, "{:?}", sampler.counts);
    }
}
