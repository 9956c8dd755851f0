"""Recordings of kernels, and their events as Arrow's record batches."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import List, Optional, Sequence, Union

from . import _native
from ._errors import ArgumentError, TraceError
from ._paths import PathLike, path_text
from ._results import decoded

__all__ = ["Events", "Info", "Recording", "opened"]


@dataclass(frozen=True)
class Info:
    """What a trace says about itself, for people (``Display``) and for programs (``Serialize``).
    ``` use zonal_trace::{Info, samples}; let recording = samples::zlib_make_j4()?; let info =
    Info::of(&recording); assert!(info.can_be_replayed && info.damage.is_none()); # Ok::<(),
    zonal_trace::TraceError>(()) ```"""

    schema_version: int
    """Version of these fields."""
    name: str
    """The recording's name."""
    form: str
    """The form of the stream."""
    file: str
    """The stream's file."""
    bytes: Optional[int]
    """Its bytes."""
    kernel: Optional[str]
    """The kernel's release."""
    workload: Optional[str]
    """What ran."""
    cpus: Optional[int]
    """CPUs of the machine."""
    nodes: int
    """Nodes that are described."""
    zones: List[str]
    """Populated zones: node, kind, managed pages, free pages."""
    clock: Optional[str]
    """The clock of the times."""
    clock_step_ns: int
    """Resolution of times in nanoseconds."""
    events: Optional[int]
    """Events, where the recorder counted them."""
    events_dropped: Optional[int]
    """Events that the rings had no room for."""
    start_ns: Optional[int]
    """Time of the state at the start."""
    can_be_replayed: bool
    """Whether the machine is described well enough to be rebuilt, and there is more than moves."""
    moves_alone: bool
    """Whether only moves between lists and buddies were recorded, and no page that is used."""
    damage: Optional[str]
    """The part that a stream lacks that was cut short."""


class Events(_native.Events):
    """Events of a recording, to be read by anything that reads Arrow.

    ``pyarrow.table(events)``, ``pyarrow.RecordBatchReader.from_stream(events)``,
    ``polars.from_arrow(events)``, ``duckdb.sql("select ... from reader")``. Each reader begins at
    the first event, and gets a batch at a time: memory is that of one batch, however long the
    recording is. Iterating gives the batches; a fault is then an exception with file and line,
    where readers of the stream raise their own with the same text.

    Columns, in their order, with null where an event has no such field:

    ====================== =========== ========================================================
    column                 type        meaning
    ====================== =========== ========================================================
    time_ns                uint64      nanoseconds of the recording's clock
    cpu                    uint32      CPU
    pid                    int32       thread; 0 for the idle task
    event                  dictionary  the kernel's name: ``mm_page_alloc``, ``mm_page_free``, ...
    pfn                    uint64      first page frame; null for a failed allocation
    order                  uint8       the block has 2^order pages of 4096 bytes
    migratetype            uint8       asked for, or of the block
    gfp                    uint32      flags, in the numbering of Linux 6.12
    percpu_refill          bool        of ``mm_page_alloc_zone_locked``
    fallback_order         uint8       of ``mm_page_alloc_extfrag``: order of the block taken
    fallback_migratetype   uint8       ... and its migratetype
    change_ownership       bool        ... and whether the pageblock changed its own
    child                  int32       of ``sched_process_fork``
    lost                   uint64      of ``lost``: events that are missing
    text                   string      of ``tracing_mark_write``
    node, zone             uint32, uint8 of reclaim and watermarks
    min, low, high         uint64      watermarks, in pages
    pages                  uint64      pages that direct reclaim freed
    zone_start             uint64      first page frame of a compacted zone
    sync, status           bool, uint8 of compaction
    lock, flags            uint64, uint32 of ``contention_begin`` and ``contention_end``
    device, inode, index   uint32, uint64, uint64 of ``mm_filemap_add_to_page_cache`` and
                           ``mm_filemap_delete_from_page_cache``
    ====================== =========== ========================================================
    """


class Recording(_native.Recording):
    """A recording: the directory that ``zonal record`` wrote, a ``.zonal`` file, ``trace.dat``,
    ``perf.data`` or the text of ftrace. It cannot be changed, and may be used by several threads.

    Args:
        path: Where it is. None: the bundled recording of a build of zlib on Linux 6.18.
        machine: A directory with the description of its machine, where the stream has none.

    Raises:
        MissingFileError: There is no such file.
        TraceError: It is no recording, or damaged; has ``file`` and ``line`` or ``offset``.

    >>> import zonal
    >>> zonal.Recording().info.events > 0
    True
    """

    def __new__(
        cls, path: Optional[PathLike] = None, machine: Optional[PathLike] = None
    ) -> "Recording":
        names = [None if each is None else path_text(each) for each in (path, machine)]
        if names[0] is not None:
            _refuse_pipe(names[0])
        made = super().__new__(cls, *names)
        made._path = names[0]
        return made

    _path: Optional[str]

    @property
    def info(self) -> "Info":
        """What it says of itself."""
        info: Info = decoded(Info, json.loads(self.info_json()), "info")
        return info

    def events(
        self,
        columns: Optional[Sequence[str]] = None,
        *,
        batch_rows: int = 65536,
        from_ns: int = 0,
    ) -> Events:
        """Its events, as Arrow's record batches.

        Args:
            columns: Names of the columns, in the order wanted; all without. Fewer are faster.
            batch_rows: Events of a batch, 1 to 2^24.
            from_ns: Events before this time are passed over, in blocks where the form has them.

        Raises:
            ArgumentError: No such column, or a number that cannot be.
        """
        if not 1 <= batch_rows <= 1 << 24:
            raise ArgumentError(f"batch_rows: {batch_rows}; expected 1 to {1 << 24}")
        if from_ns < 0:
            raise ArgumentError(f"from_ns: {from_ns}; expected 0 or more nanoseconds")
        if isinstance(columns, str):
            raise TypeError(f"columns: {columns!r}; expected a list of names")
        names: Optional[List[str]] = None if columns is None else list(columns)
        return Events(self, names, batch_rows, from_ns)

    def __repr__(self) -> str:
        return f"zonal.Recording({self._path!r})"

    def _repr_html_(self) -> str:
        from ._html import table

        rows = [[name, value] for name, value in vars(self.info).items()]
        return table(f"recording {self.info.name}", ["field", "value"], rows)


def _refuse_pipe(path: str) -> None:
    """Refuses what would be waited for, with no way out."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        # The library says what is wrong.
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "neither a file nor a directory; a recording is read at any place, a pipe is not"
        raise TraceError(f"{path}: {what}", file=path)


def opened(recording: "Union[Recording, PathLike, None]") -> Recording:
    """A recording, opened if it is a path; the bundled one without."""
    if isinstance(recording, Recording):
        return recording
    if recording is None or isinstance(recording, (str, bytes, os.PathLike)):
        return Recording(recording)
    raise TypeError(f"recording: {type(recording).__name__}; expected a Recording or a path")
