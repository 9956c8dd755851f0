//! How pages are touched, and where their lines were.

/// Kinds of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// They are looked at.
    Read,
    /// They are changed.
    Write,
}

/// Lines touched, by where they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// In the core's own L2.
    pub own: u64,
    /// In its last-level cache.
    pub llc: u64,
    /// In the L2 of another core under the same last-level cache.
    pub core: u64,
    /// Under another last-level cache of the socket.
    pub socket: u64,
    /// In another socket's caches.
    pub remote: u64,
    /// In memory of the core's node.
    pub memory: u64,
    /// In memory of another node.
    pub memory_remote: u64,
    /// Changed lines that had to go to memory to make room.
    pub written_back: u64,
}

counts!(Lines: own, llc, core, socket, remote, memory, memory_remote, written_back);

impl Lines {
    /// Lines that were asked of the last-level cache.
    pub fn references(&self) -> u64 {
        self.llc + self.core + self.misses()
    }

    /// Of these, lines that came from beyond it: what `perf` counts as cache misses.
    pub fn misses(&self) -> u64 {
        self.socket + self.remote + self.memory + self.memory_remote
    }
}
