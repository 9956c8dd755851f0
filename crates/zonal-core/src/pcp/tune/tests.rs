extern crate std;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::model::{Event, Model, ORDERS};
use super::*;
use crate::types::Choice;

/// The real tuning with lists that hold only numbers of blocks, fed by a zone without end.
pub struct Lists {
    pub params: PcpParams,
    pub state: PcpState,
    pub pressure: Pressure,
    pub blocks: [u32; 5],
    pub log: Vec<Event>,
}

impl Lists {
    pub fn new(params: PcpParams) -> Lists {
        let state = PcpState { high: params.high_min, ..PcpState::default() };
        Lists { params, state, pressure: Pressure::default(), blocks: [0; 5], log: vec![] }
    }

    fn order(list: usize) -> Order {
        Order::new(ORDERS[list]).unwrap()
    }

    pub fn alloc(&mut self, list: usize) {
        let order = Lists::order(list);
        on_take(&mut self.state);
        if self.blocks[list] == 0 {
            let n = nr_alloc(&mut self.state, &self.params, self.pressure, order);
            on_refill(&mut self.state, n, order);
            self.blocks[list] += n;
            self.log.push(Event::Refill(n.into()));
        }
        self.blocks[list] -= 1;
        on_pop(&mut self.state, order);
    }

    pub fn free(&mut self, list: usize) {
        self.blocks[list] += 1;
        let order = Lists::order(list);
        let bulk = commit_free(&mut self.state, &self.params, self.pressure, order);
        if let Some(BulkFree { pages, forced }) = bulk {
            let n = pages.get().into();
            self.log.push(if forced { Event::ForcedFree(n) } else { Event::Free(n) });
            self.drain(pages.get(), list);
        }
    }

    /// LB E.8: empty the first list from its tail, then the next non-empty one, until enough.
    fn drain(&mut self, pages: u32, start: usize) {
        let mut left = i64::from(pages);
        for list in (start..5).chain(0..start) {
            while left > 0 && self.blocks[list] > 0 {
                self.blocks[list] -= 1;
                left -= 1 << ORDERS[list];
                on_freed(&mut self.state, 1 << ORDERS[list]);
            }
        }
    }

    pub fn decay(&mut self) -> Decay {
        let step = decay(&mut self.state, &self.params);
        self.drain(step.pages.get(), 0);
        step
    }

    /// The log in the form of LB K.3, and a new log.
    fn take_log(&mut self) -> String {
        let text = |event: &Event| match event {
            Event::Refill(n) => format!("{n}"),
            Event::Free(n) => format!("F:{n}"),
            Event::ForcedFree(n) => format!("F*:{n}"),
        };
        let log = std::mem::take(&mut self.log);
        let runs = log.chunk_by(|a, b| a == b).map(|run| match run.len() {
            1 => text(&run[0]),
            n => format!("{}x{n}", text(&run[0])),
        });
        runs.collect::<Vec<_>>().join(" ")
    }
}

const BATCH_RULE: Tuning = Tuning::Level9;
const HALF_RULE: Tuning = Tuning::Release615;

/// The lists of LB K.3: batch 63, high 905 to 16384.
fn k3(tuning: Tuning, free_high_batch: bool) -> Lists {
    Lists::new(PcpParams {
        batch: 63,
        high_min: 905,
        high_max: 16_384,
        scale_max: SCALE_MAX_DEFAULT,
        free_high_batch,
        tuning,
        stream: 0,
    })
}

/// LB K.3: every level that a vector names.
pub(super) const NAMED: [Tuning; 11] = [
    Tuning::Level0,
    Tuning::Level1,
    Tuning::Level2,
    Tuning::Level3,
    Tuning::Level4,
    Tuning::Level5,
    Tuning::Level6,
    Tuning::Level7,
    Tuning::Level8,
    Tuning::Level9,
    Tuning::Release615,
];

