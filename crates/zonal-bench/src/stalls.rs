//! The longest calls of a run, and what each waited for, by name.
//!
//! The load is that of `edge`, one thread on each CPU: pages with mixed rights, at the edge of
//! memory, while a cache gives way; besides, larger blocks that come and go, and a thousand pages
//! at once now and then. Around each call stand a clock and the thread's account of the system (CPU
//! time, switches); a slow one is told with what [`zonal::stalls`] has on the thread's account.
//! That costs about a microsecond between two calls: this is no measurement of speed.
//!
//! A call's time is that on its CPU and that without one. What it did meanwhile (waited for a lock,
//! interrupted another CPU, reclaimed) is part of either, and may be part of one another: a request
//! that reclaims takes locks, too.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use zonal::stalls::{self, Waits};
use zonal::{Gfp, Order, Pool};

use crate::cpus::Cpus;
use crate::crew::{Crew, Gate};
use crate::edge::{Queues, RIGHTS};
use crate::machine::Machine;
use crate::row::to_thousandths;
use crate::usage::Usage;

/// How many calls are told.
const TOLD: usize = 10;
/// A hold of a zone lock that moves pages is to take no longer, nanoseconds.
pub const HOLD_MOST_NS: u64 = 5000;
/// Blocks of higher orders that a thread holds.
const LARGE: usize = 64;
/// Each so many steps a thread takes pages by the bulk call.
const BULK_EACH: usize = 4096;
const BULK: usize = 1024;

/// One cause of a call's length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Its name, and whose doing it was.
    pub what: String,
    /// How long; `None` where no time is known.
    pub ns: Option<u64>,
}

/// A long call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// The call.
    pub call: String,
    /// Its thread.
    pub thread: u32,
    /// When, in seconds since the run began.
    pub at_s: f64,
    /// How long it took, nanoseconds.
    pub ns: u64,
    /// Of this, on a CPU.
    pub on_cpu_ns: u64,
    /// What it waited for, the longest first.
    pub causes: Vec<Cause>,
}

/// Holds of zone locks that moved pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockHolds {
    /// How many, but for those in which the thread lost its CPU.
    pub count: u64,
    /// Half of them took less.
    pub p50_below_ns: u64,
    /// 99.9 % of them took less.
    pub p999_below_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that it moved.
    pub longest_pages: u32,
    /// The most that a hold moved.
    pub most_pages: u32,
    /// Holds in which the thread lost its CPU.
    pub preempted: u64,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Stalls {
    /// Version of this form; it changes when readers would break.
    pub schema_version: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// Seconds.
    pub length_s: f64,
    /// Threads.
    pub threads: usize,
    /// Calls.
    pub calls: u64,
    /// Calls that were refused.
    pub refused: u64,
    /// Half of the calls took at most so long, nanoseconds, clock included.
    pub p50_ns: u64,
    /// 99 % of them.
    pub p99_ns: u64,
    /// 99.9 % of them.
    pub p999_ns: u64,
    /// The longest calls, the longest first.
    pub longest: Vec<Stall>,
    /// The same of calls whose thread kept its CPU and did not sleep.
    pub longest_awake: Vec<Stall>,
    /// Holds of zone locks.
    pub holds: LockHolds,
}

/// What a thread saw.
struct Watch {
    begun: Instant,
    index: usize,
    calls: Histogram<u64>,
    refused: u64,
    longest: Vec<Stall>,
    awake: Vec<Stall>,
}

/// Whether a call of `ns` is one of the longest ones.
fn belongs(longest: &[Stall], ns: u64) -> bool {
    longest.len() < TOLD || longest.last().is_some_and(|least| ns > least.ns)
}

/// Adds a call to the longest ones, if it is one of them.
fn rank(longest: &mut Vec<Stall>, stall: &Stall) {
    if belongs(longest, stall.ns) {
        let at = longest.partition_point(|other| other.ns >= stall.ns);
        longest.insert(at, stall.clone());
        longest.truncate(TOLD);
    }
}

impl Watch {
    fn new(begun: Instant, index: usize) -> Watch {
        // A figure more would be noise; an hour is longer than any call.
        let calls = Histogram::new_with_bounds(1, 3_600_000_000_000, 2);
        let calls = calls.expect("1, an hour and 2 are bounds that hdrhistogram accepts");
        Watch { begun, index, calls, refused: 0, longest: Vec::new(), awake: Vec::new() }
    }

