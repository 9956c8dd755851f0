//! Blocks in the forms that other crates take. With all features: `cargo test --all-features`.

use std::io::{Read, Seek, Write};

use zonal::adapt::{Full, PageBuf, io_slices, io_slices_mut};
use zonal::{Order, OwnedPages, PAGE_SIZE, Pool};

fn pool() -> Pool {
    Pool::builder().size(32 << 20).build().unwrap()
}

fn is_whole(pool: &Pool) -> bool {
    pool.free_page_count() as usize * PAGE_SIZE == pool.bytes()
}

fn page(pool: &Pool) -> OwnedPages {
    pool.alloc_zeroed(Order::ZERO).unwrap().into_owned()
}

#[test]
fn a_page_buf_grows_to_the_end_of_its_block_and_no_further() {
    let pool = pool();
    let mut buf = PageBuf::new(page(&pool));
    buf.extend_from_slice(b"abc").unwrap();
    assert_eq!(buf.extend_from_slice(&[1; PAGE_SIZE]), Err(Full { wanted: 4096, left: 4093 }));
    assert_eq!(&buf[..], b"abc");
    assert_eq!(buf.write(&[2; PAGE_SIZE]).unwrap(), 4093);
    assert_eq!((buf.write(&[2]).unwrap(), buf.left(), buf.len()), (0, 0, PAGE_SIZE));
    assert!(buf.write_all(&[2]).is_err());
    assert_eq!(buf.advance(1), Err(Full { wanted: 1, left: 0 }));
    buf.truncate(1);
    buf.truncate(100);
    buf.spare_mut()[..2].copy_from_slice(b"xy");
    buf.advance(2).unwrap();
    buf[0] = b'A';
    assert_eq!(&buf[..], b"Axy");
    buf.clear();
    assert_eq!((buf.len(), buf.capacity(), buf.into_pages().len()), (0, PAGE_SIZE, PAGE_SIZE));
    assert!(is_whole(&pool));
}

#[test]
fn many_blocks_go_into_one_vectored_call() {
    let pool = pool();
    let mut pages: Vec<OwnedPages> = (0..5).map(|_| page(&pool)).collect();
    for (number, page) in pages.iter_mut().enumerate() {
        page.fill(number as u8 + 1);
    }
    let mut file = tempfile::tempfile().unwrap();
    let written = file.write_vectored(&io_slices(&pages)).unwrap();
    assert_eq!(written, 5 * PAGE_SIZE);
    file.rewind().unwrap();
    pages.iter_mut().for_each(|page| page.fill(0));
    assert_eq!(file.read_vectored(&mut io_slices_mut(&mut pages)).unwrap(), 5 * PAGE_SIZE);
    for (number, page) in pages.iter().enumerate() {
        assert!(page.iter().all(|byte| *byte == number as u8 + 1));
    }
}

#[cfg(feature = "bytes")]
#[test]
fn bytes_share_a_block_without_a_copy_and_free_it_with_the_last() {
    use bytes::{BufMut, Bytes};
    let pool = pool();
    let mut buf = PageBuf::new(page(&pool));
    let start = buf.as_ptr();
    buf.put_slice(b"hello ");
    buf.put_u32(7);
    assert_eq!(buf.remaining_mut(), PAGE_SIZE - 10);
    let bytes = buf.freeze();
    assert_eq!((bytes.as_ptr(), bytes.len()), (start, 10));
    let part = bytes.slice(..5);
    let base = pool.base();
    drop((bytes, pool));
    let part = std::thread::spawn(move || part).join().unwrap();
    assert_eq!((part.as_ptr(), &part[..]), (start, &b"hello"[..]));
    assert!(!base.is_null());
    let whole: Bytes = page(&self::pool()).into();
    assert_eq!(whole.len(), PAGE_SIZE);
    let too_much = std::panic::catch_unwind(|| {
        let mut buf = PageBuf::new(page(&self::pool()));
        // SAFETY: not kept, which is what is tested: it panics.
        unsafe { buf.advance_mut(PAGE_SIZE + 1) };
    });
    assert!(too_much.is_err());
}

/// Two crates, one behaviour.
macro_rules! sees_a_block_as_values {
    ($feature:literal, $test:ident, $module:ident) => {
        #[cfg(feature = $feature)]
        #[test]
        fn $test() {
            use zonal::adapt::$module::{slice_of, slice_of_mut};
            let pool = pool();
            let mut page = page(&pool);
            assert_eq!(slice_of::<[u8; 12]>(&page).len(), 341);
            assert_eq!(slice_of::<[u64; 0]>(&page).len(), 0);
            slice_of_mut::<u64>(&mut page)[511] = 1 << 63;
            assert_eq!((slice_of::<u64>(&page).len(), page[4095]), (512, 128));
        }
    };
}
sees_a_block_as_values!("bytemuck", bytemuck_sees_a_block_as_values, bytemuck);
sees_a_block_as_values!("zerocopy", zerocopy_sees_a_block_as_values, zerocopy);

