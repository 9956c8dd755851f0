//! Why a request gets the page it gets, or none.

use std::fmt;

use zonal_core::alloc::Request;
use zonal_core::alloc::explain::{Explained, Note};

use super::Pool;

/// What would become of a request: [`Pool::explain`]. Its `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The steps, in the order they would happen.
    pub steps: Vec<Note>,
    /// How it would end.
    pub end: Explained,
}

impl Pool {
    /// Tells what would become of `request` on this CPU now: each zone the walk comes to, its free
    /// pages, watermark and reserve, and the step that answers or refuses. Changes nothing and
    /// takes no lock; while other threads allocate, it is what one moment looked like.
    ///
    /// ```
    /// use zonal::{Order, Pool, Request};
    ///
    /// let pool = Pool::builder().size(16 << 20).build()?;
    /// let why = pool.explain(&Request::new(Order::ZERO));
    /// assert!(why.to_string().contains("served from node 0"));
    /// # Ok::<(), zonal::BuildError>(())
    /// ```
    pub fn explain(&self, request: &Request) -> Explanation {
        let mut steps = Vec::new();
        let end = self.shared.allocator.explain(request, &mut |note| steps.push(note));
        Explanation { steps, end }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        write!(f, "=> {}", self.end)
    }
}
