//! What the tests under fire share: an owner for every page, timers whose signals hit one thread,
//! affinity of other threads, and a watchdog.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub mod interleavings;
pub mod raced;
pub mod refused;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod sequences;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[cfg_attr(target_arch = "x86_64", path = "steps_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "steps_aarch64.rs")]
pub mod steps;
pub mod storm;

use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use zonal::{Order, PAGE_SIZE, Policy, Pool};

/// The order with this number.
pub fn order(order: u32) -> Order {
    Order::new(order).expect("the tests name orders that exist")
}

/// A pool without a refresh thread, in one of the two modes.
pub fn pool(bytes: usize, rseq: bool) -> Pool {
    pool_with(bytes, rseq, Policy::ZONAL)
}

/// The same under another policy.
pub fn pool_with(bytes: usize, rseq: bool, policy: Policy) -> Pool {
    let builder = Pool::builder().size(bytes).rseq(rseq).policy(policy);
    let pool = builder.refresh_every(None).build().unwrap();
    eprintln!("mode: {}", pool.mode());
    pool
}

/// Who has which page. A block that is handed out twice, or freed by somebody who does not have
/// it, is counted, whatever its order.
pub struct Owners {
    base: usize,
    pages: Vec<AtomicU32>,
    errors: AtomicU64,
}

impl Owners {
    pub fn new(pool: &Pool) -> Owners {
        let pages = (0..pool.bytes() / PAGE_SIZE).map(|_| AtomicU32::new(0)).collect();
        Owners { base: pool.base() as usize, pages, errors: AtomicU64::new(0) }
    }

    /// `me` got the block.
    pub fn claim(&self, block: usize, order: Order, me: u32) {
        self.pass(block, order, 0, me);
    }

    /// `me` is about to free the block.
    pub fn release(&self, block: usize, order: Order, me: u32) {
        self.pass(block, order, me, 0);
    }

    fn pass(&self, block: usize, order: Order, from: u32, to: u32) {
        let first = block.wrapping_sub(self.base) / PAGE_SIZE;
        let Some(pages) = self.pages.get(first..first + order.pages() as usize) else {
            self.errors.fetch_add(1, Relaxed);
            return;
        };
        // Relaxed: the pool itself must order one owner's uses before the next one's. An Acquire
        // here would hide a missing edge from ThreadSanitizer.
        let wrong = pages.iter().filter(|page| page.swap(to, Relaxed) != from).count();
        if wrong > 0 {
            self.errors.fetch_add(wrong as u64, Relaxed);
        }
    }

    /// Pages seen in two hands.
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Pages that somebody has.
    pub fn held(&self) -> usize {
        self.pages.iter().filter(|page| page.load(Relaxed) != 0).count()
    }
}

/// Frees a block that the caller has.
pub fn free(pool: &Pool, block: usize, order: Order) -> Result<(), zonal::FreeError> {
    let start = NonNull::new(block as *mut u8).expect("no block starts at address 0");
    // SAFETY: (1) the callers of this function own the block and stop using it.
    unsafe { pool.free_pages(start, order) }
}

/// Marsaglia's xorshift: the same numbers for the same seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// The signal of the tests' timers.
pub fn timer_signal() -> i32 {
    libc::SIGRTMIN() + 3
}

/// What a handler installed with `SA_SIGINFO` looks like.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a signal handler.
pub fn install(signal: i32, handler: Handler) {
    // SAFETY: (1) all zeroes is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: (1) the action is valid and its handler lives as long as the program.
    let rc = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert_eq!(rc, 0, "sigaction: {}", std::io::Error::last_os_error());
}

/// A timer that sends [`timer_signal`] to the thread that made it, once each time it is set. Stops
/// when dropped, which must happen on the same thread: after that no signal of it arrives.
pub struct Timer(libc::timer_t);

impl Timer {
    /// A timer that is not set.
    pub fn new() -> Timer {
        // SAFETY: (1) all zeroes is a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = timer_signal();
        event.sigev_notify_thread_id = thread_id();
        let mut timer = std::ptr::null_mut();
        // SAFETY: (1) both pointers are to live values of the right type.
        let rc = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) };
        assert_eq!(rc, 0, "timer_create: {}", std::io::Error::last_os_error());
        Timer(timer)
    }

    /// Sets it. A signal handler sets its own timer again when its work is done, so that the thread
    /// always runs that long in between: of a timer that repeats itself, a handler that takes
    /// longer than the interval leaves the thread nothing.
    pub fn set(&self, after: Duration) {
        let value = libc::timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: (1) the timer was made by `new`, and the specification is a live value.
        let rc = unsafe { libc::timer_settime(self.0, 0, &spec, std::ptr::null_mut()) };
        assert_eq!(rc, 0, "timer_settime: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: (1) made by `new`, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: (1) takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// CPUs that this process may use, as of the first call: a thread that has been moved since is told
/// of the CPUs that it may use by itself.
pub fn cpus() -> &'static [u32] {
    static CPUS: OnceLock<Vec<u32>> = OnceLock::new();
    CPUS.get_or_init(|| {
        zonal::sys::affinity::allowed_cpus().unwrap().iter().map(|cpu| cpu.0).collect()
    })
}

/// Lets a thread, by its kernel number, run on these CPUs only. `false` if it is gone.
pub fn move_thread(thread: i32, cpus: &[u32]) -> bool {
    let mut mask = [0u64; 1024];
    for cpu in cpus {
        mask[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: (1) the mask is a live array of the length given.
    let rc = unsafe { libc::sched_setaffinity(thread, size_of_val(&mask), mask.as_ptr().cast()) };
    rc == 0
}

/// Ends the process if it is not dropped in time: a deadlock fails instead of hanging.
pub struct Watchdog {
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Exit code of a process that its watchdog ended.
pub const EXIT_HUNG: i32 = 43;

impl Watchdog {
    pub fn new(what: &'static str, limit: Duration) -> Watchdog {
        let (alive, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what}: no end after {limit:?}");
                exit_now(EXIT_HUNG);
            }
        });
        Watchdog { alive: Some(alive), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends the process without running anything else.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: (1) ends the process; nothing is touched afterwards.
    unsafe { libc::_exit(code) }
}

/// Runs one test of this binary in a process of its own, with the environment variable `name` set.
/// Returns its exit code; `None` if a signal killed it.
pub fn run_child(test: &str, name: &str, value: &str) -> Option<i32> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(name, value).env("RUST_BACKTRACE", "0");
    let output = child.stdin(Stdio::null()).output().unwrap();
    if !output.status.success() {
        eprintln!("{value}: {}", output.status);
        eprintln!("{}", String::from_utf8_lossy(&output.stdout));
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.code()
}

/// Whether this becomes true: for what another thread is about to finish, however long that thread
/// waits for a processor. `false` after minutes: it never will.
pub fn soon(is_so: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    while !is_so() {
        if start.elapsed() > Duration::from_secs(120) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Waits for a child process. `None` if it does not end in time; it is then killed.
pub fn wait_child(child: i32, limit: Duration) -> Option<i32> {
    let start = std::time::Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: (1) the status is a live integer.
        let got = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if got == child {
            return Some(status);
        }
        if start.elapsed() > limit {
            // SAFETY: (1) our own child, not yet waited for, so the number is still its.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: (1) as above.
            unsafe { libc::waitpid(child, &mut status, 0) };
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// One test at a time: an address that one pool gave back may be another test's next.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the pool that began there still has its memory.
pub fn is_mapped(base: usize) -> bool {
    let mut resident = 0u8;
    // SAFETY: (1) the kernel looks up the address and writes one byte, for which there is room.
    let done = unsafe { libc::mincore(base as *mut _, PAGE_SIZE, &raw mut resident) };
    done == 0
}
