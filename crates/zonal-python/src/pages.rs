//! Pages that Python holds: who keeps them, and who frees them.
//!
//! # Invariants
//! - **PY-1** From the moment a buffer is handed to Python nothing here reads or writes its
//!   bytes, or makes a reference to them: views of Python change them at any time.
//! - **PY-2** The pages of a core are freed by `release` with no lease outstanding, or by the
//!   core's drop; each lease keeps the core. So an address that went out with a lease is valid
//!   until that lease is dropped.
//! - **PY-3** A core owns its pages alone: they came from a pool, and go back to it once.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::{OwnedPages, OwnedRange};

use crate::fault::Fault;

/// Pages in a row, by the kind of request that they came from.
#[derive(Debug)]
pub enum Owned {
    /// A block of 2^order pages.
    Block(OwnedPages),
    /// Any number of pages.
    Range(OwnedRange),
}

impl Owned {
    fn as_ptr(&self) -> *const u8 {
        match self {
            Owned::Block(pages) => pages.as_ptr(),
            Owned::Range(range) => range.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Owned::Block(pages) => pages.len(),
            Owned::Range(range) => range.len(),
        }
    }

    /// Fills it with zeros.
    pub fn zero(&mut self) {
        match self {
            Owned::Block(pages) => pages.fill(0),
            Owned::Range(range) => range.fill(0),
        }
    }
}

/// Pages, and how many views of them there are.
pub struct Core {
    state: Mutex<State>,
    address: usize,
    bytes: usize,
    capacity: usize,
}

struct State {
    owned: Option<Owned>,
    leases: usize,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Core {
    /// The first `bytes` of these pages.
    pub fn new(owned: Owned, bytes: usize) -> Core {
        let (address, capacity) = (owned.as_ptr().expose_provenance(), owned.len());
        let state = Mutex::new(State { owned: Some(owned), leases: 0 });
        Core { state, address, bytes, capacity }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the bytes are.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of its pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Views that exist.
    pub fn leases(&self) -> usize {
        self.state().leases
    }

    /// Whether the pages were freed.
    pub fn is_released(&self) -> bool {
        self.state().owned.is_none()
    }

    /// Frees the pages, unless views exist; returns how many. Nothing happens if they were freed.
    pub fn release(&self) -> usize {
        let mut state = self.state();
        if state.leases == 0 {
            drop(state.owned.take());
        }
        state.leases
    }

    /// Another view, that keeps the pages.
    ///
    /// # Errors
    /// The buffer was released.
    pub fn lease(self: &Arc<Core>) -> Result<Hold, Fault> {
        let mut state = self.state();
        if state.owned.is_none() {
            let what = "the buffer was released; its pages may be somebody else's";
            return Err(Fault::new("ReleasedError", what));
        }
        state.leases += 1;
        Ok(Hold(Arc::clone(self)))
    }
}

/// A view's hold of the pages.
#[derive(Debug)]
pub struct Hold(Arc<Core>);

impl Hold {
    /// What it holds.
    pub fn core(&self) -> &Core {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().leases -= 1;
    }
}
