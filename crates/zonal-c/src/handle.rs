//! Addresses that C holds, checked before they are used: null, destroyed, of another kind.
//!
//! ```text
//!   new ──► magic LIVE, value ──► retire: magic DEAD, value taken ──► rests, at least REST others
//!            ▲                                                         long │
//!            └──────────────────────────── used again ◄────────────────────┘
//! ```
//! A handle that rests is recognised as destroyed. After [`REST`] other handles were destroyed it
//! may be used again, so that a program that makes pools for ever does not grow.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::error::{Failure, zonal_error};

/// Destroyed handles that rest before the oldest is used again.
const REST: usize = 1024;
/// Magic of a handle without a value.
const DEAD: u32 = 0x6465_6164;

/// A value behind a handle.
pub(crate) trait Kind: Sized + 'static {
    /// What C sees.
    type Opaque;
    /// Magic of a live handle, another for each kind.
    const LIVE: u32;
    /// What it is called in a message.
    const NAME: &'static str;
    /// Handles that rest.
    fn resting() -> &'static Resting<Self>;
}

/// The magic comes first.
#[repr(C)]
pub(crate) struct Handle<T> {
    /// [`DEAD`], or that of the kind.
    magic: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// Handles that rest.
pub(crate) struct Resting<T>(Mutex<VecDeque<Address<T>>>);

struct Address<T>(*mut Handle<T>);

// SAFETY: (1) a handle without a value belongs to the list that it is in (CAPI-1).
unsafe impl<T> Send for Address<T> {}

impl<T> Resting<T> {
    pub(crate) const fn new() -> Resting<T> {
        Resting(Mutex::new(VecDeque::new()))
    }

    /// The list, unless another thread has it at this moment. Nobody waits: in a forked child the
    /// thread that had it may not be there. A new handle then does without a rested one, and a
    /// destroyed one is never used again.
    fn list(&self) -> Option<MutexGuard<'_, VecDeque<Address<T>>>> {
        match self.0.try_lock() {
            Ok(list) => Some(list),
            Err(TryLockError::Poisoned(list)) => Some(list.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A handle of a value.
pub(crate) fn create<T: Kind>(value: T) -> *mut T::Opaque {
    let rested = T::resting()
        .list()
        .and_then(|mut resting| if resting.len() > REST { resting.pop_front() } else { None });
    let handle = rested.map_or_else(
        || {
            let magic = AtomicU32::new(DEAD);
            let value = UnsafeCell::new(MaybeUninit::uninit());
            Box::into_raw(Box::new(Handle { magic, value }))
        },
        |address| address.0,
    );
    // SAFETY: (1) CAPI-1: never given back to the heap.
    let this: &Handle<T> = unsafe { &*handle };
    // SAFETY: (1) nobody else has it: it is new, or has rested and left the list.
    unsafe { (*this.value.get()).write(value) };
    // Release: pairs with the Acquire of `retire`; other readers got the handle from this thread.
    this.magic.store(T::LIVE, Ordering::Release);
    handle.cast()
}

/// The value of a live handle. A read of the address and a compare.
///
/// # Safety
/// 1. C-1: `at` is null or a handle of some kind, and is not destroyed while `'a` lasts.
#[inline(always)]
pub(crate) unsafe fn peek<'a, T: Kind>(at: *const T::Opaque) -> Option<&'a T> {
    let handle = at.cast::<Handle<T>>();
    if handle.is_null() {
        return None;
    }
    // SAFETY: (1) readable: all handles begin with a magic (CAPI-1). Unaligned, for an address that
    // is none.
    let magic = unsafe { handle.cast::<u32>().read_unaligned() };
    if magic != T::LIVE {
        return None;
    }
    // SAFETY: (1) CAPI-1: live, so it is a handle of this kind.
    let this = unsafe { &*handle };
    // SAFETY: (1) CAPI-1: live, so the value is there. It is only borrowed by others, too.
    Some(unsafe { &*this.value.get().cast::<T>() })
}

/// As [`peek`], with the reason if there is no value.
///
/// # Safety
/// 1. As for [`peek`].
pub(crate) unsafe fn get<'a, T: Kind>(at: *const T::Opaque) -> Result<&'a T, Failure> {
    if !at.cast::<Handle<T>>().is_aligned() {
        return Err(no_handle::<T>(at));
    }
    // SAFETY: (1) as for this call.
    unsafe { peek(at) }.ok_or_else(|| no_handle::<T>(at))
}

/// Why an address is no live handle.
#[cold]
pub(crate) fn no_handle<T: Kind>(at: *const T::Opaque) -> Failure {
    let name = T::NAME;
    let text = match at.is_null() {
        true => format!("the {name} is null: was its creation refused?"),
        false => format!("no live {name} is at {at:p}: it was destroyed, or never was one"),
    };
    Failure::new(zonal_error::ZONAL_E_HANDLE, text)
}

/// Takes the value out of a handle; `None` if another call did.
///
/// # Safety
/// 1. As for [`peek`], and no other call uses the value.
pub(crate) unsafe fn retire<T: Kind>(at: *mut T::Opaque) -> Option<T> {
    let handle = at.cast::<Handle<T>>();
    // SAFETY: (1) the caller has looked at it with `get`, so it is a handle.
    let this = unsafe { &*handle };
    // AcqRel: pairs with the Release of `create`, and with itself: one call gets the value.
    let was = this.magic.compare_exchange(T::LIVE, DEAD, Ordering::AcqRel, Ordering::Relaxed);
    was.ok()?;
    // SAFETY: (1) CAPI-1: it was live, and this call alone made it dead.
    let value = unsafe { this.value.get().cast::<T>().read() };
    if let Some(mut resting) = T::resting().list() {
        resting.push_back(Address(handle));
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Number(u32);
    impl Kind for Number {
        type Opaque = u8;
        const LIVE: u32 = 0x6e75_6d62;
        const NAME: &'static str = "number";
        fn resting() -> &'static Resting<Number> {
            static RESTING: Resting<Number> = Resting::new();
            &RESTING
        }
    }

    /// As in a child, where the thread that had the list when the process forked is not.
    #[test]
    fn handles_come_and_go_while_the_list_of_those_that_rest_is_taken_for_ever() {
        let taken = Number::resting().0.lock().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for number in 0..3 {
                let handle = create(Number(number));
                // SAFETY: (1) just made.
                let read = unsafe { get::<Number>(handle) }.ok().map(|value| value.0);
                // SAFETY: (1) live, and only this thread has it.
                let value = unsafe { retire::<Number>(handle) }.map(|value| value.0);
                // SAFETY: (1) handles stay readable (CAPI-1).
                let after = unsafe { peek::<Number>(handle) }.is_none();
                let _ = tell.send((read, value, after));
            }
        });
        for number in 0..3 {
            let seen = told.recv_timeout(Duration::from_secs(20));
            assert_eq!(seen, Ok((Some(number), Some(number), true)), "waits for the list");
        }
        assert!(taken.is_empty());
    }
}
