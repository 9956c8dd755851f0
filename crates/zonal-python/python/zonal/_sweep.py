"""Sweeps: a row for every combination of values, made where the user's machines are.

The process that calls :func:`sweep` has the file; workers get texts and give rows back. A row is a
function of its text alone, so it does not matter which worker makes it, how often, or when.
"""

from __future__ import annotations

import operator
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Sequence, Set
from typing import Tuple, Union, cast, overload

from . import _native
from ._crew import Ended, Tasks, VersionError, checked, crew_of
from ._errors import LabError
from ._html import framed
from ._paths import PathLike, local_text
from ._policy import Policy, PolicyLike, text_of
from ._results import pyarrow_module
from ._row import Cell, SweepRow
from .lab import _machine

__all__ = ["RowsError", "Sweep", "VersionError", "read_rows", "sweep"]

#: Seconds of work that one task should be, so that handing it over costs little beside it.
_TASK_S = 2.0
#: Seconds of the scheduler that one task takes: all workers together should ask for no more.
_SCHEDULER_S = 0.001
#: Most rows of a task.
_TASK_ROWS = 1000

Progress = Callable[[int, int, Optional[float]], object]


class RowList(Sequence[SweepRow]):
    """Rows in their order, each made a dictionary when it is asked for: a million dictionaries
    would be several GiB. A slice is another such list. ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)`` and DuckDB read all of it by Arrow's C stream."""

    def __init__(self, texts: "_native.RowTexts", at: Optional[range] = None) -> None:
        self._texts = texts
        self._at = range(len(texts)) if at is None else at

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, at: int) -> SweepRow: ...

    @overload
    def __getitem__(self, at: slice) -> "RowList": ...

    def __getitem__(self, at: Union[int, slice]) -> "Union[SweepRow, RowList]":
        if isinstance(at, slice):
            return RowList(self._texts, self._at[at])
        place = operator.index(at)
        if not -len(self) <= place < len(self):
            raise IndexError(f"row {place} of {len(self)}")
        return _row(self._texts.row(self._at[place]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (RowList, list)):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"

    def __reduce__(self) -> "Tuple[object, ...]":
        texts = self._texts.lines(self._at.start, self._at.step, len(self))
        return (_of_lines, (texts,))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._texts.stream(self._at.start, self._at.step, len(self))

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.Table``."""
        return pyarrow_module().table(self)

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``, through Arrow."""
        return _pandas(self.to_arrow())


def _of_lines(lines: List[str]) -> RowList:
    """What was pickled."""
    return RowList(_native.RowTexts(lines))


def _pandas(table: Any) -> Any:
    # Each column is given up when it was taken over: both at once would be twice the memory.
    return table.to_pandas(split_blocks=True, self_destruct=True)


class RowsError(LabError):
    """Rows that no worker could make. ``failed`` has the reason of each, by the row's values; the
    other rows are in the file."""

    def __init__(self, message: str, failed: Mapping[str, str], result: "Sweep") -> None:
        super().__init__(message)
        self.failed: Dict[str, str] = dict(failed)
        self.result: Sweep = result

    def __reduce__(self) -> "Tuple[object, ...]":
        return (RowsError, (str(self), self.failed, self.result))


@dataclass(frozen=True)
class Sweep:
    """Rows of a sweep. All figures are simulated."""

    #: The file of the rows.
    path: Path
    #: Rows that there are when all are made.
    total: int
    #: Rows that this call made.
    made: int
    #: Rows that the file had before.
    found: int
    #: A :class:`SweepRow` for each row, in the order of the axes' values; failed rows and rows that
    #: were not made because of ``stop`` are left out.
    rows: RowList = field(repr=False)
    _page: Optional[Callable[[], str]] = field(default=None, repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether every row is there."""
        return len(self.rows) == self.total

    def html(self) -> str:
        """The page with the plots, which needs nothing else to be shown: that of the program's
        ``zonal lab sweep --html``.

        Raises
        ------
        LabError
            Rows are missing, or the result is a copy of the one that the call gave.
        """
        if self._page is None or not self.complete:
            missing = self.total - len(self.rows)
            raise LabError(f"no page: {missing} rows are missing, or the result was copied")
        return self._page()

    def _repr_html_(self) -> Optional[str]:
        return framed(self.html()) if self._page is not None and self.complete else None

    def __reduce__(self) -> "Tuple[object, ...]":
        return (Sweep, (self.path, self.total, self.made, self.found, self.rows))

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``, through Arrow."""
        return _pandas(self.to_arrow())

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.Table``."""
        return self.rows.to_arrow()


def read_rows(*paths: PathLike) -> RowList:
    """The rows of files of sweeps, CSV or Parquet, each row once.

    Raises
    ------
    LabError
        A file that is missing or no sweep's, rows of another version, or rows that contradict.
    """
    return RowList(_native.rows_join([local_text(path) for path in paths]))


@lru_cache(maxsize=None)
def _columns() -> List[Tuple[str, str]]:
    return _native.rows_columns()


def _row(fields: Sequence[str]) -> SweepRow:
    cells = {name: _cell(kind, text) for (name, kind), text in zip(_columns(), fields)}
    return cast(SweepRow, cells)


def _cell(kind: str, text: str) -> Cell:
    if kind == "text":
        return text
    if kind == "count":
        return int(text) if text else None
    return float(text)


@dataclass(frozen=True)
class _Made:
    """What a worker gives back: rows or reasons by number, and the seconds that it took."""

    rows: List[Tuple[int, List[str]]]
    failed: List[Tuple[int, str]]
    seconds: float


def make_rows(texts: Sequence[Tuple[int, str]]) -> _Made:
    """Makes rows of texts. Runs in workers."""
    begun = time.perf_counter()
    rows: List[Tuple[int, List[str]]] = []
    failed: List[Tuple[int, str]] = []
    for at, text in texts:
        try:
            rows.append((at, _native.rows_make(text)))
        except Exception as error:  # noqa: BLE001: a reason is told, whatever it is
            failed.append((at, f"{type(error).__name__}: {error}"))
    return _Made(rows, failed, time.perf_counter() - begun)


class _Work(Tasks):
    """Rows by number."""

    def __init__(self, rows: Any, tries: int, progress: Optional[Progress]) -> None:
        missing = rows.missing()
        super().__init__(missing, tries)
        self.rows = rows
        self.total = len(rows)
        self.found = self.total - len(missing)
        self.made = 0
        self._progress = progress
        self._row_s: Optional[float] = None
        self._begun = time.monotonic()

    def batch(self, waiting: int, workers: int) -> int:
        """Some seconds of work, and less towards the end, so that all workers end together."""
        seconds = max(_TASK_S, workers * _SCHEDULER_S)
        want = 1 if not self._row_s else int(seconds / self._row_s)
        return min(_TASK_ROWS, want, 1 + waiting // (4 * workers))

    def argument(self, numbers: Tuple[int, ...]) -> List[Tuple[int, str]]:
        return [(at, self.rows.text(at)) for at in numbers]

    def took(self, numbers: Tuple[int, ...], ended: Ended) -> None:
        result: _Made = ended.result
        for at, fields in result.rows:
            self.rows.add(at, fields)
            self.made += 1
        if result.rows:
            each = result.seconds / (len(result.rows) + len(result.failed))
            self._row_s = each if self._row_s is None else 0.7 * self._row_s + 0.3 * each
        for at, why in result.failed:
            self.refuse(at, why, ended.where)
        self.tell()

    def tell(self) -> None:
        """Tells the progress."""
        if self._progress is None:
            return
        done = self.found + self.made
        left = self.total - done - len(self.reasons)
        passed = time.monotonic() - self._begun
        self._progress(done, self.total, passed * left / self.made if self.made else None)


def sweep(
    axes: Mapping[str, Sequence[object]],
    seeds: Union[int, Iterable[int]] = (1,),
    client: Any = None,
    *,
    data: PathLike,
    machine: Any = "broadwell-2017-88",
    policy: PolicyLike = "zonal",
    workload: str = "burst",
    busy: Optional[int] = None,
    warm_us: int = 2000,
    run_us: int = 2000,
    jobs: Optional[int] = None,
    tries: int = 3,
    reconnect_s: float = 60.0,
    progress: Optional[Progress] = None,
    stop: Optional[threading.Event] = None,
) -> Sweep:
    """Makes a row for every combination of the axes' values and seeds, and writes each to ``data``
    at once. Rows that the file has already are not made again.

    Parameters
    ----------
    axes
        Values by key: any value of a policy, ``policy``, ``machine``, ``cpus``, ``workload``,
        ``workload.PARAMETER``, ``variant``, ``busy``, ``warm_us``, ``run_us``.
    seeds
        One seed, or several: whole numbers from 0.
    client
        A ``dask.distributed.Client``. Without one, processes of this machine.
    data
        ``FILE.csv`` or ``FILE.parquet``. A Parquet file is written when all rows are made; until
        then they are in ``FILE.parquet.csv``. The program's ``zonal lab sweep`` reads and writes
        the same files.
    machine
        A preset's name, or a ``zonal.lab.Machine``.
    busy
        CPUs that take part; without it all.
    warm_us, run_us
        Microseconds of virtual time before measuring, and measured.
    jobs
        Local processes; without it one for each CPU that this process may use.
    tries
        How often a row is tried before it counts as failed, each time on a worker that has not
        failed it, while the client has one.
    reconnect_s
        Seconds to wait for a scheduler that was lost.
    progress
        Called with rows done, rows in all, and an estimate of the seconds that are left (``None``
        before the first row is made).
    stop
        Set from another thread, it ends the call; as after Ctrl-C the file is valid, and the same
        call goes on from there.

    Raises
    ------
    LabError
        An axis or value that cannot be, with its name; a file that is none of a sweep, or that
        another process is writing.
    VersionError
        A worker has another version of the program, or lacks the package.
    RowsError
        Rows that no worker could make; the others are in the file.
    """
    names = _axes(axes, seeds)
    name, toml = _machine(machine)
    checked(jobs, tries)
    path = local_text(data)
    rows = _native.Rows(name, toml, text_of(policy), workload, busy, warm_us, run_us, names, path)
    work = _Work(rows, tries, progress)
    try:
        work.tell()
        if work.found < work.total:
            crew = crew_of(client, jobs, reconnect_s)
            try:
                crew.check()
                work.drive(crew, make_rows, stop)
            finally:
                crew.close()
    finally:
        # In any case: it puts the rows in order and gives the file back.
        kept = RowList(rows.finish())
    result = Sweep(
        Path(path), len(rows), work.made, work.found, kept, lambda: rows.page(kept._texts)
    )
    if work.reasons:
        failed = {rows.label(at): why for at, why in work.reasons.items()}
        label, why = next(iter(failed.items()))
        raise RowsError(
            f"{len(failed)} of {len(rows)} rows could not be made, the first at {label}: {why}; "
            f"the others are in {path}",
            failed,
            result,
        )
    return result


def _axes(
    axes: Mapping[str, Sequence[object]], seeds: Union[int, Iterable[int]]
) -> List[Tuple[str, List[str]]]:
    """Axes as texts, each checked as far as that can be done here."""
    if not isinstance(axes, Mapping):
        raise LabError(f"axes: {type(axes).__name__}; expected a mapping from keys to values")
    names: List[Tuple[str, List[str]]] = []
    for key, values in axes.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise LabError(f"axis {key}: {values!r}; expected a list of values")
        texts = [_text(key, value) for value in values]
        if not texts:
            raise LabError(f"axis {key}: no values; expected one at least")
        known: Set[str] = set()
        for text in texts:
            if text in known:
                raise LabError(f"axis {key}: {text} comes twice")
            known.add(text)
        names.append((str(key), texts))
    if any(key == "seed" for key, _ in names):
        raise LabError("axis seed: expected the seeds as `seeds`")
    if not isinstance(seeds, (int, Iterable)):
        raise LabError(f"seeds: {seeds!r}; expected whole numbers from 0 to 2^64 - 1")
    many = [seeds] if isinstance(seeds, int) else list(seeds)
    for seed in many:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise LabError(f"seeds: {seed!r}; expected whole numbers from 0 to 2^64 - 1")
    if len(set(many)) != len(many) or not many:
        raise LabError("seeds: expected one at least, and none twice")
    return names + [("seed", [str(seed) for seed in many])]


def _text(key: object, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Policy):
        return text_of(value)
    if isinstance(value, (int, float, str)):
        return str(value)
    raise LabError(f"axis {key}: {value!r}; expected numbers or texts")
