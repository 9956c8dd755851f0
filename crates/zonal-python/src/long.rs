//! Long calls: a thread of their own does the work, without the interpreter. The calling thread
//! waits without the GIL, and looks up every [`TICK`]: it handles signals, so that Ctrl-C raises
//! `KeyboardInterrupt`, and tells the progress. If either raises, the work is told to stop.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::fault::Fault;

/// How often the calling thread looks at signals and progress.
const TICK: Duration = Duration::from_millis(25);
/// As much as a main thread has.
const STACK_BYTES: usize = 8 << 20;
/// Stands for a total that is not known.
const UNKNOWN: u64 = u64::MAX;

/// What the work and the calling thread share. Relaxed throughout: numbers to show and a hint to
/// stop; the result itself goes through a channel.
#[derive(Debug)]
struct Shared {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
    lab: zonal_lab::Stop,
}

/// The work's side.
#[derive(Clone, Debug)]
pub struct Hook(Arc<Shared>);

impl Hook {
    /// Tells how far the work is; `Break` if it should stop.
    pub fn tell(&self, done: u64, total: Option<u64>) -> ControlFlow<()> {
        self.0.total.store(total.unwrap_or(UNKNOWN), Relaxed);
        self.0.done.store(done, Relaxed);
        match self.0.stop.load(Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Notes how far the work is.
    pub fn note(&self, done: u64, total: u64) {
        // A call without a place to stop at; the lab looks at its own request.
        let _ = self.tell(done, Some(total));
    }

    /// Adds to how far the work is, of `total`.
    pub fn add(&self, more: u64, total: u64) {
        self.0.total.store(total, Relaxed);
        self.0.done.fetch_add(more, Relaxed);
    }

    /// Does work of the lab, which stops when it should.
    pub fn in_lab<T>(
        &self,
        work: impl FnOnce() -> Result<T, zonal_lab::LabError>,
    ) -> Result<T, Fault> {
        Ok(self.0.lab.run(work)?)
    }
}

/// What becomes of work that was told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnStop {
    /// It ends soon: wait for that.
    Wait,
    /// It has no place to stop at: leave it to end by itself; its result is dropped.
    Leave,
}

/// Does `work` in a thread of its own and waits for it. `progress` is called with how much is done
/// and the total or None, at most every [`TICK`], and once at the end if anything was told.
///
/// # Errors
/// What `work` returns, what `progress` raises, or `KeyboardInterrupt`.
pub fn long<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    on_stop: OnStop,
    work: impl FnOnce(&Hook) -> Result<T, Fault> + Send + 'static,
) -> PyResult<T> {
    let shared = Arc::new(Shared {
        done: AtomicU64::new(0),
        total: AtomicU64::new(UNKNOWN),
        stop: AtomicBool::new(false),
        lab: zonal_lab::Stop::new(),
    });
    let hook = Hook(Arc::clone(&shared));
    let (send, receive) = channel();
    let receive = Mutex::new(receive);
    let body = move || drop(send.send(work(&hook)));
    let worker = thread::Builder::new().name("zonal".into()).stack_size(STACK_BYTES).spawn(body);
    let worker = worker.map_err(|error| Fault::of("Error", &error))?;
    let mut told = None;
    loop {
        let answer =
            py.detach(|| receive.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK));
        match answer {
            Ok(result) => {
                if result.is_ok() {
                    // The last that the work told may have been before its end.
                    let total = shared.total.load(Relaxed);
                    if total != UNKNOWN {
                        shared.done.store(total, Relaxed);
                    }
                    tell(py, progress.as_ref(), &shared, &mut told)?;
                }
                return Ok(result?);
            }
            Err(RecvTimeoutError::Timeout) => {
                let heard = tell(py, progress.as_ref(), &shared, &mut told);
                if let Err(error) = py.check_signals().and(heard) {
                    shared.stop.store(true, Relaxed);
                    shared.lab.ask();
                    if on_stop == OnStop::Wait {
                        // Its result, even a panic, is of no use any more.
                        let _ = py.detach(|| worker.join());
                    }
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let why = py.detach(|| worker.join()).err();
                return Err(Fault::new("Error", panic_text(why.as_deref())).into());
            }
        }
    }
}

/// Tells the progress if it is new.
fn tell(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    shared: &Shared,
    told: &mut Option<(u64, u64)>,
) -> PyResult<()> {
    let now = (shared.done.load(Relaxed), shared.total.load(Relaxed));
    if let Some(progress) = progress
        && now != (0, UNKNOWN)
        && *told != Some(now)
    {
        *told = Some(now);
        progress.call1(py, (now.0, (now.1 != UNKNOWN).then_some(now.1)))?;
    }
    Ok(())
}

fn panic_text(why: Option<&(dyn Any + Send)>) -> String {
    let text = why.and_then(|why| {
        let text = why.downcast_ref::<String>().map(String::as_str);
        text.or(why.downcast_ref::<&str>().copied())
    });
    let text = text.unwrap_or("no message");
    format!("a defect of zonal: the call panicked: {text}; please report it with its input")
}
