//! Measurements of this machine: clock, latencies of caches and memory, line transfers.
//!
//! Each is repeated, and the lowest result counts: what disturbs a measurement (other programs,
//! interrupts, a hypervisor) only ever makes it longer.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use zonal::CpuId;
use zonal::sys::affinity::{AffinityError, Pinned};

/// Repetitions of each measurement.
const REPEATS: u32 = 9;
/// Lines that are visited before the next part of a buffer: 16 small pages, so that nearly every
/// access finds its page in the first-level TLB.
const WINDOW_LINES: usize = 1024;
/// Steps of one walk along a chain.
const CHASE_STEPS: u32 = 100_000;
/// Turns of one exchange between two CPUs, each there and back.
const PING_TURNS: u32 = 2_000;
/// Steps of the loop that finds the clock.
const CLOCK_STEPS: u32 = 1_000_000;
/// An exclusive-or and a multiplication that wait for each other: 1 + 3 cycles on every 64-bit
/// Intel core since 2006 and every AMD core since Zen (Agner Fog, instruction tables).
const CLOCK_STEP_CYCLES: f64 = 4.0;
/// An exchange between CPUs that takes longer is aborted: one of the two gets no time.
const PING_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Words of a line. A ring's word holds the position of the next one, so that a step is a load and
/// nothing else.
const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();

/// A buffer whose lines form one ring in an order that no prefetcher guesses.
pub struct Chain {
    words: Vec<u64>,
}

/// The lowest of `REPEATS` results.
fn lowest(mut once: impl FnMut() -> f64) -> f64 {
    (0..REPEATS).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// The clock under load, in GHz.
pub fn ghz() -> f64 {
    // Opaque, so that the compiler can neither fold two steps into one nor know the result.
    let (mask, factor) = (black_box(0x9e37_79b9_7f4a_7c15_u64), black_box(0xd129_42e4_d1b5_4a33));
    let ns_per_step = lowest(|| {
        let (start, mut value) = (Instant::now(), black_box(1_u64));
        for _ in 0..CLOCK_STEPS {
            value = (value ^ mask).wrapping_mul(factor);
        }
        black_box(value);
        start.elapsed().as_nanos() as f64 / f64::from(CLOCK_STEPS)
    });
    CLOCK_STEP_CYCLES / ns_per_step
}

/// Nanoseconds of a locked addition to a line that the core has.
pub fn locked_ns() -> f64 {
    let counter = AtomicU32::new(0);
    lowest(|| {
        let start = Instant::now();
        for _ in 0..CHASE_STEPS {
            black_box(&counter).fetch_add(1, Relaxed);
        }
        start.elapsed().as_nanos() as f64 / f64::from(CHASE_STEPS)
    })
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
        Chain { words }
    }

    /// Nanoseconds from one line of the ring to the next.
    pub fn step_ns(&self) -> f64 {
        let mut at = 0;
        // The first walk fills the caches, as far as the ring fits.
        let all = self.words.len() / LINE_WORDS;
        for _ in 0..all.min(CHASE_STEPS as usize * REPEATS as usize) {
            at = self.words[at] as usize;
        }
        lowest(|| {
            let start = Instant::now();
            for _ in 0..CHASE_STEPS {
                at = self.words[at] as usize;
            }
            black_box(at);
            start.elapsed().as_nanos() as f64 / f64::from(CHASE_STEPS)
        })
    }
}

fn shuffle(items: &mut [usize], random: &mut Pcg64Mcg) {
    for last in (1..items.len()).rev() {
        let other = random.next_u64() % (last as u64 + 1);
        items.swap(last, other as usize);
    }
}

/// Nanoseconds that a line which one CPU wrote takes to the other; none if one of the two gets no
/// time on its CPU.
///
/// # Errors
/// A CPU that this process may not use.
pub fn transfer_ns(one: CpuId, other: CpuId) -> Result<Option<f64>, AffinityError> {
    let ball = Ball::default();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| {
            let pinned = Pinned::to(other);
            if pinned.is_err() {
                ball.stop();
            }
            let _pinned = pinned?;
            ball.answer();
            Ok(())
        });
        let served = serve(&ball, one);
        ball.stop();
        let answered = answer.join().unwrap_or(Ok(()));
        answered.and(served)
    })
}

fn serve(ball: &Ball, cpu: CpuId) -> Result<Option<f64>, AffinityError> {
    let _pinned = Pinned::to(cpu)?;
    let began = Instant::now();
    let (mut best, mut turn) = (None::<f64>, 0);
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..PING_TURNS {
            turn += 2;
            if !ball.pass(turn, began) {
                return Ok(best);
            }
        }
        let each = start.elapsed().as_nanos() as f64 / f64::from(2 * PING_TURNS);
        best = Some(best.map_or(each, |best| best.min(each)));
    }
    Ok(best)
}

/// A line that two CPUs write in turn: even numbers the one, odd ones the other.
#[repr(align(128))]
#[derive(Default)]
struct Ball {
    turn: AtomicU32,
}

/// Value of the ball when the game is over.
const STOPPED: u32 = u32::MAX;
/// Looks at the ball between two looks at the clock.
const LOOKS: u32 = 1 << 20;

impl Ball {
    /// Writes `turn` and waits for the answer; `false` if none comes. All accesses are Relaxed:
    /// the line carries nothing but itself.
    fn pass(&self, turn: u32, began: Instant) -> bool {
        let sent = |now: u32| (now != STOPPED).then_some(turn);
        if self.turn.fetch_update(Relaxed, Relaxed, sent).is_err() {
            return false;
        }
        loop {
            for _ in 0..LOOKS {
                match self.turn.load(Relaxed) {
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

    /// Answers each even turn with the next odd one, until the game ends.
    fn answer(&self) {
        loop {
            match self.turn.load(Relaxed) {
                STOPPED => return,
                0 => {}
                now if now.is_multiple_of(2) => {
                    let _ = self.turn.compare_exchange(now, now + 1, Relaxed, Relaxed);
                }
                _ => {}
            }
        }
    }

    fn stop(&self) {
        self.turn.store(STOPPED, Relaxed);
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

    #[test]
    fn a_larger_buffer_is_never_nearer_by_much_and_the_clock_is_one() {
        let (small, large) = (Chain::new(8 << 10, 1).step_ns(), Chain::new(64 << 20, 1).step_ns());
        assert!(small > 0.0 && large > 0.5 * small, "{small} {large}");
        assert!((0.05..20.0).contains(&ghz()));
    }

    #[test]
    fn an_exchange_with_a_cpu_that_does_not_exist_ends_with_an_error() {
        let allowed = zonal::sys::affinity::allowed_cpus().unwrap();
        assert!(transfer_ns(allowed[0], CpuId(60_000)).is_err());
        assert!(transfer_ns(CpuId(60_000), allowed[0]).is_err());
        if let [one, other, ..] = allowed[..] {
            let ns = transfer_ns(one, other).unwrap();
            assert!(ns.is_none_or(|ns| ns > 0.0), "{ns:?}");
        }
    }
}
