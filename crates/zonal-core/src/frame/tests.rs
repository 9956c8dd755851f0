//! Words of every state, damaged words, and pageblocks of frames.

use super::*;
use crate::pcp::depot::DEPOT;
use std::vec::Vec;

#[test]
fn every_state_decodes_to_what_was_encoded() {
    for order in Order::all() {
        for (prev, next) in [(0, NO_FRAME), (NO_FRAME, 0), (5, 7), (NO_FRAME - 1, 1)] {
            let word = PageWord::free(order, prev, next);
            assert_eq!(word.state(), PageState::Free { order, prev, next });
            assert!(word.is_free());
            assert!(word.is_free_of(order.get()));
            assert!(!word.is_free_of(order.get() + 1));
            assert!(!word.is_held());
            assert_eq!(word.with_prev(9).with_next(8), PageWord::free(order, 9, 8));
        }
        for mt in Migratetype::ALL {
            let pcp = PcpId { cpu: CpuId(65535), rank: 4095 };
            let word = PageWord::cached(order, mt, pcp);
            assert_eq!(word.state(), PageState::Cached { order, mt, pcp });
            assert_eq!(word.taken(), PageWord::allocated(order, mt, pcp));
            assert!(word.same_but_pcp(PageWord::cached(order, mt, PcpId::default())));
            assert!(!word.same_but_pcp(word.taken()));
            assert_eq!(word.is_held_movable(), mt == Migratetype::Movable);
            let word = PageWord::allocated(order, mt, pcp);
            assert_eq!(word.state(), PageState::Allocated { order, mt, pcp });
            assert!(word.is_held());
            assert!(!word.is_free());
            assert_eq!(word.allocated_as(order), Some(mt));
            let others = Order::all().filter(|other| *other != order);
            assert!(others.into_iter().all(|other| word.allocated_as(other).is_none()));
            assert_eq!(PageWord::cached(order, mt, pcp).allocated_as(order), None);
            assert_eq!(PageWord::range(order, mt, pcp, true).allocated_as(order), None);
            for first in [false, true] {
                let word = PageWord::range(order, mt, pcp, first);
                assert_eq!(word.state(), PageState::Range { order, mt, pcp, first });
                assert!(word.is_held());
                assert!(!word.same_but_pcp(PageWord::allocated(order, mt, pcp)));
                assert_eq!(word.is_held_movable(), mt == Migratetype::Movable);
                assert_eq!(word.continues_range(), !first);
                let moving = PageWord::moving(order, mt, Some(first));
                assert!(matches!(moving.state(), PageState::Cached { .. }), "nobody's to claim");
                assert_eq!(moving.continues_range(), !first);
            }
            for other in [PcpId::MOVING, PcpId::ISOLATED, PcpId::PARKED, DEPOT, pcp] {
                assert!(!PageWord::cached(order, mt, other).continues_range());
                assert!(!PageWord::allocated(order, mt, other).continues_range());
            }
        }
    }
    assert_eq!(PageWord::NONE.state(), PageState::None);
}

#[test]
fn words_that_no_constructor_makes_decode_as_corrupt() {
    let pcp = PcpId { cpu: CpuId(1), rank: 1 };
    let good = PageWord::allocated(Order::ZERO, Migratetype::Movable, pcp).0;
    let order_11 = good | 11 << ORDER_SHIFT;
    let type_7 = good | 7 << MT_SHIFT;
    let not_first_of_any = good | RANGE_FIRST;
    let cached_range = good & !1 | RANGE;
    let later = good | RANGE | 3 << TOLD_SHIFT;
    let bad = [4, 1 << 63, not_first_of_any, cached_range, good | 1 << 40, order_11, type_7];
    for bad in bad.into_iter().chain([later, good | WHOLE_RANGE | 1 << 48]) {
        assert_eq!(PageWord(bad).state(), PageState::Corrupt(bad));
    }
}

#[test]
fn pageblocks_follow_the_pfn_and_not_the_index() {
    let words: Vec<AtomicU64> = (0..1500).map(|_| AtomicU64::new(0)).collect();
    let blocks: Vec<AtomicU8> = (0..4).map(|_| AtomicU8::new(0)).collect();
    let frames = Frames::new(&words, &blocks, 511).unwrap();
    assert_eq!(Frames::pageblocks_for(511, 1500), 4);
    assert!(Frames::new(&words, &blocks[..3], 511).is_none());
    assert_eq!(frames.pageblock_index(0), 0);
    assert_eq!(frames.pageblock_index(1), 1);
    assert_eq!(frames.pageblock_range(0), None);
    assert_eq!(frames.pageblock_range(1), Some(1..513));
    assert_eq!(frames.pageblock_range(1024), Some(513..1025));
    assert_eq!(frames.pageblock_range(1025), None);
    assert_eq!(frames.index(Pfn(510)), None);
    assert_eq!(frames.index(Pfn(2010)), Some(1499));
    assert_eq!(frames.index(Pfn(2011)), None);
    frames.set_pageblock_type(600, Migratetype::HighAtomic);
    assert_eq!(frames.pageblock_type(513), Migratetype::HighAtomic);
    assert_eq!(frames.pageblock_type(512), Migratetype::Unmovable);
    assert_eq!(frames.load(1500), PageWord::NONE);
    frames.fill_pageblock_types(Migratetype::Movable);
    assert!((0..1500).all(|idx| frames.pageblock_type(idx) == Migratetype::Movable));
}