#[test]
fn v1_refills_double_and_high_grows_with_them() {
    for tuning in NAMED {
        let (refills, allocated, frees, freed) = match tuning {
            t if t < Tuning::Level5 => {
                let frees = "F:63 F:126 F:252 F:504 F:842x10";
                ("63x159", (17, 905), frees, (652, 905))
            }
            t if t < Tuning::Level7 => {
                let frees = "F:63 F:126 F:252 F:504 F:842x10";
                ("63 126 252 504 842x11", (207, 905), frees, (842, 905))
            }
            _ => ("63 126 252 504 1008 2016x4", (17, 10_922), "", (10_017, 10_922)),
        };
        let mut lists = k3(tuning, false);
        (0..10_000).for_each(|_| lists.alloc(0));
        assert_eq!(lists.take_log(), refills, "{tuning:?}");
        assert_eq!((lists.state.count, lists.state.high), allocated, "{tuning:?}");
        (0..10_000).for_each(|_| lists.free(0));
        assert_eq!(lists.take_log(), frees, "{tuning:?}");
        assert_eq!((lists.state.count, lists.state.high), freed, "{tuning:?}");
    }
}

#[test]
fn v2_a_stream_of_large_frees_goes_through() {
    for (tuning, slice) in NAMED.iter().flat_map(|t| [(*t, false), (*t, true)]) {
        let (drains, count) = match (tuning, slice) {
            (Tuning::Level9, false) => ("F*:68 F*:4x383", 0),
            (Tuning::Level9, true) => ("F*:68 F*:64x23", 60),
            (Tuning::Release615, false) => ("F*:520 F*:4x270", 0),
            (Tuning::Release615, true) => ("F*:520 F*:64x16", 56),
            (t, true) if t >= Tuning::Level3 => ("F:63 F*:848 F*:64x10", 48),
            _ => ("F:63 F*:848 F*:4x172", 0),
        };
        let mut lists = k3(tuning, slice);
        (0..400).for_each(|_| lists.free(2));
        assert_eq!(lists.take_log(), drains, "{tuning:?}");
        assert_eq!((lists.state.count, lists.state.high), (count, 905), "{tuning:?}");
    }
}

#[test]
fn v3_a_process_exit_does_not_flush_everything() {
    for tuning in NAMED {
        let (drains, count, high) = match tuning {
            Tuning::Level0 => ("F:63 F*:891 F*:53x42", 0, 905),
            t if t < Tuning::Level7 => ("F:63 F:126 F:252 F:504 F:842x2", 545, 905),
            t if t < Tuning::Level9 => ("F:63 F:126 F:252 F:504 F:842 F:1008", 382, 1071),
            _ => ("F:842 F:905", 1427, 1876),
        };
        let mut lists = k3(tuning, false);
        (0..3000).for_each(|i| lists.free(if i % 50 == 49 { 2 } else { 0 }));
        assert_eq!(lists.take_log(), drains, "{tuning:?}");
        assert_eq!((lists.state.count, lists.state.high), (count, high), "{tuning:?}");
    }
}

/// LB E.11: a batch in, a batch out, whatever came before.
#[cfg(feature = "history")]
#[test]
fn up_to_5_12_nothing_adapts() {
    let mut lists = k3(Tuning::Fixed, true);
    (lists.params.high_min, lists.params.high_max) = (378, 378);
    (0..1000).for_each(|_| lists.alloc(0));
    assert_eq!(lists.take_log(), "63x16");
    (0..1000).for_each(|_| lists.free(0));
    assert_eq!(lists.take_log(), "F:63x11");
    assert_eq!((lists.state.count, lists.state.high), (8 + 1000 - 11 * 63, 378));
    assert_eq!(lists.decay(), Decay { pages: PageCount::ZERO, still_decaying: false });
    // A raw chunk of 0: no page stays.
    let off = PcpParams { batch: 1, high_min: 0, high_max: 0, ..lists.params };
    let mut lists = Lists::new(off);
    lists.alloc(0);
    lists.free(0);
    assert_eq!(lists.take_log(), "1 F:1");
    assert_eq!(lists.state.count, 0);
}

