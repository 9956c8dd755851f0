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
    /// Pages that the pool's [budget](crate::Builder::budget) withholds: no zone counts them.
    pub withheld_pages: u64,
}

impl Pool {
    /// Tells what would become of `request` on this CPU now: each zone the walk comes to, its free
    /// pages, watermark and reserve, and the step that answers or refuses. Changes nothing and
    /// takes no lock of a zone; while other threads allocate, it describes one moment.
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
        Explanation { steps, end, withheld_pages: self.shared.withheld_pages() }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        if self.withheld_pages > 0 {
            let pages = self.withheld_pages;
            writeln!(f, "the budget withholds {pages} pages of the pool, which no zone counts")?;
        }
        write!(f, "=> {}", self.end)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex};

    use zonal_core::alloc::explain::Outcome;

    use super::*;
    use crate::reclaim::{Scanned, Shrinker};
    use crate::{Gfp, Order};

    #[test]
    fn what_the_budget_withholds_is_said() {
        let builder = Pool::builder().size(16 << 20).refresh_every(None);
        let pool = builder.budget(1 << 20).build().unwrap();
        let pages: Vec<_> = std::iter::from_fn(|| pool.alloc(Order::ZERO).ok()).collect();
        let why = pool.explain(&Request::new(Order::ZERO));
        assert!(matches!(why.end.outcome, Outcome::Refused(_)), "{why}");
        assert!(why.withheld_pages >= 15 << 8 && pages.len() <= 1 << 8, "{why}");
        let said = format!("the budget withholds {} pages of the pool", why.withheld_pages);
        assert!(why.to_string().contains(&said), "{why}");
        pool.set_budget(16 << 20).unwrap();
        let why = pool.explain(&Request::new(Order::ZERO));
        assert!(why.withheld_pages == 0 && !why.to_string().contains("budget"), "{why}");
    }

    #[test]
    fn a_budget_without_a_page_is_said_when_the_pool_is_made() {
        for (bytes, is_said) in [(1, true), (4095, true), (4096, false), (8 << 20, false)] {
            let pool = Pool::builder().size(16 << 20).budget(bytes).build().unwrap();
            let said = |notice: &crate::Notice| notice.0.contains("budget");
            assert_eq!(pool.notices().iter().any(said), is_said, "{bytes}");
        }
    }

    /// Explains a request, then makes it, and compares.
    #[test]
    fn a_full_pool_says_who_would_be_refused_who_reclaims_and_who_waits() {
        let builder = Pool::builder().size(16 << 20).refresh_every(None).background_reclaim(false);
        let pool = Arc::new(builder.build().unwrap());
        let request = |gfp| Request::new(Order::ZERO).gfp(gfp);
        let get = |gfp| pool.alloc_with(request(gfp)).map(|page| page.into_raw().0);
        let pages: Vec<usize> = std::iter::from_fn(|| get(Gfp::KERNEL).ok())
            .map(|page| page.as_ptr() as usize)
            .collect();
        for gfp in [Gfp::KERNEL, Gfp::NOWAIT] {
            let Outcome::Refused(told) = pool.explain(&request(gfp)).end.outcome else {
                panic!("{}", pool.explain(&request(gfp)))
            };
            assert_eq!(get(gfp).unwrap_err().details(), told);
        }
        let must = pool.explain(&request(Gfp::KERNEL | Gfp::NOFAIL));
        assert_eq!(must.end.outcome, Outcome::Waits, "{must}");

        let pages = Arc::new(Mutex::new(pages));
        let (counted, scanned, owner) = (Arc::clone(&pages), Arc::clone(&pages), pool.clone());
        let free = move |page: usize| {
            let page = NonNull::new(page as *mut u8).unwrap();
            // SAFETY: (1) the list owned the page.
            unsafe { owner.free_pages(page, Order::ZERO) }.unwrap();
        };
        let shrinker = Shrinker::new(
            "pages",
            move |_| counted.lock().unwrap().len() as u64,
            move |ask| {
                let mut pages = scanned.lock().unwrap();
                let keep = pages.len().saturating_sub(ask.objects as usize);
                let freed = pages.split_off(keep).into_iter().map(&free).count();
                Scanned::Freed(freed as u64)
            },
        );
        let registered = pool.register_shrinker(shrinker);
        let may_wait = pool.explain(&request(Gfp::KERNEL));
        assert_eq!(may_wait.end.outcome, Outcome::Reclaims, "{may_wait}");
        assert!(matches!(pool.explain(&request(Gfp::NOWAIT)).end.outcome, Outcome::Refused(_)));
        let held = pages.lock().unwrap().len();
        assert!(get(Gfp::NOWAIT).is_err() && pages.lock().unwrap().len() == held);
        let page = get(Gfp::KERNEL).unwrap();
        assert!(pages.lock().unwrap().len() < held, "by reclaim");
        pages.lock().unwrap().push(page.as_ptr() as usize);
        drop(registered);
        for page in std::mem::take(&mut *pages.lock().unwrap()) {
            // SAFETY: (1) the list owned the page.
            unsafe { pool.free_pages(NonNull::new(page as *mut u8).unwrap(), Order::ZERO) }
                .unwrap();
        }
        pool.validate().unwrap();
    }
}
