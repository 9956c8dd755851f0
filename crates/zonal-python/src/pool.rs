//! Pools. Every call that may run a consumer of Python's, or wait for a thread that does, leaves
//! the GIL first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Map, Value, json};
use zonal::reclaim::{Registration as Inner, ScanRequest, Scanned, Shrinker};
use zonal::{
    Backing, Gfp, NodeBinding, NodeId, Order, PAGE_SIZE, RangeRequest, Request, ZoneKind, ZoneSize,
};

use crate::buffer::{Buffer, Made};
use crate::fault::Fault;
use crate::long::{OnStop, long};
use crate::pages::Owned;
use crate::policy::parse;

/// What a pool is to be.
#[derive(FromPyObject, Debug)]
#[pyo3(from_item_all)]
pub struct Wanted {
    size: usize,
    policy: String,
    node: Option<u16>,
    strict: bool,
    /// `base`, `transparent` or `2M`.
    huge_pages: String,
    /// `no`, `yes` or `parallel`.
    prefault: String,
    budget: Option<usize>,
    poison: bool,
}

impl Wanted {
    fn builder(&self) -> Result<zonal::Builder, Fault> {
        let wrong = |what: String| Fault::new("ArgumentError", what);
        let backing = match self.huge_pages.as_str() {
            "base" => Backing::Base,
            "transparent" => Backing::Transparent,
            "2M" => Backing::Huge2M,
            other => {
                let expected = "expected 'base', 'transparent' or '2M'";
                return Err(wrong(format!("huge_pages: '{other}'; {expected}")));
            }
        };
        let binding = if self.strict { NodeBinding::Strict } else { NodeBinding::Advisory };
        let policy = parse(&self.policy)?;
        let builder = zonal::Pool::builder().policy(policy).backing(backing).binding(binding);
        let mut builder = builder.poison(self.poison);
        builder = match self.node {
            Some(node) => {
                builder.zones(&[ZoneSize { node, kind: ZoneKind::Normal, bytes: self.size }])
            }
            None => builder.size(self.size),
        };
        if let Some(bytes) = self.budget {
            builder = builder.budget(bytes);
        }
        match self.prefault.as_str() {
            "no" => Ok(builder),
            "yes" => Ok(builder.prefault(true)),
            "parallel" => Ok(builder.prefault_parallel()),
            other => {
                let expected = "expected False, True or 'parallel'";
                Err(wrong(format!("prefault: '{other}'; {expected}")))
            }
        }
    }
}

/// A pool.
#[pyclass(frozen, module = "zonal._native", subclass)]
#[derive(Debug)]
pub struct Pool {
    /// None only while it is dropped.
    inner: Option<zonal::Pool>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The last handle joins the pool's threads, and one of those may wait for the GIL.
        let inner = self.inner.take();
        without_gil(|| drop(inner));
    }
}

/// Calls without the GIL, if this thread has it.
fn without_gil(call: impl FnOnce() + Send) {
    let mut call = Some(call);
    let left = Python::try_attach(|py| {
        if let Some(call) = call.take() {
            py.detach(call);
        }
    });
    // The interpreter is ending: nobody waits for the GIL any more.
    if left.is_none()
        && let Some(call) = call.take()
    {
        call();
    }
}

/// A request for bytes.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    bytes: usize,
    zeroed: bool,
    node: Option<u16>,
    strict: bool,
    /// At the lowest address that has them.
    packed: bool,
}

impl Pool {
    fn pool(&self) -> Result<&zonal::Pool, Fault> {
        self.inner.as_ref().ok_or_else(|| Fault::new("PoolError", "the pool is gone"))
    }

    fn get(&self, want: Bytes) -> Result<Buffer, Fault> {
        let pool = self.pool()?;
        let Bytes { bytes, zeroed, node, strict, packed } = want;
        if bytes == 0 {
            return Err(Fault::new("ArgumentError", "nbytes: 0; expected 1 byte or more"));
        }
        if let Some(node) = node
            && usize::from(node) >= pool.nodes()
        {
            let what = format!("node: {node}; the pool has {} nodes, from 0", pool.nodes());
            return Err(Fault::new("ArgumentError", what));
        }
        let gfp = if strict { Gfp::KERNEL.union(Gfp::THISNODE) } else { Gfp::KERNEL };
        let node = node.map(NodeId);
        let pages = bytes.div_ceil(PAGE_SIZE);
        let refused = |error: &dyn std::fmt::Display| {
            Fault::new("OutOfMemoryError", format!("{bytes} bytes ({pages} pages): {error}"))
        };
        let is_block = pages.is_power_of_two() && !packed;
        let order = is_block.then(|| Order::new(pages.ilog2())).flatten();
        let mut owned = match order {
            Some(order) => {
                let request = Request { order, gfp, node };
                let block = pool.alloc_with(request).map_err(|error| refused(&error))?;
                Owned::Block(block.into_owned())
            }
            None => {
                let request =
                    RangeRequest { node, packed, ..RangeRequest::new(pages as u64).gfp(gfp) };
                let range = pool.ranges().alloc_with(request).map_err(|error| refused(&error))?;
                Owned::Range(range.into_owned())
            }
        };
        if zeroed {
            owned.zero();
        }
        Ok(Buffer::new(owned, bytes))
    }
}

