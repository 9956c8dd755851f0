//! The memory of a pool: mapped here, or brought by the program; bound to nodes and faulted in.

use zonal_core::types::{Order, PAGE_SIZE, ZoneKind};

use super::brought::{MemoryFault, MemoryRange, fault_of};
use super::builder::{Backing, BuildError, Builder, NodeBinding, Notice, ZoneSize};
use super::plan::Plan;
use super::touch::Touch;
use crate::sys::map::{self, ALIGN_4M, BindMode, BindOutcome, MapOptions, Mapping, Prefaulted};
use crate::sys::topology::Topology;

impl Builder {
    /// Makes the pool of memory that the program has: a file mapping, a memfd that other processes
    /// map too, huge pages, a device's window, memory that another library pinned. Replaces
    /// [`size`](Self::size) and [`zones`](Self::zones): each range is a zone of its node. Ranges
    /// lie side by side, in ascending order of nodes; the first begins at a multiple of 4 MiB.
    ///
    /// [`backing`](Self::backing) and [`binding`](Self::binding) are the program's business then,
    /// and [`Pool::trim`](super::Pool::trim) gives nothing back. [`prefault`](Self::prefault)
    /// works. Where a page is in another mapping of the same memory: its address minus
    /// [`Pool::base`](super::Pool::base).
    ///
    /// # Safety
    /// From [`build`](Self::build) on until the release ([`on_release`](Self::on_release)) or,
    /// without one, until the pool and its last [`OwnedPages`](super::OwnedPages) are gone:
    /// 1. All bytes of the ranges are mapped, readable and writable by any thread, and initialised,
    ///    as those of any mapping are. A file or device behind them does not shrink or fail: the
    ///    process would get SIGBUS. [`build`](Self::build) finds a file that is too short then
    ///    ([`MemoryFault::NotBacked`]), and [`View::check_memory`](crate::view::View::check_memory)
    ///    one that was cut later, if nobody touches it before that. A memfd can be sealed
    ///    (`F_SEAL_SHRINK`).
    /// 2. Nobody but the pool and the owners of its pages uses the memory: no reference to it
    ///    exists at the call, one pool at a time is made of it, and nothing unmaps or replaces it.
    /// 3. Another process that maps the same memory accesses only blocks that were handed to it,
    ///    and only while their owner here does not.
    /// 4. Where a forked child shares the memory (`MAP_SHARED`), it does not use the pool: it has a
    ///    copy of the books, and would hand out the same pages.
    ///
    /// # Errors
    /// Of [`build`](Self::build): [`BuildError::Brought`] says which range is wrong.
    pub unsafe fn memory(mut self, ranges: &[MemoryRange]) -> Builder {
        let zone = |range: &MemoryRange| ZoneSize {
            node: range.node,
            kind: ZoneKind::Normal,
            bytes: range.bytes,
        };
        self.zones = ranges.iter().map(zone).collect();
        self.brought.get_or_insert_default().set_ranges(ranges);
        self
    }

    /// What is called, once, when nobody uses brought memory any more, so that the program may
    /// unmap it: the pool, its threads and its last owned block are gone, and so are this builder
    /// and its clones. Several hooks are called in their order.
    ///
    /// So a hook is also called where [`build`](Self::build) fails, and by a forked child that lets
    /// go of its copy. It is never called, nor dropped, where another pool still has a part of the
    /// memory that this builder was given ([`MemoryFault::InUse`]): that pool's own hook comes. It
    /// runs on the thread that dropped the last of them, and must not panic.
    pub fn on_release(mut self, hook: impl FnOnce() + Send + Sync + 'static) -> Builder {
        self.brought.get_or_insert_default().on_release(Box::new(hook));
        self
    }

