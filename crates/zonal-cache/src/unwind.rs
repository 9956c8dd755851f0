//! Handles and pins may be used after a panic: what a backing or a store raises is caught and
//! becomes an error (see [`Backing`](crate::Backing)), and a thread that unwinds gives back the
//! rights to pages that it has.

use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::frames::{Frames, Kept, Right};
use crate::{Cache, CachedFile, EngineCache, Pager};

impl RefUnwindSafe for Frames {}

impl<R: Right> UnwindSafe for Kept<R> {}
impl<R: Right> RefUnwindSafe for Kept<R> {}

impl UnwindSafe for Cache {}
impl RefUnwindSafe for Cache {}

impl UnwindSafe for CachedFile {}
impl RefUnwindSafe for CachedFile {}

impl UnwindSafe for EngineCache {}
impl RefUnwindSafe for EngineCache {}

impl UnwindSafe for Pager {}
impl RefUnwindSafe for Pager {}
