//! Measurements of this machine: clock, latencies of caches and memory, line transfers.
//!
//! Each call times one figure for a *slice* of time, in many short parts, and hands the parts to
//! `series`, which says what they come to. The caller goes round all figures again and again, so
//! that what disturbs for a second disturbs all of them a little, and none of them altogether.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use zonal::CpuId;
use zonal::sys::affinity::{AffinityError, Pinned};

/// Lines that are visited before the next part of a buffer: 16 small pages, so that nearly every
/// access finds its page in the first-level TLB.
const WINDOW_LINES: usize = 1024;
/// Steps of one part along a chain: short, so that few parts have an interrupt in them.
const CHASE_STEPS: u32 = 50_000;
/// Turns of one part between two CPUs, each there and back.
const PING_TURNS: u32 = 1_000;
/// Steps of one part of the loop that finds the clock.
const CLOCK_STEPS: u32 = 100_000;
/// An exclusive-or and a multiplication that wait for each other: 1 + 3 cycles on every 64-bit
/// Intel core since 2006 and every AMD core since Zen (Agner Fog, instruction tables).
const CLOCK_STEP_CYCLES: f64 = 4.0;
/// An exchange between CPUs that takes longer is aborted: one of the two gets no time.
const PING_PATIENCE: Duration = Duration::from_millis(500);

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Words of a line. A ring's word holds the position of the next one, so that a step is a load and
/// nothing else.
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();

/// A buffer whose lines form one ring in an order that no prefetcher guesses.
pub struct Chain {
    words: Vec<u64>,
    /// Where the last walk ended: a ring larger than the caches is never cut short.
    at: usize,
}

/// Times parts of `steps` steps for a slice, at least one, and gives each part's nanoseconds a step
/// to `take`.
fn parts(slice: Duration, steps: u32, mut part: impl FnMut(), take: &mut dyn FnMut(f64)) {
    let begin = Instant::now();
    loop {
        let start = Instant::now();
        part();
        take(start.elapsed().as_nanos() as f64 / f64::from(steps));
        if begin.elapsed() >= slice {
            return;
        }
    }
}

/// Nanoseconds of a cycle under load.
pub fn cycle_ns(slice: Duration, take: &mut dyn FnMut(f64)) {
    // Opaque, so that the compiler can neither fold two steps into one nor know the result.
    let (mask, factor) = (black_box(0x9e37_79b9_7f4a_7c15_u64), black_box(0xd129_42e4_d1b5_4a33));
    let mut value = black_box(1_u64);
    let part = || {
        for _ in 0..CLOCK_STEPS {
            value = (value ^ mask).wrapping_mul(factor);
        }
        value = black_box(value);
    };
    parts(slice, CLOCK_STEPS, part, &mut |ns| take(ns / CLOCK_STEP_CYCLES));
}

/// Nanoseconds of a locked addition to a line that the core has.
pub fn locked_ns(slice: Duration, line: &Line, take: &mut dyn FnMut(f64)) {
    // Opaque once, not in each step: that would be a store beside the one that is timed.
    let word = &black_box(line).word;
    let part = || {
        for _ in 0..CHASE_STEPS {
            word.fetch_add(1, Relaxed);
        }
    };
    parts(slice, CHASE_STEPS, part, take);
}

impl Chain {
    /// A ring through `bytes` of memory, at least two lines. The caller touches the memory first,
    /// so it comes from the node of the running CPU.
    pub fn new(bytes: usize, seed: u64) -> Chain {
        let count = (bytes / LINE_BYTES).clamp(2, u32::MAX as usize);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut windows: Vec<usize> = (0..count.div_ceil(WINDOW_LINES)).collect();
        shuffle(&mut windows, &mut random);
        let mut words = vec![0_u64; count * LINE_WORDS];
        let (mut last, mut first) = (None, 0);
        for window in windows {
            let from = window * WINDOW_LINES;
            let mut order: Vec<usize> = (from..count.min(from + WINDOW_LINES)).collect();
            shuffle(&mut order, &mut random);
            for at in order.into_iter().map(|line| line * LINE_WORDS) {
                match last {
                    Some(last) => words[last] = at as u64,
                    None => first = at,
                }
                last = Some(at);
            }
        }
        if let Some(last) = last {
            words[last] = first as u64;
        }
        Chain { words, at: first }
    }