#[pymethods]
impl Pool {
    /// Makes a pool. Touching its memory has no place to stop at.
    #[new]
    #[pyo3(signature = (wanted, progress=None))]
    fn new(py: Python<'_>, wanted: Wanted, progress: Option<Py<PyAny>>) -> PyResult<Pool> {
        let pool = long(py, progress, OnStop::Leave, move |hook| {
            let hook = hook.clone();
            let builder = wanted.builder()?.on_prefault(move |step| {
                hook.note(step.done as u64, step.total as u64);
            });
            builder.build().map_err(|error| Fault::of("PoolError", &error))
        })?;
        Ok(Pool { inner: Some(pool) })
    }

    /// Bytes, exactly.
    #[pyo3(signature = (bytes, zeroed, node, strict, packed))]
    fn alloc_bytes(
        &self,
        py: Python<'_>,
        bytes: usize,
        zeroed: bool,
        node: Option<u16>,
        strict: bool,
        packed: bool,
    ) -> PyResult<Made> {
        let want = Bytes { bytes, zeroed, node, strict, packed };
        Ok(Made::new(py.detach(|| self.get(want))?))
    }

    /// Many of the same size: all, or none.
    #[allow(clippy::too_many_arguments, reason = "Python's caller names each of them")]
    #[pyo3(signature = (count, bytes, zeroed, node, strict, packed))]
    fn alloc_many_bytes(
        &self,
        py: Python<'_>,
        count: usize,
        bytes: usize,
        zeroed: bool,
        node: Option<u16>,
        strict: bool,
        packed: bool,
    ) -> PyResult<Vec<Made>> {
        let want = Bytes { bytes, zeroed, node, strict, packed };
        let all = py.detach(|| (0..count).map(|_| self.get(want)).collect::<Result<Vec<_>, _>>());
        Ok(all?.into_iter().map(Made::new).collect())
    }

    /// Registers a consumer: two functions that count, and give up, what can be made again.
    #[pyo3(signature = (name, count, scan, object_bytes, node_aware, seeks))]
    fn register(
        &self,
        name: String,
        count: Py<PyAny>,
        scan: Py<PyAny>,
        object_bytes: usize,
        node_aware: bool,
        seeks: u32,
    ) -> PyResult<Registration> {
        let calls = Arc::new(Calls { count: Function::of(count), scan: Function::of(scan) });
        let (counts, scans) = (Arc::clone(&calls), Arc::clone(&calls));
        let counted = move |node: NodeId| ask(&counts.count, |py| (node.0,).into_pyobject(py));
        let scanned = move |request: &ScanRequest| {
            let (node, objects) = (request.node.0, request.objects);
            ask::<Option<u64>>(&scans.scan, |py| (node, objects).into_pyobject(py))
                .flatten()
                .map_or(Scanned::Stop, Scanned::Freed)
        };
        let shrinker = Shrinker::new(name, move |node| counted(node).unwrap_or(0), scanned)
            .object_bytes(object_bytes)
            .node_aware(node_aware)
            .seeks(seeks);
        let pool = self.pool()?;
        let open = Open { inner: pool.register_shrinker(shrinker), calls };
        Ok(Registration { open: Mutex::new(Some(open)) })
    }

    /// Gives free memory back to the system; returns the bytes.
    fn trim(&self, py: Python<'_>, bytes: usize) -> PyResult<usize> {
        let pool = self.pool()?;
        let trimmed = py.detach(|| {
            pool.drain_all();
            pool.trim(bytes)
        });
        Ok(trimmed.map_err(|error| Fault::of("PoolError", &error))?)
    }