    /// Makes a call.
    fn call<R>(&mut self, name: impl FnOnce() -> String, call: impl FnOnce() -> R) -> R {
        stalls::take();
        let usage = Usage::now();
        let start = Instant::now();
        let answer = call();
        let took = start.elapsed();
        let ns = took.as_nanos() as u64;
        self.calls.saturating_record(ns);
        // The longest of all are no shorter than those of threads that kept their CPU.
        if belongs(&self.awake, ns) {
            let used = Usage::now().since(usage);
            let stall = self.stall(name(), start, ns, used, stalls::take());
            if used.involuntary + used.voluntary == 0 {
                rank(&mut self.awake, &stall);
            }
            rank(&mut self.longest, &stall);
        }
        answer
    }

    fn stall(&self, call: String, start: Instant, ns: u64, used: Usage, waits: Waits) -> Stall {
        // The thread's account is read outside of the call, and has more on it.
        let on_cpu_ns = (used.cpu_ns as u64).min(ns);
        let causes = causes(ns - on_cpu_ns, used, &waits, ns);
        let at_s = to_thousandths(start.duration_since(self.begun).as_secs_f64());
        Stall { call, thread: self.index as u32, at_s, ns, on_cpu_ns, causes }
    }
}

/// What is known of a call of `ns`, the longest first, and in the end what has no time.
fn causes(off_cpu_ns: u64, used: Usage, waits: &Waits, ns: u64) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut timed = |what: String, ns: u64| {
        if ns > 0 {
            causes.push(Cause { what, ns: Some(ns) });
        }
    };
    if used.involuntary > 0 {
        timed(format!("preempted {} times", used.involuntary), off_cpu_ns);
    } else if used.voluntary > 0 {
        timed(format!("asleep {} times", used.voluntary), off_cpu_ns);
    }
    let holder = match waits.holder {
        0 => ", the longest time while nobody is known to have held it".to_owned(),
        holder => {
            format!(", the longest time held by {} ({} pages)", name_of(holder), waits.holder_pages)
        }
    };
    // Each taking of a free lock is a few nanoseconds of its own.
    if waits.lock_longest_ns > 200 {
        timed(format!("zone lock, taken {} times{holder}", waits.holds), waits.lock_ns);
    }
    timed(format!("fence of {} CPUs", waits.fences), waits.fence_ns);
    timed(format!("reclaim, {} passes", waits.reclaims), waits.reclaim_ns);
    timed("memory that others free".into(), waits.memory_ns);
    timed("a pcp that was closed".into(), waits.yield_ns);
    let hold = format!("hold of a zone lock ({} pages)", waits.hold_pages);
    timed(hold, waits.hold_longest_ns);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.ns));
    // Nobody tells a thread of the machine below it.
    let known: u64 = causes.iter().filter_map(|cause| cause.ns).sum();
    if known < ns / 2 {
        let what = "unknown: an interrupt, the hypervisor, or work".to_owned();
        causes.insert(0, Cause { what, ns: Some(ns - known) });
    }
    let mut counted = |what: &str, count: u32| {
        if count > 0 {
            causes.push(Cause { what: format!("{what} of {count}"), ns: None });
        }
    };
    counted("refill or drain, pages", waits.moved_pages);
    counted("exchange with a depot, blocks", waits.depot_blocks);
    counted("drain of other CPUs, pcps", waits.remote_drains);
    causes
}

/// A thread of this process by its name.
fn name_of(thread: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    comm.map_or_else(|_| format!("thread {thread}"), |name| format!("{} {thread}", name.trim()))
}

/// Runs the load for so long.
///
/// # Errors
/// Why it cannot be run here.
pub fn measure(length: Duration) -> Result<Stalls, String> {
    let crew = Crew::new(Cpus::of_process());
    let threads = crew.cpus().count();
    let pool = Pool::builder().size(crate::edge::POOL_BYTES).prefault(true).build();
    let queues = Queues::new(Arc::new(pool.map_err(|error| error.to_string())?), threads);
    let queues = Arc::new(queues);
    let _registered = queues.pool.register_lru(queues.clone());
    let (gate, over, begun) = (Gate::new(threads), AtomicBool::new(false), Instant::now());
    stalls::watch(true);
    let shared = Arc::clone(&queues);
    let work = move |index: usize| {
        let mut watch = Watch::new(begun, index);
        gate.wait();
        load(&shared, index, &mut watch, || {
            if index == 0 && begun.elapsed() >= length {
                over.store(true, Relaxed);
            }
            over.load(Relaxed)
        });
        watch
    };
    let watches = crew.run(threads, true, Arc::new(work)).map_err(|error| error.to_string());
    stalls::watch(false);
    Ok(report(watches?, Machine::read(threads), begun.elapsed()))
}

