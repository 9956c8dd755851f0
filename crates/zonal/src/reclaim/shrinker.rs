//! A cache of reclaimable objects (LB H.7).

use std::fmt;

use zonal_core::platform::reclaimer::By;
use zonal_core::types::{NodeId, PAGE_SIZE};

/// A request to a shrinker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanRequest {
    /// Objects to look at.
    pub objects: u64,
    /// The node whose objects they are; node 0 for a shrinker that is not node-aware.
    pub node: NodeId,
    /// Who asks.
    pub by: By,
}

/// Result of a shrinker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned {
    /// It looked at as many objects as it was asked to, and gave this many up.
    Freed(u64),
    /// It looked at `scanned` objects, and gave `freed` up.
    Some {
        /// Objects looked at.
        scanned: u64,
        /// Objects freed.
        freed: u64,
    },
    /// It can do nothing now, for instance because its lock is taken (`SHRINK_STOP`).
    Stop,
}

type Count = Box<dyn Fn(NodeId) -> u64 + Send + Sync>;
type Scan = Box<dyn Fn(&ScanRequest) -> Scanned + Send + Sync>;

/// A cache of objects, by two functions: count the freeable ones, and free some.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use zonal::Pool;
/// use zonal::reclaim::{Scanned, Shrinker};
///
/// let pool = Pool::builder().size(16 << 20).build()?;
/// let cache = Arc::new(Mutex::new(vec![[0_u8; 64]; 1000]));
/// let (counted, scanned) = (Arc::clone(&cache), cache);
/// let registered = pool.register_shrinker(
///     Shrinker::new(
///         "sessions",
///         move |_| counted.try_lock().map_or(0, |objects| objects.len() as u64),
///         move |ask| match scanned.try_lock() {
///             Ok(mut objects) => {
///                 let keep = objects.len().saturating_sub(ask.objects as usize);
///                 let freed = objects.len() - keep;
///                 objects.truncate(keep);
///                 Scanned::Freed(freed as u64)
///             }
///             Err(_) => Scanned::Stop,
///         },
///     )
///     .object_bytes(64),
/// );
/// drop(registered);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Shrinker {
    pub(super) name: String,
    pub(super) count: Count,
    pub(super) scan: Scan,
    pub(super) seeks: u32,
    pub(super) batch: u64,
    pub(super) node_aware: bool,
    pub(super) object_bytes: usize,
}

impl Shrinker {
    /// `count` returns how many objects could be freed now, and is called often; nothing, while
    /// another thread is in a call of this shrinker, is taken for what it returned before. `scan`
    /// looks at as many as it is asked to and frees what it can.
    pub fn new(
        name: impl Into<String>,
        count: impl Fn(NodeId) -> u64 + Send + Sync + 'static,
        scan: impl Fn(&ScanRequest) -> Scanned + Send + Sync + 'static,
    ) -> Shrinker {
        Shrinker {
            name: name.into(),
            count: Box::new(count),
            scan: Box::new(scan),
            seeks: zonal_core::reclaim::shrinker::SEEKS_DEFAULT,
            batch: 0,
            node_aware: false,
            object_bytes: PAGE_SIZE,
        }
    }

    /// How costly it is to make an object again: a pass looks at `4 / seeks` of what it would of
    /// pages. 0 for objects that cost nothing, of which a pass takes half. Default: 2.
    pub fn seeks(mut self, seeks: u32) -> Shrinker {
        self.seeks = seeks;
        self
    }
    /// Objects to ask for at a time; less is put off until it adds up, unless it is all there is.
    /// Default, or 0: 128.
    pub fn batch(mut self, objects: u64) -> Shrinker {
        self.batch = objects;
        self
    }
    /// Whether `count` and `scan` know which node an object is on. Default: no; it is then asked
    /// under the name of node 0, whichever node is short of pages; by node reclaim, when that is
    /// node 0.
    pub fn node_aware(mut self, node_aware: bool) -> Shrinker {
        self.node_aware = node_aware;
        self
    }
    /// Bytes of the pool that an object takes, for the limits of node reclaim and the count of
    /// pages freed. Default: a page.
    pub fn object_bytes(mut self, bytes: usize) -> Shrinker {
        self.object_bytes = bytes;
        self
    }
}

impl fmt::Debug for Shrinker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shrinker { name, seeks, batch, node_aware, object_bytes, .. } = self;
        f.debug_struct("Shrinker")
            .field("name", name)
            .field("seeks", seeks)
            .field("batch", batch)
            .field("node_aware", node_aware)
            .field("object_bytes", object_bytes)
            .finish_non_exhaustive()
    }
}
