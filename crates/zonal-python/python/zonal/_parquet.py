"""Recordings as Parquet files, for DuckDB, Polars and others."""

from __future__ import annotations

from typing import Optional, Tuple

from . import _native
from ._errors import ArgumentError
from ._paths import PathLike, path_text
from ._progress import Progress, adapted
from .recording import Recording, opened

__all__ = ["from_parquet", "to_parquet"]


def _level(level: int) -> int:
    if not 1 <= level <= 19:
        raise ArgumentError(f"level: {level}; expected 1 (fast) to 19 (small)")
    return level


def to_parquet(
    recording: "Recording | PathLike | None",
    path: PathLike,
    *,
    level: int = 3,
    progress: Optional[Progress] = None,
) -> Tuple[int, int]:
    """Writes a recording's events as a Parquet file, with the columns of
    :meth:`Recording.events` and the machine's files in its footer. Returns events and bytes.

    Raises:
        TraceError: Bad input, with file and line or offset, or an output that cannot be written.
    """
    with adapted(progress) as told:
        return _native.to_parquet(opened(recording), path_text(path), _level(level), told)


def from_parquet(
    path: PathLike, output: PathLike, *, level: int = 9, progress: Optional[Progress] = None
) -> Tuple[int, int]:
    """Writes the events of a Parquet file as a ``.zonal`` file, which every other call takes.
    Returns events and bytes.

    Raises:
        TraceError: A column that is missing or of another type, or a row that is no event.
    """
    with adapted(progress) as told:
        return _native.from_parquet(path_text(path), path_text(output), _level(level), told)