    /// Refuses ranges that cannot be.
    pub(super) fn check_memory(&self) -> Result<(), BuildError> {
        let Some(brought) = self.brought.as_ref().filter(|brought| !brought.ranges.is_empty())
        else {
            return Ok(());
        };
        let mut next = None;
        let mut sum = 0usize;
        for (index, range) in brought.ranges.iter().enumerate() {
            let wrong = |why| Err(BuildError::Brought { range: index, why });
            let start = range.start.as_ptr() as usize;
            if index == 0 && !start.is_multiple_of(Order::MAX.bytes()) {
                return wrong(MemoryFault::Start);
            }
            let end = start.checked_add(range.bytes).filter(|end| *end <= isize::MAX as usize);
            let whole = range.bytes > 0 && range.bytes.is_multiple_of(PAGE_SIZE);
            let Some(end) = end.filter(|_| whole) else { return wrong(MemoryFault::Length) };
            if next.is_some_and(|next| next != start) {
                return wrong(MemoryFault::Gap);
            }
            if let Some(fault) = fault_of(start..end) {
                return wrong(fault);
            }
            (next, sum) = (Some(end), sum.saturating_add(range.bytes));
        }
        let zones = self.zones.iter().map(|zone| zone.bytes).fold(0, usize::saturating_add);
        if zones != sum {
            let why = MemoryFault::Zones;
            return Err(BuildError::Brought { range: brought.ranges.len() - 1, why });
        }
        Ok(())
    }

    pub(super) fn map_memory(
        &self,
        plan: &Plan,
        topology: &Topology,
        notices: &mut Vec<Notice>,
    ) -> Result<Mapping, BuildError> {
        let bytes = plan.bytes();
        let memory = match self.brought.as_ref().and_then(|brought| brought.mapping(bytes)) {
            Some(memory) => {
                memory.map_err(|range| BuildError::Brought { range, why: MemoryFault::InUse })?
            }
            None => self.map_own(bytes, plan, topology, notices)?,
        };
        if self.prefault && !self.deferred {
            let touch = Touch { memory: &memory, plan, parallel: self.parallel };
            if let Prefaulted::Touched(errno) = touch.all(self.progress.as_deref())? {
                notices.push(Notice(format!(
                    "MADV_POPULATE_WRITE failed: {errno}; every page was touched instead"
                )));
            }
        }
        Ok(memory)
    }

    fn map_own(
        &self,
        bytes: usize,
        plan: &Plan,
        topology: &Topology,
        notices: &mut Vec<Notice>,
    ) -> Result<Mapping, BuildError> {
        let backing = match self.backing {
            Backing::Base => map::Backing::KernelDefault,
            Backing::Transparent => map::Backing::Transparent,
            Backing::Huge2M => map::Backing::Huge2M,
        };
        let options = MapOptions { bytes, align: ALIGN_4M, backing };
        let memory = Mapping::new(&options)?;
        for step in memory.downgrades() {
            notices.push(Notice(format!(
                "{:?} pages are not available ({} failed: {}); the pool uses {:?}",
                step.from, step.operation, step.errno, step.to
            )));
        }
        self.bind(&memory, plan, topology, notices)?;
        Ok(memory)
    }

    fn bind(
        &self,
        memory: &Mapping,
        plan: &Plan,
        topology: &Topology,
        notices: &mut Vec<Notice>,
    ) -> Result<(), BuildError> {
        let mode = match self.binding {
            NodeBinding::None => return Ok(()),
            NodeBinding::Advisory => BindMode::Advisory,
            NodeBinding::Strict => BindMode::Strict,
        };
        let nodes = topology.nodes();
        // One node has nothing to choose from.
        if nodes.len() < 2 {
            return Ok(());
        }
        for (zone, range) in plan.zones_with_ranges() {
            let Some(target) = nodes[zone.node.0 as usize].bind_to else { continue };
            let range = range.start - range.start % memory.granule()..range.end;
            match memory.bind(range, target, mode)? {
                BindOutcome::Bound => {}
                BindOutcome::Weakened(errno) | BindOutcome::Unbound(errno)
                    if mode == BindMode::Strict =>
                {
                    return Err(BuildError::Bind { node: target.0, errno: errno.to_string() });
                }
                BindOutcome::Weakened(errno) | BindOutcome::Unbound(errno) => {
                    notices.push(Notice(format!(
                        "memory of node {} is not bound to it (mbind failed: {errno}); pages come \
                         from wherever they are first touched",
                        target.0
                    )));
                }
            }
        }
        Ok(())
    }
}