    /// Checks everything that always holds.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.pool()?;
        let checked = py.detach(|| pool.validate());
        Ok(checked.map_err(|fault| Fault::new("PoolError", format!("a defect: {fault}")))?)
    }

    /// The counters in OpenMetrics' text form.
    fn openmetrics(&self, py: Python<'_>) -> PyResult<String> {
        let pool = self.pool()?;
        Ok(py.detach(|| pool.state().openmetrics()))
    }

    /// Figures of the pool, as JSON.
    fn statistics_json(&self, py: Python<'_>) -> PyResult<String> {
        let pool = self.pool()?;
        Ok(py.detach(|| statistics(pool).to_string()))
    }

    /// Node of an address of the pool.
    fn node_of(&self, address: usize) -> PyResult<Option<u16>> {
        let pointer = std::ptr::without_provenance(address);
        Ok(self.pool()?.node_of(pointer).map(|node| node.0))
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.pool()?.bytes())
    }

    #[getter]
    fn free_pages(&self) -> PyResult<u64> {
        Ok(self.pool()?.free_page_count())
    }

    #[getter]
    fn nodes(&self) -> PyResult<usize> {
        Ok(self.pool()?.nodes())
    }

    #[getter]
    fn mode(&self) -> PyResult<String> {
        Ok(self.pool()?.mode().to_string())
    }

    #[getter]
    fn notices(&self) -> PyResult<Vec<String>> {
        Ok(self.pool()?.notices().iter().map(ToString::to_string).collect())
    }
}

/// Calls a function of Python's. What it raises is told as an unraisable exception, the first time,
/// the second, the fourth and so on: one that always raises would be told thousands of times a
/// second. None then, and while the interpreter ends.
fn ask<T>(
    function: &Function,
    arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
) -> Option<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py>,
{
    Python::try_attach(|py| {
        let bound = function.called.bind(py);
        let called = arguments(py).and_then(|arguments| bound.call1(arguments));
        let answer = called.and_then(|answer| answer.extract::<T>().map_err(Into::into));
        let tell = |error: PyErr| {
            let before = function.raised.fetch_add(1, Relaxed);
            if (before + 1).is_power_of_two() {
                error.write_unraisable(py, Some(bound));
            }
        };
        answer.map_err(tell).ok()
    })
    .flatten()
}

fn statistics(pool: &zonal::Pool) -> Value {
    let held = pool.held();
    let zones: Vec<_> = pool.zone_stats().collect();
    let sum = |of: fn(&zonal::ZoneStats) -> u64| zones.iter().map(of).sum::<u64>();
    let numa = |node: usize| {
        let events = pool.numa_events(NodeId(node as u16));
        json!({
            "hit": events.hit,
            "miss": events.miss,
            "foreign": events.foreign,
            "local": events.local,
            "other": events.other,
        })
    };
    let held: Map<String, Value> = [
        ("users", held.users),
        ("consumers", held.consumers),
        ("lists", held.lists),
        ("depots", held.depots),
        ("free_resident", held.free_resident),
        ("free_absent", held.free_absent),
        ("withheld", held.withheld),
        ("elsewhere", held.elsewhere),
        ("metadata", held.metadata),
    ]
    .into_iter()
    .map(|(name, bytes)| (format!("{name}_bytes"), bytes.into()))
    .collect();
    json!({
        "nbytes": pool.bytes(),
        "free_pages": pool.free_page_count(),
        "policy": pool.policy().name,
        "mode": pool.mode().to_string(),
        "held": held,
        "allocated_pages": sum(|zone| zone.allocated_pages),
        "freed_pages": sum(|zone| zone.freed_pages),
        "refills": sum(|zone| zone.refills),
        "drains": sum(|zone| zone.drains),
        "direct_pages": sum(|zone| zone.direct_pages),
        "lock_holds": sum(|zone| zone.lock_holds),
        "lock_contended": sum(|zone| zone.lock_contended),
        "trimmed_bytes": pool.trimmed_bytes(),
        "misuses": pool.misuses(),
        "numa": (0..pool.nodes()).map(numa).collect::<Vec<_>>(),
    })
}

/// A function of a consumer.
struct Function {
    called: Py<PyAny>,
    /// How often it raised something.
    raised: AtomicU64,
}

impl Function {
    fn of(called: Py<PyAny>) -> Function {
        Function { called, raised: AtomicU64::new(0) }
    }
}

/// The functions of a consumer.
struct Calls {
    count: Function,
    scan: Function,
}

/// A registration that has not ended.
struct Open {
    inner: Inner,
    /// The pool's threads have the functions as well, until the registration ends.
    calls: Arc<Calls>,
}

/// A registered consumer. Its functions mostly belong to an object that keeps it: the collector is
/// told of them, so that such an object goes, and the pool with it.
#[pyclass(frozen, weakref, module = "zonal._native")]
pub struct Registration {
    open: Mutex<Option<Open>>,
}

#[pymethods]
impl Registration {
    /// Ends it; waits for a call of its functions that is under way. Nothing happens if it ended.
    fn close(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Open { inner, calls }) = open {
            without_gil(|| drop(inner));
            drop(calls);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has the lock uses the registration, so it is not to be collected.
        let Ok(open) = self.open.try_lock() else { return Ok(()) };
        let Some(Open { calls, .. }) = &*open else { return Ok(()) };
        visit.call(&calls.count.called)?;
        visit.call(&calls.scan.called)
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.close();
    }
}
