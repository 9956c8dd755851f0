use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const NODE: NodeId = NodeId(0);

/// The same, a byte at a time.
#[derive(Clone, Debug)]
struct Model {
    node: [Option<NodeId>; 64],
    reserved: [bool; 64],
}

impl Model {
    fn new() -> Model {
        Model { node: [None; 64], reserved: [false; 64] }
    }
    fn free(&self) -> Vec<(u64, NodeId)> {
        let free = |at: &usize| !self.reserved[*at];
        let all = (0..64).filter(free);
        all.filter_map(|at| Some((at as u64, self.node[at]?))).collect()
    }
}

fn bytes<const N: usize>(early: &Early<N>) -> Vec<(u64, NodeId)> {
    early.free().flat_map(|(range, node)| range.map(move |at| (at, node))).collect()
}

/// EARLY-1.
fn check<const N: usize>(early: &Early<N>) {
    for list in [&early.memory, &early.reserved] {
        let all: Vec<Region> = list.iter().copied().collect();
        assert!(all.iter().all(|region| region.start < region.end), "{all:?}");
        for two in all.windows(2) {
            assert!(two[0].end <= two[1].start, "{all:?}");
            assert!(two[0].end < two[1].start || two[0].node != two[1].node, "{all:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(Range<u64>, NodeId),
    Remove(Range<u64>),
    SetNode(Range<u64>, NodeId),
    Reserve(Range<u64>),
    Release(Range<u64>),
    Take(u64, u32, Option<NodeId>, Range<u64>),
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0u64..=64, 0u64..=64).prop_map(|(a, b)| a.min(b)..a.max(b))
}

fn step() -> impl Strategy<Value = Step> {
    let node = || (0u16..3).prop_map(NodeId);
    prop_oneof![
        (range(), node()).prop_map(|(range, node)| Step::Add(range, node)),
        range().prop_map(Step::Remove),
        (range(), node()).prop_map(|(range, node)| Step::SetNode(range, node)),
        range().prop_map(Step::Reserve),
        range().prop_map(Step::Release),
        (1u64..20, 0u32..4, proptest::option::of(node()), range())
            .prop_map(|(bytes, shift, node, within)| Step::Take(bytes, shift, node, within)),
    ]
}

/// Plays a step on both. Returns whether it was done; only a full list may refuse what the model
/// does.
fn play<const N: usize>(early: &mut Early<N>, model: &mut Model, step: &Step) -> bool {
    let mut after = model.clone();
    let span = |range: &Range<u64>| range.start as usize..range.end as usize;
    let result = match step {
        Step::Add(range, node) => {
            after.node[span(range)].iter_mut().for_each(|at| *at = at.or(Some(*node)));
            early.add(range.clone(), *node)
        }
        Step::Remove(range) => {
            after.node[span(range)].fill(None);
            early.remove(range.clone())
        }
        Step::SetNode(range, node) => {
            after.node[span(range)].iter_mut().for_each(|at| *at = at.and(Some(*node)));
            early.set_node(range.clone(), *node)
        }
        Step::Reserve(range) => {
            after.reserved[span(range)].fill(true);
            early.reserve(range.clone())
        }
        Step::Release(range) => {
            let held = after.reserved[span(range)].iter().all(|held| *held);
            let result = early.release(range.clone());
            if !held {
                assert_eq!(result, Err(EarlyError::NotReserved(range.start, range.end)));
                return true;
            }
            after.reserved[span(range)].fill(false);
            result
        }
        Step::Take(bytes, shift, node, within) => {
            let align = 1 << shift;
            let want = Want { bytes: *bytes, align, node: *node, within: within.clone() };
            // Free bytes of one node, side by side.
            let fits = |at: &u64| {
                let range = *at as usize..(*at + bytes) as usize;
                let first = model.node[range.start];
                let wanted = first.is_some() && (node.is_none() || first == *node);
                let same = model.node[range.clone()].iter().all(|node| *node == first);
                wanted && same && model.reserved[range].iter().all(|held| !held)
            };
            let end = within.end.checked_sub(*bytes).map_or(0, |end| end + 1);
            let best = (within.start..end).rev().filter(|at| at % align == 0).find(fits);
            let result = early.take(&want);
            let Some(best) = best else {
                assert_eq!(result, Err(EarlyError::NoMemory(*bytes, align)));
                return true;
            };
            after.reserved[best as usize..(best + bytes) as usize].fill(true);
            result.map(|at| assert_eq!(at, best))
        }
    };
    match result {
        Ok(()) => *model = after,
        Err(EarlyError::Full(_, most)) => assert_eq!(most, N),
        Err(other) => panic!("{step:?}: {other}"),
    }
    result.is_ok()
}

proptest! {
    #[test]
    fn any_program_leaves_what_a_map_of_bytes_says(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let (mut early, mut model) = (Early::<64>::new(), Model::new());
        for step in &steps {
            prop_assert!(play(&mut early, &mut model, step), "64 regions are always enough");
            check(&early);
            prop_assert_eq!(bytes(&early), model.free());
        }
    }

    #[test]
    fn a_full_list_refuses_and_loses_nothing(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let (mut early, mut model) = (Early::<4>::new(), Model::new());
        for step in &steps {
            let before = early.clone();
            if !play(&mut early, &mut model, step) {
                let same = |a: &Regions<4>, b: &Regions<4>| a.iter().eq(b.iter());
                prop_assert!(same(&before.memory, &early.memory));
                prop_assert!(same(&before.reserved, &early.reserved));
            }
            check(&early);
            prop_assert_eq!(bytes(&early), model.free());
        }
    }
}

#[test]
fn only_whole_free_pages_are_handed_over() {
    let mut early = Early::<8>::new();
    early.reserve(0x3800..0x4001).unwrap();
    early.add(0x1001..0x8000, NODE).unwrap();
    early.add(0x9000..0x9fff, NODE).unwrap();
    let pages: Vec<_> = early.pages().collect();
    assert_eq!(pages, [(Pfn(2)..Pfn(3), NODE), (Pfn(5)..Pfn(8), NODE)]);
}

#[test]
fn addresses_up_to_the_end_are_memory_as_others() {
    let mut early = Early::<2>::new();
    early.add(u64::MAX - 0x5000..u64::MAX, NODE).unwrap();
    let at = early.take(&Want::bytes(0x1000)).unwrap();
    assert_eq!((at % 0x1000, early.pages().count()), (0, 1));
    let all = Want { bytes: u64::MAX, ..Want::bytes(0) };
    assert_eq!(early.take(&all), Err(EarlyError::NoMemory(u64::MAX, 4096)));
}

#[test]
fn wrong_calls_are_refused_in_words() {
    let mut early = Early::<2>::new();
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let backwards = early.add(9..3, NODE).unwrap_err();
    assert_eq!(std::format!("{backwards}"), "the range 0x9 to 0x3 ends before it starts");
    let odd = Want { align: 3, ..Want::bytes(1) };
    assert_eq!(early.take(&odd), Err(EarlyError::Alignment(3)));
    early.add(0..1, NODE).unwrap();
    early.add(2..3, NODE).unwrap();
    assert_eq!(early.add(4..5, NODE), Err(EarlyError::Full("memory", 2)));
    early.add(0..5, NODE).unwrap();
    assert_eq!(early.memory().collect::<Vec<_>>(), [(0..5, NODE)]);
}
