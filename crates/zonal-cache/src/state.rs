//! The state of one cached page, in one word. All transitions are pure functions: `lock` commits
//! them with a compare-and-exchange, and the interleaving model (`tests/loom_page.rs`) runs the
//! same ones.
//!
//! ```text
//!            claim                  unlock                share
//!   free ────────────► EXCLUSIVE ───────────► idle ◄──────────────► 1 to 2^20-1 users
//!     ▲                  │   ▲                  │                        │ begin_writeback
//!     └──────────────────┘   └──────────────────┘                        ▼
//!           release               exclude                     users, WRITEBACK (stays readable)
//! ```
//!
//! # Invariants
//! - **STATE-1** `EXCLUSIVE` and users exclude each other.
//! - **STATE-2** a word without `OWNED` is 0, but for `WAITERS`: the page is not the cache's.
//! - **STATE-3** `WRITEBACK` is set only while its writer is a user, so bytes that are being
//!   written do not change.
//! - **STATE-4** `DIRTY` goes away only by `begin_writeback`, and comes back if that fails; or with
//!   the page, by its owner under `EXCLUSIVE`.

use std::fmt;

/// The state of one page.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PageState(pub u32);

/// Users of a page that do not change it.
const USERS: u32 = (1 << 20) - 1;

impl PageState {
    /// One user holds the page exclusively.
    pub const EXCLUSIVE: PageState = PageState(1 << 20);
    /// A thread waits for the word to change.
    pub const WAITERS: PageState = PageState(1 << 21);
    /// The page is the cache's: it was taken from the pool.
    pub const OWNED: PageState = PageState(1 << 22);
    /// The bytes are what the file holds, or newer.
    pub const UPTODATE: PageState = PageState(1 << 23);
    /// The bytes are newer than the store's.
    pub const DIRTY: PageState = PageState(1 << 24);
    /// The bytes are being written to the store.
    pub const WRITEBACK: PageState = PageState(1 << 25);
    /// Used since it joined its list.
    pub const REFERENCED: PageState = PageState(1 << 26);
    /// On the active list, or meant for it.
    pub const ACTIVE: PageState = PageState(1 << 27);
    /// On a list.
    pub const LISTED: PageState = PageState(1 << 28);
    /// The first page of the asynchronous part of a read-ahead window: reading it starts the next
    /// window.
    pub const MARKER: PageState = PageState(1 << 29);
    /// Used through a mapped handle, and not unmapped since.
    pub const MAPPED: PageState = PageState(1 << 30);

    /// All bits of `flags` are set.
    pub const fn has(self, flags: PageState) -> bool {
        self.0 & flags.0 == flags.0
    }
    /// With `flags` set.
    pub const fn with(self, flags: PageState) -> PageState {
        PageState(self.0 | flags.0)
    }
    /// With `flags` clear.
    pub const fn without(self, flags: PageState) -> PageState {
        PageState(self.0 & !flags.0)
    }
    /// Users that share the page.
    pub const fn users(self) -> u32 {
        self.0 & USERS
    }

    /// A page just taken from the pool, held exclusively. `None`: the cache owns it already, which
    /// the pool rules out.
    pub const fn claim(self) -> Option<PageState> {
        match self.has(Self::OWNED) {
            true => None,
            false => Some(Self::OWNED.with(Self::EXCLUSIVE)),
        }
    }

    /// There are as many users as can be counted. No thread waits for one to go: pins may have been
    /// forgotten.
    pub const fn is_full(self) -> bool {
        self.users() == USERS
    }

    /// Adds a user.
    pub const fn share(self) -> Option<PageState> {
        let busy = self.has(Self::EXCLUSIVE) || self.is_full();
        match self.has(Self::OWNED) && !busy {
            true => Some(PageState(self.0 + 1)),
            false => None,
        }
    }

    /// Drops a user. The last one wakes exclusive waiters.
    pub const fn unshare(self) -> PageState {
        let left = PageState(self.0 - 1);
        match left.users() {
            0 => left.without(Self::WAITERS),
            _ => left,
        }
    }

    /// Takes the page exclusively.
    pub const fn exclude(self) -> Option<PageState> {
        let free = self.has(Self::OWNED) && !self.has(Self::EXCLUSIVE) && self.users() == 0;
        match free {
            true => Some(self.with(Self::EXCLUSIVE)),
            false => None,
        }
    }

