//! A little more time for a thread that would lose its CPU while it has a pcp closed or a zone
//! locked: Linux' time slice extension, which the rseq area has from 7.0 on.
//!
//! Who finds a pcp closed goes past its lists, until the thread that closed it has run again. So a
//! thread asks for more time before it closes one:
//! ```text
//!   request = 1    a few hundred instructions    request = 0    granted? rseq_slice_yield
//!                     ^ the kernel wants the CPU: request = 0, granted = 1, and we go on
//! ```
//! The kernel gives some microseconds, once, and takes the CPU when they are over. Any call of the
//! kernel ends them too. Each thread must have switched it on, which it does when it first asks.
//! Where kernel or libc have no such fields, or the kernel refuses, nothing is asked for.
//!
//! # Invariants
//! - **SLICE-1** the two bytes are written only in an area whose registered and whose filled size
//!   both reach beyond them, by the thread that the area is of.
//! - **SLICE-2** a thread that asked gives the time back before it leaves the library: the
//!   platform asks in `mask`, and gives back in `unmask`.

use std::cell::Cell;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use super::os;
use super::rseq_abi::RseqArea;

/// Offset of `slice_ctrl.request`, a byte, within the area; `granted` is the next one.
const FIELD_REQUEST: isize = 28;

/// What a thread knows about its own extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has not asked the kernel yet.
    Unknown,
    /// The kernel refused.
    Refused,
    /// It needs no time.
    Outside,
    /// It has asked for time.
    Inside,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
}

/// The two bytes of a thread, and the kernel's calls.
trait Control {
    /// Switches the extension on for this thread.
    fn enable(&self) -> bool;
    /// Asks for time, or takes that back.
    fn request(&self, on: bool);
    /// Whether the kernel gave time that is not over.
    fn is_granted(&self) -> bool;
    /// Gives the rest back.
    fn give_up(&self);
}

/// Asks for time. Returns whether there is nothing to give back: an outer caller does, or nothing
/// was asked for.
#[inline]
fn begin(state: &Cell<State>, control: &impl Control) -> bool {
    if state.get() == State::Unknown {
        state.set(if control.enable() { State::Outside } else { State::Refused });
    }
    if state.get() != State::Outside {
        return true;
    }
    state.set(State::Inside);
    control.request(true);
    false
}

/// Ends what [`begin`] began, which returned `was`.
#[inline]
fn end(state: &Cell<State>, control: &impl Control, was: bool) {
    if was {
        return;
    }
    state.set(State::Outside);
    // In this order: the kernel grants nothing behind the first step, so none is overlooked.
    control.request(false);
    if control.is_granted() {
        control.give_up();
    }
}

/// Leave to ask for more time, where the kernel offers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
    area: RseqArea,
}

impl Slices {
    /// `None` where there are no such fields, or the kernel refuses them to this thread.
    pub(crate) fn offered(area: RseqArea) -> Option<Slices> {
        let slices = Slices { area };
        (area.has_slices() && slices.enable()).then_some(slices)
    }

    /// The thread is about to close a pcp or to take a lock. Returns what [`end`](Self::end) is to
    /// be told; the calls nest.
    #[inline]
    pub(crate) fn begin(self) -> bool {
        STATE.with(|state| begin(state, &self))
    }

    /// It has opened what it closed.
    #[inline]
    pub(crate) fn end(self, was: bool) {
        STATE.with(|state| end(state, &self, was));
    }

    fn byte(self, field: isize) -> *mut u8 {
        let address = self.area.address().wrapping_add_signed(field);
        std::ptr::with_exposed_provenance_mut(address)
    }
}

impl Control for Slices {
    #[cold]
    fn enable(&self) -> bool {
        os::enable_slices()
    }

    #[inline]
    fn request(&self, on: bool) {
        // What is done meanwhile stays between the two requests. SeqCst: for the compiler; pairs
        // with the kernel's look at the byte, in this thread.
        compiler_fence(SeqCst);
        // SAFETY: (1) a byte of this thread's area that programs are there to write: `offered` saw
        // that the area has it (SLICE-1, RSEQ-2).
        unsafe { self.byte(FIELD_REQUEST).write_volatile(on.into()) };
        // SeqCst: pairs with the kernel's look, as above.
        compiler_fence(SeqCst);
    }

