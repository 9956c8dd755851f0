//! What a command ends with.

use std::fmt;

/// What a command found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every property held.
    Pass,
    /// At least one did not; the output says which.
    Failed,
    /// The signal of this number came before the work was done; the output is of what was.
    Interrupted(i32),
}

/// A signal ended the work, and there is nothing to print.
#[derive(Debug)]
pub struct Interrupted {
    /// The signal's number.
    pub signal: i32,
    /// Of what, and what is left behind, in words that follow *interrupted*.
    pub left: &'static str,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted{}", self.left)
    }
}

impl std::error::Error for Interrupted {}

/// The exit code of a command that a signal ended: that of a shell.
pub fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
