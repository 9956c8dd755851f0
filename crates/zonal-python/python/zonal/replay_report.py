"""What a replay found: model and kernel side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, List, Optional, Sequence

from ._results import Result
from .fidelity import Fidelity
from .judged import Beyond, NotJudged, ReclaimJudged

__all__ = [
    "Beyond",
    "BuddyDifferences",
    "BuddyVerdict",
    "Counted",
    "Errors",
    "Explained",
    "JudgedSides",
    "KernelNuma",
    "Latencies",
    "Latency",
    "Limits",
    "ListDifferences",
    "ListVerdict",
    "Locks",
    "NodeEvents",
    "NotJudged",
    "Numa",
    "Pages",
    "PlaceReport",
    "Placement",
    "PlacementReport",
    "ReclaimJudged",
    "Recorded",
    "ReplayReport",
    "Side",
    "StartReport",
    "Totals",
    "TraceFacts",
]


@dataclass(frozen=True)
class BuddyDifferences:
    """Reasons for differences at the buddies, the first that holds."""

    not_free_here: int
    """The kernel's block was not free here: it was in use at the start, as far as is known."""
    start_order: int
    """The kernel's block was free since the start: its place on its list is not known."""
    start_state: int
    """The core's choice was free since the start, as far as is known."""
    same_time: int
    """Another CPU moved blocks of the zone within one step of the trace's clock."""
    fallback: int
    """The kernel took it from another type's blocks."""
    block_type: int
    """The kernel's block was on the list of another type here."""
    order_or_size: int
    """Both were known to be free: blocks that joined their lists in another order, or of another
    size because of a neighbour that is free without an event.
    """


@dataclass(frozen=True)
class ListDifferences:
    """Reasons for differences at the per-CPU lists."""

    after_untraced: int
    """Allocations without event had taken the pages on top of it."""
    other_cpu: int
    """It was on the same list of another CPU: the thread moved between the list and the event."""
    other_list: int
    """It was on another list of the CPU: the type of its pageblock is another than told."""
    below_others: int
    """Others were on top of it, and still are: an interrupt came between list and event."""
    not_on_a_list: int
    """The trace shows it free, or in use."""


@dataclass(frozen=True)
class KernelNuma:
    """Recorded allocations by the nodes of CPU and page."""

    local: int
    """On the same node."""
    other: int
    """On different nodes."""


@dataclass(frozen=True)
class NodeEvents:
    """The counters of ``numastat`` for one node."""

    hit: int
    """``numa_hit``."""
    miss: int
    """``numa_miss``."""
    foreign: int
    """``numa_foreign``."""
    local: int
    """``numa_local``."""
    other: int
    """``numa_other``."""


@dataclass(frozen=True)
class Latency:
    """Percentiles of the calls that were timed, the clock's own cost included."""
    p50_ns: int
    """Half of the calls took at most this long."""
    p99_ns: int
    """99 of 100."""
    p999_ns: int
    """999 of 1000."""
    timed: int
    """Calls timed."""


@dataclass(frozen=True)
class Placement:
    """How allocations of frames that the trace had shown before came out."""

    judged: int
    """Of them, those whose recorded frame was free or on a list in the model too."""
    same_pfn: int
    """Of those judged, how many got that very frame."""
    unseen: int
    """Allocations of frames not seen before."""
    held_in_model: int
    """Allocations of frames seen before, which in the model something else held."""
    judged_block: int
    """Allocations of a frame that was a block of this order before, where the model's block for
    that one was free.
    """
    same_block: int
    """Of those, how many got the block that stood for it in the model, wherever that lay."""