    #[inline]
    fn is_granted(&self) -> bool {
        // SAFETY: (1) a byte of this thread's area, as above.
        unsafe { self.byte(FIELD_REQUEST + 1).read_volatile() != 0 }
    }

    #[cold]
    fn give_up(&self) {
        os::yield_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that grants when it is asked and `wants` the CPU.
    #[derive(Default)]
    struct Kernel {
        refuses: bool,
        wants: Cell<bool>,
        request: Cell<bool>,
        granted: Cell<bool>,
        enabled: Cell<u32>,
        given_up: Cell<u32>,
    }

    impl Kernel {
        /// An interrupt that would take the CPU away. Whether it did.
        fn interrupt(&self) -> bool {
            if !self.wants.get() {
                return false;
            }
            // A second one ends what was granted.
            let grants = self.request.replace(false) && !self.granted.get();
            self.granted.set(grants);
            !grants
        }
    }

    impl Control for Kernel {
        fn enable(&self) -> bool {
            self.enabled.set(self.enabled.get() + 1);
            !self.refuses
        }
        fn request(&self, on: bool) {
            self.request.set(on);
        }
        fn is_granted(&self) -> bool {
            self.granted.get()
        }
        fn give_up(&self) {
            assert!(self.granted.replace(false));
            self.given_up.set(self.given_up.get() + 1);
        }
    }

    fn unknown() -> Cell<State> {
        Cell::new(State::Unknown)
    }

    #[test]
    fn a_thread_that_is_not_interrupted_calls_the_kernel_once_in_its_life() {
        let (state, kernel) = (unknown(), Kernel::default());
        for _ in 0..3 {
            let was = begin(&state, &kernel);
            assert!(!was && kernel.request.get());
            end(&state, &kernel, was);
            assert!(!kernel.request.get());
        }
        assert_eq!((kernel.enabled.get(), kernel.given_up.get()), (1, 0));
    }

    #[test]
    fn time_that_was_granted_is_given_back_once_by_the_outermost() {
        let (state, kernel) = (unknown(), Kernel::default());
        kernel.wants.set(true);
        for round in 1..=3 {
            let outer = begin(&state, &kernel);
            let inner = begin(&state, &kernel);
            assert!(!outer && inner);
            assert!(!kernel.interrupt(), "more time was asked for");
            let later = begin(&state, &kernel);
            assert!(later && !kernel.request.get(), "and is not asked for twice");
            end(&state, &kernel, later);
            end(&state, &kernel, inner);
            assert_eq!(kernel.given_up.get(), round - 1, "the outer caller is not done");
            end(&state, &kernel, outer);
            assert_eq!(kernel.given_up.get(), round);
            assert!(kernel.interrupt(), "nothing is asked for outside");
        }
    }

    #[test]
    fn time_that_is_over_is_not_given_back() {
        let (state, kernel) = (unknown(), Kernel::default());
        kernel.wants.set(true);
        let was = begin(&state, &kernel);
        assert!(!kernel.interrupt());
        assert!(kernel.interrupt(), "the time is over");
        end(&state, &kernel, was);
        assert_eq!(kernel.given_up.get(), 0);
    }

    #[test]
    fn where_the_kernel_refuses_nothing_is_written_and_nothing_asked_again() {
        let (state, kernel) = (unknown(), Kernel { refuses: true, ..Kernel::default() });
        for _ in 0..3 {
            let was = begin(&state, &kernel);
            assert!(was && !kernel.request.get());
            end(&state, &kernel, was);
        }
        assert_eq!((kernel.enabled.get(), state.get()), (1, State::Refused));
    }

    /// What this system has: the real calls, or none.
    #[test]
    fn this_system_offers_it_and_keeps_to_it_or_does_not_offer_it() {
        let Ok(area) = RseqArea::find() else { return };
        let Some(slices) = Slices::offered(area) else {
            println!("SKIPPED: no time slice extension here");
            assert!(!area.has_slices() || !os::enable_slices());
            return;
        };
        let was = slices.begin();
        assert!(!was && slices.begin());
        slices.end(true);
        slices.end(was);
        assert!(!slices.is_granted());
    }
}