#[test]
fn v4_high_sinks_by_an_eighth_and_takes_count_with_it() {
    let highs = [14_336, 12_544, 10_976, 9604, 8404, 7354, 6435, 5631, 4928, 4312, 3773, 3302];
    for start in [15_000, 0] {
        let mut lists = k3(BATCH_RULE, false);
        lists.blocks[0] = start;
        lists.state.count = start;
        lists.state.high = 16_384;
        for high in highs {
            assert!(lists.decay().still_decaying);
            let count = if start == 0 { 0 } else { high };
            assert_eq!((lists.state.count, lists.state.high), (count, high));
        }
    }
}

#[test]
fn decay_is_that_of_a_live_kernel() {
    // LB K.2: a full list gives up one bulk a second, an idle one an eighth.
    let mut lists = k3(HALF_RULE, false);
    lists.params.high_max = 100_000;
    (lists.blocks[0], lists.state.count, lists.state.high) = (68_421, 68_421, 68_421);
    for high in [66_405, 64_389] {
        lists.decay();
        assert_eq!((lists.state.count, lists.state.high), (high, high));
    }
    for highs in [
        &[71_680, 62_720, 54_880, 48_020, 42_018][..],
        &[46_909, 41_046, 35_916, 31_427, 27_499, 24_062, 21_055],
    ] {
        (lists.blocks[0], lists.state.count, lists.state.high) = (100, 100, highs[0]);
        for high in &highs[1..] {
            lists.decay();
            assert_eq!((lists.state.count, lists.state.high), (100, *high));
        }
    }
}

#[test]
fn decay_ends_at_high_min() {
    let mut lists = k3(HALF_RULE, false);
    (lists.blocks[0], lists.state.count, lists.state.high) = (905, 905, 906);
    assert_eq!(lists.decay(), Decay { pages: PageCount::ZERO, still_decaying: false });
    assert_eq!((lists.state.count, lists.state.high), (905, 905));
    lists.state.count = 910;
    lists.blocks[0] = 910;
    assert_eq!(lists.decay(), Decay { pages: PageCount::new(5), still_decaying: true });
    assert_eq!(lists.decay(), Decay { pages: PageCount::ZERO, still_decaying: false });
}

#[test]
fn boot_lists_hold_nothing() {
    let mut lists = Lists::new(PcpParams::BOOT);
    for list in 0..5 {
        lists.alloc(list);
        lists.free(list);
        assert_eq!(lists.state.count, 0);
    }
    // One page is asked back, and its whole block goes; orders 2 and 3 already are a stream.
    assert_eq!(lists.take_log(), "1 F:1 1 F:1 1 F*:4 1 F*:8 1 F:1");
}

#[test]
fn a_zone_that_is_short_gives_back_at_once() {
    let mut lists = k3(HALF_RULE, false);
    (lists.blocks[0], lists.state.count, lists.state.high) = (2000, 2000, 4000);
    lists.pressure.below_high = true;
    lists.free(0);
    assert_eq!(lists.take_log(), "F:63");
    assert_eq!(lists.state.high, 4000 - 63);
    lists.pressure = Pressure { below_high: false, reclaim_active: true };
    lists.free(0);
    // 4 * 63 pages may stay, at least a chunk goes.
    assert_eq!(lists.take_log(), "F:63");
    assert_eq!(lists.state.high, 4000 - 2 * 63);
    // No refill raises high while the zone is short.
    lists.pressure = Pressure { below_high: true, reclaim_active: false };
    (lists.blocks[0], lists.state.count) = (0, 0);
    lists.alloc(0);
    assert_eq!(lists.state.high, 4000 - 2 * 63);
}

#[test]
fn with_the_bounds_the_wrong_way_round_high_ends_at_the_upper_one() {
    // LB E.4: lifted to high_min once, then pulled to high_max and kept there.
    let params = PcpParams { batch: 63, high_min: 900, high_max: 500, ..PcpParams::BOOT };
    let mut state = PcpState { high: 100, ..PcpState::default() };
    let mut seen = vec![];
    for _ in 0..3 {
        overflow(&mut state, &params, Pressure::default(), false);
        seen.push(state.high);
    }
    assert_eq!(seen, [900, 500, 500]);
    assert!(params.tunes());
    assert!(!decay(&mut state, &params).still_decaying);
}