/// The load of one thread, until `is_over`.
fn load(queues: &Queues, index: usize, watch: &mut Watch, is_over: impl Fn() -> bool) {
    let pool = &*queues.pool;
    let mut large = [None; LARGE];
    let mut bulk = vec![std::ptr::null_mut(); BULK];
    let mut step = 0_usize;
    while !step.is_multiple_of(64) || !is_over() {
        let gfp = RIGHTS[step % RIGHTS.len()];
        let name = || format!("allocation, order 0, {gfp:?}");
        match watch.call(name, || pool.alloc_pages(Order::ZERO, gfp)) {
            Ok(page) => _ = queues.push(index, page),
            Err(_) => watch.refused += 1,
        }
        if step.is_multiple_of(4) {
            let place = &mut large[step / 4 % LARGE];
            match place.take() {
                Some((block, order)) => {
                    let name = || format!("free, order {order}");
                    // SAFETY: (1) allocated below, and taken out of its place.
                    let freed = watch.call(name, || unsafe { pool.free_pages(block, order) });
                    freed.expect("a block is in one place once");
                }
                None => {
                    let order = Order::new(1 + step as u32 / 7 % 4).unwrap_or(Order::ZERO);
                    let name = || format!("allocation, order {order}, KERNEL");
                    let got = watch.call(name, || pool.alloc_pages(order, Gfp::KERNEL));
                    watch.refused += u64::from(got.is_err());
                    *place = got.ok().map(|block| (block, order));
                }
            }
        }
        if step.is_multiple_of(BULK_EACH) {
            let name = || format!("bulk allocation, {BULK} pages");
            let got = watch.call(name, || pool.alloc_bulk(Gfp::KERNEL, &mut bulk));
            let got = got.unwrap_or(0);
            let pages = &bulk[..got];
            let name = || format!("bulk free, {got} pages");
            // SAFETY: (1) just allocated.
            let freed = watch.call(name, || unsafe { pool.free_bulk(pages, Order::ZERO) });
            freed.expect("each page was given once");
        }
        step += 1;
    }
    for (block, order) in large.into_iter().flatten() {
        // SAFETY: (1) in its place until now.
        let freed = unsafe { pool.free_pages(block, order) };
        freed.expect("a block is in one place once");
    }
}

fn report(watches: Vec<Watch>, machine: Machine, length: Duration) -> Stalls {
    let mut calls = Watch::new(Instant::now(), 0).calls;
    let (mut longest, mut awake) = (Vec::new(), Vec::new());
    let (mut refused, threads) = (0, watches.len());
    for watch in watches {
        // The bounds are equal.
        let _ = calls.add(&watch.calls);
        longest.extend(watch.longest);
        awake.extend(watch.awake);
        refused += watch.refused;
    }
    for longest in [&mut longest, &mut awake] {
        longest.sort_by_key(|stall| std::cmp::Reverse(stall.ns));
        longest.truncate(TOLD);
    }
    let holds = stalls::holds();
    let count = holds.by_size.iter().sum();
    let below = |share: f64| {
        let mut left = (count as f64 * share).ceil();
        let size = holds.by_size.iter().position(|&holds| {
            left -= holds as f64;
            left <= 0.0
        });
        2 << size.unwrap_or(0)
    };
    Stalls {
        schema_version: 1,
        machine,
        length_s: to_thousandths(length.as_secs_f64()),
        threads,
        calls: calls.len(),
        refused,
        p50_ns: calls.value_at_quantile(0.5),
        p99_ns: calls.value_at_quantile(0.99),
        p999_ns: calls.value_at_quantile(0.999),
        longest,
        longest_awake: awake,
        holds: LockHolds {
            count,
            p50_below_ns: below(0.5),
            p999_below_ns: below(0.999),
            longest_ns: holds.longest_ns,
            longest_pages: holds.longest_pages,
            most_pages: holds.most_pages,
            preempted: holds.preempted,
        },
    }
}

