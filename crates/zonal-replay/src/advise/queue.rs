//! Waits for a zone lock: its holds at their times, in a queue.
//!
//! A step that takes the lock several times, as a large drain does, lets others in between.
//!
//! ```text
//!  cpu 0   ├─hold─┼─hold─┼─hold─┤              three holds of one drain
//!  cpu 1             ├wait┼─hold─┤             comes in the second one, and waits for its end
//!                         └ from here on both take turns
//! ```
//! Not modelled: a holder that the host takes its virtual CPU from; waits that delay what comes
//! after them; the order in which several CPUs get a lock that they all wait for.

use crate::run::holds::Hold;

/// What a queue came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Queued {
    pub holds: u64,
    /// Holds that found the lock taken by another CPU.
    pub contended: u64,
    pub wait_ns: f64,
    pub work_ns: f64,
}

impl Queued {
    pub(super) fn add(&mut self, other: &Queued) {
        self.holds += other.holds;
        self.contended += other.contended;
        self.wait_ns += other.wait_ns;
        self.work_ns += other.work_ns;
    }
}

/// Holds of one step, as the lock sees them.
struct Burst {
    cpu: u32,
    start: f64,
    each: f64,
    end: f64,
}

/// Waits of holds that are in the order of time; `each_ns` is how long a hold of a step takes.
pub(super) fn queue(holds: &[Hold], each_ns: impl Fn(&Hold) -> f64) -> Queued {
    let mut sum = Queued::default();
    let Some(first) = holds.first() else { return sum };
    let mut last = Burst { cpu: u32::MAX, start: 0.0, each: 1.0, end: 0.0 };
    for hold in holds {
        let (count, each) = (f64::from(hold.holds), each_ns(hold).max(1e-3));
        let now = (hold.time_ns - first.time_ns) as f64;
        sum.holds += u64::from(hold.holds);
        sum.work_ns += count * each;
        let is_other = hold.cpu != last.cpu && now < last.end;
        let (start, turns) = match is_other {
            // A CPU does not wait for itself.
            false => (now.max(if hold.cpu == last.cpu { last.end } else { 0.0 }), 0.0),
            true => {
                let wait = last.left_at(now);
                let left = ((last.end - now - wait) / last.each).round().max(0.0);
                // After the first wait both take turns: each hold waits for one of the other.
                let (mine, theirs) = (left.min(count - 1.0), left.min(count));
                sum.contended += 1 + (mine + theirs) as u64;
                sum.wait_ns += wait + mine * last.each + theirs * each;
                (now + wait, mine * last.each)
            }
        };
        let end = start + count * each + turns;
        match is_other && last.end + count * each > end {
            true => last.end += count * each,
            false => last = Burst { cpu: hold.cpu, start, each, end },
        }
    }
    sum
}

impl Burst {
    /// Until the hold that is under way ends, or the one that waits already.
    fn left_at(&self, now: f64) -> f64 {
        match now < self.start {
            true => self.start - now + self.each,
            false => self.each - (now - self.start) % self.each,
        }
    }
}

/// The same holds by `times` as many CPUs, each copy later by its share of `span`, and from its
/// beginning again at its end: loads of one kind that do not know of each other.
pub(super) fn copies(
    holds: &[Hold],
    (times, cpus): (u32, u32),
    (start_ns, span_ns): (u64, u64),
) -> Vec<Hold> {
    let span = span_ns.max(1);
    let mut all: Vec<Hold> = (0..times)
        .flat_map(|copy| {
            let later = span / u64::from(times) * u64::from(copy);
            holds.iter().map(move |hold| Hold {
                time_ns: start_ns + (hold.time_ns.saturating_sub(start_ns) + later) % span,
                cpu: hold.cpu + copy * cpus,
                ..*hold
            })
        })
        .collect();
    all.sort_by_key(|hold| hold.time_ns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(time_ns: u64, cpu: u32, holds: u32) -> Hold {
        Hold { time_ns, cpu, holds, list_pages: 0, direct: 0 }
    }

    /// Each hold takes 100 ns.
    fn queued(holds: &[Hold]) -> (u64, f64) {
        let sum = queue(holds, |_| 100.0);
        assert_eq!(sum.work_ns, sum.holds as f64 * 100.0);
        (sum.contended, sum.wait_ns)
    }

    #[test]
    fn holds_apart_or_of_one_cpu_do_not_wait() {
        assert_eq!(queued(&[]), (0, 0.0));
        assert_eq!(queued(&[hold(5, 0, 1), hold(105, 1, 1), hold(205, 0, 1)]), (0, 0.0));
        assert_eq!(queued(&[hold(5, 0, 1), hold(6, 0, 1), hold(7, 0, 9)]), (0, 0.0));
    }

    #[test]
    fn who_comes_during_a_hold_waits_for_its_end_and_the_next_one_for_both() {
        assert_eq!(queued(&[hold(0, 0, 1), hold(30, 1, 1)]), (1, 70.0));
        assert_eq!(queued(&[hold(0, 0, 1), hold(30, 1, 1), hold(40, 2, 1)]), (2, 70.0 + 160.0));
        // The second one's delay is its own: the third comes when both are done.
        assert_eq!(queued(&[hold(0, 0, 1), hold(30, 1, 1), hold(200, 0, 1)]), (1, 70.0));
    }

    #[test]
    fn a_large_drain_lets_others_in_between() {
        // In the second of ten holds: waits 50, then the drain waits once for it.
        assert_eq!(queued(&[hold(0, 0, 10), hold(150, 1, 1)]), (2, 150.0));
        // Two drains take turns until the shorter one is done.
        let (contended, wait_ns) = queued(&[hold(0, 0, 10), hold(0, 1, 4)]);
        assert_eq!((contended, wait_ns), (1 + 3 + 4, 100.0 + 300.0 + 400.0));
    }

    #[test]
    fn copies_are_later_and_stay_inside_the_recording() {
        let holds = [hold(1000, 0, 1), hold(1090, 1, 1)];
        let all = copies(&holds, (2, 2), (1000, 100));
        let told: Vec<(u64, u32)> = all.iter().map(|hold| (hold.time_ns, hold.cpu)).collect();
        assert_eq!(told, [(1000, 0), (1040, 3), (1050, 2), (1090, 1)]);
        assert_eq!(copies(&holds, (1, 2), (1000, 100)), holds);
    }
}
