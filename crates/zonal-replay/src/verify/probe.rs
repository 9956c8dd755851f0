//! How long page allocations take while a load runs: a thread that writes to a file in memory and
//! empties it again, a hundred times a second. Each time the kernel allocates and frees 64 pages.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Between two samples.
const EVERY: Duration = Duration::from_millis(10);
const BYTES: usize = 64 * 4096;
/// Before so many samples a p99 says nothing.
const SAMPLES_MIN: u64 = 100;

/// The probe cannot run.
#[derive(Debug, thiserror::Error)]
#[error("the probe has no file in memory: {0}")]
pub struct ProbeError(#[from] io::Error);

/// A probe at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Probe {
    times: Arc<Mutex<Histogram<u64>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    /// Starts one, with a file of memory that `file` makes, such as a `memfd`.
    ///
    /// # Errors
    /// If there is no such file, or no thread.
    pub fn start(file: File) -> Result<Probe, ProbeError> {
        let times = Arc::new(Mutex::new(Histogram::new(3).map_err(io::Error::other)?));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ended) = (Arc::clone(&times), Arc::clone(&stop));
        let content = vec![1_u8; BYTES];
        let run = move || {
            // Relaxed: the flag carries no data.
            while !ended.load(Relaxed) {
                if let Ok(time) = sample(&file, &content)
                    && let Ok(mut times) = shared.lock()
                {
                    times.saturating_record(time.as_nanos() as u64);
                }
                thread::sleep(EVERY);
            }
        };
        let thread = thread::Builder::new().name("zonal-probe".to_owned()).spawn(run)?;
        Ok(Probe { times, stop, thread: Some(thread) })
    }

    /// The 99th percentile in µs since the last [`restart`](Self::restart); `None` of fewer than a
    /// hundred samples.
    pub fn p99_us(&self) -> Option<f64> {
        let times = self.times.lock().ok()?;
        let enough = times.len() >= SAMPLES_MIN;
        enough.then(|| times.value_at_quantile(0.99) as f64 / 1000.0)
    }

    /// Forgets all samples.
    pub fn restart(&self) {
        if let Ok(mut times) = self.times.lock() {
            times.reset();
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sample(mut file: &File, content: &[u8]) -> io::Result<Duration> {
    let begin = Instant::now();
    file.rewind()?;
    file.write_all(content)?;
    file.set_len(0)?;
    file.flush()?;
    Ok(begin.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_its_p99_when_it_has_enough_samples() {
        let probe = Probe::start(tempfile()).unwrap();
        assert_eq!(probe.p99_us(), None);
        let deadline = Instant::now() + Duration::from_secs(60);
        while probe.p99_us().is_none() {
            assert!(Instant::now() < deadline, "no samples");
            thread::sleep(EVERY);
        }
        assert!(probe.p99_us() > Some(0.0));
        probe.restart();
        assert_eq!(probe.p99_us(), None);
    }

    /// A file that is gone when it is closed.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("zonal-probe-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
