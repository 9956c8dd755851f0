"""What a sweep of very many rows costs: opening, handing out, taking, writing, finishing, and
tables of it. The rows are not made: each worker gives back one row with another seed.

    python million_rows.py FILE [ROWS [JOBS]]    # the sweep; then the same again, from its file
    python million_rows.py --read FILE [HOW]     # HOW: rows (default), arrow, pandas
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import zonal
from zonal import _native, _sweep

NAMES = [name for name, _ in _native.rows_columns()]
_pattern: List[str] = []


def same_row(text: str) -> List[str]:
    """The first row of this process, as that of another text."""
    if not _pattern:
        _pattern.extend(_native.rows_make(text))
    fields = list(_pattern)
    for name, value in json.loads(text).items():
        if name in NAMES:
            fields[NAMES.index(name)] = "" if value is None else str(value)
    return fields


def same_rows(texts: Sequence[Tuple[int, str]]) -> Any:
    """As :func:`zonal._sweep.make_rows`. Runs in workers."""
    begun = time.perf_counter()
    rows = [(at, same_row(text)) for at, text in texts]
    return _sweep._Made(rows, [], time.perf_counter() - begun)


class Phases:
    """CPU seconds of this process and its workers, and the most memory so far, of each phase."""

    def __init__(self) -> None:
        self._begun = self._now()

    def _now(self) -> Tuple[float, float, float]:
        workers = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time(), workers.ru_utime + workers.ru_stime, time.monotonic()

    def tell(self, what: str) -> None:
        """Prints one line."""
        now = self._now()
        own, workers, passed = (after - before for after, before in zip(now, self._begun))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"{what}: {own:.1f} s of CPU, workers {workers:.1f}, {passed:.0f} s; {most} MiB")
        sys.stdout.flush()
        self._begun = self._now()


def sweep(path: str, count: int, jobs: int) -> None:
    """The sweep, twice."""
    phases = Phases()
    phases.tell("start")
    setattr(_sweep, "make_rows", same_rows)
    seen: List[str] = []

    def progress(done: int, of: int, left: Any) -> None:
        if not seen:
            seen.append("open")
            phases.tell(f"open, {done} of {of} found")
        if done == of and len(seen) == 1:
            seen.append("drive")
            phases.tell(f"hand out, take, write {of}")

    for _ in range(2):
        seen.clear()
        swept = zonal.sweep(
            {}, range(count), data=path, jobs=jobs, machine="xeon-2007-8",
            workload="burst:hold=16", warm_us=1, run_us=2, progress=progress,
        )  # fmt: skip
        phases.tell("finish")
        print(f"{len(swept.rows)} rows, {os.path.getsize(path) >> 20} MiB")


def read(path: str, how: str) -> None:
    """Reads the file, and makes a table of it."""
    phases = Phases()
    if how != "rows":
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    phases.tell("start")
    rows = zonal.read_rows(path)
    phases.tell(f"read_rows, {len(rows)}")
    swept = zonal.Sweep(Path(path), len(rows), 0, len(rows), rows)
    if how == "arrow":
        phases.tell(f"to_arrow, {swept.to_arrow().nbytes >> 20} MiB")
    if how == "pandas":
        phases.tell(f"to_pandas, {swept.to_pandas().shape}")


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        read(sys.argv[2], [*sys.argv[3:4], "rows"][0])
    else:
        rows_asked, processes = (int(each) for each in [*sys.argv[2:4], "1000000", "1"][:2])
        sweep(sys.argv[1], rows_asked, processes)