@dataclass(frozen=True)
class BuddyVerdict:
    """How the buddies did, given the kernel's frees and takes before."""

    judged: int
    """Blocks that the kernel took from a buddy."""
    same_pfn: int
    """Of them, those that the core would have taken."""
    known_judged: int
    """Blocks taken where both the kernel's choice and the core's had joined their lists in the
    trace, so that nothing of the start is in it.
    """
    known_same_pfn: int
    """Of them, those that the core would have taken."""
    differences: BuddyDifferences
    """Why the others differ."""
    parked: int
    """Blocks thought free that the kernel passed over for a larger one: in use, or parts of a
    larger free block. The core is not given them again before the kernel takes from them.
    """
    freed_twice: int
    """Frees of pages that were thought free."""


@dataclass(frozen=True)
class ListVerdict:
    """How the per-CPU lists did, given the kernel's refills."""

    judged: int
    """Allocations of a page that the trace had shown going to a list."""
    same_pfn: int
    """Of them, those where the list gives that page."""
    differences: ListDifferences
    """Why the others differ."""
    unseen: int
    """Allocations of pages that were on a list since before the trace."""
    past_lists: int
    """Allocations past the lists."""
    drained_judged: int
    """Drained pages that the trace had shown going to a list."""
    drained_same_pfn: int
    """Of them, those that the list would give at that moment."""
    untraced_allocations: int
    """Pages that were on a list and were next seen freed: an allocation without event took them."""
    unknown_block_type: int
    """Frees into pageblocks whose type the trace never tells, taken to be Movable."""
    freed_past_lists: int
    """Pages that came from the buddy while they were thought to be on a list."""
    no_room: int
    """Pages dropped because a list had no room."""


@dataclass(frozen=True)
class Explained:
    """One explained request."""

    number: int
    """Which allocation of the trace, from 1."""
    seconds: float
    """When it was recorded, in seconds of the trace's clock."""
    cpu: int
    """The CPU that asks."""
    order: int
    """Order of the block asked for."""
    gfp: str
    """Flags of the request."""
    steps: List[str]
    """The steps, in the order they happen."""
    outcome: str
    """How it ends."""
    certain: bool
    """Whether it is certain to end so."""


@dataclass(frozen=True)
class StartReport:
    """The start state made, and its distance from the recorded one."""

    cached_pages: int
    """Pages on lists, as recorded."""
    cached_named: int
    """Of them, pages that the trace names."""
    free_pages: int
    """Free pages in the buddies."""
    free_named: int
    """Of them, pages that the trace takes, or freed before the start."""
    held_pages: int
    """Pages in use from before."""
    held_named: int
    """Of them, pages that the trace frees."""
    managed_differs: int
    """Pages by which the managed pages differ from the recorded ones."""
    unplaced_blocks: int
    """Blocks in use at the start that could not be placed: outside all zones, or overlapping."""


@dataclass(frozen=True)
class Counted:
    """What a trace holds that was not replayed as it is, or needs a remark. The fields are those
    of ``Counts``.
    """

    before_start: int
    old_frees: int
    old_free_pages: int
    hidden_allocs: int
    hidden_alloc_pages: int
    allocs_made_up: int
    alloc_pages_made_up: int
    hidden_frees: int
    hidden_free_pages: int
    part_frees: int
    order_differs: int
    skipped_frees: int
    """Frees not done because the allocation had been refused."""
    zeroed: int
    free_batched: int
    extfrags: int
    vmstat_updates: int
    refreshes_made_up: int
    remarks: int
    unknown_events: int
    lost_events: int
    live_pages_at_end: int
    peak_pages: int


@dataclass(frozen=True)
class Limits:
    """What limits how near the model can come to the kernel; all 0 where memory is real."""

    list_pages_guessed: int
    """Pages on per-CPU lists at the start: nothing tells which they are, or on which list."""
    free_pages_guessed: int
    """Free pages of the start that the trace never names."""
    held_pages_guessed: int
    """Pages in use at the start that the trace never names."""
    untraced_allocations: int
    """Pages that left a list without an event, as the whole trace tells."""
    untraced_made_up: int
    """Pages of such allocations that the model was given."""
    unknown_block_type: int
    """Frees into pageblocks whose type the trace never tells."""
    decays_guessed: int
    """Runs of the statistics workers whose time is not told."""
    lost_events: int
    """Events that the recorder lost."""


