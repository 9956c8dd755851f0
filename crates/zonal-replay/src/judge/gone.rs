//! Pages on lists that must have left them without an event.
//!
//! Whether a page on a list is *gone* is settled when it comes there: the next that the trace shows
//! of it is that it is freed, or nothing. So each list keeps its gone pages apart, in the order in
//! which they came, and nobody walks the list to find them.
//!
//! - **GONE-1** an entry counts while its page is on this list by the event that the entry names;
//!   others are left over from pages that were freed since, and are dropped when they are met
//! - **GONE-2** a gone page leaves its list in two ways: it is found out, or it is freed. So a list
//!   has at most as many left-over entries as counted ones, and a few more

use std::collections::HashMap;

use super::pages::{Pages, Place};
use crate::told::ListKey;

/// Left-over entries that are kept in any case.
const SPARE: usize = 64;

/// The gone pages of every list.
#[derive(Debug, Default)]
pub struct Gone {
    lists: HashMap<ListKey, List>,
}

#[derive(Debug, Default)]
struct List {
    /// Page and event, the coldest first.
    pages: Vec<(u64, u32)>,
    /// Entries that no longer count.
    left_over: usize,
}

impl Gone {
    /// A gone page came to the hot end of a list, by this event.
    pub fn push(&mut self, key: ListKey, pfn: u64, at: usize) {
        self.lists.entry(key).or_default().pages.push((pfn, at as u32));
    }

    /// Gone pages are no longer on their list. `pages` knows that already.
    pub fn left(&mut self, key: ListKey, count: usize, pages: &Pages) {
        let Some(list) = self.lists.get_mut(&key) else { return };
        list.left_over += count;
        if list.left_over > SPARE + list.pages.len() / 2 {
            // GONE-2: this many have left since the last time.
            list.pages.retain(|entry| counts(key, *entry, pages));
            list.left_over = 0;
        }
    }

    /// Takes all gone pages of a list, the hottest first.
    pub fn take_all(&mut self, key: ListKey, pages: &Pages) -> Vec<u64> {
        let Some(list) = self.lists.get_mut(&key) else { return Vec::new() };
        list.left_over = 0;
        let entries = list.pages.drain(..).rev();
        entries.filter(|entry| counts(key, *entry, pages)).map(|(pfn, _)| pfn).collect()
    }
}

/// GONE-1.
fn counts(key: ListKey, (pfn, at): (u64, u32), pages: &Pages) -> bool {
    pages.get(pfn) == Place::Listed(key) && pages.last(pfn) == at as usize
}
