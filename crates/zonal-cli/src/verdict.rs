//! What a command ends with.

/// What a command found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every property held.
    Pass,
    /// At least one did not; the output says which.
    Failed,
}