@dataclass(frozen=True)
class PlaceReport:
    """Both sides in one place."""

    zone: str
    """Zone and node, in words."""
    cpu: Optional[int]
    """The CPU; absent where a pool tells sums only."""
    model: Optional[Side]
    """The model; absent for places of the kernel that a pool does not have."""
    kernel: Optional[Side]
    """The kernel; absent for a pool, whose zones the kernel did not have."""


@dataclass(frozen=True)
class Locks:
    """The model's holds of zone locks."""

    holds: int
    """Times a zone lock was taken."""
    contended: int
    """Of them, times it was found taken."""
    slow_paths: int
    """Requests that took the slow path."""
    pageblocks_claimed: int
    """Pageblocks claimed from another migratetype."""
    blocks_stolen: int
    """Blocks stolen from another migratetype."""


@dataclass(frozen=True)
class Numa:
    """Where pages came from, seen from the nodes."""

    model: List[NodeEvents]
    """By node of the model."""
    kernel: KernelNuma
    """Of the recorded allocations, by the nodes of CPU and page."""


@dataclass(frozen=True)
class Latencies:
    """How long calls took."""
    p50_ns: int
    """Half of the calls took at most this long."""
    p99_ns: int
    """99 of 100."""
    p999_ns: int
    """999 of 1000."""
    timed: int
    """Calls timed."""
    free: Latency
    """Of frees."""


@dataclass(frozen=True)
class PlacementReport:
    """Which pages came out."""

    judged: int
    """Allocations of a page that the trace had shown going to a per-CPU list."""
    same_pfn: int
    """Of them, those where that list gives the very page."""
    lists: ListVerdict
    """Where that comes from, and why the others differ."""
    buddy: BuddyVerdict
    """Blocks that came from the buddies."""
    free_running: Placement
    """Page frames that the replay, running by itself, gave out."""


@dataclass(frozen=True)
class Errors:
    """By how many percent of the kernel's number the model's is larger; ``null`` where that is 0.
    """

    refill_pages: Optional[float]
    """Of ``Side::refill_pages``."""
    refill_holds: Optional[float]
    """Of ``Side::refill_holds``."""
    drain_pages: Optional[float]
    """Of ``Side::drain_pages``."""
    drain_holds: Optional[float]
    """Of ``Side::drain_holds``."""
    drain_bursts: Optional[float]
    """Of ``Side::drain_bursts``."""


@dataclass(frozen=True)
class JudgedSides:
    """What both sides moved while the model can be judged."""

    model: Side
    """Moves of the model."""
    kernel: Side
    """Moves of the kernel."""


@dataclass(frozen=True)
class Side:
    """What one side, model or kernel, moved between buddies and per-CPU lists."""

    refill_pages: int
    """Base pages that refills took."""
    refill_holds: int
    """Holds of a zone lock by refills."""
    drain_pages: int
    """Base pages that drains gave back."""
    drain_holds: int
    """Holds of a zone lock by drains."""
    drain_bursts: Optional[int]
    """Drains, of one or more holds each; a pool does not count them."""
    direct_pages: int
    """Pages that bypassed the lists."""


@dataclass(frozen=True)
class Totals:
    """Contents of a trace after its start."""

    allocs: int
    """Allocations that the kernel served."""
    allocated_pages: int
    """Their pages."""
    frees: int
    """Frees."""
    freed_pages: int
    """Their pages."""
    failed: int
    """Allocations that the kernel refused."""


@dataclass(frozen=True)
class Recorded:
    """Recorded actions of the kernel that a model uses, beyond allocations, frees and
    ``zoneinfo``.
    """

    decay: bool
    """When each CPU's statistics worker ran."""
    blocktypes: bool
    """The migratetypes of pageblocks."""
    lists: bool
    """The pages that lists held at the start."""
    untraced: bool
    """Allocations that no event shows."""
    past_lists: bool
    """Frees that found the lists of their CPU in use."""