#[test]
fn clamp_tests_the_upper_bound_first() {
    assert_eq!([0, 5, 9, 10, 11].map(|v| clamp_hi_first(v, 5, 10)), [5, 5, 9, 10, 10]);
    assert_eq!([0, 4, 5, 9, 20].map(|v| clamp_hi_first(v, 10, 5)), [10, 10, 5, 5, 5]);
}

#[test]
fn a_refill_counts_blocks_not_pages() {
    // LB M.3: two huge pages are 1024 pages, and orders above 0 do not double.
    for (list, blocks) in [(1, 31), (2, 15), (3, 7), (4, 2)] {
        let mut lists = k3(HALF_RULE, false);
        lists.alloc(list);
        assert_eq!(lists.log, [Event::Refill(blocks)]);
        assert_eq!((lists.state.high, lists.state.alloc_factor), (905 + 63, 0));
    }
}

#[test]
fn expiry_takes_a_chunk() {
    let lists = k3(HALF_RULE, false);
    for (count, pages) in [(5000, 63), (5, 5)] {
        let state = PcpState { count, ..PcpState::default() };
        assert_eq!(expired_pages(&state, &lists.params).get(), pages);
    }
}

/// One step of a random program.
#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc(usize, u32),
    Free(usize, u32),
    Decay,
    Drain,
    Pressure(bool, bool),
    Bounds(u32, u32),
}

/// A bound of `high`: often nothing or about a chunk, where the branches meet.
fn bound(max: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0), 2 => 60u32..66, 6 => 0..max]
}

fn ops() -> BoxedStrategy<Vec<Op>> {
    let times = prop_oneof![1u32..4, 1u32..400];
    let list = prop_oneof![6 => Just(0usize), 4 => 0usize..4, 1 => Just(4usize)];
    let op = prop_oneof![
        8 => (list.clone(), times.clone()).prop_map(|(l, n)| Op::Alloc(l, n)),
        8 => (list, times).prop_map(|(l, n)| Op::Free(l, n)),
        2 => Just(Op::Decay),
        1 => Just(Op::Drain),
        2 => any::<(bool, bool)>().prop_map(|(b, r)| Op::Pressure(b, r)),
        1 => (bound(3000), bound(20_000)).prop_map(|(lo, hi)| Op::Bounds(lo, hi)),
    ];
    proptest::collection::vec(op, 1..60).boxed()
}

fn model_of(lists: &Lists) -> Model {
    let params = &lists.params;
    Model {
        level: match params.tuning {
            Tuning::Release615 => 18,
            tuning if tuning.name() == "5.13" => 0,
            tuning => tuning.name().parse().unwrap_or(-1),
        },
        streams: params.tuning.name() != "5.13",
        max: params.scale_max.into(),
        batch: params.batch.into(),
        hmin: params.high_min.into(),
        hmax: params.high_max.into(),
        high: params.high_min.into(),
        count: 0,
        af: 0,
        ff: 0,
        fc: 0,
        prev: false,
        big: params.free_high_batch,
        below: false,
        reclaim: false,
        lists: [0; 5],
        log: vec![],
    }
}

fn step(lists: &mut Lists, model: &mut Model, op: Op) {
    match op {
        Op::Alloc(list, times) => (0..times).for_each(|_| {
            lists.alloc(list);
            model.alloc(list);
        }),
        Op::Free(list, times) => (0..times).for_each(|_| {
            lists.free(list);
            model.free(list);
        }),
        Op::Decay => {
            let got = lists.decay();
            assert_eq!((i64::from(got.pages.get()), got.still_decaying), model.decay());
        }
        Op::Drain => {
            let pages = lists.state.count.min(lists.params.bulk_max());
            lists.drain(pages, 0);
            model.take(pages.into(), 0);
        }
        Op::Pressure(below_high, reclaim_active) => {
            lists.pressure = Pressure { below_high, reclaim_active };
            (model.below, model.reclaim) = (below_high, reclaim_active);
        }
        Op::Bounds(lo, hi) => {
            (lists.params.high_min, lists.params.high_max) = (lo, hi);
            (model.hmin, model.hmax) = (lo.into(), hi.into());
        }
    }
}