impl Stalls {
    /// The report as JSON, one object.
    ///
    /// # Panics
    /// Never: it holds nothing that JSON cannot say.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// For people.
    pub fn text(&self) -> String {
        let Stalls { threads, calls, refused, length_s, .. } = self;
        let [p50, p99, p999] = [self.p50_ns, self.p99_ns, self.p999_ns].map(time);
        let mut text = format!(
            "{}\n{calls} calls of {threads} threads in {length_s:.1} s at the edge of memory, \
             {refused} refused; with the clock p50 {p50}, p99 {p99}, p99.9 {p999}\n\n\
             the longest:\n",
            self.machine.line()
        );
        list(&mut text, &self.longest);
        text.push_str("\nthe longest of those whose thread kept its CPU:\n");
        list(&mut text, &self.longest_awake);
        let LockHolds { count, longest_pages, most_pages, preempted, .. } = self.holds;
        let longest = time(self.holds.longest_ns);
        let [p50, p999] = [self.holds.p50_below_ns, self.holds.p999_below_ns].map(time);
        let bound = if self.holds.longest_ns > HOLD_MOST_NS { "above" } else { "within" };
        let _ = writeln!(
            text,
            "\nholds of zone locks that moved pages: {count}, half of them below {p50}, 99.9 % \
             below {p999}, the longest {longest} with {longest_pages} pages ({bound} {}), the \
             most pages {most_pages}; {preempted} more lost their CPU",
            time(HOLD_MOST_NS)
        );
        text
    }
}

/// Writes calls, one below the other, each with its causes.
fn list(text: &mut String, stalls: &[Stall]) {
    for (stall, number) in stalls.iter().zip(1..) {
        let Stall { call, thread, at_s, ns, on_cpu_ns, causes } = stall;
        let (ns, on_cpu) = (time(*ns), time(*on_cpu_ns));
        let _ = write!(
            text,
            "{number:2}. {ns}, {on_cpu} of it on a CPU: {call}; thread {thread}, at {at_s:.3} s"
        );
        for Cause { what, ns } in causes {
            let took = ns.map_or_else(String::new, |ns| format!("{} ", time(ns)));
            let _ = write!(text, "\n      {took}{what}");
        }
        text.push('\n');
    }
}

/// Three figures and a unit.
fn time(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(involuntary: u64, voluntary: u64) -> Usage {
        Usage { cpu_ns: 0.0, voluntary, involuntary }
    }

    #[test]
    fn the_cause_with_most_time_comes_first_and_a_call_without_one_says_so() {
        let mut waits = stalls::take();
        (waits.fences, waits.fence_ns, waits.moved_pages) = (2, 900, 63);
        let found = causes(5000, used(1, 0), &waits, 7000);
        let names: Vec<&str> = found.iter().map(|cause| cause.what.as_str()).collect();
        let expected = ["preempted 1 times", "fence of 2 CPUs", "refill or drain, pages of 63"];
        assert_eq!(names, expected);
        let found = causes(0, used(0, 0), &waits, 7000);
        assert!(found[0].what.starts_with("unknown") && found[0].ns == Some(6100), "{found:?}");
        assert!(!causes(0, used(0, 0), &waits, 1000)[0].what.starts_with("unknown"));
    }

    #[test]
    fn a_short_run_tells_its_ten_longest_calls_and_its_holds() {
        let stalls = measure(Duration::from_millis(300)).unwrap();
        assert_eq!(stalls.longest.len(), TOLD);
        assert!(stalls.longest.windows(2).all(|pair| pair[0].ns >= pair[1].ns));
        assert!(stalls.longest.iter().all(|stall| !stall.causes.is_empty()), "{stalls:?}");
        let slept = |cause: &Cause| ["asleep", "pree"].iter().any(|what| cause.what.contains(what));
        assert!(!stalls.longest_awake.iter().any(|stall| stall.causes.iter().any(slept)));
        assert!(stalls.holds.count + stalls.holds.preempted > 0 && stalls.holds.most_pages > 0);
        // The histogram keeps two figures.
        let longest = stalls.longest[0].ns;
        assert!(stalls.p50_ns <= stalls.p999_ns && stalls.p999_ns <= longest + longest / 50);
        let all = [&stalls.longest, &stalls.longest_awake];
        assert!(all[0].iter().zip(all[1]).all(|(any, awake)| any.ns >= awake.ns), "{stalls:?}");
        let text = stalls.text();
        assert!(text.contains("10. ") && text.contains("holds of zone locks"), "{text}");
    }

    #[test]
    fn a_planted_pause_is_the_longest_and_is_said_to_be_sleep() {
        let mut watch = Watch::new(Instant::now(), 3);
        for _ in 0..100 {
            watch.call(|| "nothing".into(), || ());
        }
        let pause = || std::thread::sleep(Duration::from_millis(40));
        watch.call(|| "pause".into(), pause);
        // Others may have been longer, where the machine is busy; not ten of them.
        let pause = watch.longest.iter().find(|stall| stall.call == "pause").unwrap();
        assert!(pause.thread == 3 && pause.ns > 39_000_000, "{pause:?}");
        let named = |cause: &Cause| cause.what.contains("asleep") || cause.what.contains("pree");
        assert!(!cfg!(target_os = "linux") || pause.causes.iter().any(named), "{pause:?}");
    }
}