@dataclass(frozen=True)
class Pages:
    """Pages that a replay moved."""

    allocated: int
    """Pages of the allocations served."""
    freed: int
    """Pages of the frees done."""
    checked: int
    """Pages whose stamps were found as written; on real memory only."""


@dataclass(frozen=True)
class TraceFacts:
    """Description of a trace."""

    name: str
    """Its name."""
    kernel_release: Optional[str]
    """The recorded kernel's release, such as ``6.18.44-fc``."""
    simulated: bool
    """Whether the lab made it: then what is the kernel's is simulated."""
    cpus: int
    """CPUs that it names."""
    nodes: int
    """Nodes of the recorded machine."""
    recorded_seconds: float
    """Time from its first event to its last."""
    replayed_seconds: float
    """Of it, the time that is replayed."""


@dataclass(frozen=True)
class ReplayReport(Result):
    """A replay's result."""

    row_type: ClassVar[type] = PlaceReport

    schema_version: int
    """Counts changes of the JSON that break readers."""
    policy: str
    """Policy of the model."""
    policy_set: Dict[str, str]
    """Values set to others than the policy's own."""
    memory: str
    """Which memory it ran on."""
    trace: TraceFacts
    """The replayed trace."""
    events: int
    """Events read from the trace."""
    allocs: int
    """Allocations that the model served."""
    frees: int
    """Frees that it did."""
    failed: int
    """Allocations that it refused."""
    events_per_s: float
    """Allocations and frees, served or not, by second."""
    seconds: float
    """Wall-clock seconds of the events alone."""
    threads: int
    """Threads that ran."""
    pages: Pages
    """Pages moved."""
    use_recorded: Recorded
    """Recorded facts that the model used beyond allocations, frees and zoneinfo."""
    recorded: Totals
    """Contents of the trace."""
    model: Side
    """Moves of the model."""
    kernel: Side
    """Moves of the kernel."""
    error_percent: Errors
    """How far the model's moves are from the kernel's, while it can be judged. Stretches of
    `reclaim_judged` were chosen because it is near there."""
    whole_error_percent: Errors
    """The same over the whole run, with all that is not judged."""
    placement: PlacementReport
    """Which pages came out."""
    latency: Latencies
    """How long calls took."""
    numa: Numa
    """Where pages came from."""
    locks: Locks
    """The model's holds of zone locks."""
    places: List[PlaceReport]
    """By zone and CPU; by zone only on real memory."""
    limits: Limits
    """Guesses of the model, counted."""
    counted: Counted
    """What the trace holds that was not replayed as it is, or needs a remark."""
    start: Optional[StartReport]
    """How the start state was made; without memory only."""
    beyond: List[Beyond]
    """Figures that are farther from the kernel than 5 % in refills and 8 % in drains, in the time
    that is judged: PASS says nothing about them. Empty under another policy than the recorded
    kernel's, and on real memory: those need not be near."""
    not_judged: List[NotJudged]
    """Stretches that neither errors nor PASS say anything about; without memory only."""
    reclaim_judged: List[ReclaimJudged]
    """Stretches with reclaim, or other watermarks or memory, that they do include: chosen because
    the model is near the kernel in each, or in all together."""
    notes: List[str]
    """Remarks for people."""
    faults: List[str]
    """Properties that failed."""
    judged: Optional[JudgedSides] = None
    """Both sides while the model can be judged, where that is not all of the time."""
    explained: Optional[Explained] = None
    """The explained request."""
    fidelity: Optional[Fidelity] = None
    """Model and kernel over time, if asked for."""

    def rows(self) -> Sequence[PlaceReport]:
        """By zone and CPU: what model and kernel moved."""
        return self.places

    @property
    def passed(self) -> bool:
        """Whether no property failed."""
        return not self.faults

    def _caption(self) -> str:
        return f"{self.trace.name} under {self.policy}: pages moved, model and kernel"
