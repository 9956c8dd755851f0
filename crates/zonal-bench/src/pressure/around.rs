//! Other users of memory on a machine under load, which cannot wait for it: the disk's driver, and
//! requests for huge pages.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use zonal::{CpuId, Gfp, Order, Pool, Request};

use super::disk::Disk;
use super::error::PressureError;
use super::loads::pin;

/// Requests to the disk for each page that its driver takes for them: a request is an object of
/// about 400 bytes with its list of pages beside it, so a page holds ten. The lab's estimate.
const REQUESTS_PER_PAGE: u64 = 10;
/// Bytes of a huge block.
const HUGE: usize = 2 << 20;
/// How often both look around.
const TICK: Duration = Duration::from_millis(1);

/// Who runs beside a load.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The pool that pages are taken from.
    pub pool: &'a Pool,
    /// The disk whose driver takes pages.
    pub disk: Option<&'a Disk>,
    /// Interval of requests for huge blocks; zero: none.
    pub huge_every: Duration,
    /// Where they run: interrupts come to the CPUs that asked, and so do programs.
    pub cpus: &'a [CpuId],
    /// Told now and then.
    pub tick: &'a (dyn Fn() + Sync),
}

/// Ends the others, however the load ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Around<'_> {
    /// Runs a load with the others beside it.
    pub fn run<T>(
        &self,
        load: impl FnOnce() -> Result<T, PressureError>,
    ) -> Result<T, PressureError> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let beside = scope.spawn(|| self.beside(&stop));
            let done = {
                let _stop = Stop(&stop);
                load()
            };
            match beside.join() {
                Ok(others) => others.and(done),
                Err(_) => Err(PressureError::Panicked("the disk's driver")),
            }
        })
    }

    fn beside(&self, stop: &AtomicBool) -> Result<(), PressureError> {
        let _pinned = pin(self.cpus, 0)?;
        let (mut served, mut asked) = (0, Instant::now());
        let mut huge = Vec::new();
        while !stop.load(Relaxed) {
            thread::sleep(TICK);
            (self.tick)();
            let requests = self.disk.map_or(0, Disk::requests);
            while served + REQUESTS_PER_PAGE <= requests {
                served += REQUESTS_PER_PAGE;
                // A driver whose request is refused continues with its own pages.
                drop(self.pool.alloc_with(Request::new(Order::ZERO).gfp(Gfp::ATOMIC)));
            }
            if !self.huge_every.is_zero() && asked.elapsed() >= self.huge_every {
                asked = Instant::now();
                let order = Order::for_bytes(HUGE).unwrap_or(Order::ZERO);
                // Keeps the block.
                huge.extend(self.pool.alloc_with(Request::new(order).gfp(Gfp::TRANSHUGE)));
            }
        }
        Ok(())
    }
}
