//! Programs without `unsafe` that would corrupt memory, read freed memory or make two owners of a
//! page: none of them compiles. Each is a former hole, or one that a change could open; the list of
//! all public items (`api/`) shows the whole surface.
//!
//! Figures of zones do not outlive their pool:
//!
//! ```compile_fail,E0597
//! let zones: Vec<_> = {
//!     let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//!     pool.view().zones().collect()
//! };
//! zones[0].free_counter();
//! ```
//!
//! Nor do pages, or the list of zones that a node's requests try:
//!
//! ```compile_fail,E0505
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let mut page = pool.alloc(zonal::Order::ZERO).unwrap();
//! drop(pool);
//! page[0] = 1;
//! ```
//! ```compile_fail,E0505
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let zones: &[zonal::ZoneId] = pool.view().nodes().next().unwrap().zonelist(false);
//! drop(pool);
//! println!("{zones:?}");
//! ```
//!
//! The bytes of a page do not outlive it:
//!
//! ```compile_fail,E0505
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap();
//! let bytes: &[u8] = &page;
//! drop(page);
//! assert_eq!(bytes[0], 0);
//! ```
//!
//! A borrowed page does not go where nothing may be borrowed; an owned one does. It has one owner,
//! and its bytes do not outlive it either:
//!
//! ```compile_fail,E0597
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap();
//! std::thread::spawn(move || println!("{}", page[0])).join().unwrap();
//! ```
//! ```compile_fail,E0599
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap().into_owned();
//! let (one, two) = (page.clone(), page);
//! ```
//! ```compile_fail,E0382
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let borrowed = pool.alloc(zonal::Order::ZERO).unwrap();
//! let owned = borrowed.into_owned();
//! println!("{} {}", owned[0], borrowed[0]);
//! ```
//! ```compile_fail,E0505
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap().into_owned();
//! let bytes: &[u8] = &page;
//! drop(page);
//! assert_eq!(bytes[0], 0);
//! ```
//! ```compile_fail,E0505
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap().into_owned();
//! let page = page.into_pages(&pool).unwrap();
//! drop(pool);
//! assert_eq!(page[0], 0);
//! ```
//! ```compile_fail,E0133
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let (page, order) = pool.alloc(zonal::Order::ZERO).unwrap().into_owned().into_raw();
//! let one = zonal::OwnedPages::from_raw(&pool, page, order);
//! let two = zonal::OwnedPages::from_raw(&pool, page, order);
//! ```
//!
//! The allocator behind a pool, which frees pages by number and takes memory in use online, is not
//! accessible:
//!
//! ```compile_fail,E0599
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! pool.core().free(zonal_core::types::Pfn(0), zonal::Order::ZERO);
//! ```
//! ```compile_fail,E0624
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! pool.allocator().free(zonal_core::types::Pfn(0), zonal::Order::ZERO);
//! ```
//! ```compile_fail,E0432
//! use zonal::Home;
//! ```
//!
//! Raw blocks are freed, and owned again, by `unsafe` code alone:
//!
//! ```compile_fail,E0133
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc_pages(zonal::Order::ZERO, zonal::Gfp::KERNEL).unwrap();
//! pool.free_pages(page, zonal::Order::ZERO).unwrap();
//! ```
//! ```compile_fail,E0133
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc_pages(zonal::Order::ZERO, zonal::Gfp::KERNEL).unwrap();
//! pool.try_free_cached(page, zonal::Order::ZERO);
//! ```
//! ```compile_fail,E0133
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc_raw(zonal::Order::ZERO, zonal::Gfp::KERNEL);
//! pool.free_bulk(&[page], zonal::Order::ZERO).unwrap();
//! ```
//! ```compile_fail,E0133
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc_pages(zonal::Order::ZERO, zonal::Gfp::KERNEL).unwrap();
//! let one = zonal::Pages::from_raw(&pool, page, zonal::Order::ZERO);
//! let two = zonal::Pages::from_raw(&pool, page, zonal::Order::ZERO);
//! ```
//!
//! A page has one owner:
//!
//! ```compile_fail,E0599
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let page = pool.alloc(zonal::Order::ZERO).unwrap();
//! let (one, two) = (page.clone(), page);
//! ```
//!
//! Metadata has no public address, and no public atomic:
//!
//! ```compile_fail,E0616
//! use std::sync::atomic::Ordering::Relaxed;
//! zonal_core::pcp::state::Pcp::default().word.store(0, Relaxed);
//! ```
//! ```compile_fail,E0616
//! use std::sync::atomic::Ordering::Relaxed;
//! let store = zonal_core::pcp::state::Pcp::default();
//! store.list(0).unwrap().slots_lo.store(0x1000, Relaxed);
//! ```
//! ```compile_fail,E0616
//! use std::sync::atomic::Ordering::Relaxed;
//! zonal_core::zone::state::Zone::default().fast.store(u32::MAX, Relaxed);
//! ```
//!
//! Nor do the mappings that pages lie in, or what stops the sequences of other CPUs:
//!
//! ```compile_fail,E0603
//! use zonal::sys::map::Mapping;
//! ```
//! ```compile_fail,E0603
//! use zonal::sys::membarrier::RseqFence;
//! ```
//!
//! All of it compiles and runs while the pool lives and the block's owner uses it:
//!
//! ```
//! let pool = zonal::Pool::builder().size(64 << 20).build().unwrap();
//! let zones: Vec<_> = pool.view().zones().collect();
//! assert!(zones[0].free_counter() > 0);
//! let zones: &[zonal::ZoneId] = pool.view().nodes().next().unwrap().zonelist(false);
//! assert_eq!(zones.len(), pool.view().zones().len());
//! let page = pool.alloc_pages(zonal::Order::ZERO, zonal::Gfp::KERNEL).unwrap();
//! // SAFETY: (1) the page was handed out here, and is not in use.
//! let mut page = unsafe { zonal::Pages::from_raw(&pool, page, zonal::Order::ZERO) };
//! page[0] = 1;
//! let bytes: &[u8] = &page;
//! assert_eq!(bytes[0], 1);
//! let page = page.into_owned();
//! let page = std::thread::spawn(move || page).join().unwrap();
//! let page = page.into_pages(&pool).unwrap();
//! let (page, order) = page.into_raw();
//! // SAFETY: (1) as above.
//! unsafe { pool.free_pages(page, order) }.unwrap();
//! assert_eq!(zonal_core::pcp::state::Pcp::default().list(0).unwrap().order().get(), 0);
//! ```
