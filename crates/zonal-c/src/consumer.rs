//! Caches of the program that give memory back when a pool runs low.
//!
//! Rules for the callbacks, besides C-5: take no lock that the program holds while it allocates, or
//! only try to take it. They may allocate and free pages of the pool; they cannot destroy pools or
//! remove consumers.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

use zonal::reclaim::{By, Registration, ScanRequest, Scanned, Shrinker};

use crate::callbacks::{Called, Data, check_outside};
use crate::error::{Failure, border, zonal_error::ZONAL_E_HANDLE};
use crate::handle::{self, Kind, Resting};
use crate::input::{Sized32, choice, read_struct, string, zero};
use crate::pool::{Held, zonal_pool};

/// A consumer that is registered.
pub struct zonal_consumer {
    _private: (),
}

/// Returned by scan: it can do nothing now, for instance because its lock is taken.
pub const ZONAL_SCAN_STOP: u64 = u64::MAX;

/// Returns how many objects could be freed now. Called often.
pub type zonal_count_fn = Option<unsafe extern "C-unwind" fn(data: *mut c_void, node: i32) -> u64>;
/// Looks at as many objects as it is asked to, and frees what it can. Returns how many it freed, or
/// ZONAL_SCAN_STOP; it may write to scanned how many it looked at, if those are others than it was
/// asked to. by: 0 in the background, 1 a request that found nothing, 2 one that avoids a far node.
pub type zonal_scan_fn = Option<
    unsafe extern "C-unwind" fn(
        data: *mut c_void,
        objects: u64,
        node: i32,
        by: u32,
        scanned: *mut u64,
    ) -> u64,
>;

/// A cache of objects. Begin with zonal_shrinker_init.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct zonal_shrinker {
    /// sizeof(zonal_shrinker).
    pub size: u32,
    /// How costly it is to make an object again: a pass looks at 4 / seeks of what it would of
    /// pages. 0: 2. ZONAL_SEEKS_NONE: nothing, and a pass takes half.
    pub seeks: u32,
    /// Its name in reports; copied.
    pub name: *const c_char,
    /// Counts.
    pub count: zonal_count_fn,
    /// Frees.
    pub scan: zonal_scan_fn,
    /// For both.
    pub data: *mut c_void,
    /// Objects to ask for at a time. 0: 128.
    pub batch: u64,
    /// Bytes of the pool that an object takes. 0: a page.
    pub object_bytes: u64,
    /// 1: count and scan know which node an object is on. 0: they are asked as node 0.
    pub node_aware: u32,
    /// Zero.
    pub reserved: u32,
}

/// Objects that cost nothing to make again.
pub const ZONAL_SEEKS_NONE: u32 = u32::MAX;

// SAFETY: (1) numbers, raw pointers and optional functions.
unsafe impl Sized32 for zonal_shrinker {
    const NAME: &'static str = "zonal_shrinker";
    const FIRST: usize = 64;
}

const _: () = assert!(size_of::<zonal_shrinker>() >= <zonal_shrinker as Sized32>::FIRST);

/// What a handle of a consumer has. Its pool cannot go before it: zonal_pool_destroy refuses.
struct Registered {
    _registration: Registration,
    pool: *const zonal_pool,
}

// SAFETY: (1) the address is only used as a handle of the pool, by any thread (C-1).
unsafe impl Send for Registered {}
// SAFETY: (1) as for `Send`.
unsafe impl Sync for Registered {}

impl Kind for Registered {
    type Opaque = zonal_consumer;
    const LIVE: u32 = 0x636f_6e73;
    const NAME: &'static str = "consumer";
    fn resting() -> &'static Resting<Registered> {
        static RESTING: Resting<Registered> = Resting::new();
        &RESTING
    }
}

