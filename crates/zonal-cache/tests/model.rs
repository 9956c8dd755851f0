//! Random programs against a plain vector of bytes.

mod support;

use proptest::prelude::*;
use support::{MemStore, PAGE, end, pattern, pool};
use zonal_cache::Cache;

const FILE_MAX: u64 = 40 * PAGE;

#[derive(Clone, Debug)]
enum Op {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, seed: u64 },
    SetLen(u64),
    Evict(u64),
    Sync,
    Pin(u64),
    PinMut { index: u64, seed: u64 },
    Reopen,
}

fn op() -> BoxedStrategy<Op> {
    let offset = prop_oneof![0..FILE_MAX, (0..40_u64).prop_map(|page| page * PAGE)];
    let len = prop_oneof![1..200_usize, Just(4096), 1..20_000_usize];
    prop_oneof![
        4 => (offset.clone(), len.clone()).prop_map(|(offset, len)| Op::Read { offset, len }),
        4 => (offset.clone(), len, any::<u64>())
            .prop_map(|(offset, len, seed)| Op::Write { offset, len, seed }),
        1 => offset.prop_map(Op::SetLen),
        1 => (0..12_u64).prop_map(Op::Evict),
        1 => Just(Op::Sync),
        1 => (0..40_u64).prop_map(Op::Pin),
        1 => (0..40_u64, any::<u64>()).prop_map(|(index, seed)| Op::PinMut { index, seed }),
        1 => Just(Op::Reopen),
    ]
    .boxed()
}

fn page_of(bytes: &[u8], index: u64) -> Option<std::ops::Range<usize>> {
    let start = (index * PAGE) as usize;
    (start < bytes.len()).then(|| start..bytes.len().min(start + PAGE as usize))
}

fn run(ops: &[Op], max_pages: u64, read_ahead: u32, part: u64) -> Result<(), TestCaseError> {
    let pool = pool();
    let builder = Cache::builder(pool.clone()).max_pages(max_pages).read_ahead(read_ahead);
    let cache = builder.dirty_percent(10, 60).build().unwrap();
    let mut model = pattern(1, 3 * PAGE as usize + 100);
    let store = MemStore::new(model.clone());
    store.0.part.store(part, std::sync::atomic::Ordering::SeqCst);
    let mut file = cache.open_store(store.clone()).unwrap();
    for op in ops {
        match *op {
            Op::Read { offset, len } => {
                let mut buffer = vec![0xee; len];
                let got = file.read_at(&mut buffer, offset).unwrap();
                let from = model.get(offset as usize..).unwrap_or(&[]);
                let expected = &from[..len.min(from.len())];
                prop_assert_eq!(&buffer[..got], expected, "{:?}", op);
            }
            Op::Write { offset, len, seed } => {
                let bytes = pattern(seed, len);
                prop_assert_eq!(file.write_at(&bytes, offset).unwrap(), len);
                let end = offset as usize + len;
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
            }
            Op::SetLen(len) => {
                file.set_len(len).unwrap();
                model.resize(len as usize, 0);
            }
            Op::Evict(pages) => {
                let before = cache.stats().pages;
                prop_assert!(cache.evict(pages) <= before);
            }
            Op::Sync => {
                file.sync().unwrap();
                prop_assert_eq!(cache.stats().dirty, 0);
                prop_assert!(store.bytes() == model, "after a sync the store differs");
            }
            Op::Pin(index) => match (file.pin(index), page_of(&model, index)) {
                (Ok(page), Some(range)) => prop_assert_eq!(&*page, &model[range]),
                (Err(_), None) => {}
                (got, expected) => prop_assert!(false, "{:?}: {:?}, {:?}", op, got, expected),
            },
            Op::PinMut { index, seed } => match (file.pin_mut(index), page_of(&model, index)) {
                (Ok(mut page), Some(range)) => {
                    prop_assert_eq!(&*page, &model[range.clone()]);
                    page.copy_from_slice(&pattern(seed, range.len()));
                    model[range.clone()].copy_from_slice(&pattern(seed, range.len()));
                }
                (Err(_), None) => {}
                (got, expected) => prop_assert!(false, "{:?}: {:?}, {:?}", op, got, expected),
            },
            Op::Reopen => {
                drop(file);
                prop_assert!(store.bytes() == model, "after the last handle the store differs");
                file = cache.open_store(store.clone()).unwrap();
            }
        }
        prop_assert_eq!(file.len(), model.len() as u64);
        prop_assert!(cache.stats().pages <= max_pages);
    }
    drop(file);
    end(cache, &pool);
    prop_assert!(store.bytes() == model, "at the end the store differs");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_cached_file_is_a_vector_of_bytes(
        ops in prop::collection::vec(op(), 1..60),
        max_pages in 4..24_u64,
        read_ahead in prop_oneof![Just(0_u32), 1..16_u32],
        part in prop_oneof![Just(0_u64), 1000..9000_u64],
    ) {
        run(&ops, max_pages, read_ahead, part)?;
    }
}
