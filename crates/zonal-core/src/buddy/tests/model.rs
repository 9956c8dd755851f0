//! LB B.4 to B.8 again, as slowly and plainly as they read: lists are vectors of pfns, a buddy is
//! looked for by searching them. Shares no code with the buddy but the names of its types.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use crate::buddy::{
    Fallback, FallbackPolicy, FallbackRule, FreeFlags, HighAtomicLimit, TakeRequest, Taken,
};
use crate::types::Migratetype::{self, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use crate::types::Order;

const PB: u64 = 512;
const PBO: u32 = 9;

#[derive(Clone, Debug)]
pub struct Model {
    pub start: u64,
    pub end: u64,
    /// `[order][type]`, first element = head of the list.
    pub lists: Vec<Vec<Vec<u64>>>,
    /// By pageblock number counted from the zone's first.
    pub types: Vec<Migratetype>,
    /// Blocks in somebody's hands: order and the type they were asked for with.
    pub held: BTreeMap<u64, (u32, Migratetype)>,
    pub reserved: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mode {
    Normal,
    Steal,
}

impl Model {
    pub fn new(start: u64, end: u64, types: &[Migratetype]) -> Model {
        let blocks = (end.div_ceil(PB) - start / PB) as usize;
        let types = (0..blocks).map(|i| types[i % types.len()]).collect();
        let (lists, held) = (vec![vec![vec![]; 5]; 11], BTreeMap::new());
        Model { start, end, lists, types, held, reserved: 0 }
    }

    pub fn type_of(&self, pfn: u64) -> Migratetype {
        self.types[(pfn / PB - self.start / PB) as usize]
    }

    pub fn set_type(&mut self, pfn: u64, order: u32, mt: Migratetype) {
        let mut at = pfn;
        while at < pfn + (1 << order) {
            self.types[(at / PB - self.start / PB) as usize] = mt;
            at += PB;
        }
    }

    pub fn pages(&self, counts: impl Fn(Migratetype) -> bool) -> u64 {
        let mut sum = 0;
        for (order, lists) in self.lists.iter().enumerate() {
            for mt in Migratetype::ALL.into_iter().filter(|&mt| counts(mt)) {
                sum += (lists[mt as usize].len() as u64) << order;
            }
        }
        sum
    }

    fn is_free(&self, pfn: u64, order: u32) -> bool {
        self.lists[order as usize].iter().flatten().any(|&b| b == pfn)
    }

    fn remove(&mut self, pfn: u64, order: u32) {
        let list = self.lists[order as usize].iter_mut().find(|list| list.contains(&pfn)).unwrap();
        list.retain(|&b| b != pfn);
    }

    fn insert(&mut self, pfn: u64, order: u32, mt: Migratetype, tail: bool) {
        let list = &mut self.lists[order as usize][mt as usize];
        list.insert(if tail { list.len() } else { 0 }, pfn);
    }

    // ----- B.4

    pub fn free_one(&mut self, pfn: u64, order: u32, mt: Migratetype, flags: FreeFlags) {
        let (mut pfn, mut o) = (pfn, order);
        while o < 10 {
            let buddy = pfn ^ (1 << o);
            if !self.is_free(buddy, o) {
                break;
            }
            if o >= PBO {
                let bmt = self.type_of(buddy);
                if bmt != mt && (!mergeable(mt) || !mergeable(bmt)) {
                    break;
                }
                self.set_type(buddy, o, mt);
            }
            self.remove(buddy, o);
            pfn &= buddy;
            o += 1;
        }
        let likely = o < 9 && self.is_free((pfn & !(1 << o)) ^ (1 << (o + 1)), o + 1);
        self.insert(pfn, o, mt, flags.to_tail || likely);
    }

    pub fn free_block(&mut self, pfn: u64, order: u32, flags: FreeFlags) {
        self.held.remove(&pfn);
        let piece = order.min(PBO);
        let mut at = pfn;
        while at < pfn + (1 << order) {
            self.free_one(at, piece, self.type_of(at), flags);
            at += 1 << piece;
        }
    }

    // ----- B.5, B.6

    fn expand(&mut self, pfn: u64, hi: u32, lo: u32, mt: Migratetype) -> u64 {
        for k in (lo..hi).rev() {
            self.insert(pfn + (1 << k), k, mt, false);
        }
        pfn
    }

    pub fn smallest(&mut self, o: u32, mt: Migratetype) -> Option<u64> {
        if mt == Isolate {
            return None;
        }
        for k in o..=10 {
            if let Some(&pfn) = self.lists[k as usize][mt as usize].first() {
                self.remove(pfn, k);
                return Some(self.expand(pfn, k, o, mt));
            }
        }
        None
    }

    // ----- B.7

    fn find_fallback(&self, k: u32, mt: Migratetype) -> Option<Migratetype> {
        let order: &[Migratetype] = match mt {
            Unmovable => &[Reclaimable, Movable],
            Movable => &[Reclaimable, Unmovable],
            Reclaimable => &[Unmovable, Movable],
            HighAtomic | Isolate => &[],
        };
        order.iter().copied().find(|&f| !self.lists[k as usize][f as usize].is_empty())
    }

    /// One block; `events` are told pfns in place of frame indexes.
    pub fn rmqueue_one(
        &mut self,
        request: TakeRequest,
        policy: FallbackPolicy,
        mode: &mut Mode,
        events: &mut Vec<Fallback>,
    ) -> Option<u64> {
        let o = request.order.get();
        let grouping = policy.mobility_grouping;
        let mt = if grouping || !mergeable(request.mt) { request.mt } else { Unmovable };
        if *mode == Mode::Normal
            && let Some(pfn) = self.smallest(o, mt)
        {
            return Some(pfn);
        }
        let min_o = if request.nofragment { o.max(PBO) } else { o };
        let can_steal = |k: u32| k >= PBO || k >= 4 || mt != Movable || !grouping;
        if policy.rule != FallbackRule::ClaimThenSteal {
            return self.fallback_612(o, min_o, mt, policy, events);
        }
        if *mode == Mode::Normal {
            for k in (min_o..=10).rev() {
                let Some(f) = self.find_fallback(k, mt) else { continue };
                if !can_steal(k) {
                    break;
                }
                if let Some(pfn) = self.try_claim(o, k, mt, f, grouping, events) {
                    events.push(extfrag(self, pfn, o, k, mt, f));
                    return Some(pfn);
                }
            }
        }
        if request.nofragment {
            return None;
        }
        for k in o..=10 {
            let Some(f) = self.find_fallback(k, mt) else { continue };
            *mode = Mode::Steal;
            return Some(self.single(o, k, mt, f, events));
        }
        None
    }

    fn single(
        &mut self,
        o: u32,
        k: u32,
        mt: Migratetype,
        f: Migratetype,
        events: &mut Vec<Fallback>,
    ) -> u64 {
        let pfn = self.lists[k as usize][f as usize][0];
        self.remove(pfn, k);
        self.expand(pfn, k, o, f);
        events.push(extfrag(self, pfn, o, k, mt, f));
        pfn
    }

    fn fallback_612(
        &mut self,
        o: u32,
        min_o: u32,
        mt: Migratetype,
        policy: FallbackPolicy,
        events: &mut Vec<Fallback>,
    ) -> Option<u64> {
        let grouping = policy.mobility_grouping;
        let single = if policy.rule == FallbackRule::MoveRemainder {
            Model::move_and_retry
        } else {
            Model::single
        };
        let can_steal = |k: u32| k >= PBO || k >= 4 || mt != Movable || !grouping;
        let mut k = (min_o..=10).rev().find(|&k| self.find_fallback(k, mt).is_some())?;
        if !can_steal(k) && mt == Movable && k > o {
            k = (o..=10).find(|&k| self.find_fallback(k, mt).is_some())?;
        }
        let f = self.find_fallback(k, mt)?;
        if k < PBO && !can_steal(k) {
            events.push(Fallback::Boost);
            return Some(single(self, o, k, mt, f, events));
        }
        match self.try_claim(o, k, mt, f, grouping, events) {
            Some(pfn) => {
                events.push(extfrag(self, pfn, o, k, mt, f));
                Some(pfn)
            }
            None => Some(single(self, o, k, mt, f, events)),
        }
    }

    fn move_and_retry(
        &mut self,
        o: u32,
        k: u32,
        mt: Migratetype,
        f: Migratetype,
        events: &mut Vec<Fallback>,
    ) -> u64 {
        let pfn = self.lists[k as usize][f as usize][0];
        self.remove(pfn, k);
        self.insert(pfn, k, mt, true);
        let got = self.smallest(o, mt).expect("it was just moved there");
        events.push(extfrag(self, got, o, k, mt, f));
        got
    }

    fn try_claim(
        &mut self,
        o: u32,
        k: u32,
        mt: Migratetype,
        f: Migratetype,
        grouping: bool,
        events: &mut Vec<Fallback>,
    ) -> Option<u64> {
        let pfn = self.lists[k as usize][f as usize][0];
        if self.type_of(pfn) == HighAtomic {
            return None;
        }
        if k >= PBO {
            self.remove(pfn, k);
            self.set_type(pfn, k, mt);
            return Some(self.expand(pfn, k, o, mt));
        }
        events.push(Fallback::Boost);
        let block = self.whole_block(pfn)?;
        let free: u64 = self.free_in(block).iter().map(|&(_, k)| 1u64 << k).sum();
        let held = self.held.range(block..block + PB);
        let movable: u64 = held.filter(|(_, h)| h.1 == Movable).map(|(_, h)| 1u64 << h.0).sum();
        let alike = match () {
            () if mt == Movable => movable,
            () if self.type_of(pfn) == Movable => PB - free - movable,
            () => 0,
        };
        if free + alike >= PB / 2 || !grouping {
            self.move_block(block, mt);
            return self.smallest(o, mt);
        }
        None
    }

    fn whole_block(&self, pfn: u64) -> Option<u64> {
        let block = pfn / PB * PB;
        (block >= self.start && block + PB <= self.end).then_some(block)
    }

    /// Free blocks that start in a pageblock, ascending.
    fn free_in(&self, block: u64) -> Vec<(u64, u32)> {
        let mut found = vec![];
        for pfn in block..block + PB {
            found.extend((0..=10).filter(|&k| self.is_free(pfn, k)).map(|k| (pfn, k)));
        }
        found
    }

    fn move_block(&mut self, block: u64, to: Migratetype) {
        for (pfn, k) in self.free_in(block) {
            self.remove(pfn, k);
            self.insert(pfn, k, to, true);
        }
        self.set_type(block, PBO, to);
    }

    // ----- B.8

    pub fn reserve(&mut self, pfn: u64, order: u32, managed: u64, limit: HighAtomicLimit) -> bool {
        let old = limit == HighAtomicLimit::PlusBlock;
        let max = if old { managed / 100 + PB } else { (managed / 100).div_ceil(PB) * PB };
        if !old && managed / 100 < PB {
            return false;
        }
        if self.reserved >= max || !mergeable(self.type_of(pfn)) {
            return false;
        }
        if order < PBO {
            let Some(block) = self.whole_block(pfn) else { return false };
            self.move_block(block, HighAtomic);
            self.reserved += PB;
        } else {
            self.set_type(pfn, order, HighAtomic);
            self.reserved += 1 << order;
        }
        true
    }

    pub fn unreserve(&mut self, mt: Migratetype, force: bool) -> bool {
        if !force && self.reserved <= PB {
            return false;
        }
        for k in 0..=10 {
            let Some(&pfn) = self.lists[k as usize][HighAtomic as usize].first() else { continue };
            self.reserved -= self.reserved.min(PB.max(1 << k));
            if k < PBO {
                self.move_block(pfn / PB * PB, mt);
            } else {
                self.remove(pfn, k);
                self.set_type(pfn, k, mt);
                self.insert(pfn, k, mt, true);
            }
            return true;
        }
        false
    }

    // ----- isolation

    pub fn isolate(&mut self, pfn: u64) -> Option<Migratetype> {
        let block = self.whole_block(pfn)?;
        let from = self.type_of(block);
        if !mergeable(from) {
            return None;
        }
        self.retype_whole(block, Isolate, FreeFlags { to_tail: false }, &[10]);
        Some(from)
    }

    pub fn unisolate(&mut self, pfn: u64, to: Migratetype) -> bool {
        let Some(block) = self.whole_block(pfn) else { return false };
        if self.type_of(block) != Isolate || !mergeable(to) {
            return false;
        }
        self.retype_whole(block, to, FreeFlags { to_tail: true }, &[10, 9]);
        true
    }

    /// Free blocks of the given orders that hold the pageblock come off their list and are freed
    /// again piece by piece; otherwise its free blocks move over.
    fn retype_whole(&mut self, block: u64, to: Migratetype, flags: FreeFlags, orders: &[u32]) {
        for &k in orders {
            let head = block >> k << k;
            if self.is_free(head, k) {
                self.remove(head, k);
                self.set_type(block, PBO, to);
                self.free_block(head, k, flags);
                return;
            }
        }
        self.move_block(block, to);
    }
}

fn mergeable(mt: Migratetype) -> bool {
    mt != HighAtomic && mt != Isolate
}

fn extfrag(m: &Model, pfn: u64, o: u32, k: u32, mt: Migratetype, f: Migratetype) -> Fallback {
    Fallback::Taken(Taken {
        idx: (pfn - m.start) as u32,
        order: Order::new(o).expect("order"),
        fallback_order: Order::new(k).expect("order"),
        mt,
        fallback_mt: f,
        claimed: m.type_of(pfn) == mt,
    })
}
