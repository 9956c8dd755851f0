//! The tuning once more, written down from `shared/reference/pcp_model.py` branch by branch, in
//! plain signed numbers and with its own lists. Tests hold the real one against it. Extended by
//! huge pages, the pressure flags as variables, a variable limit, and level -1 for the rule up to
//! 5.12.

extern crate std;
use std::vec::Vec;

/// Orders with lists; the last one is that of huge pages.
pub const ORDERS: [u32; 5] = [0, 1, 2, 3, 9];

/// What a step did: `(kind, number)`, with blocks for a refill and pages for frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Refill(i64),
    Free(i64),
    ForcedFree(i64),
}

pub struct Model {
    /// -1 up to 5.12, 0 to 9, 18 from 6.15 on. 5.13 to 5.17 are 0 without streams.
    pub level: i32,
    /// Whether large frees can empty the lists.
    pub streams: bool,
    pub max: i64,
    pub batch: i64,
    pub hmin: i64,
    pub hmax: i64,
    pub high: i64,
    pub count: i64,
    pub af: i64,
    pub ff: i64,
    pub fc: i64,
    pub prev: bool,
    pub big: bool,
    pub below: bool,
    pub reclaim: bool,
    pub lists: [i64; 5],
    pub log: Vec<Event>,
}

fn clampv(v: i64, lo: i64, hi: i64) -> i64 {
    if v >= hi {
        return hi;
    }
    if v <= lo {
        return lo;
    }
    v
}

/// Blocks of an order for `n` pages.
fn blocks(n: i64, order: u32) -> i64 {
    if n > 1 { (n >> order).max(2) } else { n }
}

impl Model {
    pub fn refill(&mut self, order: u32) -> i64 {
        let b = self.batch;
        if self.level >= 7 {
            self.high = clampv(self.high, self.hmin, self.hmax);
        }
        let mut high = if self.level >= 7 { self.high } else { self.hmin };
        if self.level < 5 {
            return blocks(b, order);
        }
        if high < b {
            return 1;
        }
        let mut n = if order > 0 { b } else { b << self.af };
        if self.level >= 7 {
            let blocked = if self.level >= 8 { self.below } else { self.reclaim };
            if self.hmin != self.hmax && !blocked {
                self.high = (high + n).min(self.hmax);
                high = self.high;
            }
        }
        if order == 0 {
            let mx = (high - self.count - b).max(b);
            if n <= mx && self.af < self.max {
                self.af += 1;
            }
            n = n.min(mx);
        }
        blocks(n, order)
    }

    pub fn alloc(&mut self, list: usize) {
        let order = ORDERS[list];
        if self.level >= 9 {
            self.fc >>= 1;
        } else {
            self.ff >>= 1;
        }
        if self.lists[list] == 0 {
            let n = self.refill(order);
            self.count += n << order;
            self.lists[list] += n;
            self.log.push(Event::Refill(n));
        }
        self.lists[list] -= 1;
        self.count -= 1 << order;
    }

    fn nr_high(&mut self, fh: bool) -> i64 {
        let b = self.batch;
        if self.level < 0 {
            return self.hmin;
        }
        if self.level <= 6 {
            let high = self.hmin;
            if high == 0 || fh {
                return 0;
            }
            return if self.reclaim { (b << 2).min(high) } else { high };
        }
        self.high = clampv(self.high, self.hmin, self.hmax);
        let mut high = self.high;
        if high == 0 {
            return 0;
        }
        if fh {
            self.high = (high - (b << self.max)).max(self.hmin);
            return 0;
        }
        let dec = if self.level >= 9 { self.fc.max(b) } else { b << self.ff };
        if self.reclaim {
            self.high = (high - dec).max(self.hmin);
            return (b << 2).min(self.high);
        }
        if self.hmin == self.hmax {
            return high;
        }
        if self.level >= 8 && self.below {
            self.high = (high - dec).max(self.hmin);
            high = self.count.max(self.hmin);
        } else if self.count >= high {
            let need = b + if self.level >= 9 { self.fc } else { b << self.ff };
            if self.high < need {
                self.high = clampv(need, self.hmin, self.hmax);
            }
        }
        high
    }

    fn nr_free(&mut self, high: i64, fh: bool) -> i64 {
        let b = self.batch;
        if self.level < 0 {
            return b;
        }
        if fh {
            return if self.level >= 7 { self.count.min(b << self.max) } else { self.count };
        }
        if high < b {
            return 1;
        }
        let (mn, mx) = (b, high - b);
        if self.level >= 9 {
            return clampv(self.fc, mn, mx);
        }
        let n = b << self.ff;
        let ok = if self.level >= 7 { n <= mx } else { n < mx };
        if ok && (self.level < 4 || self.ff < self.max) {
            self.ff += 1;
        }
        clampv(n, mn, mx)
    }

    pub fn free(&mut self, list: usize) {
        let order = ORDERS[list];
        let b = self.batch;
        if self.level >= 5 {
            self.af >>= 1;
        }
        self.lists[list] += 1;
        self.count += 1 << order;
        let mut fh = false;
        if 0 < order && order <= 3 {
            if self.level == 0 {
                fh = self.streams && self.ff > 0;
            } else if self.level > 0 {
                let trigger = match self.level {
                    18 => self.fc >= b + self.hmin / 2,
                    9 => self.fc >= b,
                    _ => self.ff > 0,
                };
                fh = trigger && self.prev;
                if self.level >= 3 {
                    fh = fh && (!self.big || self.count >= b);
                }
            }
            self.prev = true;
        } else {
            self.prev = false;
        }
        if self.level >= 9 && self.fc < (b << self.max) {
            self.fc += 1 << order;
        }
        let high = self.nr_high(fh);
        if self.count >= high {
            let n = self.nr_free(high, fh).min(self.count);
            self.log.push(if fh { Event::ForcedFree(n) } else { Event::Free(n) });
            self.take(n, list);
        }
    }

    /// Frees `n` pages or a few more, starting with one list and going round.
    pub fn take(&mut self, n: i64, start: usize) {
        let (mut rem, mut o, mut tried) = (n, start, 0);
        while rem > 0 {
            if self.lists[o] > 0 {
                let size = 1 << ORDERS[o];
                let k = self.lists[o].min((rem + size - 1) / size);
                self.lists[o] -= k;
                self.count -= k * size;
                rem -= k * size;
                tried = 0;
            } else {
                tried += 1;
                if tried > self.lists.len() {
                    break;
                }
            }
            o = (o + 1) % self.lists.len();
        }
    }

    /// Unlike the original, pages come off any list, not only off the first, and nothing decays
    /// before level 7 (LB E.10).
    pub fn decay(&mut self) -> (i64, bool) {
        if self.level < 7 {
            return (0, false);
        }
        let b = self.batch;
        let mut todo = false;
        if self.high > self.hmin {
            self.high = (self.count - (b << self.max)).max(self.high - (self.high >> 3));
            self.high = self.high.max(self.hmin);
            todo = self.high > self.hmin;
        }
        let d = self.count - self.high;
        if d > 0 {
            self.take(d, 0);
            todo = true;
        }
        (d.max(0), todo)
    }
}