#[cfg(feature = "allocator-api2")]
mod allocator {
    use std::alloc::Layout;

    use allocator_api2::alloc::Allocator;
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;
    use zonal::adapt::alloc::BlockAlloc;

    use super::{PAGE_SIZE, is_whole, pool};

    #[test]
    fn a_vec_grows_through_blocks_and_gives_them_all_back() {
        let pool = pool();
        let alloc = BlockAlloc::new(pool.clone()).or_heap();
        let mut numbers: Vec<u64, _> = Vec::new_in(alloc);
        (0..200_000).for_each(|number| numbers.push(number));
        assert!(numbers.iter().copied().eq(0..200_000));
        assert!(!is_whole(&pool));
        numbers.truncate(3);
        numbers.shrink_to_fit();
        assert_eq!((&numbers[..], is_whole(&pool)), (&[0, 1, 2][..], true));
        numbers.reserve_exact(1000);
        assert_eq!(numbers[2], 2);
        drop(numbers);
        assert!(is_whole(&pool));
    }

    #[test]
    fn without_the_heap_small_layouts_are_refused_and_shrinking_keeps_a_block() {
        let pool = pool();
        let alloc = BlockAlloc::new(pool.clone());
        assert!(Box::try_new_in([0u8; 100], alloc.clone()).is_err());
        assert!(alloc.allocate(Layout::new::<[u8; 2048]>()).is_err());
        assert!(alloc.allocate_zeroed(Layout::new::<[u8; 2048]>()).is_err());
        assert!(alloc.allocate(Layout::from_size_align((4 << 20) + 1, 8).unwrap()).is_err());
        assert!(alloc.allocate(Layout::from_size_align(8, 8 << 20).unwrap()).is_err());
        assert!(Box::try_new_in((), alloc.clone()).is_ok());
        let mut bytes: Vec<u8, _> = Vec::with_capacity_in(9000, alloc.clone());
        let start = bytes.as_ptr();
        bytes.extend(1..=100);
        bytes.reserve_exact(16384 - 100);
        assert_eq!((bytes.as_ptr(), bytes.capacity()), (start, 16384), "grows within the block");
        bytes.shrink_to_fit();
        assert!(bytes.iter().copied().eq(1..=100));
        assert!(!is_whole(&pool));
        drop(bytes);
        assert!(is_whole(&pool));
        let aligned = Layout::from_size_align(1, 64 << 10).unwrap();
        let block = alloc.allocate(aligned).unwrap();
        assert!(block.cast::<u8>().addr().get().is_multiple_of(64 << 10));
        // SAFETY: (1) from `allocate`, with this layout.
        unsafe { alloc.deallocate(block.cast(), aligned) };
        assert!(is_whole(&pool));
    }

    /// Against the heap: random layouts that grow, shrink and go.
    #[test]
    fn contents_survive_every_change_of_layout() {
        let pool = pool();
        let mut state = 7u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for heap in [false, true] {
            let alloc = BlockAlloc::new(pool.clone());
            let alloc = if heap { alloc.or_heap() } else { alloc };
            for _ in 0..200 {
                let mut layout = Layout::from_size_align(2049 + below(20_000), 1 << below(14));
                let mut start = alloc.allocate_zeroed(layout.clone().unwrap()).unwrap();
                let mut model = vec![0u8; layout.clone().unwrap().size()];
                for _ in 0..10 {
                    let old = layout.clone().unwrap();
                    let size = 1 + below(40_000);
                    let new = Layout::from_size_align(size, old.align()).unwrap();
                    let moved = if size > old.size() {
                        // SAFETY: (1) from this allocator, with the old layout; (2) the new one is
                        // larger.
                        unsafe { alloc.grow_zeroed(start.cast(), old, new) }
                    } else {
                        // SAFETY: (1) as above; (2) the new one is not larger.
                        unsafe { alloc.shrink(start.cast(), old, new) }
                    };
                    start = moved.unwrap();
                    assert!(start.len() >= size);
                    assert!(start.cast::<u8>().addr().get().is_multiple_of(new.align()));
                    model.resize(size, 0);
                    // SAFETY: (1) the memory is ours, of at least as many bytes.
                    let bytes = unsafe { &mut start.as_mut()[..size] };
                    assert!(bytes == model.as_slice());
                    let at = below(size);
                    (bytes[at], model[at]) = (at as u8, at as u8);
                    layout = Ok(new);
                }
                // SAFETY: (1) from this allocator, with this layout.
                unsafe { alloc.deallocate(start.cast(), layout.unwrap()) };
            }
        }
        assert!(is_whole(&pool));
        assert_eq!(pool.misuses(), 0);
    }

    #[test]
    fn a_leaked_box_keeps_its_pool() {
        let pool = pool();
        let leaked: &'static mut [u8; PAGE_SIZE] =
            Box::leak(Box::new_in([5; PAGE_SIZE], BlockAlloc::new(pool)));
        leaked[0] = 6;
        assert_eq!((leaked[0], leaked[1]), (6, 5));
    }
}