    /// Ends exclusive use.
    pub const fn unlock(self) -> PageState {
        self.without(Self::EXCLUSIVE).without(Self::WAITERS)
    }

    /// The exclusive user becomes a shared one.
    pub const fn downgrade(self) -> PageState {
        PageState(self.unlock().0 + 1)
    }

    /// A user marks an unchanged page to be written again. One under write-back then stays dirty.
    /// `None`: it is dirty already.
    pub const fn soil_again(self) -> Option<PageState> {
        match self.has(Self::DIRTY) {
            true => None,
            false => Some(self.with(Self::DIRTY)),
        }
    }

    /// A user begins to write a dirty page. `None`: it is clean, or under write-back.
    pub const fn begin_writeback(self) -> Option<PageState> {
        match self.has(Self::DIRTY) && !self.has(Self::WRITEBACK) {
            true => Some(self.without(Self::DIRTY).with(Self::WRITEBACK)),
            false => None,
        }
    }

    /// The write ended. One that failed leaves the page dirty.
    pub const fn end_writeback(self, written: bool) -> PageState {
        let ended = self.without(Self::WRITEBACK).without(Self::WAITERS);
        match written {
            true => ended,
            false => ended.with(Self::DIRTY),
        }
    }

    /// Whether its exclusive user may reclaim the page.
    pub const fn is_clean(self) -> bool {
        !self.has(Self::DIRTY) && !self.has(Self::WRITEBACK)
    }
}

impl fmt::Debug for PageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(&str, PageState); 11] = [
            ("exclusive", PageState::EXCLUSIVE),
            ("waiters", PageState::WAITERS),
            ("owned", PageState::OWNED),
            ("uptodate", PageState::UPTODATE),
            ("dirty", PageState::DIRTY),
            ("writeback", PageState::WRITEBACK),
            ("referenced", PageState::REFERENCED),
            ("active", PageState::ACTIVE),
            ("listed", PageState::LISTED),
            ("marker", PageState::MARKER),
            ("mapped", PageState::MAPPED),
        ];
        write!(f, "{} users", self.users())?;
        NAMES
            .iter()
            .filter(|(_, flag)| self.has(*flag))
            .try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: PageState = PageState::OWNED.with(PageState::UPTODATE);

    #[test]
    fn a_page_that_is_not_owned_gives_no_rights() {
        assert_eq!(PageState(0).share(), None);
        assert_eq!(PageState(0).exclude(), None);
        assert_eq!(IDLE.claim(), None);
        assert!(PageState(0).claim().unwrap().has(PageState::EXCLUSIVE));
    }

    #[test]
    fn users_and_the_exclusive_one_keep_each_other_out() {
        let shared = IDLE.share().unwrap();
        assert_eq!(shared.exclude(), None);
        assert_eq!(shared.share().unwrap().users(), 2);
        let taken = IDLE.exclude().unwrap();
        assert_eq!(taken.share(), None);
        assert_eq!(taken.exclude(), None);
        assert_eq!(taken.downgrade(), shared);
        assert_eq!(taken.unlock(), IDLE);
    }

    #[test]
    fn the_count_of_users_does_not_run_into_the_flags() {
        let full = PageState(IDLE.0 | USERS);
        assert_eq!((full.share(), full.is_full()), (None, true));
        assert_eq!((full.unshare().users(), full.unshare().is_full()), (USERS - 1, false));
    }

    #[test]
    fn only_the_last_user_wakes() {
        let two = IDLE.share().unwrap().share().unwrap().with(PageState::WAITERS);
        let one = two.unshare();
        assert!(one.has(PageState::WAITERS));
        assert!(!one.unshare().has(PageState::WAITERS));
    }

    #[test]
    fn a_failed_write_leaves_the_page_dirty() {
        let user = IDLE.with(PageState::DIRTY).share().unwrap();
        let writing = user.begin_writeback().unwrap();
        assert_eq!(writing.begin_writeback(), None);
        assert!(!writing.is_clean());
        assert_eq!(writing.end_writeback(false), user);
        assert!(writing.end_writeback(true).is_clean());
    }

    #[test]
    fn a_page_that_is_to_be_written_once_more_is_dirty_when_its_write_ends() {
        let user = IDLE.with(PageState::DIRTY).share().unwrap();
        let writing = user.begin_writeback().unwrap();
        let again = writing.soil_again().unwrap();
        assert_eq!((again.begin_writeback(), again.soil_again()), (None, None));
        assert_eq!(again.end_writeback(true), user);
    }
}