    /// Walks the whole ring, so that the caches hold as much of it as fits.
    pub fn warm(&mut self) {
        self.walk((self.words.len() / LINE_WORDS) as u32);
    }

    /// Nanoseconds from one line of the ring to the next.
    pub fn step_ns(&mut self, slice: Duration, take: &mut dyn FnMut(f64)) {
        parts(slice, CHASE_STEPS, || self.walk(CHASE_STEPS), take);
    }

    fn walk(&mut self, steps: u32) {
        let mut at = self.at;
        for _ in 0..steps {
            at = self.words[at] as usize;
        }
        self.at = black_box(at);
    }
}

fn shuffle(items: &mut [usize], random: &mut Pcg64Mcg) {
    for last in (1..items.len()).rev() {
        let other = random.next_u64() % (last as u64 + 1);
        items.swap(last, other as usize);
    }
}

/// Nanoseconds that a line which one CPU wrote takes to the other; nothing is taken if one of the
/// two gets no time on its CPU.
///
/// # Errors
/// A CPU that this process may not use.
pub fn transfer_ns(
    slice: Duration,
    (one, other): (CpuId, CpuId),
    line: &Line,
    take: &mut dyn FnMut(f64),
) -> Result<(), AffinityError> {
    line.word.store(0, Relaxed);
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| {
            let pinned = Pinned::to(other);
            if pinned.is_err() {
                line.stop();
            }
            let _pinned = pinned?;
            line.answer();
            Ok(())
        });
        let served = serve(slice, line, one, take);
        line.stop();
        let answered = answer.join().unwrap_or(Ok(()));
        answered.and(served)
    })
}

fn serve(
    slice: Duration,
    line: &Line,
    cpu: CpuId,
    take: &mut dyn FnMut(f64),
) -> Result<(), AffinityError> {
    let _pinned = Pinned::to(cpu)?;
    let mut turn = 2;
    if !line.meet(turn) {
        return Ok(());
    }
    let began = Instant::now();
    loop {
        let start = Instant::now();
        for _ in 0..PING_TURNS {
            turn += 2;
            if !line.pass(turn, start) {
                return Ok(());
            }
        }
        take(start.elapsed().as_nanos() as f64 / f64::from(2 * PING_TURNS));
        if began.elapsed() >= slice {
            return Ok(());
        }
    }
}

/// Places of lines: each on a page of its own, and in another line of it.
pub struct Lines {
    all: Vec<Line>,
}

/// Lines of [`Line`]'s size from one place to the next: a page and one line.
const LINE_STRIDE: usize = 4096 / size_of::<Line>() + 1;

impl Lines {
    /// Lines for so many places.
    pub fn new(places: usize) -> Lines {
        let mut all = Vec::new();
        all.resize_with(places * LINE_STRIDE, Line::default);
        Lines { all }
    }

    /// The line of a place, which is one of those.
    pub fn of(&self, place: usize) -> &Line {
        &self.all[place * LINE_STRIDE]
    }
}

/// A line. Where two CPUs write it in turn, one writes even numbers and the other odd ones.
#[repr(align(128))]
#[derive(Default)]
pub struct Line {
    word: AtomicU32,
}

/// Value of the line when the exchange is over.
const STOPPED: u32 = u32::MAX;
/// Looks at the line between two looks at the clock.
const LOOKS: u32 = 1 << 20;

impl Line {
    /// The first exchange, for which the other thread has to be there. It begins on the CPU of
    /// this one, which therefore lets it go first.
    fn meet(&self, turn: u32) -> bool {
        let began = Instant::now();
        if !self.send(turn) {
            return false;
        }
        while began.elapsed() <= PING_PATIENCE {
            match self.word.load(Relaxed) {
                STOPPED => return false,
                now if now == turn + 1 => return true,
                _ => std::thread::yield_now(),
            }
        }
        false
    }

