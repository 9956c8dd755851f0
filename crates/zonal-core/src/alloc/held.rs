//! What holds an allocator still.

use crate::pcp::closed::{Closed, Look};
use crate::pcp::owner::HeldOwner;
use crate::platform::Platform;
use crate::sync::Masked;
use crate::zone::state::LockedZone;

/// Something that [`Allocator::hold_all`](super::Allocator::hold_all) holds.
#[derive(Debug)]
pub enum Held<'s, P: Platform> {
    /// What keeps interrupts out while the others are held: the first one, to be dropped last.
    Masked(Masked<'s, P>),
    /// A closed pcp.
    Pcp(Closed<'s>),
    /// The gate of a pcp that the platform cannot fence. Sequences of its CPU go on; the pcp is
    /// whole at every moment.
    Gate(Look<'s>),
    /// A locked zone.
    Zone(LockedZone<'s, P>),
    /// A CPU's pageblocks of a zone, locked.
    Owner(HeldOwner<'s, P>),
}
