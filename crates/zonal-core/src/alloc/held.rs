//! What holds an allocator still.

use super::pcp_ops::OfPolicy;
use crate::pcp::closed::Look;
use crate::pcp::owner::HeldOwner;
use crate::platform::Platform;
use crate::sync::Masked;
use crate::zone::state::LockedZone;

/// Something that [`Allocator::hold_all`](super::Allocator::hold_all) holds. Nobody sees or changes
/// what is behind it: it only keeps others off.
#[derive(Debug)]
pub struct Held<'s, P: Platform>(pub(super) Kind<'s, P>);

/// What that is.
#[derive(Debug)]
pub(super) enum Kind<'s, P: Platform> {
    /// What keeps interrupts out while the others are held: the first one, to be dropped last.
    Masked(#[expect(dead_code, reason = "held")] Masked<'s, P>),
    /// A closed pcp.
    Pcp(OfPolicy<'s, P>),
    /// The gate of a pcp that the platform cannot fence. Sequences of its CPU go on; the pcp is
    /// whole at every moment.
    Gate(Look<'s>),
    /// A locked zone.
    Zone(#[cfg_attr(not(test), expect(dead_code, reason = "held"))] LockedZone<'s, P>),
    /// A CPU's pageblocks of a zone, locked.
    Owner(#[expect(dead_code, reason = "held")] HeldOwner<'s, P>),
}
