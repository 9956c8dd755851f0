"""What other settings would have done with a recorded load. Every figure is modelled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Dict, List, Optional, Sequence

from ._results import Result
from .judged import NotJudged, ReclaimJudged

__all__ = [
    "Advice",
    "AdvisedOn",
    "AskedFor",
    "HoldCost",
    "LockRow",
    "LockWaits",
    "ModelError",
    "NotJudged",
    "ReclaimCost",
    "Row",
    "Saving",
    "WaitCheck",
]


@dataclass(frozen=True)
class Saving:
    """What a change saves, in percent of one CPU or of the time; less than nothing is lost."""

    low: float
    """At least, by the model's error and the prices' uncertainty."""
    mid: float
    """By the model."""
    high: float
    """At most."""


@dataclass(frozen=True)
class LockRow:
    """Waits for one lock by one kind of caller, as ``perf lock contention`` has them."""

    lock: str
    """The lock: a zone's, or all others."""
    caller: str
    """What was done under it: ``refill``, ``drain``, ``past the lists``, or ``other``."""
    contended: int
    """Times it was found taken."""
    total_us: float
    """Waited in all, in µs."""
    max_us: float
    """The longest wait, in µs."""
    avg_us: float
    """The mean wait, in µs."""


@dataclass(frozen=True)
class Row:
    """What one trial came to."""

    change: str
    """What was changed."""
    command: Optional[str]
    """The line to type; none for what is not worth it, or is no setting."""
    lock_holds: int
    """Times a zone lock was taken."""
    refills: int
    """Refills, one hold of the zone lock each."""
    refill_pages: int
    """Pages that they took."""
    drains: int
    """Holds of the zone lock by drains."""
    drain_pages: int
    """Pages that they gave back."""
    list_pages_mean: int
    """Pages on all lists: the mean over the bins."""
    list_pages_max: int
    """The most at the end of a bin."""
    refused: int
    """Allocations that were refused."""
    slow_paths: int
    """Requests that went through the core."""
    busy_percent_max: float
    """The busiest lock's share of time in its busiest bin, in percent."""
    contended_percent: float
    """Holds that find the lock taken, in percent of all."""
    wait_us_per_s: Optional[float]
    """Waited for zone locks in each second, by all CPUs together; ``None`` in ``Advice.rows`` where
    waits are not modelled.
    """
    work_us_per_s: float
    """Worked under zone locks in each second, by all CPUs together."""
    reason: str
    """Why it stands where it stands."""
    setting: Optional[str]
    """The sysctl and its value, if it is one."""
    saving_percent_of_cpu: Saving
    """What it saves."""
    reclaim_saving_percent_of_cpu: Saving
    """Of it, what it saves of reclaim and of reading pages of files again."""
    saving_percent_of_time: Saving
    """What it saves of waiting for disks, in percent of the recording's time; nothing where the
    recording has no waits.
    """
    lock_holds_percent: float
    """Holds of zone locks against the recorded ones, in percent."""
    memory_mib_worst: float
    """Memory that lists hold more at worst."""
    not_counted: Optional[str]
    """A cost that no figure here counts, if lists hold more: that of caches."""
    same_as: List[str]
    """Other changes with the same numbers."""
    is_worse: bool
    """It refuses more, or costs notably more."""


@dataclass(frozen=True)
class HoldCost:
    """Costs of a hold."""

    machine: str
    """The machine they are for."""
    hold_ns: float
    """Each hold, in ns."""
    page_ns: float
    """Each block moved in it."""
    is_block_measured: bool
    """Whether the kernel of the recorded host was timed while it moved blocks."""


@dataclass(frozen=True)
class ModelError:
    """By how much the model is off on this recording, in percent of the kernel's number; ``None``
    where the kernel moved nothing.
    """

    refill_pages: Optional[float]
    """Refilled pages."""
    drain_pages: Optional[float]
    """Drained pages."""


@dataclass(frozen=True)
class LockWaits:
    """What was waited for locks."""

    zones_us: float
    """Waited for zone locks in all, in µs."""
    zones_contended: int
    """Waits for zone locks."""
    rows: List[LockRow]
    """By lock and caller, the longest first."""


@dataclass(frozen=True)
class WaitCheck:
    """Modelled waits for zone locks beside the measured ones, neither fitted to the other."""

    measured: Optional[int]
    """Measured waits; ``None``: not recorded."""
    measured_us_per_s: Optional[float]
    """The same, in µs of each second."""
    modelled: int
    """Waits of the model, with the recorder's events under the lock."""
    modelled_us_per_s: float
    """The same, in µs of each second."""
    traced_block_ns: Optional[float]
    """Time of a block with its event, in ns, by the events of the recording."""
    is_modelled: bool
    """Whether the two are so near, or so few, that nothing speaks against the model."""


@dataclass(frozen=True)
class AskedFor:
    """What reclaim was asked for."""

    background: int
    """Wakes of background reclaim."""
    direct: int
    """Runs of direct reclaim."""
    order: int
    """The order of blocks of more than a page that most of them were for; 0: all for pages."""
    of_order: int
    """How many of both were for this order."""
    read_ahead_kib: Dict[str, int]
    """Disks whose files are read ahead by at least such a block and by more than the kernel's own,
    with KiB; none where the recording does not say.
    """