    fn send(&self, turn: u32) -> bool {
        let sent = |now: u32| (now != STOPPED).then_some(turn);
        self.word.fetch_update(Relaxed, Relaxed, sent).is_ok()
    }

    /// Writes `turn` and waits for the answer; `false` if none comes. All accesses are Relaxed:
    /// the line carries nothing but itself.
    fn pass(&self, turn: u32, began: Instant) -> bool {
        if !self.send(turn) {
            return false;
        }
        loop {
            for _ in 0..LOOKS {
                match self.word.load(Relaxed) {
                    STOPPED => return false,
                    now if now == turn + 1 => return true,
                    _ => {}
                }
            }
            if began.elapsed() > PING_PATIENCE {
                return false;
            }
        }
    }

    /// Answers each even turn with the next odd one, until the exchange ends.
    fn answer(&self) {
        loop {
            match self.word.load(Relaxed) {
                STOPPED => return,
                0 => {}
                now if now.is_multiple_of(2) => {
                    let _ = self.word.compare_exchange(now, now + 1, Relaxed, Relaxed);
                }
                _ => {}
            }
        }
    }

    fn stop(&self) {
        self.word.store(STOPPED, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_visits_every_line_once() {
        for lines in [2, 3, 1000, WINDOW_LINES, 3 * WINDOW_LINES + 5] {
            let chain = Chain::new(lines * LINE_BYTES, 7);
            let (mut at, mut seen) = (0, vec![false; lines]);
            for _ in 0..lines {
                let line = at / LINE_WORDS;
                assert!(!std::mem::replace(&mut seen[line], true), "line {line} twice");
                at = chain.words[at] as usize;
            }
            assert_eq!(at, 0);
        }
    }

    fn lowest(time: impl FnOnce(&mut dyn FnMut(f64))) -> f64 {
        let mut lowest = f64::INFINITY;
        time(&mut |ns| lowest = lowest.min(ns));
        lowest
    }

    const SLICE: Duration = Duration::from_millis(5);

    #[test]
    fn a_larger_buffer_is_never_nearer_by_much_and_the_clock_is_one() {
        let step = |bytes: usize| lowest(|take| Chain::new(bytes, 1).step_ns(SLICE, take));
        let (small, large) = (step(8 << 10), step(64 << 20));
        assert!(small > 0.0 && large > 0.5 * small, "{small} {large}");
        assert!((0.05..20.0).contains(&(1.0 / lowest(|take| cycle_ns(SLICE, take)))));
    }

    #[test]
    fn a_walk_goes_on_where_the_last_one_ended() {
        let mut chain = Chain::new(3 * LINE_BYTES, 1);
        let mut seen = Vec::new();
        for _ in 0..6 {
            chain.walk(1);
            seen.push(chain.at);
        }
        assert_eq!(seen[..3], seen[3..]);
        assert_ne!(seen[0], seen[1]);
    }

    #[test]
    fn lines_of_two_places_share_neither_a_page_nor_a_place_on_it() {
        let lines = Lines::new(3);
        let at = |place: usize| std::ptr::from_ref(lines.of(place)).addr();
        assert!(at(1) - at(0) > 4096 && at(2) - at(1) > 4096);
        assert_ne!(at(0) % 4096, at(1) % 4096);
    }

    #[test]
    fn an_exchange_with_a_cpu_that_does_not_exist_ends_with_an_error() {
        let allowed = zonal::sys::affinity::allowed_cpus().unwrap();
        let lines = Lines::new(1);
        let transfer = |one, other| {
            let mut all = Vec::new();
            transfer_ns(SLICE, (one, other), lines.of(0), &mut |ns| all.push(ns)).map(|()| all)
        };
        assert!(transfer(allowed[0], CpuId(60_000)).is_err());
        assert!(transfer(CpuId(60_000), allowed[0]).is_err());
        if let [one, other, ..] = allowed[..] {
            let all = transfer(one, other).unwrap();
            assert!(all.iter().all(|ns| *ns > 0.0), "{all:?}");
        }
    }
}
