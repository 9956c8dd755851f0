"""A row of a sweep, with its type."""

from __future__ import annotations

from typing import Optional, TypedDict, Union

__all__ = ["Cell", "SweepRow"]

Cell = Union[str, int, float, None]


class SweepRow(TypedDict):
    """A row of a sweep: a dictionary with these keys, in this order. All figures are simulated."""

    #: The program's version: rows of two never mix.
    version: str
    #: The machine's name.
    machine: str
    #: A hash of the machine's description.
    machine_id: str
    #: The policy with its changes, as text.
    policy: str
    #: The workload with its parameters.
    workload: str
    #: A hash of the recording that the workload plays; empty without one.
    file_id: str
    #: The workload's variant; empty without one.
    variant: str
    #: CPUs that take part; ``None``: all.
    busy: Optional[int]
    #: The seed.
    seed: int
    #: Virtual time before measuring, in microseconds.
    warm_us: int
    #: Measured virtual time, in microseconds.
    run_us: int
    #: The values of the axes, as text.
    point: str
    #: CPUs of the machine.
    cpus: int
    #: Its nodes.
    nodes: int
    #: Measured time, in microseconds of virtual time.
    elapsed_us: float
    #: Blocks allocated and freed, and requests refused.
    calls: float
    #: Calls of all CPUs in a second of virtual time.
    calls_per_s: float
    #: Cycles of one call, waiting included.
    cycles_per_call: float
    #: Part of the time in which the CPUs were not idle.
    busy_percent: float
    #: Times a zone lock was taken.
    lock_holds: float
    #: Times a zone lock was found taken.
    lock_contended: float
    #: Part of the cycles spent waiting for zone locks: lock contention.
    lock_wait_percent: float
    #: Part of the cycles spent waiting for zone locks in calls that free.
    free_lock_wait_percent: float
    #: The same, in milliseconds of all CPUs together.
    free_lock_wait_ms: float
    #: Times calls that free found a zone lock taken.
    free_lock_contended: float
    #: Times the lock of a CPU's own pageblocks was taken.
    owner_lock_holds: float
    #: Times it was found taken.
    owner_lock_contended: float
    #: Part of the cycles spent waiting for such locks.
    owner_lock_wait_percent: float
    #: Part of the cycles spent waiting for other locks and lines of the kernel, as those of LRU
    #: lists, of groups' charges and of address spaces.
    kernel_lock_wait_percent: float
    #: Part of the cycles spent moving pages between lists, depots and zones.
    pages_percent: float
    #: Part of the cycles spent on counters: updates and folds.
    counters_percent: float
    #: Part of the cycles spent waiting for lines that others wrote.
    reads_percent: float
    #: Part of the cycles spent on what pages hold: zeroing, writing, reading.
    contents_percent: float
    #: Lines of pages asked of last-level caches.
    cache_references: float
    #: Of these, lines that were not there or under it: from another cache or memory.
    cache_misses: float
    #: Cache-miss rate: misses per reference, as perf prints it.
    cache_miss_percent: float
    #: Lines of pages found in the core's own L2.
    lines_l2: float
    #: Lines of pages from the last-level cache.
    lines_llc: float
    #: Lines of pages from another core under the same last-level cache.
    lines_core: float
    #: Lines of pages from another last-level cache of the socket.
    lines_socket: float
    #: Lines of pages from another socket's caches.
    lines_remote: float
    #: Lines of pages from memory of the core's node.
    lines_memory: float
    #: Lines of pages from memory of another node.
    lines_memory_remote: float
    #: Changed lines of pages that went to memory to make room.
    lines_written_back: float
    #: Folds of a per-CPU counter into shared ones.
    folds: float
    #: Cache lines that came from another core.
    fetches: float
    #: Zone lock holds that filled a per-CPU list.
    refills: float
    #: Pages moved from zones to per-CPU lists.
    refilled_pages: float
    #: Zone lock holds that drained a per-CPU list.
    drains: float
    #: Pages moved from per-CPU lists to zones.
    drained_pages: float
    #: Drains that a stream of large frees forced, not a full list (LB E.10: free_high).
    forced_drains: float
    #: Pages allocated from zones past the lists.
    direct_pages: float
    #: Batches that per-CPU lists left in depots or took from them.
    depot_batches: float
    #: Pages held on per-CPU lists, in depots and in CPUs' pageblocks at the end.
    listed_pages: float
    #: The most pages seen there, 16 looks.
    listed_pages_max: float
    #: The most pages seen with programs and there together, 16 looks.
    memory_pages_max: float
    #: Pages that page faults gave to programs.
    faults: float
    #: The same, in a second of virtual time.
    faults_per_s: float
    #: The same, in gigabytes (10^9) of pages a second.
    faults_gb_s: float
    #: Part of the cycles spent in the kernel.
    system_percent: float
    #: The kernel's time for each of these pages, in nanoseconds.
    system_ns_per_fault: float
    #: Megabits (10^6) that programs sent in a second, dropped or not.
    sent_mbps: float
    #: Megabits that programs received in a second.
    received_mbps: float
    #: Pieces of work in a second: messages, rounds, jobs, tokens or pages, as the workload says.
    done_per_s: float
    #: The kernel's time for each piece of work, in nanoseconds.
    system_ns_per_done: float
    #: Requests that were refused.
    refused: float
    #: Hash of everything that the run did.
    result_hash: str
    #: The command line that makes the same run.
    command: str
