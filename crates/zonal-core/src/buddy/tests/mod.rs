//! The buddy beside its model: every operation on both, everything compared after each.

mod cases;
mod exhaustive;
mod model;
mod properties;

use std::ops::Range;
use std::vec::Vec;

use super::{Buddy, Fallback, FallbackPolicy, FreeError, FreeFlags, HighAtomicLimit, TakeRequest};
use crate::frame::{Frames, PageWord, PcpId};
use crate::sync::{AtomicU8, AtomicU64, Ordering::Relaxed};
use crate::types::{CpuId, Migratetype, Order};
use model::{Mode, Model};

/// A zone's memory for a buddy.
pub struct Zone {
    words: Vec<AtomicU64>,
    blocks: Vec<AtomicU8>,
    start: u64,
    pub buddy: Buddy,
}

impl Zone {
    pub fn new(start: u64, pages: u64, types: &[Migratetype]) -> Zone {
        let blocks = Frames::pageblocks_for(start, pages);
        Zone {
            words: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            blocks: (0..blocks).map(|i| AtomicU8::new(types[i % types.len()] as u8)).collect(),
            start,
            buddy: Buddy::new(),
        }
    }

    pub fn frames(&self) -> Frames<'_> {
        Frames::new(&self.words, &self.blocks, self.start).unwrap()
    }

    /// The buddy and its frames, borrowed apart.
    pub fn parts(&mut self) -> (&mut Buddy, Frames<'_>) {
        (&mut self.buddy, Frames::new(&self.words, &self.blocks, self.start).unwrap())
    }

    pub fn words(&self) -> Vec<u64> {
        self.words.iter().map(|word| word.load(Relaxed)).collect()
    }

    pub fn types(&self) -> Vec<u8> {
        self.blocks.iter().map(|block| block.load(Relaxed)).collect()
    }
}

impl Clone for Zone {
    fn clone(&self) -> Zone {
        Zone {
            words: self.words().into_iter().map(AtomicU64::new).collect(),
            blocks: self.types().into_iter().map(AtomicU8::new).collect(),
            start: self.start,
            buddy: self.buddy.clone(),
        }
    }
}

/// The buddy and the model, in step.
#[derive(Clone)]
pub struct Pair {
    pub zone: Zone,
    pub model: Model,
    pub policy: FallbackPolicy,
    pub limit: HighAtomicLimit,
}

pub fn order(order: u32) -> Order {
    Order::new(order).unwrap()
}

pub fn request(o: u32, mt: Migratetype) -> TakeRequest {
    TakeRequest { order: order(o), mt, nofragment: false }
}

/// Writes the word of a block that was taken.
fn hold(frames: &Frames<'_>, idx: u32, request: TakeRequest) {
    let pcp = PcpId { cpu: CpuId(1), rank: 3 };
    assert!(frames.load(idx).is_none());
    let word = match (frames.start_pfn() + u64::from(idx)) % 3 {
        0 => PageWord::cached(request.order, request.mt, pcp),
        _ => PageWord::allocated(request.order, request.mt, pcp),
    };
    frames.store(idx, word);
}

impl Pair {
    /// A zone of `pages` frames from pfn `start`, of which `seeds` (frame indexes) are memory.
    pub fn new(start: u64, pages: u64, types: &[Migratetype], seeds: &[Range<u32>]) -> Pair {
        let mut zone = Zone::new(start, pages, types);
        let mut model = Model::new(start, start + pages, types);
        let (buddy, frames) = zone.parts();
        for seed in seeds {
            buddy.seed(&frames, seed.clone()).unwrap();
            let (mut at, end) = (start + seed.start as u64, start + seed.end as u64);
            while at < end {
                let fits = |o: &u32| at % (1 << o) == 0 && at + (1 << o) <= end;
                let order = (0..=10).rev().find(fits).unwrap();
                model.free_block(at, order, FreeFlags { to_tail: true });
                at += 1 << order;
            }
        }
        let policy = FallbackPolicy::DEFAULT;
        let pair = Pair { zone, model, policy, limit: HighAtomicLimit::RoundedUp };
        pair.compare();
        pair
    }

    /// Takes `n` blocks as one batch, or one block as a single take if `n` is `None`.
    pub fn take(&mut self, request: TakeRequest, n: Option<u32>) -> Vec<u64> {
        let (policy, start) = (self.policy, self.model.start);
        let (mut events, mut got) = (Vec::new(), Vec::new());
        let (buddy, frames) = self.zone.parts();
        let report = &mut |event| events.push(event);
        match n {
            None => {
                got.extend(buddy.take(&frames, request, &policy, report));
                got.iter().for_each(|idx| hold(&frames, *idx, request));
            }
            Some(n) => {
                // Marked at once, as a refill does: a later claim of the batch counts it.
                let out = |idx| {
                    hold(&frames, idx, request);
                    got.push(idx);
                };
                let count = buddy.take_bulk(&frames, request, n, &policy, report, out);
                assert_eq!(count as usize, got.len());
            }
        }
        let (mut model_events, mut expected) = (Vec::new(), Vec::new());
        let mut mode = Mode::Normal;
        for _ in 0..n.unwrap_or(1) {
            let got = self.model.rmqueue_one(request, policy, &mut mode, &mut model_events);
            let Some(pfn) = got else { break };
            expected.push(pfn);
            self.model.held.insert(pfn, (request.order.get(), request.mt));
        }
        let got: Vec<u64> = got.into_iter().map(|idx| start + idx as u64).collect();
        assert_eq!(got, expected);
        assert_eq!(events, model_events);
        self.compare();
        got
    }