proptest! {
    #[test]
    fn any_program_tunes_as_the_reference_model(
        batch in prop_oneof![Just(63u32), 1u32..100],
        bounds in (bound(3000), bound(20_000)),
        scale_max in 0u8..=SCALE_MAX_LIMIT,
        free_high_batch: bool,
        tuning in (0..Tuning::ALL.len()).prop_map(|at| Tuning::ALL[at].1),
        program in ops(),
    ) {
        let (high_min, high_max) = bounds;
        let mut lists = Lists::new(PcpParams {
            batch, high_min, high_max, scale_max, free_high_batch, tuning,
            stream: 0,
        });
        let mut model = model_of(&lists);
        for op in program {
            step(&mut lists, &mut model, op);
            let state = &lists.state;
            prop_assert_eq!(&lists.log, &model.log);
            prop_assert_eq!(i64::from(state.count), model.count);
            if tuning.moves_high() {
                prop_assert_eq!(i64::from(state.high), model.high);
            }
            // One field of the state has both (TUNE-2).
            prop_assert_eq!(i64::from(state.free_count), model.fc + model.ff);
            prop_assert_eq!(i64::from(state.alloc_factor), model.af);
            prop_assert_eq!(state.prev_free_high_order, model.prev);
            prop_assert_eq!(lists.blocks.map(i64::from), model.lists);
            prop_assert!(state.alloc_factor <= scale_max); // TUNE-1
            if tuning.has(Tuning::Level9) {
                prop_assert!(state.free_count < lists.params.bulk_max() + 512); // TUNE-2
            } else if tuning.has(Tuning::Level4) {
                prop_assert!(state.free_count <= u32::from(scale_max));
            }
            lists.log.clear();
            model.log.clear();
        }
    }
}

/// From every state, with some blocks popped first and however many freed in a row then: fast
/// operations ask about a stream, at most as many pages late as the pops took off `free_count`, in
/// whole blocks; and where nothing is a stream they do not ask at each free.
#[test]
fn fast_frees_ask_before_a_stream_and_seldom_without_one() {
    let orders = [1, 2, 3].map(|order| Order::new(order).unwrap());
    let cases = [0, 7, 30, 60]
        .into_iter()
        .flat_map(|swing| [1, 3, 7].map(|batch| (swing, batch)))
        .flat_map(|(swing, batch)| orders.map(|order| (swing, batch, order)));
    for (swing, batch, order) in cases {
        let params = PcpParams { batch, scale_max: 3, stream: 24, ..PcpParams::BOOT };
        let counts = (0..params.free_count_cap() + 8).flat_map(|f| (0..100).map(move |c| (c, f)));
        for ((count, free_count), pops) in counts.flat_map(|at| [0, 1, 2].map(|pops| (at, pops))) {
            let prev_free_high_order = true;
            let state =
                PcpState { count, free_count, swing, prev_free_high_order, ..PcpState::default() };
            if count >= pops << order.get() {
                free_in_a_row(&params, state, pops, order);
            }
        }
    }
}

/// Pops, and frees forty blocks of this order as fast operations do, up to the first stream that
/// they ask about.
fn free_in_a_row(params: &PcpParams, mut state: PcpState, pops: u32, order: Order) {
    let (cap, begin) = (params.free_count_cap(), state);
    let mut ask = stream_ask(params.stream, &state, cap);
    for _ in 0..pops {
        on_take(&mut state);
        on_pop(&mut state, order);
    }
    let (lost, pages) = (begin.free_count - state.free_count, order.pages() as u32);
    let (mut late, mut in_vain) = (0, 0);
    for _ in 0..40 {
        let asks = state.free_count >= ask.free_count || state.count + pages >= ask.pages;
        let is_stream = on_push(&mut state, params, order);
        if asks && is_stream {
            break;
        }
        if asks {
            in_vain += 1;
            ask = stream_ask(params.stream, &state, cap);
        } else if is_stream {
            late += pages;
        }
    }
    assert!(late < lost + pages, "{late} pages late: {pops} pops of {order:?} from {begin:?}");
    // Streams are looked for from the size of the largest block before one.
    let most = LARGEST / pages + 1;
    assert!(in_vain <= most, "{in_vain} in vain: {pops} pops of {order:?} from {begin:?}");
}