/// Registers a cache of objects, to be asked for some when the pool runs low. Null if it cannot be.
///
/// # Safety
/// C-1, C-2, C-4, C-5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_shrinker_register(
    pool: *mut zonal_pool,
    shrinker: *const zonal_shrinker,
) -> *mut zonal_consumer {
    border(|| {
        // SAFETY: (1) C-1.
        let held = unsafe { handle::get::<Held>(pool) }?;
        // SAFETY: (1) C-2.
        let shrinker = unsafe { read_struct(shrinker) }?;
        zero(shrinker.reserved, zonal_shrinker::NAME)?;
        // SAFETY: (1) C-4, C-5.
        let shrinker = unsafe { shrinker_of(&shrinker) }?;
        // Relaxed: who destroys the pool meanwhile breaks C-1.
        held.consumers.fetch_add(1, Ordering::Relaxed);
        let registration = held.pool.register_shrinker(shrinker);
        Ok(handle::create(Registered { _registration: registration, pool }))
    })
}

/// Removes a consumer. Its callbacks are not called any more when this returns: it waits for calls
/// under way, so hold no lock that they take. ZONAL_E_INSIDE from inside a callback.
///
/// # Safety
/// C-1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_consumer_remove(consumer: *mut zonal_consumer) -> i32 {
    border(|| {
        // SAFETY: (1) C-1.
        let pool = unsafe { handle::get::<Registered>(consumer) }?.pool;
        check_outside("zonal_consumer_remove")?;
        // SAFETY: (1) C-1; it was just looked at.
        let registered = unsafe { handle::retire::<Registered>(consumer) };
        let gone = || Failure::new(ZONAL_E_HANDLE, "another thread removed the consumer meanwhile");
        drop(registered.ok_or_else(gone)?);
        // SAFETY: (1) C-1: while a consumer is registered the pool is not destroyed.
        if let Ok(held) = unsafe { handle::get::<Held>(pool) } {
            // Release: pairs with the Acquire of `check_consumers`.
            held.consumers.fetch_sub(1, Ordering::Release);
        }
        Ok(0)
    })
}

/// # Safety
/// 1. C-4, C-5.
unsafe fn shrinker_of(shrinker: &zonal_shrinker) -> Result<Shrinker, Failure> {
    let (Some(count), Some(scan)) = (shrinker.count, shrinker.scan) else {
        return Err(Failure::argument("a shrinker has both functions, count and scan"));
    };
    // SAFETY: (1) C-4.
    let name = unsafe { string(shrinker.name, "name") }?.unwrap_or("shrinker").to_owned();
    let node_aware = choice(shrinker.node_aware, &[false, true], "node_aware")?;
    let object_bytes = match usize::try_from(shrinker.object_bytes) {
        Ok(0) => zonal::PAGE_SIZE,
        Ok(bytes) => bytes,
        Err(_) => return Err(Failure::argument("object_bytes is more than an address space has")),
    };
    let data = Data::new(shrinker.data);
    let counts = move |node: zonal::NodeId| {
        let _called = Called::enter();
        // SAFETY: (1) C-5.
        unsafe { count(data.get(), i32::from(node.0)) }
    };
    let scans = move |ask: &ScanRequest| {
        let by = match ask.by {
            By::Background => 0,
            By::Direct => 1,
            By::NodeReclaim => 2,
        };
        let mut scanned = ask.objects;
        let _called = Called::enter();
        // SAFETY: (1) C-5; (2) the local lives until the call returns.
        match unsafe { scan(data.get(), ask.objects, i32::from(ask.node.0), by, &raw mut scanned) }
        {
            ZONAL_SCAN_STOP => Scanned::Stop,
            freed => Scanned::Some { scanned, freed },
        }
    };
    let made = Shrinker::new(name, counts, scans)
        .batch(shrinker.batch)
        .node_aware(node_aware)
        .object_bytes(object_bytes);
    Ok(match shrinker.seeks {
        0 => made,
        ZONAL_SEEKS_NONE => made.seeks(0),
        seeks => made.seeks(seeks),
    })
}
