//! A closed pcp that opens by the policy of its platform: what one that is compiled in does not
//! have leaves no code.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use crate::pcp::closed::{Closed, Opening};
use crate::pcp::depot::MovesMagazines;
use crate::pcp::tuning::Tuning;
use crate::platform::Platform;
use crate::policy::Policy;

/// A closed pcp. Opens when dropped.
pub(in crate::alloc) struct OfPolicy<'a, P: Platform> {
    closed: ManuallyDrop<Closed<'a>>,
    platform: PhantomData<fn(&P)>,
}

impl<'a, P: Platform> OfPolicy<'a, P> {
    #[inline]
    pub fn new(closed: Closed<'a>) -> Self {
        OfPolicy { closed: ManuallyDrop::new(closed), platform: PhantomData }
    }
}

impl<'a, P: Platform> Deref for OfPolicy<'a, P> {
    type Target = Closed<'a>;

    #[inline]
    fn deref(&self) -> &Closed<'a> {
        &self.closed
    }
}

impl<P: Platform> DerefMut for OfPolicy<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.closed
    }
}

impl<P: Platform> Drop for OfPolicy<'_, P> {
    #[inline(never)]
    fn drop(&mut self) {
        let may = match Policy::fixed_for::<P>() {
            None => Opening::ANY,
            Some(policy) => Opening {
                has_budget: policy.pcp.budget_fraction != 0,
                tracks_swing: policy.pcp.fixed().tracks_swing(),
                is_eager: policy.pcp.tuning == Tuning::Level0,
            },
        };
        self.closed.open(may);
    }
}

impl<P: Platform> MovesMagazines for OfPolicy<'_, P> {}

impl<P: Platform> core::fmt::Debug for OfPolicy<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.closed.fmt(f)
    }
}