@dataclass(frozen=True)
class ReclaimCost:
    """What reclaim took in a recording. Measured (simulated, where the lab made the recording), but
    for the price of reading.
    """

    background_percent: float
    """Background reclaim, in percent of a CPU."""
    compaction_percent: float
    """Background compaction, in percent of a CPU."""
    direct_percent: float
    """Direct reclaim, in percent of one thread's time: it also waits."""
    reclaimed_pages: int
    """Pages that were reclaimed."""
    read_again_pages: int
    """Pages of files that had been reclaimed and were read again."""
    read_again_for_rings_pages: Optional[int]
    """Of them, those that would have stayed but for the memory of the recorder's rings; ``None``:
    the recording does not say how large these were.
    """
    percent_of_cpu: Saving
    """All of it and reading these pages again, in percent of a CPU."""
    disk_wait_percent: Optional[float]
    """Time in which some task of the host waited for a disk, in percent of the recording's time;
    ``None``: not in the recording.
    """
    memory_wait_percent: Optional[float]
    """The same for memory: for reclaim, or for a page of a file that had been reclaimed, which is a
    wait for a disk, too.
    """
    read_gib: Optional[float]
    """What the host read from its disks, in GiB."""
    asked_for: Optional[AskedFor]
    """Whether it was for pages or for blocks; ``None``: the recording has no request for it."""


@dataclass(frozen=True)
class AdvisedOn:
    """What one recording says by itself."""

    trace: str
    """Its name."""
    verdict: str
    """What to do, by it alone."""
    reason: str
    """Why, in words."""
    setting: Optional[str]
    """The setting that is worth trying by it alone."""
    simulated: bool
    """Whether no host made it: then what is called measured is simulated."""
    cost_percent_of_cpu: float
    """What the allocator's waits and refills take of one CPU."""
    model_error_percent: ModelError
    """By how much the model is off."""
    wait_check: Optional[WaitCheck]
    """Waits of the model beside the measured ones."""
    lock_waits: Optional[LockWaits]
    """Waits in it; ``None``: not recorded."""
    reclaim: Optional[ReclaimCost]
    """What reclaim cost in it; ``None``: it does not say."""
    not_judged: List[NotJudged]
    """Stretches that no prediction covers."""
    reclaim_judged: List[ReclaimJudged]
    """Stretches with reclaim that the model follows."""
    cost: Optional[HoldCost]
    """Base of its contention."""
    seconds: float
    """Seconds of the part that is replayed."""
    allocs: int
    """Its allocations."""
    of_others_percent: Optional[float]
    """Of them, the share of others than the recorded command, in percent."""
    of_others_pages_percent: Optional[float]
    """The same share of their pages."""


@dataclass(frozen=True)
class Advice(Result):
    """The result."""

    row_type: ClassVar[type] = Row

    schema_version: int
    """Counts changes of the JSON that break readers."""
    verdict: str
    """What to do."""
    reason: str
    """Why, in words."""
    setting: Optional[str]
    """The setting that is worth trying, such as ``vm.numa_stat=0``; ``None`` under another verdict.
    """
    simulated: bool
    """Whether the lab made a recording: then what is called measured or the kernel's is simulated.
    """
    cost_percent_of_cpu: float
    """What the allocator's waits and refills take of one CPU: counted by the kernel's own moves,
    priced by ``cost``.
    """
    wait_us_per_s: float
    """Of it, waited for zone locks in each second, by all CPUs together: measured, where the
    recording has waits.
    """
    modelled_wait_us_per_s: float
    """The same by the model alone."""
    wait_check: Optional[WaitCheck]
    """Waits of the model beside the measured ones; of several recordings ``None``: see
    ``recordings``.
    """
    lock_waits: Optional[LockWaits]
    """Waits in the recording, as ``perf lock contention`` has them; ``None``: not recorded, or
    several recordings.
    """
    reclaim: Optional[ReclaimCost]
    """What reclaim cost; ``None``: the recording does not say, or several recordings."""
    model_error_percent: ModelError
    """By how much the model is off on this recording."""
    not_judged: List[NotJudged]
    """Stretches that no prediction covers; of several recordings none: see ``recordings``."""
    reclaim_judged: List[ReclaimJudged]
    """Stretches with reclaim that the model follows, so that predictions cover them; of several
    recordings none: see ``recordings``.
    """
    of_others_percent: Optional[float]
    """Share of the allocations that others than the recorded command made, in percent; ``None``
    where the recording is of no command, or does not tell its process.
    """
    of_others_pages_percent: Optional[float]
    """The same share of their pages."""
    recordings: List[AdvisedOn]
    """What each recording says by itself."""
    trace: str
    """The recording; of several, their names."""
    kernel_release: Optional[str]
    """The recorded kernel's release."""
    policy: str
    """Rules of the recorded kernel."""
    cpus: int
    """CPUs of the recorded machine."""
    seconds: float
    """Seconds of the part that is replayed; of several recordings the median."""
    allocs: int
    """Allocations of the trace; of several recordings the median."""
    modelled: bool
    """Every number below is of the model; false where moves alone were recorded, so that nothing
    was tried."""
    cost: Optional[HoldCost]
    """Base of the contention; ``None``: several recordings with prices of their own."""
    recorded: Row
    """The trace as it was recorded."""
    changes: List[Row]
    """Best first."""
    notes: List[str]
    """Remarks for people."""

    def rows(self) -> Sequence[Row]:
        """The load as it was recorded, then every change that was tried, best first. Without waits
        where those are not modelled.
        """
        every = [self.recorded, *self.changes]
        checks = [one.wait_check for one in self.recordings if one.wait_check is not None]
        if all(check.is_modelled for check in checks):
            return every
        return [replace(row, wait_us_per_s=None) for row in every]

    def _caption(self) -> str:
        of = "modelled, of a simulated recording" if self.simulated else "modelled"
        return f"{self.trace}: {self.verdict}: {self.reason} ({of})"