    /// Takes from the reserve.
    pub fn take_smallest(&mut self, request: TakeRequest) -> Option<u64> {
        let (buddy, frames) = self.zone.parts();
        let got = buddy.take_smallest(&frames, request.order, request.mt);
        let got = got.map(|idx| frames.pfn(idx).0);
        assert_eq!(got, self.model.smallest(request.order.get(), request.mt));
        if let Some(pfn) = got {
            self.model.held.insert(pfn, (request.order.get(), request.mt));
            let (_, frames) = self.zone.parts();
            hold(&frames, (pfn - frames.start_pfn()) as u32, request);
        }
        self.compare();
        got
    }

    /// Writes the words of blocks that were taken: some CACHED, some ALLOCATED.
    pub fn free(&mut self, pfn: u64, to_tail: bool) {
        let (o, _) = self.model.held[&pfn];
        self.model.free_block(pfn, o, FreeFlags { to_tail });
        self.try_free(pfn, o, to_tail).unwrap();
        self.compare();
    }

    /// Frees on the buddy alone.
    pub fn try_free(&mut self, pfn: u64, o: u32, to_tail: bool) -> Result<(), FreeError> {
        let (buddy, frames) = self.zone.parts();
        let idx = pfn.wrapping_sub(frames.start_pfn()) as u32;
        buddy.free_block(&frames, idx, order(o), FreeFlags { to_tail })
    }

    pub fn reserve(&mut self, pfn: u64, managed: u64) -> bool {
        let (o, _) = self.model.held[&pfn];
        let (buddy, frames) = self.zone.parts();
        let idx = (pfn - frames.start_pfn()) as u32;
        let limit = self.limit.pages(managed);
        let done = buddy.reserve_highatomic(&frames, idx, order(o), limit);
        assert_eq!(done, self.model.reserve(pfn, o, managed, self.limit));
        self.compare();
        done
    }

    pub fn unreserve(&mut self, mt: Migratetype, force: bool) -> bool {
        let (buddy, frames) = self.zone.parts();
        let done = buddy.unreserve_highatomic(&frames, mt, force);
        assert_eq!(done, self.model.unreserve(mt, force));
        self.compare();
        done
    }

    pub fn isolate(&mut self, pfn: u64) -> Option<Migratetype> {
        let (buddy, frames) = self.zone.parts();
        let was = buddy.isolate(&frames, (pfn - frames.start_pfn()) as u32);
        assert_eq!(was, self.model.isolate(pfn));
        self.compare();
        was
    }

    pub fn unisolate(&mut self, pfn: u64, to: Migratetype) -> bool {
        let (buddy, frames) = self.zone.parts();
        let done = buddy.unisolate(&frames, (pfn - frames.start_pfn()) as u32, to);
        assert_eq!(done, self.model.unisolate(pfn, to));
        self.compare();
        done
    }

    /// Everything the buddy knows, against the model.
    pub fn compare(&self) {
        let (buddy, frames, model) = (&self.zone.buddy, self.zone.frames(), &self.model);
        if let Err(fault) = buddy.validate(&frames) {
            panic!("{fault}");
        }
        for o in Order::all() {
            for mt in Migratetype::ALL {
                let ours = buddy.list(&frames, o, mt).map(|idx| frames.pfn(idx).0);
                let theirs = &model.lists[o.index()][mt.index()];
                assert!(ours.eq(theirs.iter().copied()), "{o:?} {mt}: model has {theirs:x?}");
                let bit = buddy.nonempty_orders(mt) >> o.get() & 1;
                assert_eq!(bit != 0, !theirs.is_empty());
            }
            let blocks: usize = model.lists[o.index()].iter().map(Vec::len).sum();
            assert_eq!(buddy.nr_free(o) as usize, blocks);
        }
        let types: Vec<u8> = model.types.iter().map(|&mt| mt as u8).collect();
        assert_eq!(self.zone.types(), types);
        assert_eq!(buddy.free_pages(), model.pages(|mt| mt != Migratetype::Isolate));
        assert_eq!(buddy.free_isolate(), model.pages(|mt| mt == Migratetype::Isolate));
        assert_eq!(buddy.free_highatomic(), model.pages(|mt| mt == Migratetype::HighAtomic));
        assert_eq!(buddy.reserved_highatomic(), model.reserved);
        let reserved = model.types.iter().filter(|&&mt| mt == Migratetype::HighAtomic).count();
        assert_eq!(model.reserved, reserved as u64 * 512);
    }

    /// Fallback events of one take, for cases that look at them.
    pub fn events_of(&mut self, request: TakeRequest) -> (Option<u64>, Vec<Fallback>) {
        let mut probe = self.zone.clone();
        let policy = self.policy;
        let mut events = Vec::new();
        let (buddy, frames) = probe.parts();
        buddy.take(&frames, request, &policy, &mut |event| events.push(event));
        (self.take(request, None).first().copied(), events)
    }
}
